"""Operators' settings of breakpoints, as the admin API has them: for how long
breakpoints hold, which requests they hold, and the decision about a held message."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from cutthrough.policy.globs import parse_glob
from cutthrough.policy.patterns import host_patterns
from cutthrough.wire.paths import readings_of

# Seconds for which breakpoints may be armed: an operator who has gone arms no more
MOST_ARMED = 3600.0
# Of hosts, of methods and of paths: each is compared with each request that may be held
MOST_CHOSEN = 32

#: Whether a request is held, by its method, host, and path with its query
Chooses = Callable[[str, str, str], bool]


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The requests that are held, of those whose rule has a breakpoint: written as in a
    rule, and a request needs one of each. Empty: all of them."""

    hosts: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class Arming(Chosen, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For how many seconds breakpoints are heeded; 0: not any more."""

    seconds: float


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None: unchanged. `hold_body`: it is held again when its body is there."""

    action: Literal["pass", "edit", "abort"]
    method: str | None = None
    path: str | None = None
    status: int | None = None
    fields: tuple[tuple[str, str], ...] | None = None
    body: bytes | None = None
    hold_body: bool = False


def read_chosen(chosen: Chosen) -> Chooses:
    """Raises ValueError."""
    for name in ("hosts", "methods", "paths"):
        if len(getattr(chosen, name)) > MOST_CHOSEN:
            raise ValueError(f"{name}: more than {MOST_CHOSEN}")
    hosts = [pattern for text in chosen.hosts for pattern in host_patterns(text)]
    methods = {text.upper() for text in chosen.methods}
    paths = [parse_glob(text)[0].split("/") for text in chosen.paths]

    def chooses(method: str, host: str, path: str) -> bool:
        if methods and method not in methods:
            return False
        if hosts and not any(is_of(host, pattern) for pattern in hosts):
            return False
        return not paths or any(
            fits(glob, reading.decode("latin-1").split("/"), "**", fits_segment)
            for reading in readings_of(path.encode("latin-1", "replace"))
            for glob in paths)

    return chooses


def is_of(host: str, pattern: str) -> bool:
    return host == pattern or (
        pattern.startswith("*.") and host.endswith(pattern[1:]))


def fits_segment(glob: str, segment: str) -> bool:
    return fits(glob, segment, "*", operator.eq)


def fits(glob: Sequence[str], text: Sequence[str], star: str,
         equals: Callable[[Any, Any], bool]) -> bool:
    """As policy.globs has it: a mismatch goes back to the last star and no further, so
    the steps are at most the product of both lengths."""
    at = place = taken = 0
    last = -1
    while place < len(text):
        if at < len(glob) and glob[at] == star:
            last, taken, at = at, place, at + 1
        elif at < len(glob) and equals(glob[at], text[place]):
            at, place = at + 1, place + 1
        elif last >= 0:
            taken += 1
            at, place = last + 1, taken
        else:
            return False
    return all(part == star for part in glob[at:])
