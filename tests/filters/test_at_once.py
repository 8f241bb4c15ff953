"""Functions that cannot wait are called at once, and the others in tasks."""

import asyncio
import contextlib
import contextvars
import functools
import gc

import pytest

from cutthrough.filters.chains import Filters
from cutthrough.filters.stage import make_stage, may_wait
from tests.support.tasks import cancel_others

HEAD = b"GET /a HTTP/1.1\r\nHost: a.test\r\nVia: 1.1 cutthrough\r\n\r\n"
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nVia: 1.1 cutthrough\r\n\r\n"


class AtOnce:
    async def on_request_head(self, flow):
        flow.metadata["request"] = asyncio.current_task()

    async def on_response_head(self, flow):
        flow.metadata["response"] = asyncio.current_task()


class Waits(AtOnce):
    async def on_request_head(self, flow):
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        await super().on_request_head(flow)

    async def on_response_head(self, flow):
        await super().on_response_head(flow)


class Remembers:
    """In a variable of its context."""

    def __init__(self):
        self.user = contextvars.ContextVar("user", default="nobody")

    async def on_request_head(self, flow):
        flow.metadata["before"] = self.user.get()
        self.user.set("ann")

    on_response_head = on_request_head


class Answers:
    """More than a slow peer takes at once."""

    async def on_request_head(self, flow):
        flow.respond(200, b"x" * 100_000)


class Breaks:
    async def on_request_head(self, flow):
        raise LookupError("of its own")


class Sluice:
    def __init__(self):
        self.size, self.waiter, self.is_finished = 0, None, False

    def write(self, data):
        self.size += len(data)
        return True

    def wait(self, waiter):
        self.waiter = waiter

    def finish(self):
        self.is_finished = True


class Exchange:
    def __init__(self):
        self.calls, self.sluice = [], Sluice()

    def go_on(self, head, shown=None):
        self.calls.append("go_on")

    def pass_response(self, head):
        self.calls.append("pass_response")

    def refuse(self, label, text):
        self.calls.append(label)

    def answer(self, head):
        self.calls.append("answer")
        return self.sluice

    def note_held(self, us):
        """Nobody asks for the sum."""


def begin(*filters):
    names = tuple(type(filter).__name__ for filter in filters)
    stages = {name: make_stage(name, filter, 5.0, "refuse", 1 << 20)
              for name, filter in zip(names, filters, strict=True)}
    exchange = Exchange()
    run = Filters(stages).begin(exchange, names, (HEAD, "a.test", 80, "http", 1, False))
    return run, exchange


async def wait_for(run):
    while run.tasks:
        await asyncio.wait(run.tasks)


async def compute(flow):
    return list(range(3))


async def suspends(flow):
    return [number async for number in flow]


class Compiled:
    """As a function that Cython has compiled: it was called at once, and left at its
    first `await`, so that its request passed."""

    __code__ = compute.__code__.replace(co_code=bytes(8))

    async def __call__(self, flow):
        return await suspends(flow)


def marked(flow):
    """As `inspect.markcoroutinefunction` marks it."""
    return suspends(flow)


def test_only_a_function_with_an_await_may_wait():
    assert not may_wait(AtOnce().on_request_head) and not may_wait(compute)
    assert may_wait(Waits().on_response_head) and may_wait(suspends)
    for unknown in (functools.partial(compute, 1), Compiled(), marked):
        assert may_wait(unknown)


@pytest.mark.parametrize(("filters", "at_once"), [
    ([AtOnce()], True), ([Waits()], False), ([AtOnce(), Waits()], False)])
def test_heads_go_on_at_once_unless_a_function_waits(filters, at_once):
    async def run_all():
        run, exchange = begin(*filters)
        run.start()
        assert exchange.calls == ["go_on"] * at_once
        await wait_for(run)
        run.on_response(REPLY, True)
        assert len(exchange.calls) == 1 + at_once
        await wait_for(run)
        assert exchange.calls == ["go_on", "pass_response"]
        ours = asyncio.current_task()
        assert [task is ours for task in run.flow.metadata.values()] == [at_once] * 2
    asyncio.run(run_all())


def test_a_client_that_leaves_before_a_task_begins_leaves_no_warning(recwarn):
    """The task was cancelled, and the coroutine in its hands never awaited: Python said
    so on standard error, in no form of the error log."""
    async def run_all():
        run, _ = begin(Waits())
        run.start()
        run.end("client_reset")
        run, _ = begin(Waits())
        run.start()
        await wait_for(run)
        run.on_response(REPLY, True)
        run.end("client_reset")
        await asyncio.sleep(0)          # the cancelled tasks end
    asyncio.run(run_all())
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_a_task_that_is_cancelled_before_it_begins_refuses_its_request():
    """By another filter, which cancels all tasks: its client waited."""
    async def run_all():
        run, exchange = begin(Waits())
        run.start()
        cancel_others()
        await wait_for(run)
        assert exchange.calls == ["filter_failed"] and not run.tasks and not run.waiting
    asyncio.run(run_all())


def test_an_answer_that_a_peer_takes_slowly_is_finished_by_a_task():
    async def run_all():
        run, exchange = begin(Answers())
        run.start()
        sluice = exchange.sluice
        assert exchange.calls == ["answer"] and 0 < sluice.size < 100_000
        while not sluice.is_finished:
            await asyncio.sleep(0)
            with contextlib.suppress(asyncio.InvalidStateError):
                sluice.waiter.set_result(None)
        assert sluice.size == 100_000
        await wait_for(run)
        run.end("ok")
    asyncio.run(run_all())


def test_an_answer_that_is_left_ends_its_task():
    async def run_all():
        run, _ = begin(Answers())
        run.start()
        await asyncio.sleep(0)
        (task,) = run.tasks
        run.end("client_reset")
        await asyncio.wait([task])
        assert task.cancelled() and not run.tasks
    asyncio.run(run_all())


def test_a_fault_at_once_refuses_the_request():
    async def run_all():
        run, exchange = begin(Breaks())
        run.start()
        assert exchange.calls == ["filter_failed"] and not run.tasks
    asyncio.run(run_all())


def test_a_variable_of_the_context_is_of_one_call_alone():
    """The next request, of another user, found the value of the one before."""
    async def run_all():
        remembers = Remembers()
        for _ in range(2):
            run, _ = begin(remembers)
            run.start()
            run.on_response(REPLY, False)
            assert run.flow.metadata["before"] == "nobody"
        assert remembers.user.get() == "nobody"
    asyncio.run(run_all())
