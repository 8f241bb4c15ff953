"""The system's roots, and a file with the authority's certificate and all of them.

The merged file has the system's roots, and those of the variables' files before,
because a variable such as SSL_CERT_FILE makes its file the only roots of a client.
"""

import base64
import binascii
import os
import re
import ssl
from collections.abc import Iterable, Mapping

from cutthrough.ca.names import AuthorityError
from cutthrough.config.files import FileError, read_file

# As crypto/x509 of Go looks for them (root_linux.go)
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",                   # Debian, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",                     # Fedora, RHEL 6
    "/etc/ssl/ca-bundle.pem",                               # openSUSE
    "/etc/pki/tls/cacert.pem",                              # OpenELEC
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",    # RHEL 7 and later
    "/etc/ssl/cert.pem",                                    # Alpine
)
# The programs that read a variable, and the roots they trust without it
VARIABLES = {
    "SSL_CERT_FILE": "OpenSSL and Go trust the system's bundle",
    "REQUESTS_CA_BUNDLE": "requests trusts the roots of certifi",
    "CURL_CA_BUNDLE": "curl trusts the system's bundle",
    "NODE_EXTRA_CA_CERTS": "Node.js trusts roots of its own",
    "PIP_CERT": "pip trusts the system's bundle (since 24.2)",
    "GIT_SSL_CAINFO": "git trusts the system's bundle",
}
BLOCK = re.compile(
    rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
# A line of a merged file for each source
FROM = "# cutthrough ca export, merged from: "
FROM_LINE = re.compile(rb"^%s(.+)$" % re.escape(FROM.encode()), re.M)


def parse_certificates(data: bytes) -> list[bytes]:
    """Returns every certificate of a text in PEM as DER; invalid base64 is left out."""
    certificates = []
    for block in BLOCK.findall(data):
        try:
            certificates.append(
                base64.b64decode(b"".join(block.split()), validate=True))
        except binascii.Error:
            continue
    return certificates


def read_roots(path: str) -> list[bytes]:
    """Returns the certificates of a file, or of the files of a directory, as DER.

    Raises OSError and FileError.
    """
    if not os.path.isdir(path):
        return parse_certificates(read_file(path))
    certificates: list[bytes] = []
    for name in sorted(os.listdir(path)):
        inside = os.path.join(path, name)
        if os.path.isfile(inside):
            certificates += parse_certificates(read_file(inside))
    return certificates


def system_bundle() -> str:
    """Returns the first of BUNDLES that exists; "": none."""
    return next((path for path in BUNDLES if os.path.isfile(path)), "")


def find_sources(output: str, environ: Mapping[str, str]) -> list[str]:
    """Returns the paths to merge: of the variables, of the merged file `output` when it
    was made last, and the system's bundle.

    The variables may name `output` itself, which is left out: otherwise a root that the
    system has given up would stay in it for ever. Raises AuthorityError if `output` is
    another program's file or there are no roots.
    """
    paths = [environ.get(name, "") for name in VARIABLES]
    paths += [*_recorded(output), system_bundle()]
    sources = [os.path.abspath(path) for path in paths
               if path and not _is_same(path, output)]
    if not sources:
        raise AuthorityError("the system's roots were not found: install "
                             "ca-certificates, or name a file by SSL_CERT_FILE")
    return list(dict.fromkeys(sources))


def _recorded(output: str) -> list[str]:
    """The sources of a merged file that exists. Raises AuthorityError for another file,
    and OSError."""
    try:
        data = read_file(output)
    except FileNotFoundError:
        return []
    except FileError as error:
        raise AuthorityError(f"{output} {error}") from None
    sources = [os.fsdecode(path) for path in FROM_LINE.findall(data)]
    if not sources:
        raise AuthorityError(f"{output} was not made by this command, and is not "
                             "replaced: choose another file")
    return sources


def _is_same(path: str, other: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


def merge(own: bytes, sources: Iterable[str]) -> tuple[bytes, list[str]]:
    """Returns the merged file in PEM, and a note for each unreadable source.

    `own` (DER) is first, and each certificate is there once. Raises AuthorityError if
    no source can be read.
    """
    notes, lines = [], []
    every = [own]
    for path in sources:
        try:
            every += read_roots(path)
            lines.append(f"{FROM}{path}\n")
        except (OSError, FileError) as error:
            notes.append(f"{path} is left out: "
                         f"{getattr(error, 'strerror', None) or error}")
    if not lines:
        raise AuthorityError("; ".join(notes))
    blocks = [ssl.DER_cert_to_PEM_cert(der) for der in dict.fromkeys(every)]
    return os.fsencode("".join(lines)) + "".join(blocks).encode(), notes
