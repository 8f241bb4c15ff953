"""The work of filters in a turn of the loop is bounded, whatever comes out of it."""

import asyncio
import gzip

import pytest
from websockets.frames import Frame, Opcode

from cutthrough.filters.calls import Calls
from cutthrough.filters.flow import Flow, Request
from cutthrough.filters.pieces import WORK_OF_PIECE
from cutthrough.filters.stage import Chain, Tally, make_stage
from cutthrough.filters.turns import OF_TURN, Turn
from cutthrough.filters.websocket import WORK_OF_FRAME, Conversation
from cutthrough.testing import Answer, play_async

MIB = 1 << 20


class Turns:
    """Counts those of the loop."""

    def __init__(self):
        self.count = 0
        self._next()

    def _next(self):
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def close(self):
        self._handle.cancel()


class Whole:
    async def on_response_body(self, flow, body):
        pass


class Pieces:
    async def on_response_body(self, flow, pieces):
        async for _ in pieces:
            pass
        yield b""


@pytest.mark.parametrize(("tail", "outcome"), [
    (bytes(64 * MIB), "ok"), (gzip.compress(b"") + bytes(64 * MIB), "filter_failed")])
@pytest.mark.parametrize("kind", [Whole, Pieces])
def test_a_body_that_inflates_shares_turns(kind, tail, outcome):
    """R64: one that was collected was inflated in a single turn, and one from which
    nothing came, too."""
    coding = "gzip" if outcome == "ok" else "gzip, gzip"
    body = gzip.compress(gzip.compress(b"a") + tail if outcome != "ok" else tail)

    async def run():
        turns = Turns()
        try:
            played = await play_async(
                kind(), answer=Answer(200, {"Content-Encoding": coding}, body),
                max_body=128 * MIB, pieces=len(body), budget=60.0)
        finally:
            turns.close()
        return played.outcome, turns.count

    got, count = asyncio.run(run())
    if outcome == "ok":
        assert got == "ok" and count >= 64, "a turn for each MiB"
    else:
        assert got in ("filter_failed", "response_truncated")
        assert count < 64, "bounded between the codings"


def test_a_turn_is_that_of_all_exchanges():
    """R64: 64 exchanges had 64 bounds in one turn of the loop."""
    async def run():
        turn, turns, most = Turn(), Turns(), dict[int, int]()

        async def work():
            for _ in range(100):
                most[turns.count] = most.get(turns.count, 0) + OF_TURN // 100
                if turn.spend(OF_TURN // 100):
                    await asyncio.sleep(0)

        await asyncio.gather(*(work() for _ in range(10)))
        turns.close()
        return max(most.values())

    # A turn, and a step of each
    assert asyncio.run(run()) <= OF_TURN + 10 * OF_TURN // 100


class Sluice:
    """Has these bytes, and takes all."""

    def __init__(self, data=b""):
        self.left = [data] if data else []
        self.written = bytearray()
        self.is_finished = False

    def take(self):
        return self.left.pop(0) if self.left else b""

    def wait(self, waiter):
        waiter.set_result(None)

    def write(self, data):
        self.written += data
        return False

    def finish(self):
        self.is_finished = True


class Looks:
    async def on_websocket_message(self, flow, message):
        pass


FRAME = Frame(Opcode.CONT, b"", fin=False).serialize(mask=False)
MANY = 20_000
STREAMS = {
    "messages": Frame(Opcode.TEXT, b"").serialize(mask=False) * MANY,
    "pings": Frame(Opcode.PING, b"").serialize(mask=False) * MANY,
    "fragments": Frame(Opcode.TEXT, b"", fin=False).serialize(mask=False)
    + FRAME * MANY,
    "unread": Frame(Opcode.TEXT, b"x" * 2000, fin=False).serialize(mask=False)
    + FRAME * MANY}


@pytest.mark.parametrize("name", STREAMS)
def test_small_frames_share_turns(name):
    """R64: 97 727 empty messages, which came in one turn of the loop, took 0.59 s."""
    async def run():
        stage = make_stage("looks", Looks(), 60.0, "pass", 1000)
        run = Calls(Chain([stage], Tally()), None, Flow(Request("GET", "a", 80, "/")))
        down = Sluice(STREAMS[name])
        turns = Turns()
        await Conversation(run, [stage], Sluice(), down).go(False)
        turns.close()
        assert down.is_finished
        return turns.count, bytes(down.written)

    count, written = asyncio.run(run())
    assert count >= MANY * WORK_OF_FRAME // OF_TURN
    if name in ("messages", "pings"):
        assert written == STREAMS[name]


async def test_pieces_that_a_generator_yields_share_turns():
    """R64: a body of 400 KB that a filter yielded line by line held up the worker's
    other connections for seconds, and one that yielded nothing for ever."""
    class Lines:
        async def on_response_body(self, flow, pieces):
            before = turns.count
            for _ in range(1024):
                yield b""
            flow.metadata["turns"] = turns.count - before

    turns = Turns()
    played = await play_async(Lines(), answer=Answer(body=b"here"))
    turns.close()
    assert played.flow.metadata["turns"] >= 1024 * WORK_OF_PIECE // OF_TURN - 1
