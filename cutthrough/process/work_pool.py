"""Work on content that is too long for a worker's loop.

A worker with its own process uses child processes (`process.work_process`), started
when first needed, killed when a call takes too long, and ended after a while without
one. A worker embedded in another program starts no process and uses threads, which
cannot be killed: what takes too long there ends later, and its place is free then.
"""

import asyncio
import contextlib
import io
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from cutthrough.exchange.work import ProcessLost
from cutthrough.process.helper import start_helper
from cutthrough.process.work_process import pack, unpack

# The program; its channel's descriptor follows. -P: see supervisor.children
COMMAND = (sys.executable, "-P", "-m", "cutthrough.process.work_process")
MOST = 2                                     # processes, or threads
# A process gets so small a part of a processor at least
BUSY = 6
# After which an unused process ends
IDLE_S = 5.0
PIECE = 256 << 10                            # bytes that are written in a turn


class _Child:
    def __init__(self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader,
                 writer: asyncio.StreamWriter) -> None:
        self.process, self._reader, self._writer = process, reader, writer
        self.is_free = False

    @classmethod
    async def start(cls) -> "_Child":
        """Raises OSError."""
        process, ours = start_helper(COMMAND, socket.SOCK_STREAM)
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            process.kill()
            raise
        return cls(process, reader, writer)

    async def ask(self, question: list[bytes]) -> list[bytes]:
        """Raises OSError and EOFError."""
        self.is_free = False
        self._writer.write(len(question).to_bytes(4, "little"))
        for part in question:
            self._writer.write(len(part).to_bytes(4, "little"))
            view = memoryview(part)          # a slice of it copies nothing
            for at in range(0, len(part), PIECE):
                self._writer.write(view[at:at + PIECE])
                await self._writer.drain()
        head = await self._read_number()
        reply = [await self._read_part() for _ in range(head >> 1)]
        self.is_free = not head & 1          # else it ends
        return reply

    async def _read_number(self) -> int:
        return int.from_bytes(await self._reader.readexactly(4), "little")

    async def _read_part(self) -> bytes:
        left = await self._read_number()
        data = io.BytesIO()                  # its value is no copy
        while left:
            piece = await self._reader.read(min(left, PIECE))
            if not piece:
                raise EOFError
            data.write(piece)
            left -= len(piece)
        return data.getvalue()

    def kill(self) -> None:
        self._writer.transport.abort()
        self.process.kill()


class ProcessPool:
    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._free: list[_Child] = []
        self._busy: set[_Child] = set()
        self._ended: list[subprocess.Popen[bytes]] = []     # not reaped yet
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def run(self, seconds: float, function: Callable[..., Any], *arguments: Any
                  ) -> Any:
        """The function's result. At most `most` at a time: the caller sees to
        that. Raises TimeoutError after this time of a processor, or BUSY times as long,
        ProcessLost, and its exceptions."""
        self._reap()
        child = None
        try:
            async with asyncio.timeout(seconds * BUSY):
                child = self._free.pop() if self._free else await _Child.start()
                self._busy.add(child)
                reply = await child.ask(pack((seconds, function, arguments)))
        except (OSError, EOFError) as error:
            if isinstance(error, TimeoutError):
                raise
            if child is not None and await asyncio.to_thread(
                    child.process.wait) == -signal.SIGPROF:
                raise TimeoutError from None
            raise ProcessLost(str(error)) from None
        finally:
            if child is not None:
                self._busy.discard(child)
                self._put_back(child)
        returned, result = unpack(reply)
        if not returned:
            raise result
        return result

    def _put_back(self, child: _Child) -> None:
        if not child.is_free or self._closed:
            self._end(child)
            return
        self._free.append(child)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._end_free)

    def _end_free(self) -> None:
        """For so long no call has ended."""
        self._timer = None
        while self._free:
            self._end(self._free.pop())

    def _end(self, child: _Child) -> None:
        child.kill()
        self._ended.append(child.process)    # a wait for it here could block the loop
        asyncio.get_running_loop().call_later(1, self._reap)

    def _reap(self) -> None:
        self._ended = [process for process in self._ended if process.poll() is None]

    def close(self) -> None:
        """Kills the processes, even in the middle of a call."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for child in [*self._free, *self._busy]:
            child.kill()
            child.process.wait()
        self._free.clear()


class ThreadPool:
    def __init__(self, most: int = MOST) -> None:
        self.most = most

    async def run(self, seconds: float, function: Callable[..., Any], *arguments: Any
                  ) -> Any:
        """As ProcessPool's; after `seconds` the call still goes on to its end."""
        call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
        done, _ = await asyncio.wait([call], timeout=seconds)
        if done:
            return call.result()
        with contextlib.suppress(Exception):
            await call                       # its place is taken until then
        raise TimeoutError

    def close(self) -> None: ...


def make_pool(has_processes: bool) -> ProcessPool | ThreadPool:
    return ProcessPool() if has_processes else ThreadPool()
