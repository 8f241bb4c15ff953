"""The gate through which work on content runs in a worker: bounded in bytes and time.

    a collected body         ── Body.add ──> Memory          one bound, shared by askers
    work on it ── is_costly ──> no:  in the loop, at once
                           └──> yes: Gate.run ─> in line ─> a process, perhaps killed

Work in the loop takes 5 ms at most (R64): longer work goes to a process, and its own
exchange alone waits. An asker is a user, or the address of a client without a user.
Each has one call at work and a few in line, so a hostile asker delays none of the
others (R64), and none takes all memory (R69).
"""

import asyncio
import io
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

# Bytes of bodies, in one worker; one asker alone gets half: 32 of 4 MiB
MOST_COLLECTED = 256 << 20
# Microseconds of work in the loop: half of R64's bound. The next two are above the
# worst text of each step, measured: JSONPath and masking of `[],` take 1.8 us a mark,
# forms and masking of one long string 0.08 us a byte
MOST_US = 4000
US_OF_BYTE = 0.1
US_OF_MARK = 3
# Each begins a value, a pair, an element or an escape
MARKS = b",[{:&<%\\"
# Any bytes up to here take less than that
SMALL = 1024
# Of octets, if they are only compared: a hash of 1 MiB takes 1 ms
MOST_RAW = 2 << 20
# Processor time of a call. Beyond it the call is given up, and its process killed. The
# worst call within the other bounds takes 2 s; a process starts in 0.2 s
RUN_S = 5.0
# In line, of all askers and of each; a place comes within this time
MOST_WAITING, MOST_OF_ASKER = 256, 16
WAIT_S = 10.0


class Busy(Exception):
    """No room, or no place in line: the exchange ends with `content_limit`."""


class Unread(Exception):
    """The content was not read, with the reason; the exchange goes on without it."""


class ProcessLost(Exception):
    """The process died before its answer, or none could be started."""


class Pool(Protocol):
    most: int                                # calls at a time

    async def run(self, seconds: float, function: Callable[..., Any], *arguments: Any
                  ) -> Any:
        """Raises TimeoutError, ProcessLost, and the function's own errors."""
        ...

    def close(self) -> None: ...


class Memory:
    """Bytes of the collected bodies in one worker.

    An asker gets bytes as long as it has no more than are free then. So one asker alone
    gets half of all, two greedy askers get a third each, and a later one still finds
    some.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = self.refused = 0
        self._by_asker: dict[str, int] = {}

    def take(self, asker: str, size: int) -> bool:
        """False: there is no room."""
        has = self._by_asker.get(asker, 0) + size
        if has > self.most - self.taken - size:
            self.refused += 1
            return False
        self._by_asker[asker] = has
        self.taken += size
        return True

    def give(self, asker: str, size: int) -> None:
        """Gives bytes back."""
        self.taken -= size
        left = self._by_asker[asker] - size
        if left:
            self._by_asker[asker] = left
        else:
            del self._by_asker[asker]

    def open(self, asker: str) -> "Body":
        return Body(self, asker)


class Body:
    """One collected body, until `close`.

    Its bytes are one object, and it grows in place: separate pieces were 400 MB in the
    heap, and stayed there after they were freed, because something small lay behind
    them. From 128 KiB on the C library maps such an object apart. `whole` copies
    nothing: a copy of 4 MiB takes 2 ms of the loop.
    """

    __slots__ = ("_asker", "_data", "_memory", "_taken")

    def __init__(self, memory: Memory, asker: str) -> None:
        self._memory, self._asker = memory, asker
        self._data = io.BytesIO()
        self._taken = 0

    def __len__(self) -> int:
        return self._data.tell()

    def add(self, piece: bytes) -> bool:
        """False: there is no room for it, and it was not added."""
        size = len(piece)
        if not self._memory.take(self._asker, size):
            return False
        self._taken += size
        self._data.write(piece)
        return True

    def whole(self) -> bytes:
        """The bytes. They count until `close`; no more are added afterwards."""
        data, self._data = self._data, io.BytesIO()
        return data.getvalue()

    def close(self) -> None:
        """Idempotent."""
        self._data = io.BytesIO()
        taken, self._taken = self._taken, 0
        if taken:
            self._memory.give(self._asker, taken)

    def __del__(self) -> None:
        self.close()


class _Line:
    """The line of one asker."""

    __slots__ = ("count", "turns")

    def __init__(self, most: int) -> None:
        self.turns, self.count = asyncio.Semaphore(most), 0


class Lines:
    """Holders of `places`, and those in line for one: a line for each asker.

    At most `each` of an asker's calls have a place, or stand behind those of others. So
    an asker with many calls delays another by `each` turns at most (R64, R91).
    """

    def __init__(self, places: int, each: int, most: int, most_of_asker: int,
                 wait_s: float) -> None:
        """`most` and `most_of_asker` have a place or wait; for `wait_s` at most."""
        self.each, self.most, self.most_of_asker = each, most, most_of_asker
        self.wait_s = wait_s
        self.waiting = 0                     # in line, or with a place
        self.refused = 0
        self._places = asyncio.Semaphore(places)
        self._lines: dict[str, _Line] = {}

    async def enter(self, asker: str) -> None:
        """Takes a place until `leave`. Raises Busy."""
        line = self._lines.get(asker)
        if self.waiting >= self.most or (line and line.count >= self.most_of_asker):
            self.refused += 1
            raise Busy
        if line is None:
            line = self._lines[asker] = _Line(self.each)
        line.count += 1
        self.waiting += 1
        try:
            async with asyncio.timeout(self.wait_s):
                await line.turns.acquire()
                try:
                    await self._places.acquire()
                except BaseException:
                    line.turns.release()
                    raise
        except BaseException as error:
            self._forget(asker, line)
            if isinstance(error, TimeoutError):
                self.refused += 1
                raise Busy from None
            raise

    def leave(self, asker: str) -> None:
        line = self._lines[asker]
        self._places.release()
        line.turns.release()
        self._forget(asker, line)

    def _forget(self, asker: str, line: _Line) -> None:
        self.waiting -= 1
        line.count -= 1
        if not line.count:
            del self._lines[asker]


class Gate:
    """The gate of one worker. Without a pool all work is done at once, in the caller.
    """

    def __init__(self, pool: Pool | None = None) -> None:
        self.memory = Memory(MOST_COLLECTED)
        self.lines = Lines(
            pool.most if pool else 1, 1, MOST_WAITING, MOST_OF_ASKER, WAIT_S)
        self._pool = pool
        self._tasks: set[asyncio.Task[Any]] = set()
        self.calls = self.late = 0

    @property
    def waiting(self) -> int:
        """In line, or at work."""
        return self.lines.waiting

    @property
    def refused(self) -> int:
        return self.lines.refused

    @property
    def is_apart(self) -> bool:
        """Work need not be done in the loop."""
        return self._pool is not None

    def bound(self, most: int) -> None:
        """Sets the most bytes of collected bodies."""
        self.memory.most = most

    async def run(self, asker: str, function: Callable[..., Any], *arguments: Any
                  ) -> Any:
        """The function's result, made out of the loop. Raises Busy, Unread, and what it
        raises. The function has a module and a name, and all values can be pickled."""
        pool = self._pool
        if pool is None:
            return function(*arguments)
        await self.lines.enter(asker)
        # If the client leaves, the call goes on: a process takes 0.2 s to start
        self.calls += 1
        task = asyncio.get_running_loop().create_task(
            self._work(pool, function, arguments))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_done, asker))
        return await asyncio.shield(task)

    async def _work(self, pool: Pool, function: Callable[..., Any],
                    arguments: tuple[Any, ...]) -> Any:
        try:
            return await pool.run(RUN_S, function, *arguments)
        except TimeoutError:
            self.late += 1
            raise Unread(f"it takes longer than {RUN_S:g} s") from None
        except (MemoryError, RecursionError):
            raise Unread("it is too large") from None
        except ProcessLost as error:
            raise Unread(f"the process that reads it has ended: {error}") from None

    def _on_done(self, asker: str, task: "asyncio.Task[Any]") -> None:
        self.lines.leave(asker)              # also if it was cancelled before it began
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()                 # retrieved, even if the exchange has ended

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._pool is not None:
            self._pool.close()


def is_costly(data: bytes, coding: str = "") -> bool:
    """Whether content may take longer than MOST_US to read, in any form. What has a
    coding may be of any size."""
    if len(data) <= SMALL and not coding:
        return False
    return bool(coding) or cost_us(data) > MOST_US


def cost_us(data: bytes) -> float:
    """Microseconds, at most."""
    if len(data) * US_OF_BYTE > MOST_US:
        return len(data) * US_OF_BYTE
    return len(data) * US_OF_BYTE + US_OF_MARK * sum(map(data.count, MARKS))
