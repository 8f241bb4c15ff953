"""Feeds one input to a parser in every way of arrival."""

import ctypes
import functools
import mmap
from collections.abc import Callable
from typing import Any

PAGE = mmap.PAGESIZE
ROOM = 16 * PAGE

Parser = Callable[..., Any]


class Guarded:
    """Memory; the next byte behind it cannot be read: a page of PROT_NONE follows."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, ROOM + PAGE)
        self._first = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(self._first + ROOM)
        if libc.mprotect(guard, ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, data: bytes) -> tuple[int, int]:
        """Copies data so that it ends at the guard page: (address, length)."""
        assert len(data) <= ROOM
        address = self._first + ROOM - len(data)
        ctypes.memmove(address, data, len(data))
        return address, len(data)

    def read(self, address: int, n: int) -> bytes:
        return ctypes.string_at(address, n)


@functools.cache
def guarded() -> Guarded:
    return Guarded()


def parse_every_way(parse: Parser, data: bytes, **limits: int) -> Any:
    """Returns the answer of `parse(source, seen, **limits)` to data.

    Checks that the answer is the same byte by byte, at every split, with bytes behind
    it and at the end of memory: a refusal stays the same from the byte that shows it
    on, and a head is not whole one byte early. None: it is not whole.
    """
    answer = parse(data, 0, **limits)
    place = guarded().place
    assert parse(place(data), 0, **limits) == answer, "at the end of memory"

    step, n = None, 0
    while step is None and n < len(data):
        n += 1
        step = parse(place(data[:n]), n - 1, **limits)
    assert step == answer, f"byte by byte, at {n}"
    if n:
        assert parse(data[:n - 1], 0, **limits) is None, "resuming, it comes late"

    for split in range(1, len(data)):
        first = parse(place(data[:split]), 0, **limits)
        if first is not None:
            assert first == answer, f"cut at {split}"
        else:
            assert parse(place(data), split, **limits) == answer, f"rest behind {split}"

    if answer is not None:
        for more in (b"\0", b"\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 300):
            assert parse(data + more, 0, **limits) == answer, f"followed by {more!r}"
            assert parse(data + more, n - 1, **limits) == answer, "resumed"
    return answer


def scan_every_way(scanner: type, data: bytes, decode: bool) -> tuple[bytes, int] | str:
    """Returns (output, bytes consumed) of a chunked body, or the refusal's label.

    Checks that whole, byte by byte and every split agree, and that it has an end.
    """
    answers = {scan(scanner, [data], decode), scan(scanner, octets(data), decode)}
    for split in range(1, len(data)):
        answers.add(scan(scanner, [data[:split], data[split:]], decode))
    assert len(answers) == 1, answers
    (answer,) = answers
    return answer


def octets(data: bytes) -> list[bytes]:
    return [data[i:i + 1] for i in range(len(data))]


def scan(scanner: type, pieces: list[bytes], decode: bool) -> tuple[bytes, int] | str:
    chunks, out, consumed = scanner(decode), b"", 0
    for piece in pieces:
        address, n = guarded().place(piece)
        got = chunks.feed_at(address, n)
        if isinstance(got, str):
            return got
        out += got[2] + guarded().read(address, got[1])
        consumed += got[0]
        assert got[1] <= got[0], "more is sent on than has come"
        assert got[0] == n or chunks.done
    assert chunks.done, "not whole"
    return out, consumed
