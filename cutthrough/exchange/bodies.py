"""A captured body: bytes as they went over the wire -> the content that is kept.

Chunks are joined, and codings are undone up to a bound. Text becomes text; other
content stays bytes. Nothing is repaired: content without a decoder stays as it came.
"""

from typing import NamedTuple

from cutthrough.exchange.captured_echoes import without
from cutthrough.exchange.content import (
    MOST_CAPTURED,
    as_text,
    read_chunks,
    undo_coding,
)
from cutthrough.exchange.echoes import Echoes
from cutthrough.exchange.heads import find_field, find_list
from cutthrough.exchange.redaction.redactor import Redactor, Unreadable
from cutthrough.exchange.search import has_any


class Body(NamedTuple):
    """`state`: why the content is not the whole body; "": it is the whole body."""

    content: str | bytes | None
    transferred: int | None                  # bytes on the wire, chunks joined
    decoded: int | None                      # bytes of the whole content
    state: str = ""                          # truncated, incomplete, encoded, redacted
    trailers: str = ""                       # lines, each with its end


class Transferred(NamedTuple):
    """A body as it went over the wire."""

    data: bytes                              # the kept part
    size: int                                # in bytes, of the whole
    chunked: bool = False
    cut: bool = False                        # a piece was lost on the way
    failed: bool = False                     # its exchange has, and it has content


def make_body(transferred: Transferred, head: str, redactor: Redactor, *,
              of_request: bool = False, echoes: Echoes | None = None) -> Body:
    """`of_request`: a body shorter than its Content-Length is not whole. The same holds
    for the answer of a failed exchange; a filter may have shortened any other."""
    raw, size, chunked, cut, failed = transferred
    whole = size == len(raw)
    if not chunked:
        length = find_field(head, "content-length") if (
            of_request or failed) else ""
        if length.isdecimal() and size < int(length[:20]):
            whole, cut = False, cut or (whole and of_request)
        return make_content(raw, head, size, whole=whole, cut=cut, redactor=redactor,
                            echoes=echoes)
    data, ended, trailers = read_chunks(raw)
    body = make_content(data, head, len(data) if whole else None, whole=whole and ended,
                        cut=cut, redactor=redactor, echoes=echoes)
    if not trailers:
        return body
    text = redactor.head(f"\n{trailers.decode('latin-1')}")     # behind a first line
    if echoes is not None:
        text = echoes.text(text)
    return body._replace(trailers=text[1:])


def make_content(data: bytes, head: str, transferred: int | None, *, whole: bool,
                 cut: bool, redactor: Redactor, echoes: Echoes | None = None) -> Body:
    state = "" if whole else "incomplete" if cut else "truncated"
    content, decoded = data, len(data) if whole else None
    coding = find_list(head, "content-encoding").lower()
    if coding not in ("", "identity") and data:
        inflated, ended = undo_coding(data, coding, MOST_CAPTURED)
        if inflated is None:
            try:
                if redactor.reads_bodies:
                    raise Unreadable
                coded = data if echoes is None else without(
                    data, echoes, whole=whole)
            except Unreadable:
                return Body(None, transferred, None, "redacted")
            return Body(coded, transferred, None, state or "encoded")
        content, decoded = inflated, len(inflated) if whole and ended else None
        state = state or ("" if ended else "truncated")
    kind = find_field(head, "content-type")
    try:
        content = redactor.content(content, kind, whole=not state)
        text = as_text(content, kind, whole=not state)
        body: str | bytes = content if text is None else text
        if echoes is not None and (
                state or text is None or has_any(echoes.parts, text)):
            body = without(body, echoes, whole=not state)
    except Unreadable:
        return Body(None, transferred, decoded, "redacted")
    return Body(body, transferred, decoded, state)
