"""A row of `[client_certificates.NAME]`: what origins of intercepted connections see.

A rule names one: docs/interception.md.
"""

from typing import Annotated

import msgspec

from cutthrough.config.option import Option
from cutthrough.config.values import FILE


class ClientCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """One certificate of ours; valid once it exists."""

    name: str
    certificate: Annotated[str, Option(
        FILE, "file in PEM with our certificate and its chain, for an origin that "
        "wants one", "none: required", swapped=True)]
    certificate_key: Annotated[str, Option(
        FILE, "file with its private key, readable by its owner alone",
        "the key is in the certificate's file", swapped=True)] = ""

    @property
    def tls_files(self) -> tuple[str, ...]:
        return tuple(path for path in (self.certificate, self.certificate_key) if path)
