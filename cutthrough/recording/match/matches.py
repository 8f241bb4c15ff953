"""The results of a search for a request's recording."""

from collections.abc import Sized
from typing import NamedTuple

import msgspec

from cutthrough.recording.match.index import Group
from cutthrough.recording.match.keys import Base, Parts, Route
from cutthrough.recording.match.nearest import Asked, Nearest, veil
from cutthrough.recording.model.recording import Recording, Request


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


class Draw(NamedTuple):
    """Of which groups the lane's next recording is to be taken."""

    lane: str
    groups: list[Group]
    route: Route


class Likely(NamedTuple):
    """The recordings to be compared with a miss."""

    asked: list[Asked]
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


Drawn = Match | Miss | Draw


def no_match(recordings: Sized, state: dict[str, str]) -> Miss:
    """The matcher has these recordings, and the lane this state."""
    reason = "no recording matches" if recordings else "nothing is recorded"
    return Miss(reason, likely=Likely([], state))


def used_up(group: Group) -> Miss:
    count = len(group.numbers)
    times = "1 time" if count == 1 else f"{count} times"
    return Miss(f"recording {group.numbers[-1]} matches, and has been replayed as "
                f"often as it was recorded: {times}")
