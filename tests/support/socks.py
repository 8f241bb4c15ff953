"""A raw SOCKS client, which reads octet by octet, and listeners for it."""

import ipaddress
import struct

import pytest

from tests.support.client import PASSWORD, USER, Client
from tests.support.proxy import Proxy

NONE, BY_PASSWORD, REFUSED = 0, 2, 0xFF
CONNECT, BIND, ASSOCIATE = 1, 2, 3
GRANTED = 0
SOCKS5 = '[[listeners]]\naddress = "127.0.0.1:0"\nprotocols = ["socks5"]\n'
OPEN = ('[[listeners]]\naddress = "127.0.0.1:0"\nprotocols = ["socks5", "socks4"]\n'
        'auth = "none"\n')
ALL = OPEN.replace('"socks5", "socks4"', '"http", "socks5", "socks4"')
NOT_ALLOWED = 2                             # RFC 1928 section 6
NOT_TAKEN, TOO_LATE, NO_COMMAND, NO_ADDRESS = 5, 6, 7, 8


def greet(*methods: int) -> bytes:
    return bytes((5, len(methods), *methods))


def login(name: str = USER, password: str = PASSWORD) -> bytes:
    texts = name.encode(), password.encode()
    return b"\1" + b"".join(bytes((len(text),)) + text for text in texts)


def destination(authority: str) -> bytes:
    """Type, address and port: of an address if the host is one, else of a name."""
    host, _, port = authority.rpartition(":")
    try:
        packed = ipaddress.ip_address(host.strip("[]")).packed
        start = b"\1" if len(packed) == 4 else b"\4"
    except ValueError:
        packed = host.encode()
        start = bytes((3, len(packed)))
    return start + packed + struct.pack(">H", int(port))


def command(authority: str, number: int = CONNECT) -> bytes:
    return bytes((5, number, 0)) + destination(authority)


def command4(authority: str, number: int = CONNECT, user: bytes = b"me") -> bytes:
    """Version 4, or 4a if the host is a name."""
    host, _, port = authority.rpartition(":")
    try:
        address, name = ipaddress.IPv4Address(host).packed, b""
    except ValueError:
        address, name = b"\0\0\0\1", host.encode() + b"\0"
    return (bytes((4, number)) + struct.pack(">H", int(port)) + address + user + b"\0"
            + name)


class SocksClient(Client):
    """One connection to a listener that speaks SOCKS."""

    def method(self, *offered: int) -> int:
        self.send(greet(*offered))
        return self.read_pair(5)

    def read_pair(self, version: int) -> int:
        first, second = self.read_exact(2)
        assert first == version
        return second

    def log_in(self, name: str = USER, password: str = PASSWORD) -> int:
        """Returns the status of RFC 1929: 0 is success."""
        assert self.method(BY_PASSWORD) == BY_PASSWORD
        self.send(login(name, password))
        return self.read_pair(1)

    def request(self, authority: str, number: int = CONNECT, early: bytes = b"") -> int:
        self.send(command(authority, number) + early)
        return self.read_reply()[0]

    def read_reply(self) -> tuple[int, str, int]:
        """Code, address and port."""
        version, code, reserved, kind = self.read_exact(4)
        assert (version, reserved) == (5, 0)
        packed = self.read_exact({1: 4, 4: 16}[kind])
        (port,) = struct.unpack(">H", self.read_exact(2))
        return code, str(ipaddress.ip_address(packed)), port

    def request4(self, authority: str, number: int = CONNECT, early: bytes = b"",
                 user: bytes = b"me") -> int:
        """Returns the code: 90 is success."""
        self.send(command4(authority, number, user) + early)
        zero, code = self.read_exact(8)[:2]
        assert zero == 0
        return code

    def socks_tunnel(self, authority: str, early: bytes = b"") -> "SocksClient":
        assert self.log_in() == GRANTED
        assert self.request(authority, early=early) == GRANTED
        return self


def datagram(authority: str, data: bytes, fragment: int = 0) -> bytes:
    return bytes((0, 0, fragment)) + destination(authority) + data


@pytest.fixture
def call(opened):
    """A connection to the listener with this number."""
    def dial(proxy: Proxy, listener: int = 0, **more) -> SocksClient:
        return opened.enter_context(SocksClient(proxy.ports[listener], **more))
    return dial
