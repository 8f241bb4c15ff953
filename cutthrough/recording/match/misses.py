"""Requests that no recording answered: a worker's notes of them for operators.

A client is told why, and the number of its request. The nearest recording and what
differs may be of another user, so they are here, behind the admin token (R74).
"""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from cutthrough.recording.match.matches import Miss
from cutthrough.recording.match.nearest import Admits, Glance
from cutthrough.recording.model.recording import Request

MOST_MISSES = 100                            # that are remembered
EXPLAINED_S = 0.1


class Asker(NamedTuple):
    """The sender of a request."""

    user: str
    client: str                              # its address
    shares: bool = False                     # its rule has `shared`

    @property
    def name(self) -> str:
        """The asker with the bounds for it."""
        return self.user or self.client


class Missed(NamedTuple):
    """A request that was refused."""

    id: str
    at_s: float                              # Unix time
    request: Request                         # without its secrets, if it has a matcher
    miss: Miss


class MissLog:
    """A worker's account of the missed requests."""

    def __init__(self) -> None:
        # Since the session came into force; the last that were refused
        self.missed = 0
        self.misses: deque[Missed] = deque(maxlen=MOST_MISSES)
        self._explained_s = self._since = 0.0
        # Whether the rules let this client make a request; None: there are no rules
        self.admits: Callable[[Asker, Glance], bool] | None = None

    def may_explain(self) -> bool:
        """Whether a miss has the nearest recording: as long as that takes EXPLAINED_S
        in each second at most, for a client may ask again and again."""
        begun = time.monotonic()
        if begun - self._since >= 1:
            self._since, self._explained_s = begun, 0.0
        return self._explained_s < EXPLAINED_S

    def explained(self, seconds: float) -> None:
        self._explained_s += seconds

    def admitted_to(self, asker: Asker) -> Admits | None:
        """Returns the recordings that a miss of this client may be compared with; None
        for all."""
        return None if self.admits is None else partial(self.admits, asker)

    def forget(self) -> None:
        """Forgets all misses, because another session is in force."""
        self.missed = 0
        self.misses.clear()
