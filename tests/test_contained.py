"""Calls of an operator's code, whatever it raises: cutthrough/contained.py."""

import asyncio
import contextlib
import signal
import sys

import pytest

from cutthrough import contained
from cutthrough.contained import Begun, Kept, call, contain, drive
from cutthrough.process.loops import make_loop


class Failure(BaseException):
    """As pytest.fail raises it."""


class Mute(Exception):
    def __str__(self):
        raise ValueError


TEXTS = {
    ValueError("v"): "v",
    SystemExit(3): "SystemExit: exited with status 3",
    asyncio.CancelledError(): "CancelledError: cancelled itself",
    GeneratorExit(): "GeneratorExit: ",
    Failure("f"): "Failure: f",
    Mute(): "Mute, which has no text",
}


@pytest.mark.parametrize("error", TEXTS, ids=lambda error: type(error).__name__)
async def test_whatever_a_function_raises_is_an_exception_with_a_text(error):
    def plainly():
        raise error

    async def at_once():
        raise error

    async def later():
        await asyncio.sleep(0)
        raise error

    async def of_a_task():
        await asyncio.gather(asyncio.get_running_loop().create_task(
            asyncio.sleep(0)))
        raise error

    for function in (plainly, at_once, later, of_a_task):
        with pytest.raises(Exception) as raised:
            await call(function)
        assert str(raised.value) == TEXTS[error]


async def test_a_future_that_was_cancelled_is_no_end_of_the_caller():
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    with pytest.raises(RuntimeError, match="cancelled itself"):
        await call(lambda: future)


async def test_a_result_comes_from_a_plain_function_a_coroutine_and_a_future():
    async def later():
        await asyncio.sleep(0)
        return 3

    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, 4)
    assert await call(int, "1") == 1
    assert await call(asyncio.sleep, 0, 2) == 2
    assert await call(later) == 3
    assert await call(lambda: future) == 4


async def test_who_is_cancelled_ends_as_cancelled():
    begun = asyncio.Event()

    async def wait():
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(call(wait))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def go_on(tries: list[int]) -> None:
    """As a loop of tries does, with a bare `except`."""
    while True:
        tries.append(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


async def yield_on(tries: list[int]) -> None:
    while True:
        tries.append(1)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass


@pytest.mark.parametrize("function", [go_on, yield_on])
async def test_code_that_goes_on_although_it_is_cancelled_is_left(
        monkeypatch, function):
    """Its caller waited for ever, and so did a request, or a place among the calls."""
    monkeypatch.setattr(contained, "LEAVE_S", 0)
    tries: list[int] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call(function, tries)
    count = len(tries)
    await asyncio.sleep(0)
    assert len(tries) == count


async def test_a_cancelled_call_has_time_to_close_what_it_has():
    ended = []

    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.create_task(asyncio.sleep(0))
            await asyncio.sleep(0)
            try:
                await asyncio.get_running_loop().run_in_executor(None, int, "x")
            except ValueError:
                ended.append(True)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await call(wait)
    assert ended == [True]


async def test_a_timeout_of_its_own_ends_no_call(monkeypatch):
    monkeypatch.setattr(contained, "LEAVE_S", 0)

    async def wait():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        await asyncio.sleep(0)
        await asyncio.create_task(asyncio.sleep(0))
        return 3

    assert await call(wait) == 3


async def test_who_is_cancelled_again_cancels_what_the_call_awaits():
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(2)]

    async def wait():
        for future in futures:
            with contextlib.suppress(asyncio.CancelledError):
                await future
        return 3

    task = loop.create_task(call(wait))
    for future in futures:
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([future])
    assert await task == 3


def test_a_call_that_is_closed_ends_without_an_error():
    ended = []

    async def wait():
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    awaited = call(wait)
    awaited.send(None)
    awaited.close()
    assert ended == [True]


def test_ctrl_c_is_the_program_s_unless_that_has_a_handler(monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        contain(KeyboardInterrupt())
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)
    assert str(contain(KeyboardInterrupt())) == "KeyboardInterrupt: "


async def leave(error):
    raise error


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_a_loop_goes_on_whatever_its_tasks_raise(monkeypatch, caplog, name):
    """A task that a filter had begun ended the worker by sys.exit, and all its
    tunnels; the thread of an embedded proxy, too, and leaving it hung."""
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)
    loop = make_loop(name)[1]()
    tasks = []

    def begin(error):
        tasks.append(loop.create_task(leave(error)))

    ends = [lambda: begin(SystemExit(3)), lambda: begin(KeyboardInterrupt()),
            lambda: loop.call_soon(sys.exit), loop.stop]

    async def main():
        for end in ends:
            end()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return 5

    assert drive(loop, main()) == 5
    assert caplog.text.count("goes on") == len(ends)
    assert all(task.exception() for task in tasks)
    with pytest.raises(SystemExit):         # its own
        drive(loop, leave(SystemExit(3)))
    loop.close()


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_a_loop_goes_on_whose_tasks_are_all_cancelled(caplog, name):
    """A filter that cancelled asyncio.all_tasks() ended its worker."""
    loop = make_loop(name)[1]()

    async def drain():
        await asyncio.sleep(0)
        return 5

    async def main():
        draining = Kept(drain())
        other = asyncio.create_task(asyncio.Event().wait())
        for task in asyncio.all_tasks():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other
        return await draining

    assert drive(loop, main()) == 5
    assert caplog.text.count("the worker goes on") == 2
    loop.close()


async def test_in_a_program_s_own_loop_a_kept_task_is_cancelled():
    task = Kept(asyncio.Event().wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_begins_before_it_is_cancelled():
    steps = []

    async def step(name):
        try:
            steps.append(name)
            await asyncio.sleep(60)
        finally:
            steps.append(f"{name} ended")

    for name in ("cancelled", "ended"):
        task = Begun(step(name))
        (task.cancel if name == "cancelled" else task.end)()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()
    assert steps == ["cancelled", "cancelled ended"]
