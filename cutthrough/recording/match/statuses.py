"""Answers with a status that is a part of their key: a client without the question gets
none of them.

A WebSocket has the URL of a page, perhaps. An answer to a condition has no content
(RFC 9110 section 13), and one to a range has some octets of it (section 14): it answers
that range alone.
"""

from collections.abc import Iterator

from cutthrough.recording.match.index import Group, Index
from cutthrough.recording.match.keys import Base, Parts
from cutthrough.recording.match.matches import Reading
from cutthrough.recording.model.recording import Recording

SWITCHED, NOT_MODIFIED, PARTIAL = 101, 304, 206
APART = (SWITCHED, NOT_MODIFIED, PARTIAL)
_CONDITIONS = ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since",
               "if-range")
_RANGE = ("field", "range")


def key_of(recording: Recording, base: Base, parts: Parts) -> tuple[Base, Parts]:
    """With the status, and the range that was asked for."""
    status = recording.response.status
    if status in APART:
        base = (*base, status)
    if status == PARTIAL:
        parts = {**parts, _RANGE: recording.request.field("range")}
    return base, parts


def is_conditional(recording: Recording) -> bool:
    return not recording.patterns and (
        recording.response.status in (NOT_MODIFIED, PARTIAL))


def find_conditional(index: Index, reading: Reading) -> Iterator[Group]:
    """Those that this request has asked for."""
    request, base = reading.request, reading.base
    if any(map(request.field, _CONDITIONS)):
        yield from index.find((*base, NOT_MODIFIED), reading.parts)
    if byte_range := request.field("range"):
        yield from index.find((*base, PARTIAL), {**reading.parts, _RANGE: byte_range})


def why_not(index: Index, reading: Reading, *, offers: bool) -> str:
    """Why a recording of the same request does not answer this one; "": there is none.
    `offers`: the request offers a WebSocket."""
    for status, what in (
            (SWITCHED, "is a WebSocket, which the request does not offer"),
            (NOT_MODIFIED, "answers a condition, which the request does not have")):
        if status != SWITCHED or not offers:
            for group in index.find((*reading.base, status), reading.parts):
                return f"recording {group.numbers[0]} {what}"
    return ""
