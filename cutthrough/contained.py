"""Calls of an operator's code: whatever it raises, a call raises an Exception with a
text, or its task was cancelled.

A task passes SystemExit and KeyboardInterrupt on to its loop, which ends the program.
No caller has a handler for anything else that is no Exception (pytest.fail raises such
a one), nor for a CancelledError that nobody requested: a request would wait for an
answer that never comes, and its place would be lost.
"""

import asyncio
import inspect
import signal
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, NoReturn

# For the ends of calls, and of the loop that they run in
ENDING_S = 1.0


def contain(error: BaseException) -> Exception:
    """Returns the error if it is an Exception with a text, else one in its place.

    Raises a KeyboardInterrupt if that may be Ctrl-C: the program, another one than a
    worker, has left this signal to Python.
    """
    if isinstance(error, KeyboardInterrupt) and (
            signal.getsignal(signal.SIGINT) is signal.default_int_handler):
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
def resume(coroutine: Coroutine[Any, Any, Any],
           yielded: Any) -> Generator[Any, Any, Any]:
    """Awaits the rest of a coroutine that was run up to its first suspension."""
    step: Callable[[Any], Any]
    while True:
        try:
            sent = yield yielded
        except GeneratorExit:                # of this task: nobody waits for it
            coroutine.close()
            raise
        except BaseException as error:
            step, value = coroutine.throw, error
        else:
            step, value = coroutine.send, sent
        try:
            yielded = step(value)
        except StopIteration as end:
            return end.value
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            reraise(error)


async def end(tasks: Iterable["asyncio.Task[None]"]) -> None:
    """Cancels the tasks of calls, and waits for them for a moment: some code does not
    end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=ENDING_S)


def is_cancelled() -> bool:
    """Whether somebody has requested the end of this task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _wait_for(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
