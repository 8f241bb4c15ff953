"""Recordings that may answer before their requests have ended, when no key can be made.

Those of a call of gRPC are looked for by the first message of its request, which is
five bytes and its data. Those of other requests are all that began before the end of
theirs.
"""

from bisect import insort
from collections.abc import Iterator
from hashlib import blake2b

from cutthrough.recording.model.recording import Recording, Request

PREFIX = 5
# In place of a message
EARLY = b""


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

    @property
    def has_any(self) -> bool:
        return bool(self._numbers)

    def add(self, recording: Recording) -> None:
        for key in _keys(recording):
            insort(self._numbers.setdefault(key, []), recording.number)

    def remove(self, recording: Recording) -> None:
        for key in _keys(recording):
            self._numbers[key].remove(recording.number)
            if not self._numbers[key]:
                del self._numbers[key]

    def find(self, request: Request, message: bytes) -> list[int]:
        """In order: of its host and path, if they begin with this message; b"": if they
        answered before the end of theirs."""
        return self._numbers.get(_key(request, message), [])


def _keys(recording: Recording) -> Iterator[bytes]:
    request = recording.request
    if message := first_message(request.body):
        yield _key(request, message)
    if recording.response.is_early:
        yield _key(request, EARLY)


def _key(request: Request, message: bytes) -> bytes:
    hasher = blake2b(f"{request.host}\n{request.path}\n".encode(), digest_size=16)
    hasher.update(message)
    return hasher.digest()
