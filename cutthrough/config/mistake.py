"""Mistakes in a text that an operator wrote: their place, their reason, all at once.

Mistakes are collected as long as none can be the consequence of an earlier one, because
an operator wants to correct a file after one `check`. The first mistake is raised and
holds the others.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

MOST_TOLD = 20                               # mistakes shown, over all files
MOST_SHOWN = 100                             # characters of a line
# Mistakes of one file that are noted: a file with as many is hardly of its kind
MOST_NOTED = 1000

# User information of a URL, or what looks like it without a scheme, up to the last at
# sign: a password may have one. Not the facility of `syslog:local0@/path`, nor the
# forms that our own messages show
_USERINFO = re.compile(r"""
    (?<=//) (?!user:password@) \S* (?=@)
  | (?<![^\s"'=]) (?!syslog:|user:password@) [^\s"'/@:]+ : (?!//) \S* (?=@)""", re.X)
HIDDEN = "\u2026"


class Place(NamedTuple):
    """A line of a file, and the part of it that a mistake is about."""

    line: int                                # counted from 1
    text: str = ""                           # without secrets; "": never shown
    column: int = 0
    width: int = 0
    left_out: int = 0                        # characters before `text`

    def without_userinfo(self) -> "Place":
        """The same part of the line, without the credentials of URLs (R37)."""
        text, begin, end = self.text, self.column, self.column + self.width
        if "@" not in text:
            return self
        for match in reversed([*_USERINFO.finditer(text)]):
            first, last = match.span()
            text = text[:first] + HIDDEN + text[last:]
            begin, end = (at if at <= first else max(first + 1, at - last + first + 1)
                          for at in (begin, end))
        return self._replace(text=text, column=begin, width=end - begin)


def without_userinfo(text: str) -> str:
    return _USERINFO.sub(HIDDEN, text) if "@" in text else text


def nearest(name: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """The most similar known name, by difflib's ratio; "": none is so similar."""
    import difflib  # 0.5 ms, which few starts need

    return next(iter(difflib.get_close_matches(name, list(known), 1, similarity)), "")


class Mistake(ValueError):
    """A text that cannot be used: its source, its key there, and the reason."""

    def __init__(self, source: str, key: str, reason: str,
                 place: Place | None = None) -> None:
        source, key, reason = map(without_userinfo, (source, key, reason))
        super().__init__(source, key, reason)
        self.source, self.key, self.reason = source, key, reason
        self.place = None if place is None else place.without_userinfo()
        self.others: list[Mistake] = []

    @property
    def all(self) -> list["Mistake"]:
        return [self, *self.others]

    def with_others(self, others: Sequence["Mistake"]) -> Self:
        self.others = list(others)
        return self

    @property
    def where(self) -> str:
        """The key, as it is shown."""
        return self.key

    def __str__(self) -> str:
        return self.at(f":{self.place.line}" if self.place else "")

    def at(self, line: str) -> str:
        return ": ".join(part for part in (self.source + line, self.where, self.reason)
                         if part)


@contextlib.contextmanager
def noting(mistakes: list[Mistake]) -> Iterator[None]:
    """Appends a mistake of the block to `mistakes`, and continues after the block."""
    try:
        yield
    except Mistake as mistake:
        mistakes += mistake.all[:max(0, MOST_NOTED - len(mistakes))]


def raise_all(mistakes: Sequence[Mistake]) -> None:
    """Raises the first mistake, with the others; sorted by line within a source."""
    sources = [mistake.source for mistake in mistakes]
    ordered = sorted(mistakes, key=lambda mistake: (
        sources.index(mistake.source), mistake.place.line if mistake.place else 0))
    if ordered:
        raise ordered[0].with_others(ordered[1:]) from None


def show(mistake: Mistake) -> str:
    """The mistake in lines: the reason, the line of the file, and carets below it."""
    place = mistake.place
    if place is None or not place.text.strip():
        return str(mistake)
    # As compilers have it: editors open the file there
    said = mistake.at(f":{place.line}:{place.left_out + place.column + 1}")
    first = max(0, place.column + min(place.width, 40) - MOST_SHOWN + 10)
    text = place.text[first:first + MOST_SHOWN]
    column = place.column - first
    width = max(1, min(place.width, len(text) - column))
    text = "".join(c if c.isprintable() else " " for c in text)
    return f"{said}\n    {text}\n    {' ' * column}{'^' * width}"


def show_all(mistake: Mistake) -> Iterator[str]:
    """Every mistake as `show` formats it, and their number."""
    for item in mistake.all[:MOST_TOLD]:
        yield show(item)
    if mistake.others:
        left = len(mistake.all) - MOST_TOLD
        more = "at least " if len(mistake.all) >= MOST_NOTED else ""
        yield f"{more}{len(mistake.all)} mistakes" + (
            f", {left} of them not shown" if left > 0 else "")
