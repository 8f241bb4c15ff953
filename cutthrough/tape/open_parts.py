"""Exchanges in hand, before their END: how they come together for a reader.

    workers  ──>  the END that each would have now ──┐
    writer   ──>  its parts so far, as records  ─────┴──  supervisor  ──>  opened.py

Nothing is redacted on this way, so nothing of it is kept, and it is in memory only.
"""

import os
from typing import Any

import msgspec

# Exchanges of one answer, the newest
MOST_OPEN = 500
# Of a message to the writer: MOST_OPEN names
MOST_MESSAGE = 65536
PARTS = b"parts"

Records = list[tuple[int, bytes]]            # kind and payload


class PartsQuery(msgspec.Struct, frozen=True, array_like=True):
    """A question to the writer. `names`: each is a worker and a number, as in the
    log's identifier. `whole`: bodies and messages too, unless there are `known` bytes
    still."""

    names: tuple[tuple[int, int], ...]
    whole: bool = False
    known: int = -1


class Parts(msgspec.Struct, frozen=True, array_like=True):
    """The parts of one exchange. `size`: bytes that have come. No records: see
    PartsQuery.known."""

    size: int = 0
    records: Records = []


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """One exchange in hand."""

    name: str                                # the log's identifier
    end: bytes                               # the END that it would have now
    parts: Parts = Parts()


def split_name(name: str) -> tuple[int, int]:
    worker, _, request = name.partition("-")
    return int(worker), int(request)


encode = msgspec.msgpack.encode


def decode(data: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(data, type=kind)


def in_memory(data: bytes) -> int:
    """A descriptor of memory with these bytes; the caller owns it."""
    fd = os.memfd_create("cutthrough-open", os.MFD_CLOEXEC)
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left):]
    return fd


def from_memory(fd: int) -> bytes:
    """Returns the bytes of the memory file, and closes it."""
    try:
        return os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)
