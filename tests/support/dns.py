"""A name server of one thread: answers A queries by script, over UDP on port 53.

The proxy's `resolvers` are addresses without a port, so each server takes a loopback
address of its own; binding port 53 needs privilege, else PermissionError.
"""

import contextlib
import secrets
import socket
import struct
import threading

NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3
A = 1

#: Name -> address, response code, or None for silence.
Zone = dict[str, str | int | None]


def read_question(query: bytes) -> tuple[str, int, bytes]:
    """The name, the type and the raw question of a query (RFC 1035 section 4.1.2)."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("latin-1").lower())
        at += 1 + length
    (kind,) = struct.unpack_from("!H", query, at + 1)
    return ".".join(labels), kind, query[12 : at + 5]


class NameServer:
    """Listens from construction until `close`; `asked` counts the names."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.asked: list[str] = []
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.address = "127.{}.{}.{}".format(
            *(secrets.randbelow(250) + 2 for _ in range(3))
        )
        try:
            self.sock.bind((self.address, 53))
        except OSError:
            self.sock.close()
            raise
        self.closing = False
        self.sock.settimeout(0.2)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def __enter__(self) -> "NameServer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing = True
        self.thread.join(5)
        self.sock.close()

    def _serve(self) -> None:
        while not self.closing:
            with contextlib.suppress(TimeoutError):
                query, peer = self.sock.recvfrom(4096)
                if reply := self._answer(query):
                    self.sock.sendto(reply, peer)

    def _answer(self, query: bytes) -> bytes | None:
        name, kind, question = read_question(query)
        if kind == A:
            self.asked.append(name)
        found = self.zone.get(name, NXDOMAIN)
        if found is None:
            return None
        records = b""
        if isinstance(found, str) and kind == A:
            # A pointer to the question's name, type A, class IN, a TTL of 60 s, 4 bytes
            records = struct.pack("!HHHIH", 0xC00C, A, 1, 60, 4) + socket.inet_aton(
                found
            )
        code = found if isinstance(found, int) else NOERROR
        flags = 0x8180 | code  # a response, recursion desired and available
        head = query[:2] + struct.pack("!HHHHH", flags, 1, bool(records), 0, 0)
        return head + question + records
