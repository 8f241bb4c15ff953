"""The results of a search for a request's recording."""

import re
from collections.abc import Sized
from typing import NamedTuple

import msgspec

from cutthrough.recording.match.routes import Base, Parts, Route
from cutthrough.recording.model.recording import Pattern, Recording, Request

# The stand-in for a secret: see masking
_STAND_IN = re.compile(
    r"(?:\[|%5[Bb])redacted(?::|%3[Aa])[0-9a-f]{16}(?:\]|%5[Dd])")


class Match(msgspec.Struct, frozen=True):
    recording: Recording
    route: Route
    place: int                               # in its sequence, from 0
    of: int                                  # recordings of the sequence
    is_last: bool = False                    # the same request gets it again, for ever
    state: dict[str, str] = {}               # of its lane, behind it


class Reading(NamedTuple):
    """A request's content as it is read, in the loop or out of it."""

    request: Request                         # without its secrets
    base: Base
    parts: Parts


class TooLong(Exception):
    """The patterns of recordings take longer than the loop has."""


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A recording without its answer."""

    request: Request
    number: int = 0
    patterns: tuple[Pattern, ...] = ()
    requires: dict[str, str] = {}


class Nearest(msgspec.Struct, frozen=True):
    recording: RecordedRequest
    differences: tuple[str, ...]             # MOST_SAID, and how many more


class Likely(NamedTuple):
    """The recordings to be compared with a miss."""

    asked: list[RecordedRequest]
    state: dict[str, str]


class Miss(msgspec.Struct, frozen=True):
    """`reason` has nothing that another user has sent or got, so each client may be
    told. The rest may be shown to operators alone (R74). `nearest` is None if nothing
    is recorded, or if all that match are used up. `likely`: the nearest is among
    these; None: it is known."""

    reason: str
    nearest: Nearest | None = None
    details: str = ""                        # further words
    likely: Likely | None = None

    def __str__(self) -> str:
        """All of it."""
        if self.nearest is None:
            return f"{self.reason}: {self.details}" if self.details else self.reason
        recording = self.nearest.recording
        return (f"{self.reason}; the nearest is recording {recording.number}, "
                f"{recording.request.method} {veil(recording.request.url)}: "
                f"{'; '.join(self.nearest.differences)}")


def no_match(recordings: Sized, state: dict[str, str]) -> Miss:
    """The matcher has these recordings, and the lane this state."""
    reason = "no recording matches" if recordings else "nothing is recorded"
    return Miss(reason, likely=Likely([], state))


def veil(text: str) -> str:
    """Without the hashes of secrets."""
    return _STAND_IN.sub("[redacted]", text) if "redacted" in text else text
