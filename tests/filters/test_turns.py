"""The work of filters in a turn of the loop is bounded, whatever comes out of it."""

import asyncio
import gzip

import pytest

from cutthrough.filters.turns import OF_TURN, Turn
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
