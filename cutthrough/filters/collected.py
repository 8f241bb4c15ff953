"""A request's body behind its filters, for a reader that decides about its way.

    client ─> Sluice ─> the filters ─> Collected ─> the player of recordings
                 └──────────── write <──────────────────┘    if it goes to the origin

The filters have a Sluice, and the reader has another. The filters' output comes without
the framing of chunks to the reader, and the reader sends it up in a framing of its own.
"""

import asyncio

from cutthrough.filters.exchange import Sluice

# Octets that wait for the reader; then the filters wait
MOST_WAITING = 1 << 17


class Collected:
    """The reader's side; a Sluice."""

    def __init__(self, sluice: Sluice) -> None:
        self.sluice = sluice
        self.is_chunked = False             # the head of the filters says so
        self.filters_side = _FiltersSide(self)
        self.ended = False
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._sends = False

    def take(self) -> bytes | None:
        if self._pieces:
            piece = self._pieces.pop(0)
            self._size -= len(piece)
            self.filters_side.go_on()
            return piece
        return b"" if self.ended else None

    def trailers(self) -> bytes:
        return self.sluice.trailers()

    def wait(self, waiter: "asyncio.Future[None]") -> None:
        if self._sends:
            self._sends = False
            self.sluice.wait(waiter)
        elif self._pieces or self.ended:
            waiter.set_result(None)
        else:
            self._waiter = waiter

    def write(self, data: bytes) -> bool:
        self._sends = self.sluice.write(data)
        return self._sends

    def finish(self) -> None:
        self.sluice.finish()

    def put(self, data: bytes) -> bool:
        """From the filters. True: there is no room for more."""
        if self.is_chunked:                 # one chunk at a time: see bodies
            size, _, data = data.partition(b"\r\n")
            data = data[:int(size, 16)]
        if data:
            self._pieces.append(data)
            self._size += len(data)
            self._wake()
        return self.is_full

    @property
    def is_full(self) -> bool:
        return self._size > MOST_WAITING

    def end(self) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _FiltersSide:
    def __init__(self, collected: Collected) -> None:
        self._collected = collected
        self._waiter: asyncio.Future[None] | None = None

    def take(self) -> bytes | None:
        return self._collected.sluice.take()

    def trailers(self) -> bytes:
        return self._collected.sluice.trailers()

    def wait(self, waiter: "asyncio.Future[None]") -> None:
        if self._collected.is_full:
            self._waiter = waiter
        else:
            self._collected.sluice.wait(waiter)

    def write(self, data: bytes) -> bool:
        return self._collected.put(data)

    def finish(self) -> None:
        self._collected.end()

    def go_on(self) -> None:
        waiter = self._waiter
        if waiter is not None and not self._collected.is_full:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
