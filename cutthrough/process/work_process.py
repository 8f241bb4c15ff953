"""A process that calls functions for a worker, one after another:
`python -m cutthrough.process.work_process FD`.

It is apart from the worker because its input is of peers: what takes long there would
stop all clients of the worker, and this process can be killed. A question is a pickled
function, by its name, and what it is given; an answer is a pickled result. Only the
worker writes questions, and nothing that came from a peer is unpickled: only values
that the worker has made of it. FD is its end of a socket pair; the process ends with
it.
"""

import contextlib
import io
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

from cutthrough.process.environment import SIGNALS

# Bytes of address space beyond its own at the start: parsed JSON takes 60 to 90 times
# its text
MOST_MEMORY = 256 << 20
# After a call that took more than that, it ends: its memory goes back
MOST_KEPT = 64 << 20
# Bytes from here on go beside a pickle: a copy of 4 MiB takes 2 ms of the worker's loop
LARGE = 64 << 10


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, large: list[bytes]) -> None:
        super().__init__(file, 5)
        self._large = large

    def persistent_id(self, value: Any, /) -> int | None:
        if type(value) is not bytes or len(value) < LARGE:
            return None
        self._large.append(value)
        return len(self._large)


class _Unpacker(pickle.Unpickler):
    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__(io.BytesIO(parts[0]))
        self._parts = parts

    def persistent_load(self, number: int, /) -> bytes:
        return self._parts[number]


def pack(value: Any) -> list[bytes]:
    """The pickled value, and the large bytes in it, which are not copied."""
    file = io.BytesIO()
    large: list[bytes] = []
    _Packer(file, large).dump(value)
    return [file.getvalue(), *large]


def unpack(parts: Sequence[bytes]) -> Any:
    """The value from `pack`."""
    return _Unpacker(parts).load()


def read_parts(source: BinaryIO) -> list[bytes]:
    """Raises EOFError."""
    count = int.from_bytes(read_exactly(source, 4), "little")
    return [read_exactly(source, int.from_bytes(read_exactly(source, 4), "little"))
            for _ in range(count)]


def write_parts(channel: socket.socket, parts: Sequence[bytes], ends: bool) -> None:
    """`ends`: this process ends afterwards."""
    channel.sendall((len(parts) << 1 | ends).to_bytes(4, "little"))
    for part in parts:
        channel.sendall(len(part).to_bytes(4, "little"))
        channel.sendall(part)


def read_exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)                 # into the result itself
    if len(data) < size:
        raise EOFError
    return data


def answer(question: Sequence[bytes]) -> list[bytes]:
    """A packed pair: whether it returned, and the result or the exception."""
    try:
        seconds, function, arguments = unpack(question)
        # Of processor time, so that a busy machine ends no call; the signal ends this
        # process even within C
        signal.setitimer(signal.ITIMER_PROF, seconds)
        return pack((True, function(*arguments)))
    except MemoryError:
        return pack((False, MemoryError()))
    except Exception as error:
        try:
            return pack((False, error))
        except Exception:                    # an exception that cannot be pickled
            return pack((False, RuntimeError(type(error).__name__)))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def size_now() -> tuple[int, int]:
    """Bytes of address space, and resident."""
    with open("/proc/self/statm") as file:
        pages = file.read().split()
    return (int(pages[0]) * resource.getpagesize(),
            int(pages[1]) * resource.getpagesize())


def bound_memory(most: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most += size_now()[0]
    if hard == resource.RLIM_INFINITY or most < hard:
        with contextlib.suppress(ValueError, OSError):      # with sanitizers: terabytes
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def main(fd: int) -> int:
    from cutthrough.process import duty_cycle  # here: the worker needs none of it

    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # Requests that need no such work go before, and are not preempted. A seccomp filter
    # may refuse this
    with contextlib.suppress(OSError):
        os.nice(10)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    bound_memory(MOST_MEMORY)
    least = size_now()[1]
    channel = socket.socket(fileno=fd)
    with contextlib.suppress(OSError, EOFError), channel.makefile("rb") as source:
        is_large = False
        while not is_large and source.peek(1):
            duty_cycle.start()               # gives up its core every 0.5 ms
            reply = answer(read_parts(source))
            is_large = size_now()[1] > least + MOST_KEPT
            write_parts(channel, reply, is_large)
            duty_cycle.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
