"""Reads typed values from a policy's tables, and collects mistakes with their places.

`rules` knows the meaning of the tables. A mistake is raised and noted, and the reader
goes on with the next value.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NoReturn, TypeVar

from cutthrough.config.config import OPTIONS
from cutthrough.config.mistake import Mistake, Place, nearest, noting
from cutthrough.config.toml import Path, Places
from cutthrough.config.values import parse_duration
from cutthrough.policy.source import PolicyError

T = TypeVar("T")


def unknown_key(key: str, known: Iterable[str], what: str = "key") -> str:
    """Returns the reason for an unknown name, with the nearest known one. For a key
    without a near one it lists all keys, which the program defines."""
    near = nearest(key, known)
    if what == "key" and key in OPTIONS and not near.startswith(key):
        return "is an option of `serve`: it belongs in the file that `-c` names"
    if what == "key" and not near:
        return f"no such key; the keys are {', '.join(known)}"
    return f"no such {what}{f'; did you mean {near}?' if near else ''}"


class Reader:
    """One policy file while it is read; `path` is the path of the current table.

    `fail` raises; the enclosing `noting` notes the mistake, and reading goes on.
    """

    def __init__(self, table: dict[str, Any], source: str, places: Places) -> None:
        self.table, self.source, self.places = table, source, places
        self.path: Path = ()
        self.mistakes: list[Mistake] = []

    def fail(self, key: str, reason: str, item: int | None = None) -> NoReturn:
        """Raises a mistake in a key's value, or in one item of it; "": in the table."""
        path = (*self.path, *([key] if key else []), *([] if item is None else [item]))
        raise self.mistake(key, reason, self.places.value(*path)) from None

    def mistake(self, key: str, reason: str, place: Place | None) -> PolicyError:
        # A rule is identified by its line
        table = map(str, self.path[2:] if self.path[:1] == ("rules",) else self.path)
        where = ": ".join(part for part in (".".join(table), key) if part)
        return PolicyError(self.source, where, reason, place)

    @contextlib.contextmanager
    def table_at(self, *path: str | int) -> Iterator[None]:
        """Makes this table the current one; a mistake ends the `with` block only."""
        before, self.path = self.path, path
        try:
            with noting(self.mistakes):
                yield
        finally:
            self.path = before

    def sub(self, key: str) -> dict[str, Any]:
        table = self.table.get(key, {})
        if isinstance(table, dict):
            return table
        self.mistakes.append(
            self.mistake(key, "takes a table", self.places.value(key)))
        return {}

    def value(self, table: dict[str, Any], key: str, kind: type[T], what: str,
              default: T) -> T:
        if key not in table:
            return default
        value = table[key]
        if not isinstance(value, kind):
            self.fail(key, f"takes {what}")
        return value

    def choice(self, table: dict[str, Any], key: str, words: Iterable[str],
               default: str) -> Any:
        word = table.get(key, default)
        if word not in words:
            self.fail(key, f"{word!r} is not one of {', '.join(words)}")
        return word

    def texts(self, table: dict[str, Any], key: str) -> list[str]:
        """Returns a list of strings; [] only if the key is absent."""
        if key not in table:
            return []
        texts = table[key]
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            self.fail(key, "takes a list of strings")
        if not texts:
            self.fail(key, "the list is empty: add an entry, or leave out the key")
        return texts

    def words(self, table: dict[str, Any], key: str, known: Collection[str],
              note: str = "") -> tuple[str, ...]:
        """Returns a list of words, each once. `note`: more about a mistake."""
        texts = self.texts(table, key)
        for i, word in enumerate(texts):
            with noting(self.mistakes):
                if word not in known:
                    self.fail(
                        key, f"{word!r} is not one of {', '.join(known)}{note}", i)
        return tuple(dict.fromkeys(texts))

    def check_keys(self, table: dict[str, Any], known: Iterable[str]) -> None:
        for key in table:
            if key not in known:
                self.no_key(key, known)

    def no_key(self, key: str, known: Iterable[str]) -> None:
        self.mistakes.append(self.mistake(
            key, unknown_key(key, known), self.places.key(*self.path, key)))

    def read_queue(self, table: dict[str, Any], key: str) -> int:
        value = table[key]
        if isinstance(value, bool) or not isinstance(value, int) or (
                not 0 <= value <= 1_000_000):
            self.fail(key, "takes a number of requests from 0 to 1000000")
        return value

    def read_timeout(self, table: dict[str, Any], key: str) -> float:
        value = table[key]
        try:
            seconds = parse_duration(value) if isinstance(value, str) else 0.0
        except ValueError:
            seconds = 0.0
        if not 0.001 <= seconds <= 600:
            self.fail(key, "takes a duration up to 10m, such as \"5s\"")
        return seconds
