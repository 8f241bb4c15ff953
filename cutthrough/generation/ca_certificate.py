"""The certificate of `ca_certificate`, for the admin listener, metrics and doctor.

It is public; the program does not have its key. The standard library reads it, because
cryptography would add to the memory of a program that serves.
"""

import hashlib
import re
import ssl

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import FileError, read_file

BEGIN, END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_CERTIFICATE = re.compile(BEGIN + b".*?" + END, re.S)


class CaCertificate(msgspec.Struct, frozen=True):
    """An authority's certificate; `not_after` in seconds of the epoch."""

    path: str
    der: bytes
    subject: str
    not_after: int

    @property
    def pem(self) -> str:
        return ssl.DER_cert_to_PEM_cert(self.der)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.der).digest().hex(":").upper()


def read_ca_certificate(config: Config) -> CaCertificate | None:
    """Reads the first certificate of the file; None: the option is not set.

    Raises ConfigError, also for a file with a private key: others download what the
    option names.
    """
    path = config.ca_certificate
    if not path:
        return None
    try:
        data = read_file(path)
    except (OSError, FileError) as error:
        raise ConfigError("", "ca_certificate", f"{path}: "
                          f"{getattr(error, 'strerror', None) or error}") from None
    if b"PRIVATE KEY-----" in data:
        raise ConfigError("", "ca_certificate", f"{path} has a private key: name a "
                          "file with the certificate alone")
    _, begin, rest = data.partition(BEGIN)
    body, end, _ = rest.partition(END)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        der = ssl.PEM_cert_to_DER_cert((begin + body + end).decode())
        context.load_verify_locations(cadata=der)
    except (ValueError, ssl.SSLError):
        raise ConfigError("", "ca_certificate",
                          f"{path} has no certificate in PEM") from None
    authorities = context.get_ca_certs()
    if not authorities:
        raise ConfigError("", "ca_certificate",
                          f"{path} is not the certificate of an authority")
    return CaCertificate(path, der, _show_subject(authorities[0].get("subject", ())),
                                _read_time(str(authorities[0].get("notAfter"))))


def _show_subject(subject: object) -> str:
    """`subject` as the ssl module has it: a tuple of RDNs, each of pairs."""
    assert isinstance(subject, tuple)
    return ", ".join(f"{name}={value}" for rdn in subject for name, value in rdn)


def _read_time(text: str) -> int:
    return int(ssl.cert_time_to_seconds(text))


def only_certificates(data: bytes) -> str:
    """The certificates in PEM of a file, without keys and text between them; "": it has
    none."""
    return "".join(block.decode("ascii", "replace") + "\n"
                   for block in _CERTIFICATE.findall(data))
