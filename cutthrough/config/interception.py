"""The options of interception: whose certificates clients and origins show."""

from typing import Annotated, Literal

import msgspec

from cutthrough.config.option import Option
from cutthrough.config.values import FILE, choice


class InterceptionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A part of Config."""

    intercept_ca: Annotated[str, Option(
        FILE, "directory with ca.pem and ca.key, for rules with tls = \"intercept\": "
        "docs/interception.md", "none", section="Interception", swapped=True)] = ""
    origin_ca: Annotated[str, Option(
        FILE, "authorities in PEM that verify the origins of intercepted connections",
        "the system's", swapped=True)] = ""
    intercept_http2: Annotated[Literal["auto", "on", "off"], Option(
        choice("auto", "on", "off"), "offer HTTP/2 to intercepted clients; auto: if "
        "libnghttp2 is there", "our choice: clients that have it prefer it",
        swapped=True)] = "auto"
