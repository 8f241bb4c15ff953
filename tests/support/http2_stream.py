"""A stream of HTTP/2, used as a connection of HTTP/1.1 with one request."""

import socket

from tests.support.http2 import NO_ERROR, Answer, Peer
from tests.support.wrapped import WrappedSocket

#: Of a connection, not of a request
_CONNECTIONS = ("host", "connection", "proxy-connection")


class StreamSocket(WrappedSocket):
    """The request is read from the sent bytes, and the answer is put as HTTP/1.1."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._peer = Peer(sock)
        self._peer.flush()
        self._text = b""
        self._out = bytearray()
        self._stream = 0
        self._is_tunnel = False
        self._is_answered = False

    @property
    def _answer(self) -> Answer:
        return self._peer.answers[self._stream]

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)

    def sendall(self, data: bytes) -> None:
        if not self._stream:
            self._text += data
            head, end, data = self._text.partition(b"\r\n\r\n")
            if not end:
                return
            self._request(head.decode().split("\r\n"))
        while data:
            data = data[self._peer.send(self._stream, data):]
            if data and not self._peer.read():      # waits for a window
                raise BrokenPipeError

    def _request(self, lines: list[str]) -> None:
        method, target, _ = lines[0].split(" ")
        named = [line.partition(":") for line in lines[1:]]
        fields = [(name.lower(), value.strip()) for name, _, value in named
                  if name.lower() not in _CONNECTIONS]
        self._is_tunnel = method == "CONNECT"
        if self._is_tunnel:
            self._stream = self._peer.connect(target, *fields)
        else:
            self._stream = self._peer.get(target, *fields, method=method)

    def recv(self, n: int) -> bytes:
        answer = self._answer
        if not self._is_answered:
            self._is_answered = True
            self._show_head()
        while not self._out:
            if self._is_tunnel and answer.body:
                self._out += answer.body
                answer.body.clear()
            elif answer.reset not in (None, NO_ERROR):
                raise ConnectionResetError
            elif answer.is_over or not self._peer.read():
                return b""
        data = bytes(self._out[:n])
        del self._out[:n]
        return data

    def _show_head(self) -> None:
        answer = self._peer.wait_head(self._stream)
        if not answer.heads:
            return
        self._is_tunnel &= answer.status == 200
        fields = [f"{name}: {value}" for name, value in answer.fields if name[0] != ":"]
        if not self._is_tunnel:
            self._peer.wait(self._stream)
            if "content-length" not in dict(answer.fields):
                fields.append(f"Content-Length: {len(answer.body)}")
        self._out += "\r\n".join(
            (f"HTTP/1.1 {answer.status} -", *fields, "", "")).encode()
        if not self._is_tunnel:
            self._out += answer.body

    def _end(self) -> None:
        """The stream's end; without it the connection's end would be a reset."""
        self._ended = True
        if self._is_tunnel and not self._answer.is_over:
            self._peer.send(self._stream, b"", ends=True)
            self._peer.wait(self._stream)
