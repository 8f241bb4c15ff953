"""A captured body: bytes as they went over the wire -> the content that is kept.

Chunks are joined, gzip and deflate are undone (up to a bound), and br and zstd if their
packages are installed. Text becomes text; other content stays bytes. Nothing is
repaired: content without a decoder stays as it came.
"""

import importlib
import re
import zlib
from types import ModuleType
from typing import NamedTuple

from cutthrough.capture.redaction import Redactor


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# Of the extra `capture`
brotli = _module("brotli")
zstandard = _module("zstandard")

# Bytes of inflated content: a body of the usual bound grows eightfold at most
MOST_INFLATED = 4 << 20
MOST_CHARACTER = 4                           # bytes of one, in UTF-8 and UTF-16
MOST_WINDOW = 8 << 20                        # RFC 9659: of zstd in HTTP

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


def field(head: str, name: str) -> str:
    """The first field of this name (lower case) in a head; "": none."""
    match = re.search(rf"^{name}:[ \t]*([^\r\n]*)", head, re.I | re.M)
    return match[1].strip() if match else ""


def make_body(raw: bytes, head: str, seen: int, *, chunked: bool, cut: bool,
              redactor: Redactor) -> Body:
    """`raw`: the kept part of `seen` bytes. `cut`: a piece was lost on the way."""
    whole = seen == len(raw)
    data, transferred = raw, seen if not chunked else None
    if chunked:
        data, ended = join_chunks(raw)
        if whole:
            transferred = len(data)
            whole = ended
    state = "" if whole else "incomplete" if cut else "truncated"
    content, decoded = data, len(data) if whole else None
    coding = field(head, "content-encoding").lower()
    if coding not in ("", "identity") and data:
        inflated, ended = inflate(data, coding)
        if inflated is None:
            if redactor.reads_bodies:
                return Body(None, transferred, None, "redacted")
            return Body(data, transferred, None, state or "encoded")
        content, decoded = inflated, len(inflated) if whole and ended else None
        state = state or ("" if ended else "truncated")
    kind = field(head, "content-type")
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
    found: list[bytes] = []
    at = 0
    while match := _CHUNK.match(raw, at):
        size = int(match[1], 16)
        at = match.end()
        if size == 0:
            return b"".join(found), True
        found.append(raw[at:at + size])
        at += size + 2
    return b"".join(found), False


def inflate(data: bytes, coding: str) -> tuple[bytes | None, bool]:
    """The content, and whether its end is there; None: it cannot be decoded."""
    if coding == "br" and brotli is not None:
        return _inflate_brotli(brotli, data)
    if coding == "zstd" and zstandard is not None:
        return _inflate_zstd(zstandard, data)
    if coding not in ("gzip", "x-gzip", "deflate"):
        return None, False
    # RFC 9110 section 8.4.1.2: deflate has zlib's header, and some origins leave it out
    for bits in ((31,) if "gzip" in coding else (15, -15)):
        decoder = zlib.decompressobj(bits)
        try:
            return decoder.decompress(data, MOST_INFLATED), decoder.eof
        except zlib.error:
            continue
    return None, False


def _inflate_brotli(brotli: ModuleType, data: bytes) -> tuple[bytes | None, bool]:
    decoder = brotli.Decompressor()
    found = bytearray()
    try:
        # The bound is in brotli since 1.2; a few bytes may stand for 16 MiB
        found += decoder.process(data, output_buffer_limit=MOST_INFLATED)
        while (len(found) < MOST_INFLATED and not decoder.is_finished()
               and not decoder.can_accept_more_data()):
            found += decoder.process(
                b"", output_buffer_limit=MOST_INFLATED - len(found))
    except brotli.error:
        return None, False
    return bytes(found[:MOST_INFLATED]), decoder.is_finished()


def _inflate_zstd(zstandard: ModuleType, data: bytes) -> tuple[bytes | None, bool]:
    decoder = zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW)
    try:
        found = decoder.stream_reader(data).read(MOST_INFLATED)
        if len(found) == MOST_INFLATED:
            return found, False
        # The reader ends alike with the frame and with the data
        ending = decoder.decompressobj()
        ending.decompress(data)
    except zstandard.ZstdError:
        return None, False
    return found, ending.eof


def as_text(data: bytes, kind: str, *, whole: bool) -> str | None:
    """The text, if the type is one of text, or if there is no type and it can be
    read as UTF-8; None: it is none. A NUL would end a text in the database."""
    if (kind and _TEXT.match(kind) is None) or b"\0" in data:
        return None
    match = _CHARSET.search(kind)
    charset = match[1] if match else "utf-8"
    try:                                     # decode() refuses codecs of no text
        return _decode(data, charset, whole).encode().decode()
    except (UnicodeError, LookupError):
        return None


def _decode(data: bytes, charset: str, whole: bool) -> str:
    try:
        return data.decode(charset)
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - MOST_CHARACTER:
            raise
        return data[:error.start].decode(charset)        # cut within a character
