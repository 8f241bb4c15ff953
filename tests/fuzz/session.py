"""Fuzz target of the whole proxy: a scripted client and a scripted origin, one loop.

The input is the script. Every 0xff begins a step: its letter, then the step's bytes.

    c  the client sends        o  the origin sends (on its newest connection)
    f  the client's FIN        F  the origin's FIN
    r  the client resets       R  the origin resets
    n  another client comes    p  another one; it must send a PROXY header
                               anything else: only time passes

`{h}` is the origin's authority, `{t}` the one that CONNECT may go to, `{a}` the line
with the right credentials. After each step the loop turns until the proxy has
answered; at the end every peer resets, and then nothing of the proxy may be left.
"""

import asyncio
import contextlib
import re
import socket
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator

import cutthrough
from tests.fuzz.targets import check_forwarded
from tests.wire import twin
from tests.wire.twin_proxy import Named, read_proxy_header

USER, PASSWORD = "fuzz", "secret-of-the-fuzzer"
TOKEN = b64encode(f"{USER}:{PASSWORD}".encode())
AUTH = b"Proxy-Authorization: Basic " + TOKEN + b"\r\n"
RESET = struct.pack("ii", 1, 0)     # SO_LINGER: close() sends RST
MOST_STEPS = 40
TURNS = 3           # an event leads to a call, that to a write, that to an event
LONGEST_END = 5.0   # seconds; an end takes a few turns, but the machine may be busy

# If a script could dial anything else, it is not played: it is not our network.
ELSEWHERE = re.compile(
    rb"(?i:http://)(?!(\{[ht]\}|localhost:1)[/? ])|CONNECT (?!(\{[ht]\}|localhost:1) )")


class Peer:
    """One end of a connection: the bytes that it sent and got."""

    proxied = False

    def __init__(self, sock: socket.socket, proxied: bool = False) -> None:
        """`proxied`: its bytes begin with a PROXY header, or are refused."""
        sock.setblocking(False)
        self.sock = sock
        self.proxied = proxied
        self.sent = self.heard = b""
        self.ended = False                  # it has heard the FIN, or a reset

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):      # a full or reset socket takes less
            self.sent += data[:self.sock.send(data)]

    def hear(self) -> None:
        while not self.ended:
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.heard += data
            self.ended = not data

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        if self.sock.fileno() >= 0:
            self.hear()
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.sock.close()


def listen() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    sock.setblocking(False)
    return sock


def authority_of(sock: socket.socket) -> bytes:
    return b"127.0.0.1:%d" % sock.getsockname()[1]


class Stage:
    """The proxy, the origin's two ports and the loop: made once, for every input."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop = new_loop()
        self.complaints: list[str] = []
        self.loop.set_exception_handler(
            lambda loop, context: self.complaints.append(str(context)))
        self.origin, self.tunnel = listen(), listen()
        self.words = {b"{h}": authority_of(self.origin), b"{a}": AUTH,
                      b"{t}": authority_of(self.tunnel)}
        self.proxy = cutthrough.serve(
            user=USER, password=PASSWORD, via="fuzzed", max_body="64KiB",
            listen=["127.0.0.1:0", "127.0.0.2:0"], proxy_protocol="127.0.0.2:0",
            proxy_protocol_from="127.0.0.1", address_floor="off",
            origin=f"http://{authority_of(self.origin).decode()}", dns_timeout="100ms",
            connect_ports=str(self.tunnel.getsockname()[1]))
        self.loop.run_until_complete(self.proxy.__aenter__())
        self.addresses = [one.getsockname() for one in self.proxy._listeners]
        self.clients: list[Peer] = []       # of the script that was played last
        self.origins: list[Peer] = []
        self.tunnels: list[Peer] = []

    def close(self) -> None:
        self.loop.run_until_complete(self.proxy.__aexit__(None, None, None))
        self.loop.close()
        self.origin.close()
        self.tunnel.close()

    def play(self, script: bytes) -> None:
        """Raises AssertionError for every fault."""
        steps = script.split(b"\xff")[:MOST_STEPS]
        self.forget()
        if ELSEWHERE.search(b"".join(step[1:] for step in steps if step[:1] == b"c")):
            return
        with self.played():
            for step in steps:
                self.take(step[:1], step[1:])
                self.turn()

    def forget(self) -> None:
        for peers in (self.clients, self.origins, self.tunnels):
            peers.clear()

    @contextlib.contextmanager
    def played(self) -> Iterator[Peer]:
        """A client comes; at the end all go, and whether all was well is seen."""
        self.forget()
        self.clients.append(self.connect())
        try:
            yield self.clients[0]
        finally:
            self.turn()
            for peer in self.peers():
                peer.reset()
            self.wait_for_the_end()
        self.check()

    def take(self, letter: bytes, data: bytes) -> None:
        client = self.clients[-1]
        origin = (self.origins or self.tunnels or [None])[-1]
        if letter in (b"c", b"o"):
            for word, meaning in self.words.items():
                data = data.replace(word, meaning)
        if letter == b"c":
            client.send(data)
        elif letter == b"f":
            client.finish()
        elif letter == b"r":
            client.reset()
        elif letter == b"n" or letter == b"p":
            self.clients.append(self.connect(letter == b"p"))
        elif origin and letter == b"o":
            origin.send(data)
        elif origin and letter == b"F":
            origin.finish()
        elif origin and letter == b"R":
            origin.reset()

    def connect(self, proxied: bool = False) -> Peer:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))         # its caller's, of the second listener too
        sock.connect(self.addresses[proxied])
        return Peer(sock, proxied)

    def peers(self) -> list[Peer]:
        return [*self.clients, *self.origins, *self.tunnels]

    def turn(self) -> None:
        for _ in range(TURNS):
            self.loop.run_until_complete(asyncio.sleep(0))
            for listener, peers in ((self.origin, self.origins),
                                    (self.tunnel, self.tunnels)):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        peers.append(Peer(listener.accept()[0]))
            for peer in self.peers():
                peer.hear()

    def wait_for_the_end(self) -> None:
        deadline = self.loop.time() + LONGEST_END
        leaks = self.proxy.worker.leaks
        while any(leaks().values()) or self.proxy.worker.idle_pool.idle:
            assert self.loop.time() < deadline, f"left behind: {leaks()}"
            self.turn()
            for peer in self.peers():       # peers that came meanwhile
                peer.reset()

    def check(self) -> None:
        assert not self.complaints, self.complaints
        assert self.proxy.worker.poller.faults == 0
        said = b"".join(client.sent for client in self.clients)
        assert TOKEN in said or not self.origins + self.tunnels, "without credentials"
        for origin in self.origins:
            check_origin(origin)
        for client in self.clients:
            check_client(client)


def check_origin(origin: Peer) -> None:
    """It has heard whole, well-formed requests, none with a field that is ours to eat;
    the last may have been cut short."""
    rest = origin.heard
    while rest:
        head = twin.read_request(rest, line_bytes=1 << 16, head_bytes=1 << 16)
        if head is None:
            return
        assert isinstance(head, twin.Head), (head, rest)
        check_forwarded(head)
        assert not rest.startswith(b"\r\n")
        if head.values(b"upgrade") and b" 101" in origin.sent:
            return                          # the next bytes are no HTTP
        rest = rest[head.length:]
        length = body_length(rest, twin.read_request_framing(head))
        if length is None:
            return
        rest = rest[length:]


def body_length(rest: bytes, framing: twin.Framing | str) -> int | None:
    """Bytes of the body at the start of rest; None: not whole."""
    assert isinstance(framing, twin.Framing), framing
    if framing.kind == "chunked":
        body = twin.read_chunks(rest)
        assert not isinstance(body, str), (body, rest)
        return body.length if body else None
    if framing.kind == "until-close" or framing.length > len(rest):
        return None
    return framing.length


def methods_of(said: bytes) -> list[bytes]:
    """The methods of requests with a whole head that a client sent, as far as they can
    be read."""
    methods = []
    while isinstance(head := twin.read_request(said), twin.Head):
        methods.append(head.first[0])
        framing = twin.read_request_framing(head)
        if isinstance(framing, str) or isinstance(twin.read_target(head), str):
            break
        said = said[head.length:]
        if framing.kind == "chunked" and isinstance(twin.read_chunks(said), str):
            break
        length = body_length(said, framing)
        if length is None:
            break
        said = said[length:]
    return methods


def check_client(client: Peer) -> None:
    """It has heard whole, well-formed responses, one for each request and one more if
    other bytes came; the last may have been cut short."""
    sent = client.sent
    if client.proxied:
        header = read_proxy_header(sent)
        sent = sent[header.length:] if isinstance(header, Named) else b""
    rest, methods = client.heard, methods_of(sent)
    answers = 0
    while rest:
        head = twin.read_response(rest, line_bytes=1 << 16, head_bytes=1 << 16)
        if head is None:
            return
        assert isinstance(head, twin.Head), (head, rest)
        assert not head.lenient, rest
        method = methods[answers] if answers < len(methods) else b"GET"
        status = head.first[0]
        if status == 101 or (method == b"CONNECT" and status < 300):
            return
        rest = rest[head.length:]
        if status < 200:
            continue
        answers += 1
        assert answers <= len(methods) + 1, "an answer to nothing"
        length = body_length(rest, twin.read_response_framing(head, method))
        if length is None:
            return
        rest = rest[length:]
