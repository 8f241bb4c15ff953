"""A captured body: bytes as they went over the wire -> the content that is kept.

Chunks are joined, and codings are undone up to a bound. Text becomes text; other
content stays bytes. Nothing is repaired: content without a decoder stays as it came.
"""

from typing import NamedTuple

from cutthrough.exchange.content import (
    MOST_CAPTURED,
    as_text,
    read_chunks,
    undo_coding,
)
from cutthrough.exchange.heads import find_field
from cutthrough.exchange.redaction.redactor import Redactor, Unreadable


class Body(NamedTuple):
    """`state`: why the content is not the whole body; "": it is the whole body."""

    content: str | bytes | None
    transferred: int | None                  # bytes on the wire, chunks joined
    decoded: int | None                      # bytes of the whole content
    state: str = ""                          # truncated, incomplete, encoded, redacted
    trailers: str = ""                       # lines, each with its end


def make_body(raw: bytes, head: str, seen: int, *, chunked: bool, cut: bool,
              redactor: Redactor, of_request: bool = False) -> Body:
    """`raw`: the kept part of `seen` bytes. `cut`: a piece was lost on the way.
    `of_request`: less than its Content-Length is not the whole body; an answer's may
    have none (HEAD)."""
    whole = seen == len(raw)
    if not chunked:
        length = find_field(head, "content-length") if of_request else ""
        if length.isdecimal() and seen < int(length):
            whole, cut = False, cut or whole
        return make_content(raw, head, seen, whole=whole, cut=cut, redactor=redactor)
    data, ended, trailers = read_chunks(raw)
    made = make_content(data, head, len(data) if whole else None, whole=whole and ended,
                        cut=cut, redactor=redactor)
    if not trailers:
        return made
    text = redactor.head(f"\n{trailers.decode('latin-1')}")     # behind a first line
    return made._replace(trailers=text[1:])


def make_content(data: bytes, head: str, transferred: int | None, *, whole: bool,
                 cut: bool, redactor: Redactor) -> Body:
    state = "" if whole else "incomplete" if cut else "truncated"
    content, decoded = data, len(data) if whole else None
    coding = find_field(head, "content-encoding").lower()
    if coding not in ("", "identity") and data:
        inflated, ended = undo_coding(data, coding, MOST_CAPTURED)
        if inflated is None:
            if redactor.reads_bodies:
                return Body(None, transferred, None, "redacted")
            return Body(data, transferred, None, state or "encoded")
        content, decoded = inflated, len(inflated) if whole and ended else None
        state = state or ("" if ended else "truncated")
    kind = find_field(head, "content-type")
    try:
        content = redactor.content(content, kind, whole=not state)
    except Unreadable:
        return Body(None, transferred, decoded, "redacted")
    text = as_text(content, kind, whole=not state)
    return Body(content if text is None else text, transferred, decoded, state)
