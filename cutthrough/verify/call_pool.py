"""The operator's function verifies names and passwords, in place of hashes.

    async def verify(name: str, password: str) -> bool

It runs in the worker's loop. At most MOST_CALLS calls are under way; the verifier's
queue has the rest, so that a slow function holds up logins and nothing else. A call
that raises, returns anything but a bool, or takes longer than a request waits gives no
answer: nobody is let in by it, and nobody's password counts as wrong. No message has
the text of an exception, because it may repeat the password (R37).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cutthrough import contained

log = logging.getLogger("cutthrough")

Function = Callable[[str, str], Awaitable[bool]]
# Are they right? None: there is no answer
Done = Callable[[bool | None], None]

MOST_CALLS = 64
# Bytes of a name; the limit of htpasswd(1)
MOST_NAME = 255


class CallPool:
    """Calls functions for one verifier. `patience`: seconds that a call may take."""

    def __init__(self, loop: asyncio.AbstractEventLoop, patience: float = 10.0) -> None:
        self.patience = patience
        self.faults = 0
        self._loop = loop
        self._tasks: set[contained.Begun[None]] = set()
        self._is_closed = False

    def call(self, function: Function, name: str, secret: bytes, done: Done) -> None:
        """Calls `done` later, once; never after `close`."""
        if not name.isprintable() or not 0 < len(name.encode()) <= MOST_NAME:
            self._loop.call_soon(done, False)       # an empty name is nobody's
            return
        task = contained.Begun(self._run(function, name, secret.decode(), done),
                               loop=self._loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, function: Function, name: str, secret: str,
                   done: Done) -> None:
        answer = None
        try:
            result = await asyncio.wait_for(
                contained.call(function, name, secret), self.patience)
            if not isinstance(result, bool):
                raise TypeError(f"returned {type(result).__name__}, not a bool")
            answer = result
        except Exception as error:      # the operator's code: it may raise anything
            self._report(error)
        except asyncio.CancelledError as error:
            if self._is_closed:
                raise
            self._report(error)
        done(answer)

    def _report(self, error: BaseException) -> None:
        self.faults += 1
        if self.faults & (self.faults - 1) == 0:        # the 1st, 2nd, 4th, 8th …
            reason = ("no answer in time" if isinstance(error, TimeoutError)
                      else type(error).__name__)
            log.error("the auth hook failed (%d so far): %s", self.faults, reason)

    def close(self) -> None:
        """Cancels the calls under way, without an answer."""
        self._is_closed = True
        for task in self._tasks:
            task.end()
