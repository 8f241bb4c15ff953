"""What is wrong with a text that an operator wrote: where, why, and all of it.

Mistakes are gathered as long as the next one does not follow from the one before, so
that who corrects a file runs `check` once. What is raised is the first of them; the
others hang on it.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

MOST_TOLD = 20                               # mistakes of one file, or of several
MOST_SHOWN = 100                             # characters of a line


class Place(NamedTuple):
    """A line of a file, and what of it is meant."""

    line: int                                # the first one is 1
    text: str = ""                           # without secrets; "": not to be shown
    column: int = 0
    width: int = 0


class Mistake(ValueError):
    """Something that cannot be used: source, key there, and the reason."""

    def __init__(self, source: str, key: str, reason: str,
                 place: Place | None = None) -> None:
        super().__init__(source, key, reason)
        self.source, self.key, self.reason, self.place = source, key, reason, place
        self.others: list[Mistake] = []

    @property
    def all(self) -> list["Mistake"]:
        return [self, *self.others]

    def with_others(self, others: Sequence["Mistake"]) -> Self:
        self.others = list(others)
        return self

    def __str__(self) -> str:
        line = f":{self.place.line}" if self.place else ""
        return ": ".join(part for part in (self.source + line, self.key, self.reason)
                         if part)


@contextlib.contextmanager
def noting(mistakes: list[Mistake]) -> Iterator[None]:
    """Goes on behind the block that found a mistake."""
    try:
        yield
    except Mistake as mistake:
        mistakes += mistake.all


def raise_all(mistakes: Sequence[Mistake]) -> None:
    """Raises the first one, with the others; those of one source in their order."""
    sources = [mistake.source for mistake in mistakes]
    ordered = sorted(mistakes, key=lambda one: (
        sources.index(one.source), one.place.line if one.place else 0))
    if ordered:
        raise ordered[0].with_others(ordered[1:]) from None


def show(mistake: Mistake) -> str:
    """The mistake in lines: what is wrong, the line of the file, and a caret below."""
    said, place = str(mistake), mistake.place
    if place is None or not place.text.strip():
        return said
    first = max(0, place.column + min(place.width, 40) - MOST_SHOWN + 10)
    text = place.text[first:first + MOST_SHOWN]
    column = place.column - first
    width = max(1, min(place.width, len(text) - column))
    text = "".join(c if c.isprintable() else " " for c in text)
    return f"{said}\n    {text}\n    {' ' * column}{'^' * width}"


def show_all(mistake: Mistake) -> Iterator[str]:
    """Every mistake as `show` has it, and how many there are."""
    for one in mistake.all[:MOST_TOLD]:
        yield show(one)
    if mistake.others:
        left = len(mistake.all) - MOST_TOLD
        yield f"{len(mistake.all)} mistakes" + (
            f", {left} of them not shown" if left > 0 else "")
