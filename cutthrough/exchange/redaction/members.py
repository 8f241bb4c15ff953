"""Members of JSON in a text that is no document: a line of a log, a script, a page, a
frame of another protocol (`42["login", {"password": …}]`).

Where such a document begins is not known, so the last key of a path counts, in whatever
object it is: more is hidden than a path says. A key and its value are found as they
are, as strings of JSON in each other have them (`\\"password\\"`), as HTML has them
(`&quot;`), and percent-encoded at any depth.

The search is linear: no value is read twice, and each repetition is of characters, or
bounded.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from cutthrough.exchange.redaction.spellings import unquoted_octets

# Octets of a value that is read, so that equal values have equal stand-ins
MOST_READ: Final = 16384
# Brackets and quotation marks in values of a text, for each value that it may have.
# Each takes some 0.5 µs
MOST_TOKENS: Final = 16
_MOST_LEVELS: Final = 9                      # of percent-encoding, and of strings
_HEX: Final = rb"(?:25){0,%d}" % _MOST_LEVELS
# Any key: a path may have none
_ANY: Final = rb"[^\"\\<>&%]{0,200}"

# Of an array: tokens before its first object that has members
_TOKEN = re.compile(
    rb"\s*+([\[\],]|\"(?:[^\"\\]++|\\.){0,999}\"|[\w.+-]++|\{\s*+\})")
_MEMBER = re.compile(rb"\s*+\{\s*+\"")


class _Spelling(NamedTuple):
    """How the characters of a document are written: expressions."""

    solidus: bytes                           # a reverse one, before a quotation mark
    quote: bytes
    opening: bytes
    closing: bytes
    colon: bytes
    blank: bytes
    end: bytes                               # of a number or a word


_SPELLINGS: Final = (
    _Spelling(rb"\\", rb'"', rb"[\[{]", rb"[\]}]", rb":", rb"\s*+", rb"[,\s\]}<]"),
    _Spelling(rb"\\", rb"&(?:quot|#34|#x22);", rb"[\[{]", rb"[\]}]", rb":", rb"\s*+",
              rb"[,\s\]}<\"]"),
    _Spelling(rb"%%%s5c" % _HEX, rb"%%%s22" % _HEX, rb"(?:[\[{]|%%%s(?:5b|7b))" % _HEX,
              rb"(?:[\]}]|%%%s(?:5d|7d))" % _HEX, rb"(?::|%%%s3a)" % _HEX,
              rb"(?:[ +]|%%%s(?:20|09|0a|0d)){0,99}" % _HEX,
              rb"(?:[,&\s\]}]|%%%s(?:2c|5d|7d))" % _HEX))


class _Compiled:
    """A spelling, for keys of these names."""

    def __init__(self, spelling: _Spelling, names: bytes) -> None:
        has: dict[bytes, bytes] = {
            key.encode(): value for key, value in spelling._asdict().items()}
        has |= {b"names": names, b"run": rb"((?:%s){0,127})" % spelling.solidus}
        self.quote = re.compile(rb"(?i:%(quote)s)" % has)
        self.keys = re.compile(
            rb"((?i:%(quote)s))(?:%(names)s)(?i:%(run)s%(quote)s"
            rb"%(blank)s%(colon)s%(blank)s)" % has)
        self.opening_quote = re.compile(rb"(?i:%(run)s%(quote)s)" % has)
        self.opening = re.compile(rb"(?i:%(opening)s)" % has)
        self.tokens = re.compile(
            rb"(?i:(%(quote)s)|(%(opening)s)|(%(closing)s))" % has)
        self.end = re.compile(rb"(?i:%(end)s|%(run)s%(quote)s)" % has)


class Members:
    """Those of these names; "" stands for any. `mask` makes the stand-ins."""

    def __init__(self, names: Iterable[str], mask: Callable[[str], str]) -> None:
        self._mask = mask
        names = set(names)
        self._parts = tuple(name.encode() for name in names)
        spelled = _ANY if "" in names else b"|".join(map(_spelled, sorted(names)))
        self._spellings = [_Compiled(each, spelled) for each in _SPELLINGS]

    def redact(self, data: bytes, most: int, *, of_json: bool = True) -> bytes:
        """The same object if there is none. `of_json`: also those that are written as
        in a document. Raises ValueError if there are more than `most`."""
        for spelling in self._spellings[0 if of_json else 1:]:
            if self._may_have(data, spelling):
                data = self._redact(data, spelling, most)
        return data

    def may_be_in(self, data: bytes) -> bool:
        return any(self._may_have(data, spelling) for spelling in self._spellings)

    def are_in_strings(self, data: bytes) -> bool:
        """Has a document such members in its strings?"""
        plain = self._spellings[0]
        return b"\\" in data and self._may_have(data, plain) and any(
            _run_begin(data, key.start()) < key.start()
            for key in plain.keys.finditer(data))

    def _may_have(self, data: bytes, spelling: _Compiled) -> bool:
        """A look that costs little."""
        return spelling.quote.search(data) is not None and (
            spelling is self._spellings[-1] or b"\\u00" in data
            or any(part in data for part in self._parts))

    def _redact(self, data: bytes, spelling: _Compiled, most: int) -> bytes:
        pieces: list[bytes] = []
        at = 0
        for number, (begin, end, mark, level) in enumerate(
                _values(data, spelling, most)):
            if number >= most:
                raise ValueError("too many values")
            old = data[begin:end]
            is_string = old.startswith(mark) and len(old) > len(mark)
            text = old[len(mark):-len(mark)] if is_string else old
            read = _read(text, mark, level, is_string=is_string)
            stand_in = self._mask(read)
            if stand_in != read:
                pieces += [data[at:begin], mark, stand_in.encode(), mark]
                at = end
        return b"".join([*pieces, data[at:]]) if pieces else data


def _values(data: bytes, spelling: _Compiled, most: int
            ) -> Iterator[tuple[int, int, bytes, int]]:
    """(begin, end, quotation mark, reverse solidi in it) of each value. What does not
    end goes to the end of the text."""
    behind = 0
    tokens = iter(range(MOST_TOKENS * most))
    for key in spelling.keys.finditer(data):
        begin = key.end()
        if key.start() < behind:
            continue                         # inside the value of another
        run = _run_begin(data, key.start())
        level = _solidi(data[run:key.start()])
        opening = spelling.opening_quote.match(data, begin)
        if opening and _solidi(opening[1]) == level:
            behind = _string_end(data, opening.end(), level, spelling)
        elif spelling.opening.match(data, begin):
            behind = _container_end(data, begin, level, spelling, tokens)
        else:
            end = spelling.end.search(data, begin)
            behind = end.start() if end else len(data)
        if behind > begin:
            yield begin, behind, data[run:key.end(1)], level


def _run_begin(data: bytes, at: int) -> int:
    """Where the reverse solidi that end here begin."""
    for _ in range(127):
        if data.endswith(b"\\", 0, at):
            at -= 1
            continue
        if data[at - 2:at].lower() != b"5c":
            break
        begin = at - 2
        for _ in range(_MOST_LEVELS):
            if not data.endswith(b"25", 0, begin):
                break
            begin -= 2
        if not data.endswith(b"%", 0, begin):
            break
        at = begin - 1
    return at


def _solidi(run: bytes) -> int:
    return run.lower().count(b"5c") if run[:1] == b"%" else len(run)


def _ends(solidi: int, level: int) -> bool:
    """Does a quotation mark behind so many reverse solidi end a string that began
    behind `level` of them, or one around it?"""
    return solidi < level or (
        (solidi + 1) % (level + 1) == 0 and (solidi + 1) // (level + 1) % 2 == 1)


def _string_end(data: bytes, at: int, level: int, spelling: _Compiled) -> int:
    for mark in spelling.quote.finditer(data, at):
        run = _run_begin(data, mark.start())
        solidi = _solidi(data[run:mark.start()])
        if _ends(solidi, level):
            return run if solidi < level else mark.end()
    return len(data)


def _container_end(data: bytes, at: int, level: int, spelling: _Compiled,
                   tokens: Iterator[int]) -> int:
    """`tokens`: as many may be read. Raises ValueError."""
    depth, in_string = 0, False
    for token in spelling.tokens.finditer(data, at):
        if next(tokens, None) is None:
            raise ValueError("too many tokens")
        if token[1] is not None:
            run = _run_begin(data, token.start())
            solidi = _solidi(data[run:token.start()])
            if solidi < level:
                return run                   # the string around it ends
            if _ends(solidi, level):
                in_string = not in_string
        elif not in_string:
            depth += 1 if token[2] else -1
            if depth == 0:
                return token.end()
    return len(data)


def _read(data: bytes, mark: bytes, level: int, *, is_string: bool) -> str:
    """The value, in one spelling; as it is if it cannot be read."""
    text = data.decode("utf-8", "surrogateescape")
    if len(data) > MOST_READ:
        return text
    if mark.endswith(b";"):
        text = html.unescape(text)
    for _ in range(_MOST_LEVELS if mark[:1] == b"%" else 0):
        plain = unquoted_octets(text.encode("utf-8", "surrogateescape"))
        if (decoded := plain.decode("utf-8", "surrogateescape")) == text:
            break
        text = decoded
    try:
        for _ in range((level + 1).bit_length() - 1 + is_string):
            text = json.loads(f'"{text}"', strict=False)
        return text if is_string else json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _spelled(name: str) -> bytes:
    """An expression for a key."""
    return b"".join(map(_character, name))


def _character(character: str) -> bytes:
    octets = character.encode()
    ways = [re.escape(octets)]
    ways += [b"".join(rb"%%%s%s" % (_HEX, _digits(octet)) for octet in octets)]
    if ord(character) < 0x10000:
        ways += [rb"\\{1,127}u%s%s" % (_digits(ord(character) >> 8),
                                       _digits(ord(character) & 255))]
    return rb"(?:%s)" % b"|".join(ways)


def _digits(octet: int) -> bytes:
    """Two hexadecimal digits, in any case."""
    return b"".join(rb"[%s%s]" % (digit.encode(), digit.upper().encode())
                    if digit.isalpha() else digit.encode() for digit in f"{octet:02x}")


def has_members(data: bytes) -> bool:
    """Does a text, perhaps a cut or malformed document, begin as an object, or as an
    array with such an object in it?"""
    at = depth = 0
    while token := _TOKEN.match(data, at):
        depth += (token[1] == b"[") - (token[1] == b"]")
        if depth <= 0:
            return False
        at = token.end()
    return _MEMBER.match(data, at) is not None
