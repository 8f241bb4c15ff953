"""TOML with the place of each key and value, which tomllib does not report.

tomllib reads the text. Only if a value has a mistake, the text is scanned once more for
its place. No maintained library reports places: tomlkit keeps comments, but no places.
The scanner does not validate, because tomllib has accepted its input already.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from cutthrough.config.mistake import MOST_SHOWN, Place

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
_VALUE = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?'{3,5}|"(?:[^"\\]|\\.)*"|'[^']*\''''
    r"|[^\s,\]}#]+(?: [0-9]{2}:[^\s,\]}#]+)?", re.S)
_AT = re.compile(r" \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)$")
_PAIR = re.compile(r"""[ \t]*(["']?)([\w-]+)\1[ \t]*=[ \t]*""")
_YAML = re.compile(r"\s*(?:- )?[\w-]+:(?: |$)|---")
_END = re.compile(r"[\s\"']")                # of a word
_BARE = re.compile(r"[^\s#\"'\[{][^\s#\"']*")


class TomlError(ValueError):
    """A text that is not TOML, or that no program has to read."""

    def __init__(self, reason: str, place: Place | None) -> None:
        super().__init__(reason)
        self.reason, self.place = reason, place


class Span(NamedTuple):
    """Offsets of a key and of its value; both are the same for a table's header."""

    key: tuple[int, int]
    value: tuple[int, int]
    is_leaf: bool


class Places:
    """The places of the keys and values of a text.

    `is_secret`: whether the value of this path must not be shown. That includes the
    value of every unknown key, because the key may be a misspelt `password`.
    """

    def __init__(self, text: str, is_secret: Callable[[Path], bool]) -> None:
        self._text = text.replace("\r\n", "\n")
        self._is_secret = is_secret

    @cached_property
    def _spans(self) -> dict[Path, Span]:
        try:
            return _Scanner(self._text).scan()
        except RecursionError:
            return {}

    def key(self, *path: str | int) -> Place | None:
        """The place of a key; if it is missing, the place of its table."""
        return self._find(path, False)

    def value(self, *path: str | int) -> Place | None:
        """The place of a value; if it is missing, the place of its key's table."""
        return self._find(path, True)

    def _find(self, path: Path, value: bool) -> Place | None:
        if (*path, 0) in self._spans and path not in self._spans:
            path = (*path, 0)                # [[key]]
        while path and path not in self._spans:
            path, value = path[:-1], False
        if not path:
            return None
        span = self._spans[path]
        begin, end = span.value if value else span.key
        return self._place(begin, end)

    def _place(self, begin: int, end: int) -> Place:
        """With a part of the line: a list in one line may have a million items, and a
        mistake in each."""
        number = bisect_right(self._lines, begin)
        first = self._lines[number - 1]
        last = self._lines[number] - 1 if number < len(self._lines) else len(self._text)
        left, right = self._around(begin, first, last)
        shown, column, width = "", begin - left, min(end, right) - begin
        at = left
        for start, stop in self._secrets(left, right):
            shown += self._text[at:max(at, start)] + "…"
            at = min(stop, right)
            if start <= begin < stop:
                column, width = len(shown) - 1, 1
            elif stop <= begin:
                column = len(shown) + begin - at
        shown += self._text[at:right]
        return Place(number, shown, column, width, left - first)

    def _around(self, begin: int, first: int, last: int) -> tuple[int, int]:
        """The part of the line that is shown. It begins and ends between words: half a
        URL may have a password without its at sign."""
        left, right = max(first, begin - MOST_SHOWN), min(last, begin + MOST_SHOWN)
        if left > first:
            word = _END.search(self._text, left, begin)
            left = begin if word is None else word.end()
        if right < last:
            ends = [word.end() for word in _END.finditer(self._text, begin + 1, right)]
            scheme = self._text.find("//", begin, right)
            right = ends[-1] if ends else right if scheme < 0 else scheme + 2
        return left, right

    @cached_property
    def _lines(self) -> list[int]:
        """The start of each line."""
        return [0, *(match.end() for match in re.finditer("\n", self._text))]

    @cached_property
    def _leaves(self) -> tuple[list[int], list[int], list[Path]]:
        """Begins and ends of all values without others inside, which do not overlap."""
        leaves = sorted((*span.value, path) for path, span in self._spans.items()
                        if span.is_leaf)
        return ([begin for begin, _, _ in leaves], [end for _, end, _ in leaves],
                [path for _, _, path in leaves])

    def _secrets(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        begins, ends, paths = self._leaves
        for i in range(bisect_right(ends, first), bisect_left(begins, last)):
            if self._is_secret(paths[i]):
                yield begins[i], ends[i]


def read_toml(text: str, is_secret: Callable[[Path], bool]) -> dict[str, Any]:
    """Returns the table. Raises TomlError."""
    # Imported where there is a text: a worker has none, and its start is 1.5 ms shorter
    import tomllib

    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise TomlError("nests too deep", None) from None
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
    else:
        path = _find_long_integer(table)
        if path is None:
            return table
        raise TomlError("an integer has more than 64 bits",
                        Places(text, is_secret).value(*path))
    lines = text.replace("\r\n", "\n").split("\n")
    match = _AT.search(reason)
    line = int(match[1]) if match and match[1] else len(lines)
    column = int(match[2]) - 1 if match and match[2] else len(lines[line - 1])
    shown_line = lines[line - 1]
    pair = _PAIR.match(shown_line)
    if pair is None and shown_line.lstrip()[:1] not in ("[", ""):
        shown_line, column = "", 0                 # inside a value of several lines
    elif pair is not None:
        bare = _BARE.match(shown_line, pair.end())
        secret = is_secret((pair[2],))
        if bare and match and column >= pair.end():
            shown = "…" if secret else bare[0]
            reason += f"; a string needs quotes: {pair[2]} = \"{shown}\""
        if secret:
            shown_line, column = shown_line[:pair.end()] + "…", min(column, pair.end())
    if first := _first_place(lines, line):
        begin = len(lines[line - 1]) - len(lines[line - 1].lstrip())
        key = pair[2] if pair else lines[line - 1].split("#")[0].strip()
        place = Place(line, shown_line, begin, len(key))
        raise TomlError(f"{key} is there twice; the first is in line {first}", place
                        ) from None
    if _YAML.match(lines[line - 1]):
        reason += "; this looks like YAML, and the file is TOML: key = value"
    place = Place(line, shown_line, column, 1)
    raise TomlError(_AT.sub("", reason.partition(";")[0]) + "".join(
        reason.partition(";")[1:]), place) from None


def _find_long_integer(table: dict[str, Any]) -> Path | None:
    """TOML 1.0 has integers of 64 bits, and tomllib of any length: a message could not
    show them, and no float has their value. Not a recursion: it may nest as deep as
    tomllib reads."""
    left: list[tuple[Path, Any]] = [((), table)]
    while left:
        path, value = left.pop()
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                return path
            continue
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        left += [((*path, key), inner) for key, inner in pairs
                 if isinstance(inner, dict | list | int)]
    return None


def _first_place(lines: list[str], line: int) -> int:
    """The number of an earlier line that has the key, or the header, of this line, in
    the same table; 0: none."""
    headers = {number: text.split("#")[0].strip()
               for number, text in enumerate(lines[:line], 1)
               if text.lstrip().startswith("[")}
    if line in headers:
        return next((number for number, header in headers.items()
                     if number < line and header == headers[line]), 0)
    pair = _PAIR.match(lines[line - 1])
    begin = max(headers, default=0)
    return next((
        number for number, text in enumerate(lines[begin:line - 1], begin + 1)
        if pair and (other := _PAIR.match(text)) and other[2] == pair[2]), 0)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.spans: dict[Path, Span] = {}
        self.counts: dict[Path, int] = {}    # tables of an array so far

    def scan(self) -> dict[Path, Span]:
        path: Path = ()
        while self.skip(_BLANK) < len(self.text):
            if self.text[self.at] == "[":
                path = self.header()
            else:
                self.pair(path)
        return self.spans

    def skip(self, what: re.Pattern[str]) -> int:
        match = what.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return self.at

    def header(self) -> Path:
        begin = self.at
        many = self.text.startswith("[[", self.at)
        self.at += 1 + many
        keys = self.keys()
        self.at += 1 + many
        path: Path = ()
        for i, key in enumerate(keys):
            path = (*path, key)
            if i == len(keys) - 1 and many:
                self.counts[path] = self.counts.get(path, 0) + 1
            if path in self.counts:
                path = (*path, self.counts[path] - 1)
        span = (begin, self.at)
        self.spans.setdefault(path, Span(span, span, False))
        return path

    def keys(self) -> list[str]:
        import tomllib

        keys = []
        while True:
            self.skip(_SPACE)
            begin = self.at
            raw = self.text[begin:self.skip(_KEY)]
            keys.append(tomllib.loads(f"k = {raw}")["k"] if raw[0] in "\"'" else raw)
            self.skip(_SPACE)
            if self.text[self.at] != ".":
                return keys
            self.at += 1

    def pair(self, path: Path) -> None:
        begin = self.at
        keys = self.keys()
        key = (begin, begin + len(self.text[begin:self.at].rstrip()))
        self.at += 1                         # =
        self.skip(_SPACE)
        start = self.at
        whole = (*path, *keys)
        is_leaf = self.value(whole)
        value = (start, self.at)
        for i in range(1, len(keys)):
            self.spans.setdefault((*path, *keys[:i]), Span(key, value, False))
        self.spans[whole] = Span(key, value, is_leaf)

    def value(self, path: Path) -> bool:
        """Moves past a value; returns whether it contains no other values."""
        opening = self.text[self.at]
        if opening not in "[{":
            self.skip(_VALUE)
            return True
        self.at += 1
        number = 0
        while self.text[self.skip(_BLANK)] not in "]}":
            if opening == "{":
                self.pair(path)
            else:
                begin = self.at
                is_leaf = self.value((*path, number))
                span = (begin, self.at)
                self.spans[(*path, number)] = Span(span, span, is_leaf)
            number += 1
            self.skip(_BLANK)
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1
        return False
