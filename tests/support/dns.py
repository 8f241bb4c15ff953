"""A scripted name server in one thread, over UDP and TCP on port 53.

The proxy's `resolvers` are addresses without a port, so each server takes a loopback
address of its own; binding port 53 needs privilege, else PermissionError.
"""

import contextlib
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Iterable
from typing import NamedTuple

from tests.support.wait import wait_until

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, REFUSED = 0, 1, 2, 3, 5
A, CNAME, SOA, AAAA = 1, 5, 6, 28

# The size that c-ares offers in EDNS (DNS flag day 2020); more goes over TCP.
MOST_UDP = 1232


class Reply(NamedTuple):
    """The answer for a name: of its addresses, only the queried type is sent."""

    addresses: tuple[str, ...] = ()
    ttl: int = 60
    aliases: tuple[str, ...] = ()  # the chain of CNAMEs; the last has the addresses
    alias_ttl: int = 60
    code: int = NOERROR
    minimum: int | None = None  # of a SOA record, in the authority section
    silent: tuple[int, ...] = ()  # types that get no answer
    truncated: bool = False  # over UDP, at any length
    validated: bool = False  # AD, for a query that has AD and DO
    garbage: bytes = b""  # behind the query's id, instead of an answer


#: Name -> address, response code, None for silence, or a whole reply. May be changed.
Zone = dict[str, "str | int | Reply | None"]


class Silence(dict[str, "str | int | Reply | None"]):
    """A zone: an unknown name gets no answer."""

    def get(self, name: str, default: object = None) -> "str | int | Reply | None":
        return super().get(name)


def read_question(query: bytes) -> tuple[str, int, bytes]:
    """Returns a query's name, type and raw question (RFC 1035 section 4.1.2)."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("latin-1").lower())
        at += 1 + length
    (kind,) = struct.unpack_from("!H", query, at + 1)
    return ".".join(labels), kind, query[12 : at + 5]


def wants_validation(query: bytes) -> bool:
    """Has the query AD (RFC 6840 section 5.7), and DO in an OPT record at its end?"""
    return bool(query[3] & 0x20) and query[-11:-8] == b"\0\0\x29" and bool(
        query[-4] & 0x80)


def encode_name(name: str) -> bytes:
    labels = [label.encode() for label in name.split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def build_record(name: str, kind: int, ttl: int, data: bytes) -> bytes:
    return encode_name(name) + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


def build_records(
    name: str, kind: int, reply: Reply
) -> tuple[list[bytes], list[bytes]]:
    """Returns the records of the answer and of the authority section."""
    answer, family = [], socket.AF_INET6 if kind == AAAA else socket.AF_INET
    for alias in reply.aliases:
        answer.append(build_record(name, CNAME, reply.alias_ttl, encode_name(alias)))
        name = alias
    for address in reply.addresses:
        if (":" in address) == (kind == AAAA):
            packed = socket.inet_pton(family, address)
            answer.append(build_record(name, kind, reply.ttl, packed))
    if reply.minimum is None:
        return answer, []
    soa = encode_name("ns.test") + encode_name("admin.test")
    soa += struct.pack("!IIIII", 1, 3600, 600, 86400, reply.minimum)
    return answer, [build_record("test", SOA, 3600, soa)]


class NameServer:
    """Listens from construction until `close`; `asked` names the A queries in order,
    `ports` are the source ports of datagrams."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.asked: list[str] = []
        self.asked_over_tcp: list[str] = []
        self.ports: set[int] = set()
        self.address = "127.{}.{}.{}".format(
            *(secrets.randbelow(250) + 2 for _ in range(3))
        )
        with contextlib.ExitStack() as stack:
            self.sock = stack.enter_context(
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            )
            self.sock.bind((self.address, 53))
            self.listener = stack.enter_context(
                socket.create_server((self.address, 53))
            )
            self.selector = stack.enter_context(selectors.DefaultSelector())
            self.sockets = stack.pop_all()
        self.selector.register(self.sock, selectors.EVENT_READ, self._on_datagram)
        self.selector.register(self.listener, selectors.EVENT_READ, self._on_accept)
        self.closing = False
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def __enter__(self) -> "NameServer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing = True
        self.thread.join(5)
        self.sockets.close()

    def wait_asked(self, name: str, n: int) -> None:
        wait_until(lambda: self.asked.count(name) >= n, f"{n} questions for {name}")

    def _serve(self) -> None:
        while not self.closing:
            for key, _ in self.selector.select(0.1):
                key.data(key.fileobj)

    def _on_datagram(self, sock: socket.socket) -> None:
        query, peer = sock.recvfrom(4096)
        self.ports.add(peer[1])
        if reply := self._answer(query, MOST_UDP):
            sock.sendto(reply, peer)

    def _on_accept(self, listener: socket.socket) -> None:
        sock = self.sockets.enter_context(listener.accept()[0])
        sock.settimeout(1)
        self.selector.register(sock, selectors.EVENT_READ, self._on_stream)

    def _on_stream(self, sock: socket.socket) -> None:
        """Answers one query, prefixed by its length (RFC 1035 section 4.2.2)."""
        head = sock.recv(2)
        if len(head) < 2:
            self.selector.unregister(sock)
            sock.close()
            return
        query = sock.recv(int.from_bytes(head, "big"))
        self.asked_over_tcp.append(read_question(query)[0])
        if reply := self._answer(query, 65535):
            sock.sendall(len(reply).to_bytes(2, "big") + reply)

    def _answer(self, query: bytes, most: int) -> bytes | None:
        name, kind, question = read_question(query)
        if kind == A:
            self.asked.append(name)
        reply = self.zone.get(name, NXDOMAIN)
        if isinstance(reply, str):
            reply = Reply((reply,))
        elif isinstance(reply, int):
            reply = Reply(code=reply)
        if reply is None or kind in reply.silent:
            return None
        if reply.garbage:
            return query[:2] + reply.garbage
        answer, authority = build_records(name, kind, reply)
        flags = 0x8180 | reply.code  # a response, recursion desired and available
        if reply.validated and wants_validation(query):
            flags |= 0x20
        body = b"".join((question, *answer, *authority))
        if 12 + len(body) > most or (reply.truncated and most == MOST_UDP):
            answer, authority, body, flags = [], [], question, flags | 0x200
        counts = struct.pack("!HHHHH", flags, 1, len(answer), len(authority), 0)
        return query[:2] + counts + body


def many_addresses(n: int, first: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns these addresses, then n from around TEST-NET-3."""
    return (*first, *(f"203.0.113.{i}" for i in range(1, n + 1)))
