"""`cutthrough ca`: makes an authority, shows it, exports its certificate, checks which
stores trust it, and issues certificates for servers.

Only `init` writes the authority's key, and only `issue` reads it. Nothing prints it.
"""

import argparse
import datetime
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from cutthrough.ca.leaf import MOST_COMMON_NAME, Key, make_leaf, make_root, utc_now
from cutthrough.ca.names import (
    AuthorityError,
    build_constraints,
    constraints_of,
    copy_names,
    read_name,
    show_constraints,
    show_names,
)
from cutthrough.ca.roots import VARIABLES, find_sources, merge
from cutthrough.ca.store import (
    CERTIFICATE,
    check_key,
    default_directory,
    encode_key,
    load_certificate,
    read_authority,
    read_certificate,
    store,
    write_file,
)
from cutthrough.ca.token import PublicKey, TokenKey, complete_uri
from cutthrough.ca.trust import JAVA_PASSWORD, Seeker

# Every device has to be given the next certificate in this time
SOON_DAYS = 60
BUNDLE = "bundle.pem"


def run(args: argparse.Namespace) -> int:
    """Runs `args.action`; returns the exit status."""
    directory = args.directory or default_directory()
    action = {"init": init, "show": show, "export": export, "trust": trust,
              "issue": issue}[args.action]
    try:
        return action(directory, args)
    except AuthorityError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:                  # of standard output
        raise
    except OSError as error:
        print(f"cutthrough: {error.filename or directory}: {error.strerror or error}",
              file=sys.stderr)
        return 1


def init(directory: str, args: argparse.Namespace) -> int:
    describe(directory, make(directory, args.name, args.days, args.permit,
                             args.force, args.key))
    return 0


def make(directory: str, name: str | None = None, days: int = 730,
         permit: Sequence[str] = (), force: bool = False,
         uri: str | None = None) -> x509.Certificate:
    """Makes an authority. `uri`: of its key, which is in a token; None: one is made.
    Raises AuthorityError and OSError."""
    constraints = build_constraints(permit)
    key: Key
    public: PublicKey
    if uri is None:
        key = private = ec.generate_private_key(ec.SECP256R1())
        public, content = private.public_key(), encode_key(private)
    else:
        uri = complete_uri(uri)
        key = token = TokenKey(uri)
        public, content = token.public, f"{uri}\n".encode("ascii")
    if name is None:
        # With a part of the key's digest, because two authorities of one host must have
        # different names
        digest = x509.SubjectKeyIdentifier.from_public_key(public).digest
        name = f"cutthrough CA {digest[:4].hex()} ({socket.gethostname()})"
        name = name[:MOST_COMMON_NAME]
    certificate = make_root(key, name, days, constraints)
    store(directory, certificate, content, force)
    return certificate


def show(directory: str, args: argparse.Namespace) -> int:
    describe(directory, read_certificate(directory))
    return 0


def describe(directory: str, certificate: x509.Certificate) -> None:
    try:
        key = check_key(directory)
    except (AuthorityError, OSError) as error:
        key = f"cannot be used: {getattr(error, 'strerror', None) or error}"
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    for name, value in (
            ("subject", certificate.subject.rfc4514_string()),
            ("valid", f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}, {show_rest(end)}"),
            ("SHA-256", show_fingerprint(certificate)),
            ("constraints", show_constraints(constraints_of(certificate))),
            ("certificate", os.path.join(directory, CERTIFICATE)),
            ("key", key)):
        print(f"{name:<12} {value}")


def show_rest(end: datetime.datetime) -> str:
    days = (end - utc_now()).days
    if days < 0:
        return "expired"
    return f"{days} days left" + (
        ": make the next one in another directory" if days < SOON_DAYS else "")


def show_fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def export(directory: str, args: argparse.Namespace) -> int:
    certificate = read_certificate(directory)
    if args.format == "bundle":
        return export_bundle(directory, certificate, args.output)
    data = encode(certificate, args.format)
    if args.output:
        write_file(args.output, data, 0o644, args.force)
        return 0
    if args.format != "pem" and sys.stdout.isatty():
        raise AuthorityError(f"{args.format} is not text: give --output FILE")
    sys.stdout.buffer.write(data)
    return 0


def encode(certificate: x509.Certificate, form: str) -> bytes:
    if form == "p12":
        # With the attribute of trusted certificates in Java. Nothing in it is secret,
        # but Java and Windows read no such file without a password
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(certificate, b"cutthrough")],
            serialization.BestAvailableEncryption(JAVA_PASSWORD.encode()))
    return certificate.public_bytes(
        serialization.Encoding.PEM if form == "pem" else serialization.Encoding.DER)


def export_bundle(directory: str, certificate: x509.Certificate, output: str | None,
                  ) -> int:
    """Writes the merged file, and prints the lines for a shell."""
    path = os.path.abspath(output or os.path.join(directory, BUNDLE))
    data, notes = merge(encode(certificate, "der"), find_sources(path, os.environ))
    write_file(path, data, 0o644, True)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print_exports(dict.fromkeys(VARIABLES, path))
    return 0


def print_exports(variables: Mapping[str, str]) -> None:
    """Prints lines for a shell's `eval`, in the octets that paths have: the shell would
    take what stands for an octet that is no text as it is printed."""
    sys.stdout.flush()
    for name, value in variables.items():
        sys.stdout.buffer.write(
            os.fsencode(f"export {name}={shlex.quote(value)}\n"))
    sys.stdout.buffer.flush()


def trust(directory: str, args: argparse.Namespace) -> int:
    """Prints who trusts the certificate; 1: a store does not, or cannot be read. To
    install is to run the commands of the stores without it, and to look again."""
    certificate = read_certificate(directory)
    where = "" if args.directory is None else f" --dir {shlex.quote(directory)}"
    seeker = Seeker(
        encode(certificate, "der"),
        f"cutthrough-{certificate.fingerprint(hashes.SHA256())[:4].hex()}",
        os.path.abspath(os.path.join(directory, CERTIFICATE)),
        f'eval "$(cutthrough ca export --format bundle{where})"', os.environ)
    stores = list(seeker.find())
    if args.install:
        # Of a file that a variable names, the owner is another program
        for remedy, undo in {entry.remedy: entry.undo for entry in stores
                             if entry.verdict == "no" and entry.undo}.items():
            print(f"{remedy}\n     undone by: {undo}", flush=True)
            subprocess.run(["/bin/sh", "-c", remedy], check=False)
        stores = list(seeker.find())
    for entry, after in zip_longest(stores, stores[1:]):
        said = f"  ({entry.said})" if entry.said else ""
        print(f"{entry.verdict:<4} {entry.kind:<9} {entry.name}{said}")
        if entry.remedy and (after is None or after.remedy != entry.remedy):
            print(f"     -> {entry.remedy}")
    if certificate.not_valid_after_utc <= utc_now():
        print("the certificate has expired: nobody trusts it any more")
        return 1
    return 1 if any(entry.verdict in ("no", "?") for entry in stores
                    if entry.undo or not args.install) else 0


def issue(directory: str, args: argparse.Namespace) -> int:
    names = [read_name(text) for text in args.names]
    if args.like:
        names += copy_names(load_certificate(args.like))
    if not names:
        raise AuthorityError("give a name, or --like FILE")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = make_leaf(read_authority(directory), names, key.public_key(),
                            args.days)
    first = str(names[0].value).replace("*", "_wildcard").replace(":", "_")
    base = args.output or first
    paths = [f"{base}.key", f"{base}.pem"]
    for path in paths:
        if not args.force and os.path.lexists(path):
            raise AuthorityError(f"{path} exists; --force replaces it")
    write_file(paths[0], encode_key(key), 0o600, args.force)
    write_file(paths[1], encode(certificate, "pem"), 0o644, args.force)
    print(f"{paths[1]} and {paths[0]}: {show_names(names)}; until "
          f"{certificate.not_valid_after_utc:%Y-%m-%d}")
    return 0
