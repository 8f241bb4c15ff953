"""Calls of an operator's code: whatever it raises, a call raises an Exception with a
text, or its task was cancelled.

A call that was cancelled ends, too: code that catches the cancellation and goes on
(`except:` around an `await` in a loop) would hold its request, and its place among the
calls, for ever. It has LEAVE_S to close what it has, then it is left.

A task passes SystemExit and KeyboardInterrupt on to its loop, which ends the program.
No caller has a handler for anything else that is no Exception (pytest.fail raises such
a one), nor for a CancelledError that nobody requested: a request would wait for an
answer that never comes, and its place would be lost.
"""

import asyncio
import functools
import inspect
import logging
import signal
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, NoReturn, TypeVar

log = logging.getLogger("cutthrough")

# For the ends of calls, and of the loop that they run in
ENDING_S = 1.0
# Less than a request with filters is held (head_ms in filters.stage)
LEAVE_S = 4.0

Result = TypeVar("Result")


def contain(error: BaseException) -> Exception:
    """Returns the error if it is an Exception with a text, else one in its place.

    Raises a KeyboardInterrupt if that may be Ctrl-C: the program, another one than a
    worker, has left this signal to Python, which raises it in the main thread.
    """
    if isinstance(error, KeyboardInterrupt) and (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        raise error
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:                    # its __str__ is the operator's code, too
        return RuntimeError(f"{name}, which has no text")
    if isinstance(error, Exception):
        return error
    if isinstance(error, SystemExit):
        return RuntimeError(f"{name}: exited with status {text}")
    if isinstance(error, asyncio.CancelledError):
        return RuntimeError(f"{name}: cancelled itself")
    return RuntimeError(f"{name}: {text}")


def reraise(error: BaseException) -> NoReturn:
    """In the handler of `error`, which is contained."""
    contained = contain(error)
    try:
        if contained is error:
            raise error
        raise contained from error
    finally:
        del error, contained        # its traceback has this frame


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a function, plain or async."""
    try:
        result = function(*args)
        coroutine = (result if inspect.iscoroutine(result) else
                     _wait_for(result) if inspect.isawaitable(result) else None)
    except BaseException as error:
        reraise(error)
    if coroutine is None:
        return result
    try:
        yielded = coroutine.send(None)
    except StopIteration as end:
        return end.value
    except BaseException as error:
        reraise(error)
    return await resume(coroutine, yielded)


@types.coroutine
def resume(coroutine: Coroutine[Any, Any, Any], yielded: Any,
           may_leave: bool = True) -> Generator[Any, Any, Any]:
    """Awaits the rest of a coroutine that was run up to its first suspension.
    `may_leave`: False: the code is our own."""
    step: Callable[[Any], Any]
    until = 0.0                              # a cancelled call is left; 0: it is none
    while True:
        try:
            sent = (yield yielded) if not until else (
                yield from _wait_until(until, yielded))
        except GeneratorExit:                # of this task: nobody waits for it
            coroutine.close()
            raise
        except _Left:
            value = None                     # its traceback has this frame
            _leave(coroutine)
            raise asyncio.CancelledError from None
        except BaseException as error:
            step, value = coroutine.throw, error
            if may_leave and not until and is_cancelled():
                until = asyncio.get_running_loop().time() + LEAVE_S
        else:
            step, value = coroutine.send, sent
        try:
            yielded = step(value)
            if until and not is_cancelled():     # it was a timeout of its own
                until = 0.0
        except StopIteration as end:
            return end.value
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            reraise(error)


class Begun(asyncio.Task[Result]):
    """A task of a call. Code of the operator's may cancel all tasks of the loop: of one
    that has not begun no line would run, neither `except` nor `finally`, and who waits
    for its answer would wait for ever. So it begins first. `end` is for its owner."""

    def cancel(self, msg: Any | None = None) -> bool:
        coroutine: Any = self.get_coro()
        if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
            return super().cancel(msg)
        self.get_loop().call_soon(super().cancel, msg)
        return True

    def end(self) -> None:
        super().cancel()


class _Left(Exception):
    """The time of a cancelled call is over."""


def _wait_until(until: float, yielded: Any) -> Generator[Any, Any, Any]:
    """Awaits what a cancelled call awaits; a future of it may never be done. Raises
    _Left."""
    loop = asyncio.get_running_loop()
    if loop.time() >= until:
        raise _Left
    if not asyncio.isfuture(yielded):
        return (yield yielded)
    yielded._asyncio_future_blocking = False     # not this task's any more
    while not yielded.done():
        woken = loop.create_future()
        wake = functools.partial(_wake, woken)
        yielded.add_done_callback(wake)
        timer = loop.call_at(until, wake)
        try:
            yield from woken
        except asyncio.CancelledError:
            yielded.cancel()
        finally:
            timer.cancel()
            yielded.remove_done_callback(wake)
        if loop.time() >= until and not yielded.done():
            raise _Left
    return None


def _wake(woken: "asyncio.Future[None]", *_: Any) -> None:
    if not woken.done():
        woken.set_result(None)


def _leave(coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        coroutine.close()
    except BaseException as error:           # it goes on, or has failed at its end
        contain(error)


_driven: set[asyncio.AbstractEventLoop] = set()      # by `drive`: loops of ours


class Kept(asyncio.Task[Result]):
    """A task of the process, in a loop of ours. An operator's code that cancels all
    tasks of the loop does not end it. Its coroutine has no asyncio.timeout, which
    cancels the task, too."""

    def cancel(self, msg: Any | None = None) -> bool:
        if self.get_loop() not in _driven:
            return super().cancel(msg)
        log.error("the worker goes on, though code of the operator's cancels its "
                  "tasks")
        return False


def is_driven() -> bool:
    """Is this a loop of ours? In another program's the end of all tasks is its end."""
    return asyncio.get_running_loop() in _driven


def drive(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, Result]) -> Result:
    """Runs `main` to its end, in a loop of ours. A task or a callback that an
    operator's code has begun is in no call: what it raises, the loop raises, and it may
    stop the loop. Neither ends it."""
    task = Kept(main, loop=loop)
    task.add_done_callback(lambda _: loop.stop())
    _driven.add(loop)
    try:
        _go_on(loop, task)
    finally:
        _driven.discard(loop)
    return task.result()


def _go_on(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    while not task.done():
        try:
            loop.run_forever()
            why = "it was stopped"
        except (SystemExit, KeyboardInterrupt) as error:
            why = str(contain(error))
        if not task.done():
            log.error("the event loop goes on, which code of the operator's would "
                      "have ended: %s", why)


async def end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancels the tasks of calls, and waits for them for a moment: some code does not
    end."""
    tasks = list(tasks)
    for task in tasks:
        asyncio.Task.cancel(task)            # a call that has not begun does not begin
    if tasks:
        await asyncio.wait(tasks, timeout=ENDING_S)


def is_cancelled() -> bool:
    """Whether somebody has requested the end of this task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _wait_for(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
