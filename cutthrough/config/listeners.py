"""A row of `[[listeners]]`: one address to listen on, and what is spoken there.

`listen` and `proxy_protocol` are the short form; `Config.all_listeners` has both.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from cutthrough.config.option import ConfigError, Option, RowPath, defaults_of
from cutthrough.config.values import (
    ADDRESS,
    DESTINATIONS,
    FLAG,
    MODE,
    MOST_ITEMS,
    OWNER,
    is_loopback,
    show_address,
)

Address = tuple[str, int]


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one listener; valid once it exists."""

    address: Annotated[Address, Option(
        ADDRESS, "address to listen on; port 0 selects a free port; unix:/path: a "
        "socket in the file system", "none: required")]
    mode: Annotated[int, Option(
        MODE, "of unix:/path: the file's permissions; to call, a program must be "
        "allowed to write it", "its owner and its group, as of the admin listener")
        ] = 0o660
    owner: Annotated[str, Option(
        OWNER, "of unix:/path: the file's owner, group or both, by name or number",
        "none: the program's own")] = ""
    proxy_protocol: Annotated[bool, Option(
        FLAG, "for load balancers only: each connection must begin with a PROXY "
        "header, which names the client; docs/load-balancers.md",
        "a listener requires the header or refuses it, it never guesses (R50)")
        ] = False
    pac: Annotated[bool, Option(
        FLAG, "serves /proxy.pac and /wpad.dat, the auto-configuration of browsers, "
        "to everybody: docs/listeners.md", "off: it reveals what the policy names",
        swapped=True)] = False
    pac_direct: Annotated[tuple[str, ...], Option(
        DESTINATIONS, "destinations that clients are to reach without the proxy, in "
        "that file", "none", swapped=True)] = ()

    def __post_init__(self) -> None:
        if self.pac and self.is_path:
            raise ConfigError("", "pac", "no browser reads a file from unix:/path")
        if self.pac_direct and not self.pac:
            raise ConfigError("", "pac_direct", "has no effect without pac = true")
        if not self.is_path:
            for key in ("mode", "owner"):
                if getattr(self, key) != DEFAULTS[key]:
                    raise ConfigError("", key, f"{self.shown} has no file: only "
                                      "unix:/path has one")

    @property
    def is_path(self) -> bool:
        """Whether it is a socket in the file system."""
        return self.address[0].startswith("unix:")

    @property
    def is_local(self) -> bool:
        """Whether it serves this host alone: a path or a loopback address (a wildcard
        is not one) that no load balancer calls, whose clients may be anywhere."""
        return is_loopback(self.address[0]) and not self.proxy_protocol

    @property
    def shown(self) -> str:
        return show_address(self.address)


DEFAULTS = defaults_of(Listener)


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
    fixed = [one.address for one in merged if one.address[1] or one.is_path]
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
    yield from _contradictions_of_proxy_protocol(
        merged, len(listen), bool(proxy_protocol), bool(proxy_protocol_from))


def _contradictions_of_proxy_protocol(merged: Sequence[Listener], short: int,
                                      given: bool, have_from: bool
                                      ) -> Iterator[ConfigError]:
    # A path needs no networks: its file's permissions say who may call
    behind = [number for number, one in enumerate(merged)
              if one.proxy_protocol and not one.is_path]
    if have_from and not (behind or given):
        yield ConfigError("", "proxy_protocol_from", "has no effect without "
                          "--proxy-protocol")
    elif not have_from and (behind or given):
        first = behind[0] if behind else 0
        key, path = ("proxy_protocol", ()) if first < short else (
            "listeners", (first - short, "proxy_protocol"))
        yield ConfigError("", key, "any caller could name any client: give "
                          "--proxy-protocol-from, the networks of the load balancers",
                          path=path)
