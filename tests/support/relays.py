"""A relay between two connections of the kernel: what goes in, and comes out."""

import resource
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from cutthrough.net import buffers, pipes
from tests.doors.net import OneWay
from tests.doors.transport import TLS
from tests.support.certificates import TlsSocket


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname(), timeout=5)
        other, _ = server.accept()
    other.settimeout(5)
    return client, other


class Way:
    """client -> (inlet) pump (outlet) -> origin"""

    def __init__(self, left: int = -1, splice: bool = True) -> None:
        self.client, self.inlet = tcp_pair()
        self.outlet, self.origin = tcp_pair()
        self.inlet.setblocking(False)
        self.outlet.setblocking(False)
        self.pump = OneWay(self.inlet.fileno(), self.outlet.fileno(), left, splice)

    def close(self) -> None:
        self.pump.stop()
        for sock in (self.client, self.inlet, self.outlet, self.origin):
            sock.close()


class TlsWay(Way):
    def __init__(self, context: int, left: int = -1, splice: bool = True) -> None:
        client, self.inlet = tcp_pair()
        self.outlet, origin = tcp_pair()
        for sock in (client, origin, self.inlet, self.outlet):
            # Or a first byte would wait for the handshake's acknowledgement
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inlet.setblocking(False)
        self.outlet.setblocking(False)
        self.pump = OneWay(self.inlet.fileno(), self.outlet.fileno(), left, splice,
                           transport=TLS, context=context)
        with ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(TlsSocket, sock) for sock in (client, origin)]
            while not self.pump.shake():
                pass
            self.client, self.origin = (end.result() for end in ends)


@pytest.fixture
def make_way() -> Iterator[Callable[..., Way]]:
    ways: list[Way] = []

    def make(left: int = -1, splice: bool = True) -> Way:
        ways.append(Way(left, splice))
        return ways[-1]

    yield make
    for way in ways:
        way.close()
    pipes.close_free()
    assert buffers.stats()["copy_blocks"] == buffers.stats()["head_blocks"] == 0
    assert pipes.stats()["in_use"] == 0


@pytest.fixture
def way(make_way) -> Way:
    return make_way()


def send_all_through(way: Way, data: bytes) -> bytes:
    """Sends in pieces that fit the sockets, running the pump between them."""
    way.client.setblocking(False)
    way.origin.setblocking(False)
    got, sent = bytearray(), 0
    while len(got) < len(data):
        try:
            sent += way.client.send(data[sent:])
        except BlockingIOError:
            pass
        way.pump.run()
        try:
            got += way.origin.recv(1 << 20)
        except BlockingIOError:
            pass
    return bytes(got)


@contextmanager
def descriptors(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
