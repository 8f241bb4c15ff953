"""Places that several askers share: bounded in all, and some are left for the others.

An asker gets a place while it holds fewer than are free. One asker alone gets half of
all places, two that ask for as many as they can get a third each, and an asker that
comes later still finds some.
"""

ALL_TAKEN = "overloaded"
SHARE_TAKEN = "question_limit"


class Shares:
    """`most` places. An asker is any name; it is forgotten when it holds none."""

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
