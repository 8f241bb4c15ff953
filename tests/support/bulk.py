"""Bulk through a proxy: what is read, and how far a worker grows."""

import hashlib
import threading

from tests.support.sanitized import SANITIZED

SIZE = 100 << 20
BLOCK = 1 << 20
#: The most that a worker may grow by while 100 MiB pass through it, in each direction.
FLAT = (90 if SANITIZED else 30) << 20


def read_sum(stream, size: int) -> str:
    """The digest of exactly `size` bytes, without keeping them."""
    digest = hashlib.sha256(stream.pending)
    left = size - len(stream.pending)
    stream.pending.clear()
    while left:
        data = stream.sock.recv(min(left, BLOCK))
        assert data, f"the stream ended {left} bytes early"
        digest.update(data)
        left -= len(data)
    return digest.hexdigest()


class Watch(threading.Thread):
    """Samples the worker's resident memory until it is stopped."""

    def __init__(self, proxy) -> None:
        super().__init__(daemon=True)
        self.worker = proxy.worker
        self.first = self.highest = self.worker.memory_info().rss
        self.ended = threading.Event()

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended.set()
        self.join(5)

    def run(self) -> None:
        while not self.ended.wait(0.02):
            self.highest = max(self.highest, self.worker.memory_info().rss)

    @property
    def growth(self) -> int:
        return self.highest - self.first
