"""Bounds of work on content: its steps are counted, and end with TooMuch (R63, R67).

The number of steps grows with the content: a small message takes a short time, with
any expression.
"""

# Steps that any piece of work has, some 1 ms; and more for each value
LEAST_STEPS, STEPS_A_VALUE = 10_000, 16


class KeyMistake(ValueError):
    """A path, an expression or a key cannot be used, with the reason."""


class TooMuch(ValueError):
    """The content, or the work on it, is beyond a bound."""


class Steps:
    """The rest of a piece of work."""

    __slots__ = ("left",)

    def __init__(self, values: int = 0) -> None:
        self.left = LEAST_STEPS + STEPS_A_VALUE * values

    def take(self, count: int = 1) -> None:
        """Raises TooMuch."""
        self.left -= count
        if self.left < 0:
            raise TooMuch("takes too many steps")
