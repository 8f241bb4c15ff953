"""Recordings by the first message of their requests, for calls of gRPC.

A call is answered in step with its messages, so its recordings are looked for before
its request has ended, when no key can be made. A message is five bytes and its data.
"""

from bisect import insort
from hashlib import blake2b

from cutthrough.recording.model.recording import Request

PREFIX = 5


def first_message(body: bytes) -> bytes:
    """With its prefix; b"" if the body is empty or the message is not whole."""
    end = PREFIX + int.from_bytes(body[1:PREFIX])
    return body[:end] if len(body) >= end else b""


def whole_messages(body: bytes) -> int:
    """The number of bytes of the whole messages."""
    size = 0
    while (at := size + PREFIX) <= len(body):
        end = at + int.from_bytes(body[size + 1:at])
        if end > len(body):
            break
        size = end
    return size


class Begins:
    def __init__(self) -> None:
        self._numbers: dict[bytes, list[int]] = {}

    def add(self, number: int, request: Request) -> None:
        if message := first_message(request.body):
            insort(self._numbers.setdefault(_key(request, message), []), number)

    def remove(self, number: int, request: Request) -> None:
        if message := first_message(request.body):
            key = _key(request, message)
            self._numbers[key].remove(number)
            if not self._numbers[key]:
                del self._numbers[key]

    def find(self, request: Request, message: bytes) -> list[int]:
        """In order: of its host and path, if they begin with this message."""
        return self._numbers.get(_key(request, message), [])


def _key(request: Request, message: bytes) -> bytes:
    hasher = blake2b(f"{request.host}\n{request.path}\n".encode(), digest_size=16)
    hasher.update(message)
    return hasher.digest()
