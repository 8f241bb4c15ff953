"""The other end of framed.pyx: the bytes of a socket travel in records."""

import contextlib
import socket

from tests.support.wrapped import WrappedSocket

RECORD = 700            # not the proxy's own size
END = b"\0\0"
INVERTED = bytes(~byte & 255 for byte in range(256))


class FramedSocket(WrappedSocket):
    """The other end of framed.pyx."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._read = bytearray()
        self._payload = bytearray()
        self._begun = bytearray()       # a record that `send` could not send whole
        self._peer_ended = False

    def send(self, data: bytes) -> int:
        """One record at most. Raises BlockingIOError if the one before is not gone."""
        self._flush()
        data = data[:RECORD]
        self._begun = bytearray(encode(data))
        with contextlib.suppress(BlockingIOError):
            self._flush()
        return len(data)

    def _flush(self) -> None:
        while self._begun:
            del self._begun[: self._sock.send(self._begun)]

    def sendall(self, data: bytes) -> None:
        self._flush()
        pieces = (data[at : at + RECORD] for at in range(0, len(data), RECORD))
        self._sock.sendall(b"".join(map(encode, pieces)))

    def recv(self, n: int) -> bytes:
        """Raises ConnectionResetError if a FIN comes, and no end before it."""
        while not self._payload and not self._peer_ended:
            if not self._decode():
                data = self._sock.recv(65536)
                if not data:
                    raise ConnectionResetError("a FIN without an end")
                self._read += data
        taken = bytes(self._payload[:n])
        del self._payload[:n]
        return taken

    def _decode(self) -> bool:
        """All whole records."""
        before = len(self._read)
        while len(self._read) >= 2 and not self._peer_ended:
            n = int.from_bytes(self._read[:2], "big")
            if len(self._read) < n + 2:
                break
            self._peer_ended = n == 0
            self._payload += self._read[2 : n + 2].translate(INVERTED)
            del self._read[: n + 2]
        return len(self._read) != before

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            with contextlib.suppress(OSError):
                self._sock.sendall(END)


def encode(payload: bytes) -> bytes:
    """One record."""
    return len(payload).to_bytes(2, "big") + payload.translate(INVERTED)
