"""A row of `[[listeners]]`: one address to listen on, and what is spoken there.

`listen` and `proxy_protocol` are the short form; `Config.all_listeners` has both.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from cutthrough.config.option import ConfigError, Option, RowPath
from cutthrough.config.values import (
    ADDRESS,
    FLAG,
    MOST_ITEMS,
    is_loopback,
    show_address,
)

Address = tuple[str, int]


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one listener; valid once it exists."""

    address: Annotated[Address, Option(
        ADDRESS, "address to listen on; port 0 selects a free port", "none: required")]
    proxy_protocol: Annotated[bool, Option(
        FLAG, "for load balancers only: each connection must begin with a PROXY "
        "header, which names the client; docs/load-balancers.md",
        "a listener requires the header or refuses it, it never guesses (R50)")
        ] = False

    @property
    def is_local(self) -> bool:
        """Whether it serves this host alone: a loopback address (a wildcard is not one)
        that no load balancer calls, whose clients may be anywhere."""
        return is_loopback(self.address[0]) and not self.proxy_protocol

    @property
    def shown(self) -> str:
        return show_address(self.address)


def merge(listen: Sequence[Address], proxy_protocol: Sequence[Address],
          rows: Sequence[Listener]) -> tuple[Listener, ...]:
    """The short form as rows, and behind them the rows."""
    plain = (Listener(address=one, proxy_protocol=one in proxy_protocol)
             for one in listen)
    return (*plain, *rows)


def origin_of(number: int, listen: Sequence[Address]) -> tuple[str, RowPath]:
    """The option of the listener with this number in `merge`, and the place in it."""
    if number < len(listen):
        return "listen", ()
    return "listeners", (number - len(listen), "address")


def contradictions(listen: Sequence[Address], proxy_protocol: Sequence[Address],
                   proxy_protocol_from: Sequence[str],
                   rows: Sequence[Listener]) -> Iterator[ConfigError]:
    merged = merge(listen, proxy_protocol, rows)
    if not merged:
        yield ConfigError("", "listen", "at least one address is needed")
    if len(merged) > MOST_ITEMS:
        yield ConfigError("", "listeners", f"more than {MOST_ITEMS} addresses")
    fixed = [one.address for one in merged if one.address[1]]
    for address in dict.fromkeys(fixed):
        if fixed.count(address) > 1:
            last = max(n for n, one in enumerate(merged) if one.address == address)
            key, path = origin_of(last, listen)
            yield ConfigError(
                "", key, f"{show_address(address)} is given twice", path=path)
    for address in proxy_protocol:
        if address not in listen:
            yield ConfigError("", "proxy_protocol", f"{show_address(address)} is not "
                              "in listen")
    behind = [number for number, one in enumerate(rows) if one.proxy_protocol]
    if proxy_protocol_from and not (behind or proxy_protocol):
        yield ConfigError("", "proxy_protocol_from", "has no effect without "
                          "--proxy-protocol")
    elif (behind or proxy_protocol) and not proxy_protocol_from:
        key, path = ("proxy_protocol", ()) if proxy_protocol else (
            "listeners", (behind[0], "proxy_protocol"))
        yield ConfigError("", key, "any caller could name any client: give "
                          "--proxy-protocol-from, the networks of the load balancers",
                          path=path)
