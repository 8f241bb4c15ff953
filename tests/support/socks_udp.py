"""SOCKS associations for UDP, and an echo of datagrams."""

import contextlib
import socket
import threading

import pytest

from tests.support.proxy import Proxy
from tests.support.socks import GRANTED, NONE, SOCKS5, SocksClient, datagram

UDP = SOCKS5 + "udp = true\n"
FREE = UDP + 'auth = "none"\n'


class Echo:
    """Echoes datagrams; `asked` has each one with its sender."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.sock = socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((host, port))
        self.host, self.port = self.sock.getsockname()[:2]
        self.asked: list[tuple[bytes, tuple]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                data, sender = self.sock.recvfrom(65536)
                self.asked.append((data, sender))
                if data == b"stop":
                    return
                self.sock.sendto(data, sender)

    def __enter__(self) -> "Echo":
        return self

    def __exit__(self, *exc: object) -> None:
        with socket.socket(self.sock.family, socket.SOCK_DGRAM) as last:
            last.sendto(b"stop", (self.host, self.port))
        self.sock.close()

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else (
            f"{self.host}:{self.port}")


class Association:
    """A client's connection, and its datagram socket."""

    def __init__(self, client: SocksClient, host: str = "127.0.0.1") -> None:
        self.client = client
        client.send(b"\5\3\0\1" + bytes(6))
        code, self.host, self.port = client.read_reply()
        assert code == GRANTED
        self.sock = socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((host, 0))
        self.sock.settimeout(10)

    def send(self, authority: str, data: bytes, fragment: int = 0) -> None:
        self.sock.sendto(datagram(authority, data, fragment), (self.host, self.port))

    def receive(self) -> tuple[bytes, bytes]:
        """Header and data."""
        got, sender = self.sock.recvfrom(65536)
        assert sender[1] == self.port
        size = {1: 10, 4: 22}[got[3]]
        return got[:size], got[size:]

    def ask(self, authority: str, data: bytes) -> bytes:
        self.send(authority, data)
        header, answer = self.receive()
        assert header[:3] == b"\0\0\0"
        return answer

    def is_silent(self, seconds: float = 0.3) -> bool:
        self.sock.settimeout(seconds)
        try:
            self.sock.recvfrom(65536)
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(10)
        return False


@pytest.fixture
def associate(call, opened):
    def begin(proxy: Proxy, listener: int = 0, host: str = "127.0.0.1") -> Association:
        client = call(proxy, listener, host="::1" if ":" in host else "127.0.0.1")
        if client.method(NONE, 2) == 2:
            client.send(b"\1\4user\11pass:word")
            assert client.read_pair(1) == GRANTED
        association = Association(client, host)
        opened.enter_context(association.sock)
        return association
    return begin


@pytest.fixture
def make_echo(opened):
    return lambda host="127.0.0.1": opened.enter_context(Echo(host))
