"""Keys of URLs and forms in a text, with their values, wherever they are: in a query, a
fragment, a form, a URL as a value of another, a string of JSON, a page.

A key is found in each spelling of some reader: percent-encoding at any depth
(`%74oken`, `%2574oken`), escapes of JSON (`\\u0074oken`), any case, and with brackets:
those that some languages append (`token[]`, `token[0]`), and those of a record around
it (`user[token]`). A value ends where it ends in the same spelling. If a value ends
later than necessary, more is hidden than asked.

The search is one automaton of RE2, linear in the text. Python's re keeps each turn of a
repeated group, in some 115 octets, until the match ends. So no text makes a repetition
of a group long there, and the end of a value is searched for. (A possessive repetition
keeps none, but before Python 3.11.5 may end too late.)
"""

import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote_plus, unquote_to_bytes

_HEX: Final = rb"(?:25)*"
# Before a key: the start, a character outside keys, or such a character in an escape
_BEFORE: Final = (rb"(?:^|[^\w.~$%-]|%(?:25)*[0-9a-f]{2}|\\u[0-9a-f]{4}|\\x[0-9a-f]{2}|"
                  rb"\\[nrt]|&#?\w{2,8};)")
# white space is part of a form's key: some frameworks trim it
_BLANK: Final = rb"(?:[ +]|%(?:25)*20){0,4}"
_BRACKET: Final = (rb"(?:(?:\[|%(?:25)*5b|\\u005b)[^=&\s\"<>]{0,64}?"
                   rb"(?:\]|%(?:25)*5d|\\u005d))")
_BRACKETS: Final = _BRACKET + rb"{0,4}"
# Of a record: user[token]
_CLOSING: Final = rb"(?:\]|%(?:25)*5d|\\u005d)?"
_EQUALS: Final = rb"(?:=|%((?:25)*)3d|\\u003d|\\x3d|&#61;|&#x3d;|&equals;)"
# Octets of a level of encoding: 20 times encoded. A value of a higher one ends later
_MOST_LEVEL: Final = 40
# Of a name of a part; what is behind them is one name
_MOST_BRACKETS: Final = 16
# Octets that are decoded at once: each piece takes up to 180 times its size
_PIECE: Final = 16384


def _escaped(character: str) -> bytes:
    """An expression for a character of a key, in any spelling."""
    octets = character.encode()
    spelled = b"".join(rb"%%%s%02x" % (_HEX, octet) for octet in octets)
    ways = [re.escape(octets), spelled]
    ways += [rb"\\u%04x" % ord(character)] if ord(character) < 0x10000 else []
    ways += [rb"\\x%02x" % octets[0]] if len(octets) == 1 else []
    ways += [rb"\+"] if character == " " else []
    return rb"(?:%s)" % b"|".join(ways)


def _compile(pattern: bytes) -> Any:
    try:
        re2 = importlib.import_module("re2")
    except ImportError:
        return re.compile(pattern.replace(
            _BRACKETS, rb"(?>%s{0,16})" % _BRACKET).replace(_HEX, rb"(?:25){0,32}"))
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1      # octets
    options.max_mem = 64 << 20
    options.log_errors = False
    return re2.compile(pattern, options)


def names_of(key: str) -> Iterator[str]:
    """A key as it is compared, decoded and in lower case: the whole, what is before
    and behind each bracket, and in it."""
    text = unquote_plus(key).strip().lower()
    yield text
    at = -1
    for part in text.split("[", _MOST_BRACKETS):
        at += len(part) + 1
        yield text[:at].strip()
        yield part.partition("]")[0].strip()


def unquoted(text: str) -> str:
    """As `unquote_plus` has it; octets that are not UTF-8 stay, as surrogates."""
    if len(text) <= _PIECE:
        return unquote_plus(text, errors="surrogateescape")
    data = text.replace("+", " ").encode("utf-8", "surrogatepass")
    return unquoted_octets(data).decode("utf-8", "surrogateescape")


def unquoted_octets(data: bytes) -> bytes:
    """As `unquote_to_bytes` has it, in pieces."""
    made = bytearray()
    at = 0
    while at < len(data):
        end = at + _PIECE
        cut = data.rfind(b"%", end - 2, end) if end < len(data) else -1
        end = end if cut < 0 else cut
        made += unquote_to_bytes(data[at:end])
        at = end
    return bytes(made)


class Keys:
    """These keys, in lower case."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        spelled = b"|".join(
            b"".join(map(_escaped, name)) for name in sorted(self.names))
        self._search = _compile(
            rb"(?i)%s%s(?:%s)%s%s%s%s" % (
                _BEFORE, _BLANK, spelled, _CLOSING, _BRACKETS, _BLANK, _EQUALS)
            ) if self.names else None
        self._ends: dict[bytes, re.Pattern[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self.names)

    def are_in(self, names: Iterable[str]) -> bool:
        """Is one of these fields of a form to be hidden?"""
        return any(not self.names.isdisjoint(names_of(name)) for name in names)

    def values(self, text: bytes, *, is_form: bool = False
               ) -> Iterator[tuple[int, int]]:
        """(begin, end) of each value, in order. `is_form`: the text is a form or a
        query: only & ends a value there."""
        if self._search is None:
            return
        behind = 0
        for match in self._search.finditer(text):
            begin = match.end()
            if begin < behind:
                continue                     # inside the value of another
            level = match[1]                 # None: the equals sign is not encoded
            if level is not None and len(level) > _MOST_LEVEL:
                level = None
            behind = self._end(text, begin, level, is_form=is_form)
            if behind > begin:
                yield begin, behind

    def _end(self, text: bytes, begin: int, level: bytes | None, *, is_form: bool
             ) -> int:
        """Returns the end of the value that begins here. `level`: the text between %
        and 3d, if that was the spelling of the equals sign; then %26 ends the value, so
        spelled."""
        key = (b"f" if is_form else b"t") + (b"-" if level is None else level)
        pattern = self._ends.get(key)
        if pattern is None:
            ends = rb"&" if is_form else rb"[&\s\"<>]|\\(?:u0026|x26|[\r\n]|\Z)"
            if level is not None:
                ends += rb"|%%%s26" % level
            if not is_form:
                ends += rb"|(\\[^\r\n])"      # an escape is a part of the value
            if len(self._ends) > 64:
                self._ends.clear()
            pattern = self._ends[key] = re.compile(rb"(?i)" + ends)
        for match in pattern.finditer(text, begin):
            if match.lastindex is None:
                return match.start()
        return len(text)
