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
import os
import pickle
import resource
import signal
import socket
import sys

from cutthrough.process.environment import SIGNALS

# Bytes of address space beyond what it begins with: parsed JSON takes 60 to 90 times
# its text
MOST_MEMORY = 256 << 20
# After a call that took more than that, it ends: its memory goes back
MOST_KEPT = 64 << 20


def read_frame(channel: socket.socket) -> bytes | bytearray:
    """b"": the other side has closed."""
    size = int.from_bytes(read_exactly(channel, 4), "little")
    return read_exactly(channel, size) if size else b""


def read_exactly(channel: socket.socket, size: int) -> bytearray:
    """Empty at the end."""
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        count = channel.recv_into(view[at:])
        if not count:
            return bytearray()
        at += count
    return data


def answer(question: bytes | bytearray) -> bytes:
    """A pickled pair: whether it returned, and the result or the exception."""
    try:
        seconds, function, given = pickle.loads(question)
        # Of processor time, so that a busy machine ends no call; the signal ends this
        # process even within C
        signal.setitimer(signal.ITIMER_PROF, seconds)
        return pickle.dumps((True, function(*given)), 5)
    except MemoryError:
        return pickle.dumps((False, MemoryError()), 5)
    except Exception as error:
        try:
            return pickle.dumps((False, error), 5)
        except Exception:                    # an exception that cannot be pickled
            return pickle.dumps((False, RuntimeError(type(error).__name__)), 5)
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
    with contextlib.suppress(OSError):
        while question := read_frame(channel):
            reply = answer(question)
            del question
            is_large = size_now()[1] > least + MOST_KEPT
            channel.sendall((len(reply) << 1 | is_large).to_bytes(4, "little") + reply)
            if is_large:
                return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
