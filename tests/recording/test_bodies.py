"""Bodies of requests that are replayed, on their way into a worker's memory."""

import asyncio
import tracemalloc
from types import SimpleNamespace

from cutthrough.contained import Begun
from cutthrough.exchange.work import Memory
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.play.request import REPLAYS, Play
from tests.support.tasks import cancel_others

PIECE = bytes(64 << 10)
HEAD = "POST /a HTTP/1.1\r\nHost: a\r\n\r\n"


class Pieces:
    """A body that does not end."""

    def take(self) -> bytes:
        return bytes(bytearray(PIECE))       # one of its own each time


class Exchange(SimpleNamespace):
    def collect_request_body(self) -> Pieces:
        return Pieces()

    def send_continue(self) -> None: ...
    def pause_request(self) -> None: ...

    def refuse(self, reason: str, _text: str) -> None:
        self.peak = tracemalloc.get_traced_memory()[1]
        self.refused.set_result(reason)


async def collect(memory: Memory) -> tuple[str, int]:
    """Returns why the body was refused, and the most bytes that were taken."""
    exchange = Exchange(refused=asyncio.get_running_loop().create_future())
    shared = SimpleNamespace(
        matcher=Matcher(), most_body=1 << 30, begin=Begun,
        gate=SimpleNamespace(memory=memory))
    arrival = SimpleNamespace(
        has_body=True, head=HEAD, mode=REPLAYS, asker=SimpleNamespace(name="alice"))
    # Ignored: the stand-ins have what a collection needs, and no more
    play = Play(shared, exchange, arrival)  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        play.start()
        return await exchange.refused, exchange.peak
    finally:
        tracemalloc.stop()
        play.end("")


def test_a_body_that_finds_no_room_any_more_is_not_copied():
    """R64: a copy of 4 MB took the loop 3 ms, for each of hundreds of connections."""
    memory = Memory(16 << 20)
    reason, peak = asyncio.run(collect(memory))
    assert reason == "content_limit"
    # One asker gets half of it; the body grows by an eighth at a time
    assert peak < 1.25 * memory.most / 2
    assert memory.taken == 0


async def test_a_request_whose_task_is_cancelled_is_refused():
    """By a filter that cancels all tasks: its client waited for ever."""
    for steps in range(3):
        refused = asyncio.get_running_loop().create_future()
        shared = SimpleNamespace(matcher=None, waiting=set(), begin=Begun)
        exchange = SimpleNamespace(
            refuse=lambda *reason, to=refused: to.set_result(reason))
        # Parts of the real ones, as far as a play that is cancelled gets
        play = Play(shared, exchange, SimpleNamespace(has_body=False))  # type: ignore
        play.start()
        for _ in range(steps):
            await asyncio.sleep(0)
        cancel_others()
        async with asyncio.timeout(20):
            assert (await refused)[0] == "replay_failed"
        play.end("")
