"""The authority of intercepted connections, for a model: its certificate in words, and
the stores of this machine that trust it. Nothing is changed, and no key is read."""

import os
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from mcp.server.mcpserver.exceptions import ToolError

from cutthrough.ca.store import CERTIFICATE, default_directory
from cutthrough.ca.trust import Seeker
from cutthrough.config.settings import variable_name

# A file with this name is to be made of the resource, if none is known
UNKNOWN = "cutthrough-ca.pem"


def describe(pem: str) -> dict[str, Any]:
    """Raises ToolError."""
    certificate = read(pem)
    return {"subject": certificate.subject.rfc4514_string(),
            "sha256": certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
            "until": f"{certificate.not_valid_after_utc:%Y-%m-%d}"}


def find_stores(pem: str) -> list[dict[str, str]]:
    """Raises ToolError."""
    certificate = read(pem)
    path = find_file(certificate)
    seeker = Seeker(
        certificate.public_bytes(serialization.Encoding.DER),
        f"cutthrough-{certificate.fingerprint(hashes.SHA256())[:4].hex()}",
        path or UNKNOWN, 'eval "$(cutthrough ca export --format bundle)"', os.environ)
    return [{name: value for name, value in store._asdict().items() if value}
            for store in seeker.find()]


def find_file(certificate: x509.Certificate) -> str:
    """The file of this host that has it, for the remedies; "": none is known."""
    for folder in (os.environ.get(variable_name("intercept_ca")), default_directory()):
        path = os.path.abspath(os.path.join(folder or "", CERTIFICATE))
        try:
            with open(path, "rb") as file:
                there = x509.load_pem_x509_certificates(file.read(1 << 20))
        except (OSError, ValueError):
            continue
        if certificate in there:
            return path
    return ""


def read(pem: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise ToolError(f"the proxy's certificate cannot be read: {error}") from None
