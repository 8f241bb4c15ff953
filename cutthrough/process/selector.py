"""Selectors of connections, for the admin listener, the command line and the workers.

A selector is validated when it is made, by the admin listener or the command line. A
valid selector can be encoded, and a worker decodes an equal one.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import msgspec

from cutthrough.config.values import parse_duration, parse_size
from cutthrough.session.model.states import KINDS, WORDS

STATES = WORDS[:-1]                 # closed: there is no connection any more
MOST_OLDER = 10 * 366 * 86400.0     # seconds; longer than any program runs
MOST_BYTES = 2**63 - 1              # the workers' counters have 64 bits
MOST_TEXT = 1024                    # characters; a name in Basic credentials has at
                                    # most 3 KiB, a host name 253
_ID = re.compile(r"[0-9]{1,10}-[0-9]{1,20}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


def parse_age(text: str) -> float:
    """Reads seconds, or a duration as options have it."""
    return float(text) if _SECONDS.fullmatch(text) else parse_duration(text)


class Term(NamedTuple):
    """A condition, as the command line names it: `--older TIME`."""

    metavar: str
    help: str
    parse: Callable[[str], Any] = str    # the flag's text to the parameter's value


class Selector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selects connections for which all given fields hold; an empty one selects all.

    `host` is the destination, exact or `*.suffix`; `older` in seconds, `bytes` in both
    directions together; `kind` is tunnel, request or idle, which is neither. Raises
    ValueError for a value that no connection can have: a mistyped one would silently
    select nothing.
    """

    user: Annotated[str, Term("NAME", "connections of this user")] = ""
    client: Annotated[str, Term("ADDRESS", "from this address")] = ""
    id: Annotated[str, Term("ID", "with this id")] = ""
    host: Annotated[str, Term(
        "NAME", "to this destination; *.SUFFIX: to every name below it")] = ""
    state: Annotated[str, Term("STATE", f"in this state: {', '.join(STATES)}")] = ""
    kind: Annotated[str, Term(
        "KIND", f"of this kind: {', '.join(KINDS[:-1])} or {KINDS[-1]}")] = ""
    older: Annotated[float, Term(
        "TIME", "open for at least this time: 90 (seconds), or 10m",
        parse_age)] = 0.0
    bytes: Annotated[int, Term(
        "SIZE", "with at least this many bytes, both directions together",
        parse_size)] = 0
    all: bool = False                   # selects all; the other fields are empty then

    def __post_init__(self) -> None:
        for name, words in (("state", STATES), ("kind", KINDS)):
            word = getattr(self, name)
            if word and word not in words:
                raise ValueError(
                    f"{name}: {word!r} is not one of {', '.join(words)}")
        for name in ("user", "host"):
            text = getattr(self, name)
            if len(text) > MOST_TEXT:
                raise ValueError(f"{name}: longer than {MOST_TEXT} characters")
            if any("\ud800" <= ch <= "\udfff" for ch in text):
                raise ValueError(f"{name}: not UTF-8")
        if self.id and not _ID.fullmatch(self.id):
            raise ValueError(f"id: {self.id[:64]!r} is not a connection's id, which "
                             "looks like 0-1234")
        if self.client:
            msgspec.structs.force_setattr(self, "client", _read_address(self.client))
        if not (math.isfinite(self.older) and 0 <= self.older <= MOST_OLDER):
            raise ValueError(f"older: must be from 0 to {MOST_OLDER:.0f} seconds")
        if not 0 <= self.bytes <= MOST_BYTES:
            raise ValueError(f"bytes: must be from 0 to {MOST_BYTES}")

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> "Selector":
        """Reads a selector from a URL's parameters. Raises ValidationError with the
        reason."""
        unknown = set(query) - set(cls.__struct_fields__)
        if unknown:
            raise msgspec.ValidationError(
                f"unknown parameter {min(unknown)}; the parameters are "
                f"{', '.join(cls.__struct_fields__)}")
        if len(query) > len(set(query)):     # only one of the two would apply
            raise msgspec.ValidationError("a parameter is given twice")
        for name in ("older", "bytes"):      # a valid number is short
            if len(query.get(name, "")) > 64:
                raise msgspec.ValidationError(f"{name}: too long for a number")
        return msgspec.convert(dict(query), cls, strict=False)

    def matches(self, connection: Mapping[str, Any]) -> bool:
        """Does this connection, as session.describe describes it, match?"""
        return ((not self.id or connection["id"] == self.id)
                and (not self.user or connection["user"] == self.user)
                and (not self.client or connection["client"] == self.client)
                and (not self.state or connection["state"] == self.state)
                and (not self.kind or connection["kind"] == self.kind)
                and connection["age"] >= self.older
                and connection["bytes_up"] + connection["bytes_down"] >= self.bytes
                and (not self.host or self._is_host(connection["host"] or "")))

    def _is_host(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:].lower())
        return host == self.host.lower()

    def is_empty(self) -> bool:
        return self == Selector()


def _read_address(text: str) -> str:
    """Returns the address in the workers' spelling. Raises ValueError."""
    if re.fullmatch(r"unix:[0-9]{1,10}", text):
        return text
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"client: {text[:64]!r} is not an IP address, nor "
                         "unix:UID") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError("client: the address must have no zone")
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
    return str(address)


# Every field but `all`, which is no condition
TERMS: dict[str, Term] = {
    name: term
    for name, hint in get_type_hints(Selector, include_extras=True).items()
    for term in get_args(hint) if isinstance(term, Term)
}
