"""Our end of TLS and a peer's, Python's `ssl` in memory.

The peer's bytes go over a socket pair, so that a test decides which bytes arrive when.
"""

import contextlib
import socket
import ssl

from cutthrough.net.tls.certificates import Pair
from tests.doors.transport import TLS, End
from tests.support.certificates import Made


def pair_of(made: Made) -> Pair:
    return Pair(*made.pem, name=str(made.certificate))


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs = listener.accept()[0]
        theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ours, theirs


class Peer:
    """Python's side, in memory."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, name: str | None,
                 session: ssl.SSLSession | None, server_side: bool = False) -> None:
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server_side,
            server_hostname=name, session=session)
        self.done = False
        sock.setblocking(False)

    def step(self) -> bytes:
        """Reads the socket, shakes hands, and returns the bytes to send."""
        with contextlib.suppress(BlockingIOError):
            while data := self.sock.recv(65536):
                self.incoming.write(data)
        if not self.done:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                self.done = True
        return self.outgoing.read()

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.flush()

    def flush(self) -> None:
        self.sock.sendall(self.outgoing.read())

    def recv(self, n: int = 1 << 20) -> bytes:
        """Everything that has come."""
        self.step()
        answer = bytearray()
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while data := self.tls.read(n):
                answer += data
        return bytes(answer)


class Couple:
    """Our end and the peer's."""

    def __init__(
            self, context: int, peer: ssl.SSLContext, name: str | None = "localhost",
            session: ssl.SSLSession | None = None, connects: bool = False,
            speaks_for: str | None = None,
            pair: tuple[socket.socket, socket.socket] | None = None) -> None:
        """`speaks_for`: the name on the certificate, if the context makes one."""
        self.ours, theirs = pair or socket.socketpair()
        self.ours.setblocking(False)
        self.peer = Peer(theirs, peer, None if connects else name, session,
                         server_side=connects)
        self.end = End(self.ours.fileno(), TLS, context,
                       name if connects else speaks_for)

    def shake(self, most: int = 1 << 20) -> str:
        """Both go on until we have an answer; the peer's bytes come in pieces of at
        most this many."""
        answer = self.end.shake()
        for _ in range(20):
            try:
                data = self.peer.step()
            except ssl.SSLError:            # the alert, too
                data = self.peer.outgoing.read()
            for at in range(0, len(data), most):
                if answer != "more":
                    self.peer.sock.send(data[at:])
                    break
                self.peer.sock.send(data[at:at + most])
                self.end.note()
                answer = self.end.shake()
            if answer != "more" and (self.peer.done or answer != "done"):
                return answer
            self.end.note()
            if answer == "more":
                answer = self.end.shake()
        return answer

    def begin(self) -> None:
        assert self.shake() == "done"
        self.peer.recv()                    # tickets

    def recv(self) -> bytes | int:
        self.end.note()
        return self.end.recv()

    def close(self) -> None:
        self.end.close()
        self.ours.close()
        self.peer.sock.close()
