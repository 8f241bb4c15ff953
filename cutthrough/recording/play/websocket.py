"""A recorded WebSocket, played to its client: messages as they were, in their order.

    client ── session ── socket pair ── play_websocket

The session takes the far end for an origin (session.ways.local): it reads our 101, and
passes bytes. Messages of the client are compared with the recorded ones by the key of
their route, whole, however they are fragmented; the answer to one that differs is a
close with 1008 and the reason. If the route says so, the origin's messages come at
their times instead, and what the client says is read and left. Pings are answered, and
what was recorded of them is left out. Extensions are not agreed upon, so nothing is
deflated.
"""

import asyncio
import base64
import hashlib
import logging
import socket
from collections.abc import Callable
from http import HTTPStatus

from cutthrough.exchange.messages import OPCODES
from cutthrough.recording.match.matches import Match, Miss
from cutthrough.recording.match.reading import Conversing, Setting
from cutthrough.recording.model.recording import Message, Recording, find

log = logging.getLogger("cutthrough")

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"     # RFC 6455 section 1.3
CONTINUATION, TEXT, CLOSE, PING, PONG = 0, 1, 8, 9, 10
PLAYED = ("text", "binary", "close")
POLICY, TOO_BIG, PROTOCOL_ERROR = 1008, 1009, 1002      # section 7.4.1
MOST_HEAD = 65536
# For the client's close behind ours
CLOSE_S = 5.0


class _Ended(Exception):
    """The connection is to be closed with this code and reason; `details` are for
    operators."""

    def __init__(self, code: int, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.code, self.details = code, details


async def play_websocket(peer: socket.socket, match: Match, speed: float, most: int,
                         setting: Setting, note: Callable[[Miss], str]) -> None:
    """`speed`: of the recorded times; 0: at once. `most`: bytes of a message. `note`
    takes a message that differs, and returns the text for the client (R74)."""
    reader, writer = await asyncio.open_connection(sock=peer, limit=MOST_HEAD)
    recording = match.recording
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(build_switch(head.decode("latin-1"), recording))
        conversation = _Conversation(
            reader, writer, most, note, Conversing(match.route, recording, setting))
        await (conversation.play_alone if match.route.messages == "server"
               else conversation.play)(recording.response.messages, speed)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass                                 # the client is gone
    finally:
        writer.close()


def build_switch(head: str, recording: Recording) -> bytes:
    """Our 101 to this request."""
    pairs = [line.partition(":")[::2] for line in head.split("\r\n")[1:]]
    key = find(tuple((name, value.strip()) for name, value in pairs),
               "sec-websocket-key")
    accept = base64.b64encode(hashlib.sha1(f"{key}{GUID}".encode()).digest()).decode()
    left_out = {"connection", "upgrade", "sec-websocket-accept",
                "sec-websocket-extensions", "content-length"}
    fields = [f"{name}: {value}\r\n" for name, value in recording.response.fields
              if name.lower() not in left_out]
    return (f"HTTP/1.1 101 {HTTPStatus(101).phrase}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n"
            f"{''.join(fields)}\r\n").encode("latin-1", "replace")


class _Conversation:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                 most: int, note: Callable[[Miss], str], client: Conversing) -> None:
        self._reader, self._writer, self._most = reader, writer, most
        self._note, self._client = note, client
        self._closing = False

    async def play(self, messages: tuple[Message, ...], speed: float) -> None:
        loop = asyncio.get_running_loop()
        before_us, at = 0, loop.time()
        try:
            for number, message in enumerate(messages, 1):
                if message.kind not in PLAYED:
                    continue
                if message.is_up:
                    await self._expect(message, number)
                    before_us, at = message.at_us, loop.time()
                    continue
                if speed:
                    await asyncio.sleep(
                        at + (message.at_us - before_us) / 1e6 / speed - loop.time())
                if message.kind == "close":
                    raise _Ended(
                        message.code or 0, message.data.decode(errors="replace"))
                self._send(
                    OPCODES[message.kind], await self._client.answer(message.data))
                await self._writer.drain()
            if not self._closing:
                code, data = await self._message()
                if code != CLOSE:
                    raise _Ended(POLICY, f"{len(data)} bytes come behind the last "
                                 "message of the recording")
                self._send(CLOSE, data[:2])
        except _Ended as end:
            await self._close(end)

    async def play_alone(self, messages: tuple[Message, ...], speed: float) -> None:
        """The origin's messages at their times, whatever comes from the client."""
        loop = asyncio.get_running_loop()
        began, left = loop.time(), asyncio.create_task(self._await_close())
        try:
            for message in messages:
                if message.kind not in PLAYED or message.is_up:
                    continue
                due = began + message.at_us / 1e6 / speed if speed else began
                await asyncio.wait([left], timeout=max(0.0, due - loop.time()))
                if left.done():
                    break
                if message.kind == "close":
                    self._send(CLOSE, (message.code.to_bytes(2) + message.data
                                       if message.code else b""))
                    await asyncio.wait([left], timeout=CLOSE_S)
                    return
                self._send(OPCODES[message.kind], message.data)
                await self._writer.drain()
            code = await left                # of the client's close
            self._send(CLOSE, code)
        except _Ended as end:                # no frame of a WebSocket
            self._send(CLOSE, end.code.to_bytes(2) + cut(str(end)))
        finally:
            left.cancel()

    async def _await_close(self) -> bytes:
        while True:
            kind, data = await self._message()
            if kind == CLOSE:
                return data[:2]

    async def _expect(self, message: Message, number: int) -> None:
        code, data = await self._message()
        here = next(kind for kind, opcode in OPCODES.items() if opcode == code)
        if code == CLOSE:
            self._send(CLOSE, data[:2])
            self._closing = True
            if message.kind != "close":
                raise _Ended(0, "")
            return
        if here != message.kind:
            raise _Ended(POLICY, f"message {number} differs from the recording",
                         f"{here}, recorded {message.kind}")
        difference = await self._client.difference(
            Message(0, True, message.kind, data), message.data)
        if difference is not None:
            raise _Ended(POLICY, f"message {number} differs from the recording",
                         difference)

    async def _close(self, end: _Ended) -> None:
        if end.code in (POLICY, PROTOCOL_ERROR, TOO_BIG):
            log.warning("recordings: a WebSocket ended: %s", end)
        if self._closing:
            return
        reason = str(end)
        if end.code == POLICY and end.details:
            reason = self._note(Miss(reason, details=end.details))
        self._send(CLOSE, end.code.to_bytes(2) + cut(reason) if end.code else b"")
        try:
            async with asyncio.timeout(CLOSE_S):
                while (await self._message())[0] != CLOSE:
                    pass
        except (TimeoutError, _Ended):
            pass

    def _send(self, code: int, data: bytes) -> None:
        n = len(data)
        size = bytes([n]) if n < 126 else (
            b"\x7e" + n.to_bytes(2) if n < 1 << 16 else b"\x7f" + n.to_bytes(8))
        self._writer.write(bytes([128 | code]) + size + data)

    async def _message(self) -> tuple[int, bytes]:
        """The next one that is no ping or pong, joined. Raises _Ended."""
        kind, parts, held = 0, list[bytes](), 0
        while True:
            first, second = await self._reader.readexactly(2)
            code, size = first & 15, second & 127
            if size >= 126:
                size = int.from_bytes(
                    await self._reader.readexactly(2 if size == 126 else 8))
            if first & 112 or not second & 128 or code not in (
                    CONTINUATION, *OPCODES.values()) or (
                    code >= CLOSE and (size > 125 or first < 128)):
                raise _Ended(PROTOCOL_ERROR, "no frame of RFC 6455")
            if held + size > self._most:
                raise _Ended(TOO_BIG, "longer than recording_body")
            key = await self._reader.readexactly(4)
            data = unmask(await self._reader.readexactly(size), key)
            if code == PING:
                self._send(PONG, data)
            elif code == CLOSE:
                return CLOSE, data
            elif code != PONG:
                if bool(code) == bool(kind):
                    raise _Ended(PROTOCOL_ERROR, "a message begins in another")
                kind = kind or code
                parts.append(data)
                held += size
                if first & 128:
                    return kind, b"".join(parts)


def cut(text: str) -> bytes:
    """Returns the text's first 123 bytes at most (section 5.5), of whole characters."""
    return text.encode()[:123].decode(errors="ignore").encode()


def unmask(data: bytes, key: bytes) -> bytes:
    n = len(data)
    return (int.from_bytes(data) ^ int.from_bytes((key * (n // 4 + 1))[:n])
            ).to_bytes(n)
