"""Places that several askers share: bounded, with some always left for other askers.

An asker gets a place while it holds fewer than are free. So one asker alone gets half
of all places, two greedy askers get a third each, and a later asker still finds some.
"""

ALL_TAKEN = "overloaded"
SHARE_TAKEN = "question_limit"


class Shares:
    """`most` places. An asker is any name; it is forgotten when it holds no place."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.refused = 0
        self._held: dict[bytes, int] = {}

    def take(self, asker: bytes) -> str:
        """Takes a place for `asker` and returns "", or the label of the refusal."""
        free = self.most - self.taken
        held = self._held.get(asker, 0)
        if held >= free:
            self.refused += 1
            return SHARE_TAKEN if held else ALL_TAKEN
        self._held[asker] = held + 1
        self.taken += 1
        return ""

    def give(self, asker: bytes) -> None:
        """Gives back a place that was taken."""
        self.taken -= 1
        held = self._held[asker] - 1
        if held:
            self._held[asker] = held
        else:
            del self._held[asker]
