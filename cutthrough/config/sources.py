"""A row of `[sources.NAME]`: the addresses of direct connections.

A rule names a source, or a source names its users and groups. docs/sources.md.
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from cutthrough.config.mistake import raise_all
from cutthrough.config.option import ConfigError, Option
from cutthrough.config.user_names import parse_identity
from cutthrough.config.values import (
    COUNT,
    RESOLVERS,
    Kind,
    choice,
    parse_network,
    parse_text,
)


def parse_prefix(text: str) -> str:
    """Reads a network of more than one address; "": none."""
    if not text:
        return ""
    network = ipaddress.ip_network(parse_network(text))
    if network.num_addresses == 1:
        raise ValueError(f"{text!r} is one address, which belongs in addresses")
    return str(network)


def parse_device(text: str) -> str:
    # dev_valid_name() of Linux: 15 bytes, neither a slash, a colon nor white space
    if text and (text in (".", "..") or re.fullmatch(r"[!-~]{1,15}", text) is None
                 or {*"/:"} & {*text}):
        raise ValueError(f"{text!r} is not the name of a network device")
    return text


# RFC 2474, 2597, 3246, 8622
_CLASSES = {**{f"cs{n}": 8 * n for n in range(8)},
            **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
            "ef": 46, "le": 1}


def parse_dscp(text: str) -> int:
    """Reads a number, or the name of a class such as `af11`."""
    if text.lower() in _CLASSES:
        return _CLASSES[text.lower()]
    if re.fullmatch(r"[0-9]{1,2}", text) is None or int(text) > 63:
        raise ValueError(f"{text!r} is neither a number up to 63 nor a class such as "
                         "ef, af11 or cs1")
    return int(text)


# With a colon too, because a certificate may name its user by a URI
WHO = Kind("NAME", parse_text, many=True)
USERS = Kind("NAME", parse_identity, many=True)


class SourceRow(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one source; valid once it exists."""

    name: str
    addresses: Annotated[tuple[str, ...], Option(
        RESOLVERS, "addresses of this host to connect from; a destination is dialled "
        "only if one of them has its family", "none: the kernel selects one",
        swapped=True)] = ()
    prefix: Annotated[str, Option(
        Kind("NETWORK", parse_prefix), "network to draw an address from, for a family "
        "that has none in addresses; it must be routed to this host", "none",
        swapped=True)] = ""
    choose: Annotated[Literal["random", "sticky_user", "sticky_destination"], Option(
        choice("random", "sticky_user", "sticky_destination"), "what selects the "
        "address: chance, or the user or the destination, which then keeps it",
        "random: the addresses are used alike, and show no user", swapped=True)
        ] = "random"
    device: Annotated[str, Option(
        Kind("DEVICE", parse_device), "network device to send by, as SO_BINDTODEVICE",
        "none: the routes select it", swapped=True)] = ""
    mark: Annotated[int, Option(
        COUNT._replace(metavar="none|N", high=(1 << 32) - 1, words={"none": -1}),
        "mark of the packets, for `ip rule` and nftables; needs CAP_NET_ADMIN",
        "none: the kernel's 0", swapped=True)] = -1
    dscp: Annotated[int, Option(
        Kind("none|DSCP", parse_dscp, low=-1, words={"none": -1}),
        "class of the packets: 0 to 63, or a name such as af11",
        "none: the kernel's 0", swapped=True)] = -1
    users: Annotated[tuple[str, ...], Option(
        USERS, "users whose connections come from here, unless a rule names another "
        "source", "none", swapped=True)] = ()
    groups: Annotated[tuple[str, ...], Option(
        WHO, "the same for the users of groups; `users` of any source come first",
        "none", swapped=True)] = ()

    def __post_init__(self) -> None:
        raise_all([*self._contradictions()])

    def _contradictions(self) -> Iterator[ConfigError]:
        addresses = [ipaddress.ip_address(text) for text in self.addresses]
        for address in addresses:
            if address.is_unspecified or address.is_multicast:
                yield ConfigError("", "addresses", f"{address}: nothing can come from "
                                  "this address")
            elif addresses.count(address) > 1:
                yield ConfigError("", "addresses", f"{address} is given twice")
        if self.prefix:
            version = ipaddress.ip_network(self.prefix).version
            if any(address.version == version for address in addresses):
                yield ConfigError("", "prefix", f"has no effect: addresses has IPv"
                                  f"{version} already")
        if not (self.addresses or self.prefix or self.device) and (
                self.mark, self.dscp) == (-1, -1):
            yield ConfigError("", "addresses", "the source sets nothing: give "
                              "addresses, prefix, device, mark or dscp")


def contradictions_of_sources(rows: Sequence[SourceRow]) -> Iterator[ConfigError]:
    for key in ("users", "groups"):
        taken: dict[str, str] = {}
        for row in rows:
            for who in getattr(row, key):
                if taken.setdefault(who, row.name) != row.name:
                    yield ConfigError("", "sources", f"{who!r} already has sources."
                                      f"{taken[who]}", path=(row.name, key))
