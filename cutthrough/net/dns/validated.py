"""Names to addresses that a name server says it has validated (DNSSEC).

c-ares shows no flags of an answer, so these queries are made here: the AD bit and DO in
each, of an A and an AAAA question at once, over UDP from a port of its own, and over
TCP if the answer was cut. The server validates; its AD bit is believed, and so is the
path to it (RFC 4035 section 4.9.3). An answer without addresses needs no bit, because
nothing is dialled by it.

The servers are asked in their order, each for a share of the time. One that is silent
moves to the end. After another failure, or addresses without the bit, the next is
asked.
"""

import asyncio
import os
import secrets
import socket
import struct
from typing import NamedTuple

import aiodns
import pycares

from cutthrough.net.dns.answer import Unvalidated, shortage_of

A, CNAME, AAAA, OPT = 1, 5, 28, 41
FAMILIES = {A: socket.AF_INET, AAAA: socket.AF_INET6}
# Header: RD and AD (RFC 6840 section 5.7). Of answers: QR and opcode, TC, AD, rcode
ASKS, ANSWERS, CUT, VALIDATED, CODE = 0x0120, 0xf800, 0x0200, 0x0020, 0x000f
NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3
MOST_UDP = 1232                 # DNS flag day 2020
DO = 0x8000
PORT = 53
ROUNDS = 2                      # over all servers
LEAST_S = 0.1                   # for one server
HOSTS = "/etc/hosts"
LOCAL = ("127.0.0.1", "::1")    # RFC 6761 section 6.3
MOST_JUMPS = 64                 # of a compressed name, and of aliases


class Node(NamedTuple):
    """An address, as pycares' AddrInfoNode."""

    family: int
    addr: tuple[str, ...]
    ttl: int


class Alias(NamedTuple):
    ttl: int


class Result(NamedTuple):
    nodes: list[Node]
    cnames: list[Alias]


class Message(NamedTuple):
    """An answer to one question."""

    code: int
    is_validated: bool
    is_cut: bool
    nodes: list[Node]
    aliases: list[Alias]


# No server was silent, and none has answered: as if each had failed
FAILED = Message(SERVFAIL, False, False, [], [])


class ValidatedNames:
    """As much of aiodns.DNSResolver as a Resolver uses. `timeout` is in seconds, for
    all servers together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, servers: list[str],
                 timeout: float) -> None:
        self._loop = loop
        self._servers = list(servers)
        self._share = max(timeout / max(3, len(servers)), LEAST_S)
        self._tasks: set[asyncio.Task[Result]] = set()

    def getaddrinfo(self, host: str, **_: object) -> "asyncio.Task[Result]":
        """Both families. The task raises Unvalidated, DNSError as aiodns does, or
        OSError for want of a descriptor."""
        task = self._loop.create_task(self._resolve(host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        for task in [*self._tasks]:
            task.cancel()

    async def close(self) -> None:
        tasks = [*self._tasks]
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _resolve(self, host: str) -> Result:
        if known := find_local(host):
            return Result([Node(socket.AF_INET6 if ":" in text else socket.AF_INET,
                                (text,), 0) for text in known], [])
        try:
            questions = [build_question(host, kind) for kind in (AAAA, A)]
        except (UnicodeError, ValueError):
            raise failure(pycares.errno.ARES_EBADNAME, host) from None
        answers = await asyncio.gather(*map(self._ask, questions))
        messages = [answer for answer in answers if answer is not None]
        valid = [answer for answer in messages if answer.nodes and answer.is_validated]
        if valid:
            return Result([node for answer in valid for node in answer.nodes],
                          [alias for answer in valid for alias in answer.aliases])
        if any(answer.nodes for answer in messages):
            raise Unvalidated(host)
        if any(answer.code not in (NOERROR, NXDOMAIN) for answer in messages):
            raise failure(pycares.errno.ARES_ESERVFAIL, host)
        if len(messages) < len(answers):
            raise failure(pycares.errno.ARES_ETIMEOUT, host)
        raise failure(pycares.errno.ARES_ENOTFOUND, host)

    async def _ask(self, question: bytes) -> Message | None:
        """The best answer of the servers; None: none has answered in time."""
        best, is_silent = None, False
        for _ in range(ROUNDS):
            for server in [*self._servers]:
                try:
                    answer = await self._ask_one(server, question)
                except (OSError, EOFError) as error:
                    if shortage_of(error):
                        raise                   # ours, and no server's
                    is_silent |= isinstance(error, TimeoutError)
                    self._servers.append(server)
                    self._servers.remove(server)
                    continue
                if answer.code in (NOERROR, NXDOMAIN) and (
                        answer.is_validated or not answer.nodes):
                    return answer
                if best is None or answer.nodes:
                    best = answer
            if best is not None:
                return best
        return None if is_silent else FAILED

    async def _ask_one(self, server: str, question: bytes) -> Message:
        """Raises OSError, EOFError or TimeoutError."""
        async with asyncio.timeout(self._share):
            answer = await self._by_udp(server, question)
            return await by_tcp(server, question) if answer.is_cut else answer

    async def _by_udp(self, server: str, question: bytes) -> Message:
        answer: asyncio.Future[Message] = self._loop.create_future()
        number = secrets.randbelow(1 << 16)
        transport, _ = await self._loop.create_datagram_endpoint(
            lambda: Asking(number, question, answer), remote_addr=(server, PORT))
        try:
            transport.sendto(build_query(number, question))
            return await answer
        finally:
            transport.close()


class Asking(asyncio.DatagramProtocol):
    """One query. What is no answer to it is ignored: it may be anybody's."""

    def __init__(self, number: int, question: bytes,
                 answer: "asyncio.Future[Message]") -> None:
        self._number, self._question = number, question
        self._answer = answer

    def datagram_received(self, data: bytes, addr: object) -> None:
        message = read_message(data, self._number, self._question)
        if message is not None and not self._answer.done():
            self._answer.set_result(message)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


async def by_tcp(server: str, question: bytes) -> Message:
    """Raises OSError or EOFError."""
    reader, writer = await asyncio.open_connection(server, PORT)
    try:
        number = secrets.randbelow(1 << 16)
        query = build_query(number, question)
        writer.write(len(query).to_bytes(2, "big") + query)
        size = int.from_bytes(await reader.readexactly(2), "big")
        message = read_message(await reader.readexactly(size), number, question)
    finally:
        writer.close()
    if message is None or message.is_cut:
        raise OSError(f"{server}: no answer to the question")
    return message


def failure(number: int, host: str) -> aiodns.error.DNSError:
    return aiodns.error.DNSError(number, host)


# Messages (RFC 1035 section 4)

def build_question(host: str, kind: int) -> bytes:
    """Raises ValueError if it is no name."""
    labels = [label.encode("ascii") for label in host.rstrip(".").split(".")]
    if not all(0 < len(label) < 64 for label in labels) or len(host) > 253:
        raise ValueError(host)
    name = b"".join(bytes([len(label)]) + label for label in labels)
    return name.lower() + b"\0" + struct.pack("!HH", kind, 1)


def build_query(number: int, question: bytes) -> bytes:
    return (struct.pack("!HHHHHH", number, ASKS, 1, 0, 0, 1) + question
            + struct.pack("!BHHIH", 0, OPT, MOST_UDP, DO, 0))


def read_message(data: bytes, number: int, question: bytes) -> Message | None:
    """None: it is no answer to this query."""
    end = 12 + len(question)
    if len(data) < end or data[12:end].lower() != question:
        return None
    query, flags, n_questions, n_answers, _, _ = struct.unpack_from("!HHHHHH", data)
    if query != number or flags & ANSWERS != 0x8000 or n_questions != 1:
        return None
    try:
        nodes, aliases = read_records(data, end, n_answers, question)
    except (IndexError, struct.error, ValueError):
        if not flags & CUT:
            return None
        nodes, aliases = [], []
    return Message(flags & CODE, bool(flags & VALIDATED), bool(flags & CUT), nodes,
                   aliases)


def read_records(data: bytes, at: int, n: int, question: bytes
                 ) -> tuple[list[Node], list[Alias]]:
    """The addresses of the question's name, and the aliases that lead to them. Raises
    ValueError, IndexError or struct.error."""
    kind = int.from_bytes(question[-4:-2], "big")
    by_owner: dict[bytes, list[Node]] = {}
    targets: dict[bytes, tuple[bytes, int]] = {}
    for _ in range(n):
        owner, at = read_name(data, at)
        what, group, ttl, size = struct.unpack_from("!HHIH", data, at)
        at += 10
        if at + size > len(data):
            raise ValueError("a record is cut")
        if group == 1 and what == kind:
            address = socket.inet_ntop(FAMILIES[kind], data[at:at + size])
            by_owner.setdefault(owner, []).append(Node(FAMILIES[kind], (address,), ttl))
        elif group == 1 and what == CNAME:
            targets[owner] = read_name(data, at)[0], ttl
        at += size
    name, _ = read_name(question, 0)
    aliases: list[Alias] = []
    while name not in by_owner and name in targets and len(aliases) < MOST_JUMPS:
        name, ttl = targets[name]
        aliases.append(Alias(ttl))
    return by_owner.get(name, []), aliases


def read_name(data: bytes, at: int) -> tuple[bytes, int]:
    """A name in lower case, and the place behind it. Raises IndexError, ValueError."""
    labels: list[bytes] = []
    behind = -1
    for _ in range(MOST_JUMPS + 128):
        length = data[at]
        if length >= 0xc0:
            behind = at + 2 if behind < 0 else behind
            at = (length & 0x3f) << 8 | data[at + 1]
        elif length >= 0x40:
            raise ValueError("a label of an unknown kind")
        elif length == 0:
            return b".".join(labels).lower(), at + 1 if behind < 0 else behind
        else:
            labels.append(data[at + 1:at + 1 + length])
            at += 1 + length
    raise ValueError("a name without an end")


# This host's own names, which no server is asked for

_read_hosts: dict[str, list[str]] = {}
_hosts_read_at = -1.0


def find_local(host: str) -> list[str]:
    """The addresses of `localhost`, or of a name in /etc/hosts; []: another name."""
    global _read_hosts, _hosts_read_at
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return list(LOCAL)
    try:
        changed_at = os.stat(HOSTS).st_mtime
        if changed_at != _hosts_read_at:
            with open(HOSTS, encoding="utf-8", errors="replace") as file:
                _read_hosts, _hosts_read_at = read_hosts(file.read()), changed_at
    except OSError:
        return []
    return _read_hosts.get(name, [])


def read_hosts(text: str) -> dict[str, list[str]]:
    """The addresses of each name (hosts(5)); a line that is none is left out."""
    by_name: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        try:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            socket.inet_pton(family, address)
        except OSError:
            continue
        for name in names:
            by_name.setdefault(name.lower(), []).append(address)
    return by_name
