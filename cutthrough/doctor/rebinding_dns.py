"""A name server for the doctor: a few names whose answers change at the second query.

It uses UDP on a free loopback port (RFC 1035). Every answer has a TTL of zero, because
a client must see the change at its next query, as in an attack by DNS rebinding.
"""

import asyncio
import ipaddress
import struct
from collections import Counter
from collections.abc import Mapping
from typing import cast

A, SOA, AAAA = 1, 6, 28
RESPONSE = 0x8580                       # authoritative, recursion desired, available
NXDOMAIN = 3

Answers = tuple[tuple[str, ...], ...]   # addresses of the first answer, of the second …


class NameServer(asyncio.DatagramProtocol):
    """`zone`: canonical name -> answers; the last answer is repeated."""

    def __init__(self, zone: Mapping[str, Answers]) -> None:
        self.zone = zone
        self.asked: Counter[tuple[str, int]] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    @property
    def port(self) -> int:
        return int(self.transport.get_extra_info("sockname")[1])

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if len(data) > 16:
            try:
                reply = self._answer(data)
            except (IndexError, struct.error, UnicodeError):
                return                      # not a query
            self.transport.sendto(reply, addr)

    def _answer(self, query: bytes) -> bytes:
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1:at + 1 + length].decode().lower())
            at += 1 + length
        (kind,) = struct.unpack_from("!H", query, at + 1)
        name, question = ".".join(labels), query[12:at + 5]
        answers = self.zone.get(name)
        if answers is None:
            return _build(query, RESPONSE | NXDOMAIN, question, [])
        turn = min(self.asked[name, kind], len(answers) - 1)
        self.asked[name, kind] += 1
        known = map(ipaddress.ip_address, answers[turn])
        wanted = {A: 4, AAAA: 6}.get(kind)
        return _build(query, RESPONSE, question, [
            address.packed for address in known if address.version == wanted])


def _build(query: bytes, flags: int, question: bytes, data: list[bytes]) -> bytes:
    """The answer; if there is no data, a negative one, not to be cached (RFC 2308)."""
    kind = question[-4:] if data else struct.pack("!HH", SOA, 1)
    counts = (len(data), 0) if data else (0, 1)
    records = (b"\xc0\x0c" + kind + struct.pack("!IH", 0, len(rdata)) + rdata
               for rdata in data or [bytes(22)])    # root, root, and five zeros
    head = query[:2] + struct.pack("!HHHHH", flags, 1, *counts, 0)
    return b"".join((head, question, *records))
