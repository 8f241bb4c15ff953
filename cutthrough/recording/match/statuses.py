"""Answers with a status that is a part of their key: a client without the question gets
none of them.

A WebSocket has the URL of a page, perhaps. An answer to a condition has no content
(RFC 9110 section 13), and one to a range has some octets of it (section 14): it answers
that range alone.
"""

from cutthrough.recording.match.routes import Base, Parts
from cutthrough.recording.model.recording import Recording

SWITCHED, NOT_MODIFIED, PARTIAL = 101, 304, 206
APART = (SWITCHED, NOT_MODIFIED, PARTIAL)
CONDITIONS = ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since",
               "if-range")
RANGE = ("field", "range")


def key_of(recording: Recording, base: Base, parts: Parts) -> tuple[Base, Parts]:
    """With the status, and the range that was asked for."""
    status = recording.response.status
    if status in APART:
        base = (*base, status)
    if status == PARTIAL:
        parts = {**parts, RANGE: recording.request.field("range")}
    return base, parts


def is_conditional(recording: Recording) -> bool:
    return not recording.patterns and (
        recording.response.status in (NOT_MODIFIED, PARTIAL))
