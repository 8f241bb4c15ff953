"""The messages of a WebSocket on their way through filters (RFC 6455).

    side ─> frames ─> a message ─> on_websocket_message … ─> frames ─> the other side

Fragments are joined, up to the bound of the filters, and a message goes on in one frame
with a mask of its own. Pings, pongs and closes pass at once, in their place. Extensions
are not offered to the origin, so nothing is deflated. Each side has its own task:
a slow filter holds up its own side of its own WebSocket.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import NamedTuple

from cutthrough.exchange.work import Body
from cutthrough.filters.bodies import NO_ROOM
from cutthrough.filters.calls import Calls
from cutthrough.filters.exchange import PIECE, Ended, Sluice
from cutthrough.filters.flow import WebSocketMessage
from cutthrough.filters.stage import Stage
from cutthrough.filters.turns import Turn

HOOK = "on_websocket_message"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MOST_CONTROL = 125                           # section 5.5
# A frame is as much work as so many bytes: 6 us, and its message's filters
WORK_OF_FRAME = 4096
# Of a close, section 7.4.1
_CODES = {"bad_framing": 1002, "bad_response_framing": 1002, "filter_refused": 1008,
          "content_limit": 1009}
INTERNAL_ERROR = 1011
MOST_REASON = 123                            # octets, in UTF-8


class _Frame(NamedTuple):
    is_last: bool
    code: int
    size: int


class Conversation:
    """One WebSocket."""

    def __init__(self, run: Calls, stages: list[Stage], up: Sluice, down: Sluice
                 ) -> None:
        self._run, self._stages = run, stages
        turn = run.chain.tally.turn
        self._sides = {True: _Side(True, up, turn), False: _Side(False, down, turn)}

    async def go(self, is_up: bool) -> None:
        """Passes one direction on, to the end of its stream."""
        side = self._sides[is_up]
        try:
            await self._pass_on(side)
        except Ended:
            pass                             # its stream, or the conversation
        side.sluice.finish()

    def close(self, label: str, text: str) -> None:
        """Tells both sides, and ends both streams."""
        code = _CODES.get(label, INTERNAL_ERROR)
        reason = (text if label == "filter_refused" else label).encode(errors="replace")
        reason = reason[:MOST_REASON].decode(errors="ignore").encode()
        for side in self._sides.values():
            if not (side.is_within or side.is_closed):
                side.sluice.write(side.build(True, CLOSE, code.to_bytes(2) + reason))
            side.is_closed = True
            side.sluice.finish()

    async def _pass_on(self, side: "_Side") -> None:
        code, body, stages = 0, self._run.collect(), self._stages
        try:
            while (frame := await self._frame(side)) is not None:
                if frame.code >= CLOSE:
                    await self._pass_control(side, frame)
                    continue
                if bool(frame.code) == bool(code):
                    self._refuse(side)       # it begins in another one, or in none
                if not code:
                    code, stages = frame.code, list(self._stages)
                beyond = await self._collect(side, frame, body, stages)
                if beyond is not None:
                    await self._pass_unread(side, code, frame, body, beyond)
                    code = 0
                elif frame.is_last:
                    await self._judge(side, code == TEXT, body.whole(), stages)
                    body.close()
                    code = 0
        finally:
            body.close()

    async def _frame(self, side: "_Side") -> _Frame | None:
        """The next one; None: the stream has ended."""
        await side.give_turn(WORK_OF_FRAME)
        if not await side.fill(2):
            return None
        first, second = side.take(2)
        size, code = second & 127, first & 15
        n = {126: 2, 127: 8}.get(size, 0)
        masked = bool(second & 128)
        if not await side.fill(n + 4 * masked):
            return None
        if n:
            size = int.from_bytes(side.take(n))
        frame = _Frame(bool(first & 128), code, size)
        side.begin(size, side.take(4) if masked else b"")
        if first & 112 or masked != side.is_up or code not in (
                CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG) or size >> 63 or (
                code >= CLOSE and (size > MOST_CONTROL or not frame.is_last)):
            self._refuse(side)
        return frame

    def _refuse(self, side: "_Side") -> None:
        """The bytes are no frame of RFC 6455. Raises Ended."""
        self._run.exchange.refuse(
            "bad_framing" if side.is_up else "bad_response_framing", "")
        raise Ended

    async def _collect(self, side: "_Side", frame: _Frame, body: Body,
                       stages: list[Stage]) -> bytes | None:
        """None: the frame is in the body. Else what was read beyond it: the message
        goes on unread. `stages`: those that have not failed; one whose bound is
        exceeded fails if its turn has come. Raises Ended if the message may not go
        on."""
        size = len(body) + frame.size
        while stages and size > stages[0].max_body:
            self._fail_long(stages.pop(0))
        if not stages:
            return b""
        async for piece in side.payload():
            if not body.add(piece):
                for stage in stages:         # Ended, unless all of them pass
                    self._run.fail(stage, HOOK, NO_ROOM)
                return piece
        return None

    def _fail_long(self, stage: Stage) -> None:
        self._run.fail(
            stage, HOOK, f"the message is longer than {stage.max_body} bytes")

    async def _pass_unread(self, side: "_Side", code: int, frame: _Frame, body: Body,
                           beyond: bytes) -> None:
        """A message that cannot be collected, as it comes. `frame`: that in hand; what
        was read of it is in `body` and `beyond`."""
        begun = body.whole()
        body.close()
        await side.send(code, begun, is_last=False)
        await side.send(CONTINUATION, beyond, is_last=False)
        left: _Frame | None = frame
        while left is not None:
            if left.code >= CLOSE:
                await self._pass_control(side, left)
            elif left is not frame and left.code:
                self._refuse(side)           # it begins in another one
            else:
                async for piece in side.payload():
                    await side.send(CONTINUATION, piece, is_last=False)
                if left.is_last:
                    await side.send(CONTINUATION, b"")
                    return
            left = await self._frame(side)

    async def _pass_control(self, side: "_Side", frame: _Frame) -> None:
        await side.send(frame.code, b"".join([piece async for piece in side.payload()]))
        side.is_closed |= frame.code == CLOSE

    async def _judge(self, side: "_Side", is_text: bool, data: bytes,
                     stages: list[Stage]) -> None:
        run = self._run
        message = WebSocketMessage(side.is_up, is_text, data)
        for stage in stages:
            if len(message.content) > stage.max_body:
                self._fail_long(stage)
                continue
            before, dropped = message.content, message.is_dropped
            try:
                await run.call(stage, getattr(stage, HOOK), run.flow, message)
                if run.flow._answered:
                    raise RuntimeError("respond() comes too late")
                if is_text and message.content is not before:
                    message.content.decode()     # section 5.6
            except Exception as error:       # the operator's code
                run.flow._refusal, run.flow._answered = None, False
                run.fail(stage, HOOK, error)
                message.content, message.is_dropped = before, dropped
            await run.settle(stage)
            if message.is_dropped:
                return
        await side.send(TEXT if is_text else BINARY, message.content)


class _Side:
    """One direction: its bytes, and the frames that go on."""

    def __init__(self, is_up: bool, sluice: Sluice, turn: Turn) -> None:
        self.is_up, self.sluice, self._turn = is_up, sluice, turn
        self.is_within = False               # a frame is written in part
        self.is_closed = False               # a close has gone on
        self._data = bytearray()
        self._left = 0                       # octets of the frame in hand
        self._key = b""

    async def give_turn(self, work: int) -> None:
        """Lets others run first if there was much work."""
        if self._turn.spend(work):
            await asyncio.sleep(0)

    async def fill(self, n: int) -> bool:
        """Waits until so many bytes are there. False: the stream has ended before."""
        while len(self._data) < n:
            piece = self.sluice.take()
            if piece is None:
                waiter = asyncio.get_running_loop().create_future()
                self.sluice.wait(waiter)
                await waiter
            elif piece:
                self._data += piece
            else:
                return False
        return True

    def take(self, n: int) -> bytes:
        data = bytes(self._data[:n])
        del self._data[:n]
        return data

    def begin(self, size: int, key: bytes) -> None:
        """A frame's payload comes next. `key`: of its mask; b"": it has none."""
        self._left, self._key = size, key

    async def payload(self) -> AsyncIterator[bytes]:
        """Yields the rest of the frame's payload, without its mask. Raises Ended if the
        stream ends within it."""
        while self._left:
            if not await self.fill(1):
                raise Ended
            piece = self.take(min(self._left, PIECE))
            self._left -= len(piece)
            key = self._key
            if key:
                turned = len(piece) & 3
                self._key = key[turned:] + key[:turned]
                piece = _mask(piece, key)
            yield piece
            await self.give_turn(len(piece))

    def build(self, is_last: bool, code: int, data: bytes) -> bytes:
        """The frame of a short message."""
        head, key = self._head(is_last, code, len(data))
        return head + (_mask(data, key) if key else data)

    def _head(self, is_last: bool, code: int, n: int) -> tuple[bytes, bytes]:
        masked = self.is_up << 7
        size = bytes([n | masked]) if n < 126 else (
            bytes([126 | masked]) + n.to_bytes(2) if n < 1 << 16 else
            bytes([127 | masked]) + n.to_bytes(8))
        key = os.urandom(4) if self.is_up else b""       # section 5.3
        return bytes([is_last << 7 | code]) + size + key, key

    async def send(self, code: int, data: bytes, is_last: bool = True) -> None:
        head, key = self._head(is_last, code, len(data))
        for at in range(0, len(data) or 1, PIECE):       # PIECE is a multiple of 4
            piece = data[at:at + PIECE]
            piece = _mask(piece, key) if key else piece
            self.is_within = at + PIECE < len(data)
            if self.sluice.write(head + piece if at == 0 else piece):
                waiter = asyncio.get_running_loop().create_future()
                self.sluice.wait(waiter)
                await waiter
            else:
                await self.give_turn(len(piece))


def _mask(data: bytes, key: bytes) -> bytes:
    n = len(data)
    mask = (key * (n // 4 + 1))[:n]
    return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(n)
