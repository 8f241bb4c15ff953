"""Members of JSON in a text that is no document: a line of a log, a script, a page, a
frame of another protocol (`42["login", {"password": …}]`).

Where such a document begins is not known, so the last key of a path counts, in whatever
object it is: more is hidden than a path says. A key and its value are found as they
are, as strings of JSON in each other have them (`\\"password\\"`), as HTML has them
(`&quot;`, `&#034;`), as strings of a script have them (`\\u0022`, `\\x22`), and
percent-encoded at any depth. A quotation mark may be an apostrophe, as in Python. A key
without one is found if its value is a string: objects of scripts, arguments of GraphQL,
YAML.

The search is linear: no value is read twice, and each repetition is of characters, or
bounded.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
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


_MOST_OF_SOLIDUS: Final = 24                 # octets of a spelling
# In a string of a script, perhaps in other strings
_ESCAPE: Final = rb"\\{1,16}+(?:u00|x)"
_SPELLINGS: Final = (
    _Spelling(rb"\\", rb"[\"']", rb"[\[{]", rb"[\]}]", rb":", rb"\s*+",
              rb"[,\s\]}<]"),
    _Spelling(rb"(?:\\|&(?:bsol|#0{0,6}92|#x0{0,6}5c);)",
              rb"&(?:quot|apos|#0{0,6}3[49]|#x0{0,6}2[27]);",
              rb"(?:[\[{]|&(?:lsqb|lbrack|lcub|lbrace|#0{0,6}(?:91|123)|"
              rb"#x0{0,6}[57]b);)",
              rb"(?:[\]}]|&(?:rsqb|rbrack|rcub|rbrace|#0{0,6}(?:93|125)|"
              rb"#x0{0,6}[57]d);)",
              rb"(?::|&(?:colon|#0{0,6}58|#x0{0,6}3a);)", rb"\s*+",
              rb"(?:[,\s\]}<\"]|&(?:comma|#0{0,6}44|#x0{0,6}2c);)"),
    _Spelling(_ESCAPE + b"5c", _ESCAPE + b"2[27]", rb"(?:[\[{]|%s[57]b)" % _ESCAPE,
              rb"(?:[\]}]|%s[57]d)" % _ESCAPE, rb"(?::|%s3a)" % _ESCAPE, rb"\s*+",
              rb"(?:[,\s\]}<\"']|%s(?:2c|[57]d))" % _ESCAPE),
    _Spelling(rb"%%%s5c" % _HEX, rb"%%%s2[27]" % _HEX,
              rb"(?:[\[{]|%%%s(?:5b|7b))" % _HEX,
              rb"(?:[\]}]|%%%s(?:5d|7d))" % _HEX, rb"(?::|%%%s3a)" % _HEX,
              rb"(?:[ +]|%%%s(?:20|09|0a|0d)){0,99}" % _HEX,
              rb"(?:[,&\s\]}]|%%%s(?:2c|5d|7d))" % _HEX))


# Solidi that _run_begin knows
_PLAIN: Final = (_SPELLINGS[0].solidus, _SPELLINGS[-1].solidus)
# Behind a key without a mark: a string begins
_LITERAL = re.compile(rb"\s{0,9}:\s*+(\\{0,127})([\"'])")
_QUOTED_LITERAL = re.compile(
    rb"(?i:%(blank)s%(colon)s%(blank)s((?:%(solidus)s){0,127})(%(quote)s))" % {
        key.encode(): value for key, value in _SPELLINGS[-1]._asdict().items()})
_BEFORE_NAME = re.compile(rb"%(?:25){0,9}[0-9A-Fa-f]{2}\Z")
# What may not stand before it: of a longer name, or of another spelling
_IN_NAME = re.compile(rb"[\w$.\x80-\xff\"'\\-]")
# An apostrophe, spelled
_APOSTROPHES: Final = (b"'", b"apos;", b"39;", b"27;", b"27")
_SCRIPTED = re.compile(r"\\{1,16}(?:u00|x)([0-9A-Fa-f]{2})")


class _Value(NamedTuple):
    begin: int
    end: int
    mark: bytes                              # of its string, or its key's
    level: int                               # reverse solidi in it


class _Compiled:
    """A spelling, for keys of these names."""

    def __init__(self, spelling: _Spelling, names: bytes) -> None:
        self.is_script = spelling.solidus.startswith(_ESCAPE)
        self.run_begin = _run_begin if spelling.solidus in _PLAIN else _run_begin_of(
            re.compile(rb"(?i:%s)" % spelling.solidus), self.is_script)
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
    """Members of these names; "" stands for any. `mask` makes the stand-ins."""

    def __init__(self, names: Iterable[str], mask: Callable[[str], str]) -> None:
        self._mask = mask
        names = set(names)
        self._parts = tuple(name.encode() for name in names)
        spelled = _ANY if "" in names else b"|".join(map(_spelled, sorted(names)))
        # 4 ms, which a process that redacts nothing does not spend
        self._spellings = [_Compiled(each, spelled) for each in _SPELLINGS
                           if names]

    def redact(self, data: bytes, most: int, *, of_json: bool = True) -> bytes:
        """The same object if there is none. `of_json`: also those that are written as
        in a document. Raises ValueError if there are more than `most`."""
        if not self._spellings or (
                not self._may_have_any(data) and b"%" not in data):
            return data                      # most fields of heads
        for spelling in self._spellings[0 if of_json else 1:]:
            if self._may_have(data, spelling):
                data = self._redact(data, _values(data, spelling, most), most)
        return self._redact(data, self._literals(data), most) if of_json else data

    def may_be_in(self, data: bytes) -> bool:
        return bool(self._spellings) and (
            self._may_have_any(data) or self._may_have(data, self._spellings[-1]))

    def are_in_strings(self, data: bytes) -> bool:
        """Has a document such members in its strings?"""
        if not self._spellings or not self._may_have_any(data):
            return False
        plain = self._spellings[0]
        return (self._may_begin_by(data, b'\\"', b"'") and any(
            key[1] == b"'" or _run_begin(data, key.start()) < key.start()
            for key in plain.keys.finditer(data))) or next(
                self._literals(data), None) is not None

    # Looks that cost little.

    def _may_have(self, data: bytes, spelling: _Compiled) -> bool:
        if spelling is self._spellings[0]:
            return self._may_begin_by(data, b'"', b"'")
        if spelling.is_script and not (b"\\u00" in data or b"\\x" in data):
            return False
        return spelling.quote.search(data) is not None and (
            spelling is self._spellings[-1] or self._may_have_any(data))

    def _may_have_any(self, data: bytes) -> bool:
        for part in self._parts:             # a generator would take as long again
            if part in data:
                return True
        return b"\\u00" in data

    def _may_begin_by(self, data: bytes, *marks: bytes) -> bool:
        """Is a name behind one of these marks?"""
        return b"\\u00" in data or any(
            mark + part in data for part in self._parts for mark in marks)

    def _literals(self, data: bytes) -> Iterator[_Value]:
        """Strings behind such a name without marks, and a colon."""
        behind = 0
        for start, match in sorted(
                _behind_names(data, self._parts), key=itemgetter(0)):
            if start < behind:
                continue                     # inside the value of another
            begin, mark, level = match.start(1), match[1] + match[2], _solidi(match[1])
            if data.startswith(b'"""', begin):           # of GraphQL, or Python
                mark = b'"""'
                behind = data.find(mark, begin + 3) + 3
                behind = len(data) if behind < begin + 6 else behind
            else:
                behind = _string_end(data, match.end(), level, self._spellings[
                    0 if match.re is _LITERAL else -1], match[2])
            yield _Value(begin, behind, mark, level)

    def _redact(self, data: bytes, values: Iterator[_Value], most: int) -> bytes:
        pieces: list[bytes] = []
        at = 0
        for number, (begin, end, mark, level) in enumerate(values):
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


def _values(data: bytes, spelling: _Compiled, most: int) -> Iterator[_Value]:
    """Yields the values behind the keys. A value that does not end goes to the end of
    the text."""
    behind = 0
    tokens = iter(range(MOST_TOKENS * most))
    for key in spelling.keys.finditer(data):
        begin = key.end()
        if key.start() < behind:
            continue                         # inside the value of another
        run = spelling.run_begin(data, key.start())
        level = _solidi(data[run:key.start()])
        mark = data[run:key.end(1)]
        opening = spelling.opening_quote.match(data, begin)
        if opening and _solidi(opening[1]) == level:
            mark = opening[0]
            behind = _string_end(data, opening.end(), level, spelling, mark)
        elif spelling.opening.match(data, begin):
            behind = _container_end(data, begin, level, spelling, tokens)
        else:
            end = spelling.end.search(data, begin)
            behind = end.start() if end else len(data)
        if behind > begin:
            yield _Value(begin, behind, mark, level)


def _run_begin(data: bytes, at: int) -> int:
    """Returns the start of the reverse solidi that end here."""
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


def _run_begin_of(solidus: re.Pattern[bytes], is_script: bool
                  ) -> Callable[[bytes, int], int]:
    """As _run_begin, of solidi in references of HTML or escapes of a script."""
    def run_begin(data: bytes, at: int) -> int:
        for _ in range(127):
            least = max(at - _MOST_OF_SOLIDUS, 0)
            begin = max(data.rfind(b"\\", least, at), data.rfind(b"&", least, at))
            while is_script and begin > least and data.endswith(b"\\", 0, begin):
                begin -= 1
            if begin < 0 or solidus.fullmatch(data, begin, at) is None:
                break
            at = begin
        return at
    return run_begin


def _solidi(run: bytes) -> int:
    if run[:1] == b"%" or (b"5c" in run[:22].lower() and b";" not in run):
        return run.lower().count(b"5c")
    return run.count(b"\\") + run.count(b";")


def _behind_names(data: bytes, names: Iterable[bytes]
                  ) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Yields the start of each name, and the string behind it: _LITERAL,
    _QUOTED_LITERAL."""
    for name in filter(None, names):
        at = data.find(name)
        while at >= 0:
            end = at + len(name)
            match = _LITERAL.match(data, end) or _QUOTED_LITERAL.match(data, end)
            if match and (not at or _IN_NAME.match(data, at - 1) is None or (
                    _BEFORE_NAME.search(data[max(at - 24, 0):at]))):
                yield at, match
            at = data.find(name, end)


def _is_apostrophe(mark: bytes) -> bool:
    return mark.lower().endswith(_APOSTROPHES)


def _ends(solidi: int, level: int) -> bool:
    """Does a quotation mark behind so many reverse solidi end a string that began
    behind `level` of them, or one around it?"""
    return solidi < level or (
        (solidi + 1) % (level + 1) == 0 and (solidi + 1) // (level + 1) % 2 == 1)


def _string_end(data: bytes, at: int, level: int, spelling: _Compiled, opening: bytes
                ) -> int:
    """`opening`: its mark. Another one is text."""
    is_apostrophe = _is_apostrophe(opening)
    for mark in spelling.quote.finditer(data, at):
        if _is_apostrophe(mark[0]) != is_apostrophe:
            continue
        run = spelling.run_begin(data, mark.start())
        solidi = _solidi(data[run:mark.start()])
        if _ends(solidi, level):
            return run if solidi < level else mark.end()
    return len(data)


def _container_end(data: bytes, at: int, level: int, spelling: _Compiled,
                   tokens: Iterator[int]) -> int:
    """`tokens`: as many may be read. Raises ValueError."""
    depth, string = 0, b""                   # the mark with which it has begun
    for token in spelling.tokens.finditer(data, at):
        if next(tokens, None) is None:
            raise ValueError("too many tokens")
        if token[1] is not None:
            if string and _is_apostrophe(token[1]) != _is_apostrophe(string):
                continue
            run = spelling.run_begin(data, token.start())
            solidi = _solidi(data[run:token.start()])
            if solidi < level:
                return run                   # the string around it ends
            if _ends(solidi, level):
                string = b"" if string else token[1]
        elif not string:
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
        import html  # 1 ms, which few workers need

        text = html.unescape(text)
    elif mark.endswith((b"22", b"27")) and mark[:1] == b"\\":
        text = _SCRIPTED.sub(lambda match: chr(int(match[1], 16)), text)
    if level == 0 and _is_apostrophe(mark):
        text = text.replace("\\'", "'").replace('"', '\\"')
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
