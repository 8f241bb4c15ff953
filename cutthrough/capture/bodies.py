"""A captured body: bytes as they went over the wire -> the content that is kept.

Chunks are joined, and codings are undone up to a bound. Text becomes text; other
content stays bytes. Nothing is repaired: content without a decoder stays as it came.
"""

import functools
import re
from typing import NamedTuple

from cutthrough.capture.heads import find_field
from cutthrough.capture.redaction import Redactor
from cutthrough.codings import CodingError, decode, make_decoders

# Bytes of inflated content: a body of the usual bound grows eightfold at most
MOST_INFLATED = 4 << 20
MOST_CHARACTER = 4                           # bytes of one, in UTF-8 and UTF-16

_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[^\r\n]*\r\n")
_TEXT = re.compile(r"(text/|multipart/|message/|application/(.*[+/])?"
                   r"(json|xml|javascript|ecmascript|x-ndjson|x-www-form-urlencoded|"
                   r"graphql|yaml|x-yaml|toml))|.*\+(json|xml|yaml)\b", re.I)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]{1,40})", re.I)


class Body(NamedTuple):
    """`state`: why the content is not the whole body; "": it is the whole body."""

    content: str | bytes | None
    transferred: int | None                  # bytes on the wire, chunks joined
    decoded: int | None                      # bytes of the whole content
    state: str = ""                          # truncated, incomplete, encoded, redacted
    trailers: str = ""                       # lines, each with its end


def make_body(raw: bytes, head: str, seen: int, *, chunked: bool, cut: bool,
              redactor: Redactor) -> Body:
    """`raw`: the kept part of `seen` bytes. `cut`: a piece was lost on the way."""
    whole = seen == len(raw)
    if not chunked:
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
        inflated, ended = inflate(data, coding)
        if inflated is None:
            if redactor.reads_bodies:
                return Body(None, transferred, None, "redacted")
            return Body(data, transferred, None, state or "encoded")
        content, decoded = inflated, len(inflated) if whole and ended else None
        state = state or ("" if ended else "truncated")
    kind = find_field(head, "content-type")
    text = as_text(content, kind, whole=not state)
    if text is None:
        return Body(content, transferred, decoded, state)
    if redactor.reads_bodies:
        kept = redactor.body(text, kind, whole=not state)
        if kept is None:
            state = "redacted"
        return Body(kept, transferred, decoded, state)
    return Body(text, transferred, decoded, state)


def join_chunks(raw: bytes) -> tuple[bytes, bool]:
    """The data of a chunked body, and whether its last chunk is there."""
    data, ended, _ = read_chunks(raw)
    return data, ended


def read_chunks(raw: bytes) -> tuple[bytes, bool, bytes]:
    """The data of a chunked body, whether its last chunk is there, and its trailers, if
    all of them are there."""
    found: list[bytes] = []
    at = 0
    while match := _CHUNK.match(raw, at):
        size = int(match[1], 16)
        at = match.end()
        if size == 0:
            end = raw.find(b"\r\n\r\n", at) + 2
            return b"".join(found), True, raw[at:end] if end > 1 else b""
        found.append(raw[at:at + size])
        at += size + 2
    return b"".join(found), False, b""


def inflate(data: bytes, coding: str) -> tuple[bytes | None, bool]:
    """The content, and whether its end is there; None: it cannot be decoded."""
    found = bytearray()
    try:
        decoders = make_decoders(coding)
        for piece in decode(data, decoders):
            found += piece
            if len(found) >= MOST_INFLATED:
                return bytes(found[:MOST_INFLATED]), False
    except CodingError:
        return None, False
    try:
        for decoder in decoders:
            decoder.end()
    except CodingError:
        return bytes(found), False
    return bytes(found), True


def as_text(data: bytes, kind: str, *, whole: bool) -> str | None:
    """The text, if the type is one of text, or if there is no type and it can be
    read as UTF-8; None: it is none. A NUL would end a text in the database."""
    charset = charset_of(kind)
    if not charset or b"\0" in data:
        return None
    try:                                     # decode() refuses codecs of no text
        text = _decode(data, charset, whole)
        return text if charset == "utf-8" else text.encode().decode()
    except (UnicodeError, LookupError):
        return None


@functools.lru_cache(256)
def charset_of(kind: str) -> str:
    """In which a body of this type is text; "": it is none."""
    if kind and _TEXT.match(kind) is None:
        return ""
    match = _CHARSET.search(kind)
    return match[1].lower() if match else "utf-8"


def _decode(data: bytes, charset: str, whole: bool) -> str:
    try:
        return data.decode(charset)
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - MOST_CHARACTER:
            raise
        return data[:error.start].decode(charset)        # cut within a character
