"""Bodies of several parts: multipart (RFC 2046, RFC 7578), messages with a head, and
streams of events (the HTML standard, section 9.2.6)."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cutthrough.exchange.heads import find_field, find_list

MOST_PARTS = 1000                            # of a body, those within parts included
MOST_LINES = 1 << 17                         # of a stream of events: 2 µs each
MOST_FIELD = 16384                           # octets of a field of a part
MOST_FOLDS = 100                             # lines that continue a field, of a part
_BOUNDARY = re.compile(
    r";\s{0,9}boundary\s{0,9}=\s{0,9}(?:\"([^\"]{1,200})\"|([^\s;,\"]{1,200}))", re.I)
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|\Z)")
_PARAMETER = re.compile(
    r"[;\s]\s{0,9}([\w-]{1,40})(?:\*\d{1,3})?(\*?)\s{0,9}=\s{0,9}"
    r"(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]*))")
_ESCAPE = re.compile(r"\\(.)")
_MARK = b"\xef\xbb\xbf"
_HEAD = re.compile(rb"(?:[^\r\n]++\r?\n){0,1000}\r?\n")
# The first line of a message of HTTP
_START = re.compile(
    rb"[A-Z-]{1,20} [^\s]{1,65536} HTTP/[0-9]|HTTP/[0-9.]{1,9} [0-9]")
_BLANK = re.compile(rb"[\r\n]*+")
_LENGTH = re.compile("[0-9]{1,15}")
_PLAIN = ("", "7bit", "8bit", "binary")


class Malformed(ValueError):
    """A body that is not of the form of its type."""


class Nesting(NamedTuple):
    """The place of a body: it is within so many others, and so many parts may follow in
    it."""

    level: int
    parts: Iterator[int]                     # of the outermost body: one for all

    def inner(self) -> "Nesting":
        return Nesting(self.level + 1, self.parts)


def outermost() -> Nesting:
    return Nesting(0, iter(range(MOST_PARTS)))


class Part(NamedTuple):
    head: int                                # where it begins
    begin: int                               # of its content
    end: int
    names: tuple[str, ...]                   # of a form's field
    kind: str                                # its media type; "": not given
    is_plain: bool                           # no transfer encoding


def read_parts(data: bytes, kind: str, numbers: Iterator[int]) -> list[Part]:
    """The parts of a multipart body; each takes one of these numbers. Raises Malformed,
    also if it does not end."""
    match = _BOUNDARY.search(kind)
    if match is None:
        raise Malformed
    mark = b"--" + (match[1] or match[2]).encode("latin-1", "replace")
    parts: list[Part] = []
    at = data.find(mark)
    if at < 0 or data[:at].strip():          # a preamble is of no form
        raise Malformed
    while True:
        at += len(mark)
        if data.startswith(b"--", at):
            if data[at + 2:].strip():        # an epilogue
                raise Malformed
            return parts
        line_end = data.find(b"\n", at)
        end = data.find(mark, at)
        if line_end < 0 or end < line_end or data[at:line_end].strip():
            raise Malformed
        if next(numbers, None) is None:
            raise Malformed
        parts.append(_read_part(data, line_end + 1, end))
        at = end


def _read_part(data: bytes, head: int, end: int) -> Part:
    names, kind, coding = list[str](), "", ""
    lines, at = _read_lines(data, head, end)
    for line in lines:
        field, _, value = line.partition(":")
        field = field.strip().lower()
        if field == "content-disposition":
            names += _read_names(value)
        elif field == "content-type":
            kind = value.strip()
        elif field == "content-transfer-encoding":
            coding = value.strip().lower()
    for ending in (b"\r\n", b"\n"):          # it belongs to the boundary
        if data.endswith(ending, at, end):
            end -= len(ending)
            break
    return Part(head, at, end, tuple(names), kind, coding in _PLAIN)


def _read_lines(data: bytes, at: int, end: int) -> tuple[list[str], int]:
    """The fields of a part, each on a line, and where its content begins."""
    lines: list[str] = []
    folds = 0
    while True:
        line_end = data.find(b"\n", at, end)
        if line_end < 0 or line_end - at > MOST_FIELD:
            raise Malformed
        line = data[at:line_end].decode("utf-8", "replace")
        at = line_end + 1
        if not line.strip():
            return lines, at
        if line[0] in " \t" and lines:       # RFC 5322 section 2.2.3
            folds += 1
            line = lines.pop() + line.rstrip()
            if folds > MOST_FOLDS or len(line) > MOST_FIELD:
                raise Malformed
        lines.append(line.strip())


def _read_names(value: str) -> Iterator[str]:
    """Yields the name of a form's field, in each reading of Content-Disposition."""
    pieces: list[str] = []
    for match in _PARAMETER.finditer(value):
        if match[1].lower() != "name":
            continue
        name = match[3] or match[4] or ""
        if match[2]:                         # charset'language'name
            name = name.rpartition("'")[2]
        pieces.append(name)                  # name*0, name*1 (RFC 2231 section 3)
        yield from (name, name.strip("'"), _ESCAPE.sub(r"\1", name))
    yield "".join(pieces)


class Inner(NamedTuple):
    """A message in a body."""

    head: str
    begin: int                               # of its body
    end: int
    kind: str                                # its body's media type
    is_plain: bool                           # no coding


def read_message(data: bytes, at: int = 0) -> Inner:
    """The message that begins here. Others may follow (RFC 9112 section 10.2): it ends
    where one begins behind its Content-Length, or its head. Raises Malformed."""
    match = _HEAD.match(data, at)
    if match is None:
        raise Malformed
    head, begin = match[0].decode("latin-1"), match.end()
    fields = f"\n{head}"                     # some have no first line
    is_plain = all(
        find_list(fields, name).lower() in (*_PLAIN, "identity") for name in (
            "content-encoding", "transfer-encoding", "content-transfer-encoding"))
    length = find_field(fields, "content-length")
    end = begin + (int(length) if _LENGTH.fullmatch(length) else 0)
    blank = _BLANK.match(data, end)
    end = blank.end() if blank and _START.match(data, blank.end()) else len(data)
    return Inner(head, begin, end, find_field(fields, "content-type"), is_plain)


def redact_events(data: bytes, redact: Callable[[bytes], bytes],
                  redact_others: Callable[[bytes], bytes]) -> bytes:
    """A stream in which `redact_others` has had all lines between two of data, and
    `redact` the data of each event. If that has changed, its lines stand behind the
    other lines of the event. Raises Malformed if it has more than MOST_LINES."""
    if data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") > MOST_LINES:
        raise Malformed
    mark = _MARK if data.startswith(_MARK) else b""
    data = _redact_others(data[len(mark):], redact_others)
    return mark + _redact_data(data, redact)


def _is_data(line: bytes) -> bool:
    return line.startswith(b"data") and line[4:5] in (b"", b":")


def _redact_others(data: bytes, redact: Callable[[bytes], bytes]) -> bytes:
    result = bytearray()
    at = 0                                   # behind the last line of data
    for match in _LINE.finditer(data):
        is_end = match.end() == match.start()            # of the stream
        if is_end or _is_data(match[1]):
            lines = data[at:match.start()]
            if core := lines.strip(b"\r\n"):
                begin = lines.index(core)
                result += lines[:begin] + redact(core) + lines[begin + len(core):]
            else:
                result += lines
            result += match[0]
            at = match.end()
    return bytes(result)


def _redact_data(data: bytes, redact: Callable[[bytes], bytes]) -> bytes:
    result, text = bytearray(), bytearray()
    at, begin, end, ending = 0, -1, 0, b""   # of an event's lines of data
    for match in _LINE.finditer(data):
        if _is_data(match[1]):
            if begin < 0:
                begin = match.start()
            else:
                text += b"\n"
            text += match[1][5:].removeprefix(b" ")
            end, ending = match.end(), match[2]
        elif begin >= 0 and not match[1]:    # the event ends, also with the stream
            changed = redact(bytes(text)) if text else b""
            if changed != text:
                result += data[at:begin]
                for other in _LINE.finditer(data, begin, end):
                    result += b"" if _is_data(other[1]) else other[0]
                result += b"data: " + changed.replace(
                    b"\n", (ending or b"\n") + b"data: ") + ending
                at = end
            text.clear()
            begin = -1
    return bytes(result + data[at:])
