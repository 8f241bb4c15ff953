"""Bodies of several parts: multipart (RFC 2046, RFC 7578), and streams of events (the
HTML standard, section 9.2.6)."""

import re
from collections.abc import Callable
from typing import NamedTuple

MOST_PARTS = 1000
_BOUNDARY = re.compile(
    r";\s{0,9}boundary\s{0,9}=\s{0,9}(?:\"([^\"]{1,200})\"|([^\s;,\"]{1,200}))", re.I)
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|\Z)")
_NAME = re.compile(
    r";\s{0,9}name(\*?)\s{0,9}=\s{0,9}(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;]*))", re.I)
_PLAIN = ("", "7bit", "8bit", "binary")


class Malformed(ValueError):
    """A body that is not of the form of its type."""


class Part(NamedTuple):
    begin: int                               # of its content
    end: int
    name: str                                # of a form's field; "": it has none
    kind: str                                # its media type; "": not given
    is_plain: bool                           # no transfer encoding


def read_parts(data: bytes, kind: str) -> list[Part]:
    """The parts of a multipart body. Raises Malformed, also if it does not end."""
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
        if len(parts) >= MOST_PARTS:
            raise Malformed
        parts.append(_read_part(data, line_end + 1, end))
        at = end


def _read_part(data: bytes, at: int, end: int) -> Part:
    name, kind, coding = "", "", ""
    while True:
        line_end = data.find(b"\n", at, end)
        if line_end < 0:
            raise Malformed
        line = data[at:line_end].strip().decode("utf-8", "replace")
        at = line_end + 1
        if not line:
            break
        field, _, value = line.partition(":")
        field = field.strip().lower()
        if field == "content-disposition":
            match = _NAME.search(value)
            name = (match[2] or match[3] or "") if match else ""
            if match and match[1]:           # charset'language'name
                name = name.rpartition("'")[2]
        elif field == "content-type":
            kind = value.strip()
        elif field == "content-transfer-encoding":
            coding = value.strip().lower()
    for ending in (b"\r\n", b"\n"):          # it belongs to the boundary
        if data.endswith(ending, at, end):
            end -= len(ending)
            break
    return Part(at, end, name, kind, coding in _PLAIN)


def redact_events(data: bytes, redact: Callable[[bytes], bytes],
                  redact_line: Callable[[bytes], bytes]) -> bytes:
    """A stream in which `redact` has had the data of each event, and `redact_line` each
    other line. The data of an event that has changed stands in its first line."""
    pieces: list[bytes] = []
    places, lines = list[int](), list[bytes]()           # of the data of an event

    def end_event() -> None:
        text = b"\n".join(lines)
        changed = redact(text) if text else text
        if changed != text:
            ending = pieces[places[-1] + 1]
            for place in places:
                pieces[place] = pieces[place + 1] = b""
            pieces[places[0]] = b"data: " + changed.replace(
                b"\n", (ending or b"\n") + b"data: ")
            pieces[places[0] + 1] = ending
        places.clear()
        lines.clear()

    for match in _LINE.finditer(data):
        line = match[1]
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        if name == b"data":
            places.append(len(pieces))
            lines.append(value.removeprefix(b" "))
        elif line:
            line = redact_line(line)
        else:
            end_event()
        pieces += [line, match[2]]
    end_event()
    return b"".join(pieces)
