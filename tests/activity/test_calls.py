"""The calls of a tracker: order, bounds, faults."""

import asyncio
import contextlib
import logging

import pytest

from cutthrough import contained
from cutthrough.activity.calls import Calls, functions_of


class Noting:
    """Notes its calls; `act` is what `on_end` does."""

    def __init__(self, act=None) -> None:
        self.noted = []
        self.act = act

    def on_request(self, exchange):
        self.noted.append(("request", exchange))

    async def on_end(self, exchange):
        if self.act is not None:
            await self.act(exchange)
        self.noted.append(("end", exchange))


def make(tracker, **more) -> Calls:
    return Calls(tracker, asyncio.get_running_loop(), **more)


async def test_events_are_reported_in_their_order_and_not_at_once():
    tracker = Noting(lambda number: asyncio.sleep(0.001 * (number % 3)))
    calls = make(tracker)
    for number in range(20):
        assert calls.put("on_request", number)
        assert calls.put("on_end", number)
    assert tracker.noted == []
    await calls.settle()
    assert tracker.noted == [
        (kind, number) for number in range(20) for kind in ("request", "end")]
    assert (calls.calls, calls.faults, calls.dropped) == (40, 0, 0)


async def test_a_function_that_the_tracker_does_not_have_is_not_called():
    calls = make(Noting())
    assert not calls.wants("on_bytes")
    assert calls.put("on_bytes", 1, 2, 3)
    assert not calls._is_running


@pytest.mark.parametrize("error", [
    KeyError("x"), SystemExit(3), asyncio.CancelledError(), TimeoutError("its own")])
async def test_a_fault_is_counted_and_logged_and_stops_nothing(caplog, error):
    async def fail(number):
        if number < 4:
            raise error

    tracker = Noting(fail)
    calls = make(tracker)
    with caplog.at_level(logging.ERROR):
        for number in range(6):
            calls.put("on_end", number)
        await calls.settle()
    assert tracker.noted == [("end", 4), ("end", 5)]
    assert (calls.faults, calls.overruns) == (4, 0)
    assert [record.message.partition(": ")[0] for record in caplog.records] == [
        f"the activity hook failed in on_end ({n} so far)" for n in (1, 2, 4)]
    assert type(error).__name__ in caplog.text


async def test_a_call_beyond_its_budget_is_cancelled_and_counted(caplog):
    ended = []

    async def hang(number):
        try:
            if number == 0:
                await asyncio.Event().wait()
        finally:
            ended.append(number)

    tracker = Noting(hang)
    calls = make(tracker, budget=0.02)
    calls.put("on_end", 0)
    calls.put("on_end", 1)
    await calls.settle(30)
    assert (ended, tracker.noted) == ([0, 1], [("end", 1)])
    assert (calls.overruns, calls.faults) == (1, 0)
    assert "took more than 0.02 s in on_end (1 so far)" in caplog.text


async def test_a_tracker_that_cancels_the_task_gets_the_next_event():
    async def cancel(number):
        if number == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    tracker = Noting(cancel)
    calls = make(tracker)
    calls.put("on_end", 0)
    calls.put("on_end", 1)
    await calls.settle(30)
    assert tracker.noted == [("end", 1)]


async def test_a_full_queue_drops_and_counts(caplog):
    """R31."""
    tracker = Noting()
    calls = make(tracker, most=3)
    assert [calls.put("on_request", n) for n in range(5)] == [
        True, True, True, False, False]
    await calls.settle()
    assert tracker.noted == [("request", n) for n in range(3)]
    assert calls.dropped == 2
    assert "2 events were dropped so far" in caplog.text


async def test_calls_leave_the_loop_its_turns():
    """R64: ten thousand events were one turn."""
    turns = []

    class Slow:
        def on_request(self, number):
            turns.append(len(turns))
            for _ in range(20_000):
                pass

    calls = make(Slow())
    for number in range(100):
        calls.put("on_request", number)
    seen = set()
    while len(turns) < 100:
        seen.add(len(turns))
        await asyncio.sleep(0)
    assert len(seen) > 2
    await calls.settle()


async def test_what_is_left_after_the_wait_is_dropped():
    tracker = Noting(lambda number: asyncio.Event().wait())
    calls = make(tracker, budget=600)
    for number in range(3):
        calls.put("on_end", number)
    await calls.settle(0.02)
    assert tracker.noted == []
    assert calls._task is None or calls._task.done()


def test_an_object_without_a_function_is_no_tracker():
    with pytest.raises(ValueError, match="has none of on_connect"):
        functions_of(object())

    class Wrong:
        on_end = 5

    with pytest.raises(ValueError, match="on_end is not a function"):
        functions_of(Wrong())


async def test_a_function_that_does_not_end_holds_up_no_end(monkeypatch):
    """The drain of an embedded proxy, or of a worker, waited for it."""
    monkeypatch.setattr(contained, "ENDING_S", 0.01)
    may_end = asyncio.Event()

    async def go_on(number):
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    calls = make(Noting(go_on))
    calls.put("on_end", 1)
    await calls.settle(0.01)
    task = calls._task
    assert task is not None and not task.done()
    may_end.set()
    await asyncio.wait([task])
