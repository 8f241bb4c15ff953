"""The messages of a captured exchange: of a WebSocket, or of server-sent events.

A WebSocket's frames (RFC 6455) are put together and inflated (RFC 7692), with the time
at which their last byte came. Events (the HTML standard, section 9.2.6) are in the
response's body, and are read from there. Bounded in messages and inflated bytes.

The bytes are hostile, and have gone on already: a fault ends the reading of
its direction, and nothing else.
"""

import base64
import json
import re
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from cutthrough.exchange.captured_echoes import without
from cutthrough.exchange.content import MOST_CAPTURED, as_text
from cutthrough.exchange.echoes import Echoes, Work
from cutthrough.exchange.heads import find_field
from cutthrough.exchange.redaction.redactor import Redactor, Unreadable

MOST_MESSAGES = 10_000                       # each way
MOST_CONTROL = 125                           # RFC 6455 section 5.5
MOST_LENGTH = (1 << 63) - 1                  # section 5.2: the first bit is 0

Kind = Literal["text", "binary", "close", "ping", "pong"]
KINDS: dict[int, Kind] = {1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}
OPCODES: dict[str, int] = {kind: code for code, kind in KINDS.items()}
_CLOSE = OPCODES["close"]
# The octets that a sender leaves out at a message's end (RFC 7692 section 7.2.1)
_FLUSHED = b"\0\0\xff\xff"


class Piece(NamedTuple):
    """Bytes as a worker saw them pass, in order. `at_us`: Unix time."""

    is_up: bool
    at_us: int
    data: bytes


class Message(NamedTuple):
    piece: int                               # the one with its last byte
    is_up: bool
    kind: Kind
    content: bytes
    state: str


class _Malformed(Exception):
    """Bytes that are no frames."""


def read_websocket(pieces: list[Piece], head: str, *, whole: bool,
                   redactor: Redactor, echoes: Echoes | None = None
                   ) -> tuple[str, str | None]:
    """The messages as JSON, as `Flow.messages` returns them, and why they are not all;
    None: they are. `head`: the response's."""
    messages, state = read_messages(pieces, head)
    if not whole:
        state = state or "truncated"
    work = None if echoes is None else echoes.work()
    shown = [show(message, pieces[message.piece].at_us, redactor, echoes, work)
             for message in messages]
    return json.dumps(shown, ensure_ascii=False), state


def read_messages(pieces: list[Piece], head: str) -> tuple[list[Message], str | None]:
    """Returns the messages of both sides in their order, and the reason why they are
    not all."""
    inflates = re.search(r"(^|,)\s*permessage-deflate\b", find_field(
        head, "sec-websocket-extensions")) is not None
    messages: list[Message] = []
    state = None
    for is_up in (True, False):
        reader = _Reader(pieces, is_up, inflates)
        try:
            for number, message in enumerate(reader.messages()):
                if number >= MOST_MESSAGES:
                    state = state or "truncated"
                    break
                messages.append(message)
        except _Malformed:
            state = "malformed"
    # Stable: in one piece they stay in order
    messages.sort(key=lambda message: message.piece)
    return messages, state


class _Reader:
    """One direction of a WebSocket."""

    def __init__(self, pieces: list[Piece], is_up: bool, inflates: bool) -> None:
        mine = [(number, piece.data) for number, piece in enumerate(pieces)
                if piece.is_up == is_up]
        self._is_up = is_up
        self._data = b"".join(data for _, data in mine)
        self._numbers = [number for number, _ in mine]
        self._ends: list[int] = []
        end = 0
        for _, data in mine:
            end += len(data)
            self._ends.append(end)
        self._inflates = inflates
        self._decoder = zlib.decompressobj(-15) if inflates else None
        self._room = MOST_CAPTURED

    def messages(self) -> Iterator[Message]:
        """Raises _Malformed."""
        opcode, is_deflated, begun_to = 0, False, 0
        parts: list[bytes] = []
        for is_last, bits, code, payload, end, is_cut in self._frames():
            if code >= _CLOSE:
                if bits or not is_last or code not in KINDS:
                    raise _Malformed
                yield self._message(code, payload, end, "truncated" if is_cut else "")
                continue
            if bool(code) == bool(opcode) or (code and code not in KINDS) or (
                    bits & 3 or (bits and (not code or not self._inflates))):
                raise _Malformed             # a message begins in another one, or none
            if code:
                opcode, is_deflated = code, bool(bits)
            parts.append(payload)
            begun_to = end
            if is_last or is_cut:
                yield self._joined(opcode, parts, end, is_deflated, is_cut)
                opcode = 0
                parts = []
        if opcode:                           # its last fragment has not come
            yield self._joined(opcode, parts, begun_to, is_deflated, True)

    def _joined(self, code: int, parts: list[bytes], end: int, is_deflated: bool,
                is_cut: bool) -> Message:
        data, state = b"".join(parts), "truncated" if is_cut else ""
        if is_deflated:
            data, state = self._inflate(data, state)
        return self._message(code, data, end, state)

    def _message(self, code: int, data: bytes, end: int, state: str) -> Message:
        number = self._numbers[bisect_left(self._ends, end)]
        return Message(number, self._is_up, KINDS[code], data, state)

    def _inflate(self, data: bytes, state: str) -> tuple[bytes, str]:
        """RFC 7692 section 7.2.2. One message that cannot be read ends the reading:
        the next ones may refer to it."""
        if self._decoder is None or not self._room:
            return data, "encoded"
        try:
            inflated = self._decoder.decompress(
                data if state else data + _FLUSHED, self._room)
        except zlib.error:
            self._decoder = None
            return data, "encoded"
        self._room -= len(inflated)
        if self._decoder.unconsumed_tail:
            self._room = 0
            state = "truncated"
        if self._decoder.eof:                # a final block: the next begins afresh
            self._decoder = zlib.decompressobj(-15)
        return inflated, state

    def _frames(self) -> Iterator[tuple[bool, int, int, bytes, int, bool]]:
        """(FIN, RSV1 to RSV3, opcode, payload, its end's position, is it cut)."""
        data, at = self._data, 0
        while at + 2 <= len(data):
            first, second = data[at], data[at + 1]
            at += 2
            size = second & 127
            if size >= 126:
                n = 2 if size == 126 else 8
                size = int.from_bytes(data[at:at + n])
                if len(data) < at + n:
                    return
                at += n
            if size > (MOST_CONTROL if first & 15 >= _CLOSE else MOST_LENGTH):
                raise _Malformed
            key = b""
            if second & 128:
                key = data[at:at + 4]
                at += 4
            payload = data[at:at + size]
            end = at + size
            if key and payload:
                payload = _unmask(payload, key)
            yield (bool(first & 128), first >> 4 & 7, first & 15, payload,
                   min(end, len(data)), end > len(data))
            at = end


def _unmask(data: bytes, key: bytes) -> bytes:
    n = len(data)
    mask = (key * (n // 4 + 1))[:n]
    return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(n)


def show(message: Message, at_us: int, redactor: Redactor,
         echoes: Echoes | None = None, work: Work | None = None) -> dict[str, Any]:
    """The message as `Flow.messages` has it, redacted. `work`: of all messages."""
    content, state = message.content, message.state
    shown: dict[str, Any] = {
        "at_us": at_us, "side": "request" if message.is_up else "response",
        "kind": message.kind, "bytes": len(content)}
    if message.kind == "close":
        if len(content) >= 2:
            shown["code"] = int.from_bytes(content[:2])
        content = content[2:]
    if state == "redacted":                  # of an imported one
        return shown | {"state": state}
    kind = "text/plain" if message.kind in ("text", "close") else ""
    try:
        if state == "encoded" and redactor.reads_bodies:
            raise Unreadable
        content = redactor.content(content, kind, whole=not state)
        text = None if state == "encoded" else as_text(content, kind, whole=not state)
        body: str | bytes = content if text is None else text
        if echoes is not None:
            body = without(body, echoes, whole=not state, work=work)
    except Unreadable:
        return shown | {"state": "redacted"}
    if isinstance(body, str):
        shown["text"] = body
    else:
        shown["base64"] = base64.b64encode(body).decode()
    return shown | ({"state": state} if state else {})


def read_events(text: str) -> Iterator[dict[str, Any]]:
    """The events of a stream; one without an empty line at its end is incomplete, and
    left out."""
    names = {"event": "", "id": ""}
    data: list[str] = []
    for line in re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff")):
        if line == "":
            if data:
                yield {"side": "response", "kind": "event", "text": "\n".join(data),
                       **{name: value for name, value in names.items() if value}}
            names["event"] = ""
            data = []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name in names and "\0" not in value:
            names[name] = value
