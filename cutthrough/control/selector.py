"""Which connections? The one way to say it, for the admin listener and the workers."""

from collections.abc import Mapping
from typing import Any

import msgspec


class Selector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is said must hold; an empty one selects every connection.

    `host` is the destination, exact or `*.suffix`; `older` in seconds, `bytes` in both
    directions together; `kind` is tunnel or request (idle connections are neither).
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

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> "Selector":
        """Reads the parameters of a URL. Raises ValidationError with the reason."""
        unknown = set(query) - set(cls.__struct_fields__)
        if unknown:
            raise msgspec.ValidationError(
                f"unknown parameter {min(unknown)}; there are "
                f"{', '.join(cls.__struct_fields__)}")
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
