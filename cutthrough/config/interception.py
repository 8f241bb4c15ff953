"""The options of interception: whose certificates clients and origins show."""

from collections.abc import Iterator
from typing import Annotated, Literal

from cutthrough.config.administration import AdminOptions
from cutthrough.config.client_certificates import ClientCertificate
from cutthrough.config.option import ConfigError, Option, Table
from cutthrough.config.values import FILE, FLAG, choice


class InterceptionOptions(AdminOptions, frozen=True, kw_only=True):
    """A part of Config."""

    intercept_ca: Annotated[str, Option(
        FILE, "directory with ca.pem and ca.key, for rules with tls = \"intercept\": "
        "docs/interception.md", "none", section="Interception", swapped=True)] = ""
    origin_ca: Annotated[str, Option(
        FILE, "authorities in PEM that verify the origins of intercepted connections",
        "the system's", swapped=True)] = ""
    origin_crl: Annotated[str, Option(
        FILE, "file in PEM with the lists of revoked certificates of origin_ca's "
        "authorities, one of each", "none", swapped=True)] = ""
    intercept_http2: Annotated[Literal["auto", "on", "off"], Option(
        choice("auto", "on", "off"), "offer HTTP/2 to intercepted clients; auto: if "
        "libnghttp2 is there", "our choice: clients that have it prefer it",
        swapped=True)] = "auto"
    origin_http2: Annotated[Literal["auto", "off"], Option(
        choice("auto", "off"), "offer HTTP/2 to origins of intercepted connections; "
        "auto: if libnghttp2 is there", "our choice: some origins have nothing else",
        swapped=True)] = "auto"

    origin_hello: Annotated[Literal["own", "client"], Option(
        choice("own", "client"), "the ClientHello to origins of intercepted "
        "connections; client: ciphers, groups and signatures are those of the client's",
        "our choice: the strong ones alone", swapped=True)] = "own"
    retry_without_sni: Annotated[bool, Option(
        FLAG, "if an origin of an intercepted connection refuses its server name "
        "(unrecognized_name), connect to it once more without",
        "off: the name is what the client has asked for", swapped=True)] = False
    client_certificates: Annotated[tuple[ClientCertificate, ...], Table(
        ClientCertificate, "Certificates of ours for origins of intercepted "
        "connections, if a rule of the policy (`client_certificate`) says so: "
        "docs/interception.md.", named=True, swapped=True)] = ()

    def contradictions_of_interception(self) -> Iterator[ConfigError]:
        if self.origin_crl and not self.origin_ca:
            yield ConfigError("", "origin_crl", "has no effect without origin_ca")
        if self.retry_without_sni and not self.intercept_ca:
            yield ConfigError("", "retry_without_sni", "has no effect without "
                              "intercept_ca")
        if self.client_certificates and not self.intercept_ca:
            yield ConfigError("", "client_certificates", "have no effect without "
                              "intercept_ca")
