"""Regular expressions that a user, a file or a message brings: RE2 alone (R66).

RE2 takes time that is linear in the text: 2 ns a character, and 12 ns times the size of
the expression's program if the table of its states is too large for its memory. So the
product of both is bounded, too. To find all matches may take the square of a text,
since each may have looked at all that follows: matches times characters are bounded.
"""

import functools
import importlib
from collections.abc import Iterator
from typing import Any

from cutthrough.exchange.bounds import KeyMistake, TooMuch

# Characters of an expression, and instructions of its program
MOST_PATTERN, MOST_PROGRAM = 4096, 1024
# Instructions times characters: 1.6 s in the worst case. 1 MiB is read with a program
# of 128, and `"model": *"([^"]*)"` has 30
MOST_WORK = 1 << 27
# Matches times characters: 3 s in the worst case
MOST_FINDS = 1 << 29
# Bytes of an expression's table of states: RE2's default
MOST_MEMORY = 8 << 20


class NoRE2(KeyMistake):
    """The library is not installed."""


class Expression:
    """Searches texts. They raise TooMuch if a text has more characters than `most`."""

    __slots__ = ("_compiled", "_size", "most")

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._size: int = max(1, compiled.programsize)
        self.most = MOST_WORK // self._size

    def _check(self, text: str) -> None:
        if len(text) > self.most:
            raise TooMuch(f"is longer than {self.most} characters, which this "
                          "expression may read")

    def cost(self, text: str) -> int:
        """Steps of exchange.bounds, of some 100 ns, in the worst case."""
        return 1 + len(text) * self._size // 8

    def search(self, text: str) -> Any:
        """The first match, or None."""
        self._check(text)
        return self._compiled.search(text)

    def fullmatch(self, text: str) -> Any:
        self._check(text)
        return self._compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[Any]:
        """All matches. It may raise TooMuch between two."""
        self._check(text)
        left = MOST_FINDS // max(1, len(text))
        for match in self._compiled.finditer(text):
            left -= 1
            if left < 0:
                raise TooMuch("has too many matches for its length")
            yield match


@functools.lru_cache(256)
def compile_expression(text: str, *, ignore_case: bool = False) -> Expression:
    """Raises KeyMistake."""
    try:
        library = importlib.import_module("re2")
    except ImportError:
        raise NoRE2("regular expressions need RE2: pip install "
                    "'cutthrough[recording]'") from None
    if len(text) > MOST_PATTERN:
        raise KeyMistake(
            f"an expression is longer than {MOST_PATTERN} characters")
    options = library.Options()
    options.log_errors = False
    options.max_mem = MOST_MEMORY
    options.case_sensitive = not ignore_case
    try:
        compiled = library.compile(text, options)
    except (library.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise KeyMistake(
            f"{text!r:.100} is no regular expression: {reason}") from None
    if compiled.programsize > MOST_PROGRAM:
        raise KeyMistake(f"{text!r:.100} is too large an expression")
    return Expression(compiled)
