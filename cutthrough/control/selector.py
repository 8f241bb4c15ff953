"""Which connections? The one way to say it, for the admin listener and the workers."""

import ipaddress
from collections.abc import Mapping
from typing import Any

import msgspec

# As session.state has them, which is not loaded here
STATES = ("head", "idle", "auth", "decide", "resolve", "dial", "request", "response",
          "relay", "tunnel", "half_closed", "linger")
KINDS = ("tunnel", "request", "idle")


class Selector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is said must hold; an empty one selects every connection.

    `host` is the destination, exact or `*.suffix`; `older` in seconds, `bytes` in both
    directions together; `kind` is tunnel, request or idle, which is neither. Raises
    ValueError for what could mean nothing: a slip would select nobody, and say so.
    """

    id: str = ""
    user: str = ""
    client: str = ""                    # an address
    host: str = ""
    state: str = ""                     # as in the table of states, lower case
    kind: str = ""
    older: float = 0.0
    bytes: int = 0
    all: bool = False                   # said, where nothing else is

    def __post_init__(self) -> None:
        for name, words in (("state", STATES), ("kind", KINDS)):
            word = getattr(self, name)
            if word and word not in words:
                raise ValueError(f"{name}: {word!r} is none of {', '.join(words)}")
        if self.client:
            try:
                client = str(ipaddress.ip_address(self.client))
            except ValueError:
                raise ValueError(f"client: {self.client!r} is no address") from None
            msgspec.structs.force_setattr(self, "client", client)
        if not (self.older >= 0 and self.bytes >= 0):        # nor NaN
            raise ValueError("older and bytes are not below 0")

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> "Selector":
        """Reads the parameters of a URL. Raises ValidationError with the reason."""
        unknown = set(query) - set(cls.__struct_fields__)
        if unknown:
            raise msgspec.ValidationError(
                f"unknown parameter {min(unknown)}; there are "
                f"{', '.join(cls.__struct_fields__)}")
        if len(query) > len(set(query)):     # of a URL's: one of the two would count
            raise msgspec.ValidationError("a parameter is given twice")
        return msgspec.convert(dict(query), cls, strict=False)

    def matches(self, one: Mapping[str, Any]) -> bool:
        """Is it this connection, as session.inspect describes it?"""
        return ((not self.id or one["id"] == self.id)
                and (not self.user or one["user"] == self.user)
                and (not self.client or one["client"] == self.client)
                and (not self.state or one["state"] == self.state)
                and (not self.kind or one["kind"] == self.kind)
                and one["age"] >= self.older
                and one["bytes_up"] + one["bytes_down"] >= self.bytes
                and (not self.host or self._is_host(one["host"] or "")))

    def _is_host(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:].lower())
        return host == self.host.lower()

    def is_empty(self) -> bool:
        return self == Selector()
