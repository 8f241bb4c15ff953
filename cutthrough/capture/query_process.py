"""A process that answers the admin listener's queries, one after another:
`python -m cutthrough.capture.query_process FD`.

It is apart from the supervisor because a filter is a regular expression, and a hostile
body can make one run for hours, with Python's lock held. Then the supervisor kills the
process. FD is its end of a socket pair; the process ends with it.
"""

import os
import signal
import socket
import sys

import msgspec

from cutthrough.capture.answers import Result, answer
from cutthrough.capture.importing import bound_memory
from cutthrough.capture.query import MOST_FRAME, MOST_MEMORY, Query
from cutthrough.storage.store import StoreError
from cutthrough.storage.stores import close_kept


def read_frame(channel: socket.socket) -> bytes | None:
    """The next frame; None: the other side has closed."""
    head = read_exactly(channel, 4)
    if head is None:
        return None
    size = int.from_bytes(head, "little")
    if size > MOST_FRAME:
        return None
    return read_exactly(channel, size)


def read_exactly(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def write_answer(channel: socket.socket, result: Result) -> None:
    head, pieces = result
    write_frame(channel, msgspec.json.encode(head))
    for piece in pieces:
        if piece:
            write_frame(channel, piece)
    write_frame(channel, b"")


def write_frame(channel: socket.socket, payload: bytes) -> None:
    channel.sendall(len(payload).to_bytes(4, "little") + payload)


def main(fd: int) -> int:
    # It ends when its channel does: not by a signal to the whole service
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP,
                   signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    os.nice(5)                               # requests go before pages
    bound_memory(MOST_MEMORY)
    channel = socket.socket(fileno=fd)
    try:
        while (frame := read_frame(channel)) is not None:
            query = msgspec.json.decode(frame, type=Query)
            content = read_exactly(channel, query.size) if query.size else b""
            if content is None:              # its sender has gone: nothing is imported
                break
            write_answer(channel, answer(query, content))
    except (OSError, StoreError):            # the supervisor hangs up; the disk fails
        return 1                             # and the answer is cut short
    finally:
        close_kept()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
