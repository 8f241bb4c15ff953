"""A verdict of the rules in words, and the sender of its request, for `explain`."""

import ipaddress
from typing import NamedTuple


class Caller(NamedTuple):
    """The user and the address of a client."""

    user: str = ""
    groups: tuple[str, ...] = ()
    client: str = "127.0.0.1"   # or `unix:` and a user id
    tlvs: bytes = b""           # of its PROXY header, as wire.proxy_header packs them
    ja4: str = ""               # of its own connection; "": unknown
    http2: str = ""             # fingerprint of the same


class Look(NamedTuple):
    """A rule that was considered, and the condition that failed; "": it matched."""

    rule: int
    mismatch: str


class Answer(NamedTuple):
    """A Verdict of `acl` in words."""

    outcome: str            # label of an outcome
    rule: int               # index in Acl.rules, -1: the default
    report: bool
    cut: bool
    opens_floor: bool
    maybe: bool             # depends on the address, which is not known
    waits: bool             # depends on a tunnel's first bytes, which are not known
    limits: str             # "" for none
    source: str             # name of the rule's source; "" for none
    route: str              # the name in the rule; "" for none
    faults: tuple[str, ...]     # the names in the rule
    filters: tuple[str, ...]    # the same
    looked: tuple[Look, ...]    # in order, the deciding rule last


def is_literal(host: bytes) -> bool:
    """Whether a canonical host is an address. An IPv4 address has a number as its last
    label (wire.target)."""
    return b":" in host or host.rpartition(b".")[2].isdigit()


def packed(text: str) -> bytes:
    """An address in 16 bytes."""
    address = ipaddress.ip_address(text)
    if address.version == 6:
        return address.packed
    return bytes(10) + b"\xff\xff" + address.packed
