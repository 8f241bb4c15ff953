"""Answers with a status that is a part of their key: a client without the question gets
none of them.

A WebSocket has the URL of a page, perhaps. An answer to a condition has no content, or
that of a failure (RFC 9110 section 13). One to a range has some octets of it, or says
that there are none (section 14): it answers that range alone.
"""

from cutthrough.recording.match.routes import Base, Parts
from cutthrough.recording.model.recording import Recording, Request

SWITCHED, NOT_MODIFIED, PARTIAL = 101, 304, 206
FAILED, UNSATISFIED = 412, 416
CONDITIONS = ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since",
               "if-range")
RANGE = ("field", "range")


def status_apart(recording: Recording) -> int:
    """The status that its key has; 0: it has none."""
    request, status = recording.request, recording.response.status
    if status in (SWITCHED, NOT_MODIFIED, PARTIAL) or (
            status == UNSATISFIED and request.field("range")) or (
            # A change that fails has its place in the sequence of its kind
            status == FAILED and request.method in ("GET", "HEAD")
            and conditions_of(request)):
        return status
    return 0


def conditions_of(request: Request) -> Parts:
    return {("field", name): value for name in CONDITIONS
            if (value := request.field(name))}


def key_of(recording: Recording, base: Base, parts: Parts) -> tuple[Base, Parts]:
    """With the status, and the requested range or the condition that failed."""
    status = status_apart(recording)
    if status:
        base = (*base, status)
    if status in (PARTIAL, UNSATISFIED):
        parts = {**parts, RANGE: recording.request.field("range")}
    elif status == FAILED:
        parts = {**parts, **conditions_of(recording.request)}
    return base, parts


def is_conditional(recording: Recording) -> bool:
    return not recording.patterns and status_apart(recording) not in (0, SWITCHED)
