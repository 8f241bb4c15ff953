"""The other end of framed.pyx: a socket whose bytes travel in records."""

import contextlib
import socket

RECORD = 700            # not the proxy's own size
END = b"\0\0"
INVERTED = bytes(~byte & 255 for byte in range(256))


class FramedSocket:
    """As a connected socket, as far as `Stream` uses one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._read = bytearray()
        self._payload = bytearray()
        self._begun = bytearray()       # a record that `send` could not send whole
        self._peer_ended = self._ended = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)

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

    def setsockopt(self, level: int, name: int, value: object) -> None:
        self._sock.setsockopt(level, name, value)       # type: ignore[call-overload]
        if name == socket.SO_LINGER:
            self._ended = True                          # a reset, and nothing before it

    def shutdown(self, how: int) -> None:
        if how != socket.SHUT_RD:
            self._end()
        self._sock.shutdown(how)

    def close(self) -> None:
        if not self._ended:
            self._end()
            # The peer's end may wait to be read; a close would make a reset of it
            with contextlib.suppress(OSError):
                self._sock.setblocking(False)
                while self._sock.recv(65536):
                    pass
        self._sock.close()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            with contextlib.suppress(OSError):
                self._sock.sendall(END)


def encode(payload: bytes) -> bytes:
    """One record."""
    return len(payload).to_bytes(2, "big") + payload.translate(INVERTED)
