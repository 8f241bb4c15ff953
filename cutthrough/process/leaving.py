"""The end of a process in which an operator's code has run, although threads and tasks
of that code go on: Python waits for each thread that is no daemon, for ever."""

from __future__ import annotations

import contextlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# Until the loop has closed; under load that takes a moment, too
LEAVE_S = 5.0


def leave(status: int) -> NoReturn:
    """Ends the process with this status, now or within LEAVE_S."""
    if _has_other_threads():
        for out in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                out.flush()
        leave_soon(status)
    sys.exit(status)


def leave_at_once(status: int) -> NoReturn:
    """As `leave`, for a process in whose loop an operator's code has run. Python's
    finalization is left out: it closes each coroutine that is left, and no loop runs
    any more. One that catches everything and awaits in a loop would then go on for
    ever, and no other thread has its turn."""
    import atexit
    import os
    import threading

    leave_soon(status)
    # As multiprocessing's children do it; it waits for threads that are no daemons
    threading._shutdown()                    # type: ignore[attr-defined]  # typeshed lacks it
    atexit._run_exitfuncs()
    for out in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            out.flush()
    os._exit(status)


def leave_soon(status: int = 0, within_s: float = LEAVE_S) -> None:
    """Everything of ours has ended, and nothing else can end the rest: it would keep
    the process until it is killed."""
    import threading  # here: a program without threads does not need it

    ending = threading.Timer(within_s, _leave_now, [status])
    ending.daemon = True
    with contextlib.suppress(RuntimeError):      # no memory for a thread: killed, then
        ending.start()


def _has_other_threads() -> bool:
    threading = sys.modules.get("threading")
    return threading is not None and any(
        not thread.daemon for thread in threading.enumerate()
        if thread is not threading.main_thread())


def _leave_now(status: int) -> None:
    import logging
    import os

    logging.warning("ended without the operator's code, which has not ended")
    os._exit(status)
