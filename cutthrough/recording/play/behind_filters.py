"""The exchange of a replay whose rule has filters, too: answers as of an origin.

    the player ─> Peer ── unix sockets ── the session ─> the filters ─> the client

The session has one end of a pair of sockets in place of an origin, and reads the
answer from it. So a replayed answer goes through filters as any other does. A refusal
is the proxy's own, and goes to the client at once.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from cutthrough.recording.model.sluices import Sluice
from cutthrough.recording.play.shared import Exchange


class Peer:
    """The answer, on its way to the session; a Sluice that is only written to."""

    def __init__(self) -> None:
        self._sock: socket.socket | None = None
        self._left = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._finished = False

    def begin(self, sock: socket.socket) -> None:
        """As a local origin: this is the far end."""
        self._sock = sock
        asyncio.get_running_loop().add_reader(sock.fileno(), self._on_readable)

    def take(self) -> bytes | None:
        return b""

    def wait(self, waiter: "asyncio.Future[None]") -> None:
        if self._left:
            self._waiter = waiter
        elif not waiter.done():
            waiter.set_result(None)

    def write(self, data: bytes) -> bool:
        if self._sock is None or self._finished:
            return False                     # the exchange has ended
        if self._left:
            self._left += data
        elif sent := self._send(data):
            self._keep(data[sent:])
        return bool(self._left)

    def finish(self) -> None:
        self._finished = True
        if not self._left:
            self.close()

    def close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(sock.fileno())
            loop.remove_writer(sock.fileno())
            with contextlib.suppress(OSError):
                while sock.recv(65536):      # the request: unread, it would be a reset
                    pass
            sock.close()
        self._left.clear()
        self._wake()

    def _send(self, data: bytes | bytearray) -> int:
        """The number of bytes sent; 0: the session has closed."""
        assert self._sock is not None
        try:
            return self._sock.send(data)
        except BlockingIOError:
            self._keep(data)
        except OSError:
            self.close()
        return 0

    def _keep(self, data: bytes | bytearray) -> None:
        if data and self._sock is not None:
            self._left += data
            asyncio.get_running_loop().add_writer(
                self._sock.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        if self._sock is None:
            return
        try:
            del self._left[:self._sock.send(self._left)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if self._left:
            return
        asyncio.get_running_loop().remove_writer(self._sock.fileno())
        self._wake()
        if self._finished:
            self.close()

    def _on_readable(self) -> None:
        """The request's head, or the end: then the session has left."""
        try:
            if self._sock is not None and self._sock.recv(65536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.close()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class BehindFilters:
    """An Exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._peer: Peer | None = None
        self._refuses = False

    has_filters = True

    @property
    def id(self) -> str:
        return self._exchange.id

    def answer_by_function(self, function: Callable[[socket.socket], None]) -> None:
        self._exchange.answer_by_function(function)

    def answer(self, head: bytes) -> Sluice:
        if self._refuses:
            return self._exchange.answer(head)
        peer = self._peer = Peer()
        self._exchange.answer_by_function(peer.begin)
        peer.write(head)
        return peer

    def answer_whole(self, head: bytes, body: bytes) -> bool:
        if self._refuses:
            return self._exchange.answer_whole(head, body)
        peer = self.answer(head)
        peer.write(body)
        peer.finish()
        return True

    def answer_early(self, head: bytes) -> Sluice:
        return self.answer(head)

    def close_after_answer(self) -> None:
        """`finish` closes the connection, so the answer is not whole."""

    def set_outcome(self, label: str, text: str) -> None:
        self._refuses = self._peer is None
        self._exchange.set_outcome(label, text)

    def refuse(self, label: str, text: str) -> None:
        self._exchange.refuse(label, text)

    def collect_request_body(self) -> Sluice | None:
        return self._exchange.collect_request_body()

    def end_request_body(self) -> None:
        self._exchange.end_request_body()

    def pause_request(self) -> None:
        self._exchange.pause_request()

    def send_continue(self) -> None:
        self._exchange.send_continue()

    def cache_answer(self, head: bytes, body: bytes, sent: bytes, number: int,
                     packed: bytes) -> None:
        """Keeps no answer at hand: it would be sent without its filters."""

    def answer_websocket(self, function: Callable[[socket.socket], None]) -> None:
        self._exchange.answer_websocket(function)

    def go_to_origin(self) -> None:
        self._exchange.go_to_origin()

    def send_collected_head(self) -> bool:
        return self._exchange.send_collected_head()
