"""Bodies and messages as lines for a person: JSON, HTML and XML indented, the fields
of forms, frames of gRPC, MessagePack, or hex.

A view never fails: if a body is not in the form that its type promises, a line says so
and the bytes are shown in hex. JSON is not parsed but indented, token by token, because
numbers, repeated keys and a cut end must be shown as they came.
"""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from cutthrough.capture.graphql import read_requests, show_graphql
from cutthrough.capture.indented import indent_json
from cutthrough.capture.markup import show_markup
from cutthrough.exchange.forms import is_multipart, show_form
from cutthrough.exchange.protobuf import Malformed, show_message

VIEWS = ("auto", "text", "json", "form", "html", "xml", "hex", "grpc", "protobuf",
         "msgpack", "graphql")
# Bytes in hex, and bytes of a message that is inflated
MOST_HEX, MOST_MESSAGE = 16 << 10, 1 << 20
MOST_LINE = 64                               # bytes of a message in hex

_BY_TYPE = (
    (re.compile(r"application/grpc\b|application/grpc[-+]", re.I), "grpc"),
    (re.compile(r"[/+.-](protobuf|proto)\b", re.I), "protobuf"),
    (re.compile(r"[/+.-](msgpack|messagepack)\b", re.I), "msgpack"),
    (re.compile(r"[/+.-](nd)?json\b", re.I), "json"),
    (re.compile(r"application/x-www-form-urlencoded$|multipart/", re.I), "form"),
    (re.compile(r"(text/html|application/xhtml\+xml)$", re.I), "html"),
    (re.compile(r"[/+]xml$", re.I), "xml"))
# Others than that of the type that may help
_TEXT_TOO, _BYTES_TOO = ("text", "json", "hex"), ("hex", "protobuf", "msgpack")


def show_body(body: str | bytes, kind: str, view: str = "auto", coding: str = ""
              ) -> Iterator[str]:
    """The lines. `kind`: the content type; `coding`: that of gRPC's messages."""
    chosen = choose(body, kind) if view == "auto" else view
    data = body.encode(errors="replace") if isinstance(body, str) else body
    match chosen:
        case "text":
            text = body if isinstance(body, str) else body.decode("latin-1")
            yield from text.splitlines()
        case "json":
            yield from indent_json(
                body if isinstance(body, str) else body.decode("latin-1"))
        case "graphql":
            yield from show_graphql(
                body if isinstance(body, str) else body.decode("latin-1"),
                media_of(kind))
        case "form":
            yield from attempt(
                lambda data: show_form(data, kind, show_part), data, "a form")
        case "html" | "xml":
            yield from show_markup(
                body if isinstance(body, str) else body.decode("latin-1"),
                chosen == "html")
        case "hex":
            yield from dump_hex(data)
        case "grpc":
            yield from show_frames(data, kind, coding)
        case "protobuf":
            yield from attempt(show_message, data, "a message of protobuf")
        case "msgpack":
            yield from attempt(show_msgpack, data, "MessagePack")


def line_of(message: dict[str, Any]) -> str:
    """A message of Flow.messages: `>` to the origin, `<` from it, the time, the kind,
    the size, the other facts, and the content."""
    words = [">" if message["side"] == "request" else "<"]
    if "at_us" in message:
        at = datetime.fromtimestamp(message["at_us"] / 1e6, UTC)
        words.append(at.strftime("%H:%M:%S.%f")[:-3])
    words.append(message["kind"])
    if "bytes" in message:
        words.append(f"({message['bytes']} bytes)")
    words += [f"{key} {message[key]}" for key in ("code", "event", "id")
              if key in message]
    if "state" in message:
        words.append(f"[{message['state']}]")
    if "base64" in message:
        data = base64.b64decode(message["base64"])
        return " ".join([*words, data[:MOST_LINE].hex(" ")]) + (
            " …" if len(data) > MOST_LINE else "")
    return " ".join([*words, message.get("text", "")])


def media_of(kind: str) -> str:
    return kind.partition(";")[0].strip()


def choose(body: str | bytes, kind: str) -> str:
    media = media_of(kind)
    if isinstance(body, str) and read_requests(body, media):
        return "graphql"
    for pattern, view in _BY_TYPE:
        if pattern.search(media):
            return view
    return "text" if isinstance(body, str) else "hex"


def views_of(body: str | bytes, kind: str) -> list[str]:
    """Returns the views that may help, first the view of the body's type."""
    return list(dict.fromkeys((choose(body, kind), *(
        _TEXT_TOO if isinstance(body, str) else _BYTES_TOO))))


def show_part(body: str | bytes, kind: str) -> Iterator[str]:
    """A part of a form. Parts in parts are shown as they came, however deep."""
    return show_body(body, kind, "auto" if not is_multipart(kind) else (
        "text" if isinstance(body, str) else "hex"))


def attempt(show: Callable[[bytes], Iterable[str]], data: bytes, name: str
            ) -> Iterator[str]:
    try:
        yield from show(data)
    except Malformed as error:
        yield f"(is not {name}: {error})"
        yield from dump_hex(data)


def dump_hex(data: bytes) -> Iterator[str]:
    """As `hexdump -C` has it."""
    for at in range(0, min(len(data), MOST_HEX), 16):
        piece = data[at:at + 16]
        cells = f"{piece[:8].hex(' '):<23}  {piece[8:].hex(' '):<23}"
        shown = "".join(chr(octet) if 0x20 <= octet < 0x7f else "." for octet in piece)
        yield f"{at:08x}  {cells}  |{shown}|"
    if len(data) > MOST_HEX:
        yield f"({len(data) - MOST_HEX} more bytes)"


def show_frames(data: bytes, kind: str, coding: str) -> Iterator[str]:
    """The messages of gRPC: a flag, four bytes of length, and the message (gRPC over
    HTTP2, section Requests; in gRPC-Web the trailers are a frame with flag 0x80)."""
    if "grpc-web-text" in kind.lower():
        try:
            data = base64.b64decode(data)
        except (binascii.Error, ValueError):
            yield "(is not base64)"
    at = number = 0
    while at + 5 <= len(data):
        flag, size = data[at], int.from_bytes(data[at + 1:at + 5], "big")
        message = data[at + 5:at + 5 + size]
        at += 5 + size
        number += 1
        cut = len(message) < size
        yield (f"frame {number}: {size} bytes" + (", compressed" if flag & 1 else "")
               + (f", of which {len(message)} are there" if cut else ""))
        if flag & 0x80:
            yield from message.decode("latin-1").splitlines()
            continue
        if flag & 1 and not cut:
            inflated = inflate(message, coding)
            if inflated is None:
                yield f"(in the coding {coding or 'of no name'!r}, which is not undone)"
                yield from dump_hex(message)
                continue
            message = inflated
        if cut:
            yield from dump_hex(message)
        else:
            yield from attempt(show_message, message, "a message of protobuf")
    if at < len(data):
        yield "(bytes that are no frame)"
        yield from dump_hex(data[at:])


def inflate(data: bytes, coding: str) -> bytes | None:
    bits = {"gzip": 31, "deflate": 15}.get(coding.strip().lower())
    if bits is None:
        return None
    try:
        return zlib.decompressobj(bits).decompress(data, MOST_MESSAGE)
    except zlib.error:
        return None


def show_msgpack(data: bytes) -> Iterator[str]:
    """Raises Malformed."""
    try:                                     # `plain` and `dumps` may find it too deep
        text = json.dumps(plain(msgspec.msgpack.decode(data)), ensure_ascii=False)
    except (msgspec.MsgspecError, ValueError, RecursionError, MemoryError) as error:
        raise Malformed(str(error) or "too large") from None
    yield from indent_json(text)


def plain(value: Any) -> Any:
    """The value as JSON has it; bytes in hex."""
    match value:
        case dict():
            return {key if isinstance(key, str) else str(plain(key)): plain(inner)
                    for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return f"bytes {value.hex()}"
        case msgspec.msgpack.Ext():
            return f"extension {value.code} {bytes(value.data).hex()}"
    return str(value)                        # a time
