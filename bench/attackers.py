"""Attacks on a proxy: each is a program, bounded in count and in time.

`python -m bench.attackers NAME SPEC SECONDS` attacks the proxy that the JSON of SPEC
names for SECONDS, then closes everything and prints a report. It runs at the lowest
priority and gives up its core every 0.5 ms, because real attackers have their own
machines.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gzip
import json
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.origin import build_tool
from bench.regulars import credentials
from cutthrough.process import duty_cycle

IP_BIND_ADDRESS_NO_PORT = 24  # <linux/in.h>
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST
PIECE = 64 << 10
Spec = dict[str, Any]
Seen = dict[str, float]


def connect(spec: Spec, source: str, seconds: float = 1.0) -> socket.socket:
    sock = socket.socket()
    try:
        sock.settimeout(seconds)
        sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))
        sock.connect((spec["host"], spec["port"]))
    except BaseException:
        sock.close()
        raise
    return sock


class Crowd:
    """Keeps up to `most` connections that send `opening` and then nothing.

    Closed connections are opened again, at most `again` a second.
    """

    def __init__(self, spec: Spec, opening: bytes, most: int, again: int) -> None:
        self.spec, self.opening, self.most, self.again = spec, opening, most, again
        self.open: dict[int, socket.socket] = {}
        self.poll = select.epoll()
        self.ended = self.failed = self.peak = 0
        self.answers: collections.Counter[str] = collections.Counter()

    def add(self) -> None:
        try:
            sock = connect(self.spec, self.spec["attacker"])
            for at in range(0, len(self.opening), PIECE):  # a call may take a slice
                sock.sendall(self.opening[at:at + PIECE])
        except OSError:
            self.failed += 1
            return
        sock.setblocking(False)
        self.open[sock.fileno()] = sock
        self.peak = max(self.peak, len(self.open))
        self.poll.register(sock, select.EPOLLIN)

    def listen(self, seconds: float) -> None:
        for fd, _ in self.poll.poll(seconds, 1024):
            try:
                data = self.open[fd].recv(65536)
            except OSError:
                data = b""
            if data:
                self.answers[data[9:12].decode("latin-1")] += 1
                continue
            self.ended += 1
            self.open.pop(fd).close()

    def stay(self, until: float) -> None:
        budget, at = float(self.most), time.monotonic()  # the first ones come at once
        while (now := time.monotonic()) < until:
            budget = min(budget + self.again * (now - at), self.most)
            at = now
            for _ in range(min(64, int(budget), self.most - len(self.open))):
                self.add()
                budget -= 1
            self.listen(0.002 if len(self.open) < self.most and budget >= 1 else 0.05)

    def close(self) -> None:
        for sock in self.open.values():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.close()
        self.poll.close()

    def seen(self) -> Seen:
        return {"peak": self.peak, "ended": self.ended, "failed": self.failed,
                **{f"answered_{code}": n for code, n in self.answers.items()}}


def crowd(spec: Spec, until: float, opening: bytes) -> Seen:
    them = Crowd(spec, opening, spec["conns"], spec["again"])
    try:
        them.stay(until)
        return them.seen()
    finally:
        them.close()


def idle(spec: Spec, until: float) -> Seen:
    """Sends one request without credentials on each connection, then nothing."""
    return crowd(spec, until, b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n")


def heads(spec: Spec, until: float) -> Seen:
    """Sends the same, then a head that never ends."""
    return crowd(spec, until, b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"
                              b"GET http://x/ HTTP/1.1\r\nHost: x\r\nX: ")


def hellos(spec: Spec, until: float) -> Seen:
    """Sends the begin of a ClientHello, then nothing."""
    return crowd(spec, until, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


def greetings(spec: Spec, until: float) -> Seen:
    """Sends a greeting that offers 255 methods, then nothing."""
    return crowd(spec, until, b"\5\xff" + bytes(range(255)))


def shake(spec: Spec, until: float) -> Seen:
    """Shakes hands, closes, and begins again."""
    done = subprocess.run(
        [build_tool("handshakes"), spec["host"], str(spec["port"]),
         str(until - time.monotonic()), str(spec["conns"]), "1.2", "full",
         spec["attacker"]], capture_output=True, text=True, check=True)  # fmt: skip
    return {key: float(value) for key, value in
            (pair.split("=") for pair in done.stdout.split())}


def leave(spec: Spec, until: float) -> Seen:
    """Sends CONNECT to one host after another, and resets each at once."""
    word = credentials(spec["guest"], spec["secret"])
    began, turn, failed = time.monotonic(), 0, 0
    waiting: collections.deque[tuple[float, socket.socket]] = collections.deque()

    def reset(seconds: float) -> None:
        while waiting and time.monotonic() - waiting[0][0] >= seconds:
            _, sock = waiting.popleft()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.close()

    try:
        while time.monotonic() < until:
            for _ in range(int((time.monotonic() - began) * spec["pace"]) - turn):
                turn += 1
                host = spec["target"].format(turn=turn)
                head = (f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n"
                        f"Proxy-Authorization: Basic {word}\r\n\r\n")  # fmt: skip
                with contextlib.suppress(OSError):
                    sock = connect(spec, spec["attacker"])
                    waiting.append((time.monotonic(), sock))
                    sock.sendall(head.encode())
                    continue
                failed += 1
                if time.monotonic() > until:
                    break
            reset(0.05)  # the head has been read
            time.sleep(0.005)  # without it the attacker takes a core from the proxy
        return {"asked": turn, "failed": failed}
    finally:
        reset(0)


async def guess_for(spec: Spec, until: float) -> Seen:
    """Sends wrong passwords from the regulars' address: for an unknown user, for a user
    who never logs in, and for the regulars themselves."""
    seen: collections.Counter[str] = collections.Counter()
    tasks: set[asyncio.Task[None]] = set()

    async def guess(turn: int) -> None:
        regular = spec["users"][turn % len(spec["users"])]
        name = (f"nobody{turn}", spec["guest"], regular)[turn % 3]
        word = credentials(name, f"guess{turn}")
        try:
            async with asyncio.timeout(15):
                reader, writer = await asyncio.open_connection(
                    spec["host"], spec["port"], local_addr=(spec["source"], 0))
                with contextlib.closing(writer):
                    writer.write((f"GET http://{spec['hosts'][0]}/1k HTTP/1.1\r\n"
                                  f"Host: x\r\nProxy-Authorization: Basic {word}\r\n"
                                  "Connection: close\r\n\r\n").encode())  # fmt: skip
                    head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            seen[type(error).__name__] += 1
            return
        seen[f"answered_{head[9:12].decode()}"] += 1

    began, turn = time.monotonic(), 0
    while time.monotonic() < until:
        turn += 1
        tasks.add(asyncio.create_task(guess(turn)))
        await asyncio.sleep(max(0.0, began + turn / spec["pace"] - time.monotonic()))
    await asyncio.gather(*tasks)
    return {"tried": turn, **seen}


def guess(spec: Spec, until: float) -> Seen:
    return asyncio.run(guess_for(spec, until))


def lists(size: int) -> bytes:
    return b"[" + b"[]," * (size // 3) + b"[]]"


GZIP = "Content-Encoding: gzip\r\n"
#: Bodies that are small to send and costly to read: path, fields, content. They go to
#: the routes of attack.CONTENT.
BODIES: dict[str, Callable[[], tuple[str, str, bytes]]] = {
    "bomb": lambda: ("/json", GZIP, gzip.compress(lists(12_000_000))),
    "charset": lambda: (
        "/charset", GZIP + "Content-Type: application/json; charset=punycode\r\n",
        gzip.compress(b'{"password": "' + b"a-" * 1_000_000 + b'"}')),
    "graphql": lambda: ("/graphql", "", json.dumps(
        {"query": '"""' + '\n\\"""' * 6000}).encode()),
    "paths": lambda: ("/paths", "", lists(1_000_000)),
    "deep": lambda: ("/paths", "", b"[" * 150 + b"]" * 150),
    "partial": lambda: ("/partial", "", json.dumps(
        [[number] for number in range(3000)]).encode()),
    "masked": lambda: ("/raw", "Content-Type: application/json\r\n",
                       lists(3_900_000)),
}  # fmt: skip


def post(spec: Spec, path: str, fields: str, length: int) -> bytes:
    word = credentials(spec["guest"], spec["secret"])
    return (f"POST http://a.body.test{path} HTTP/1.1\r\nHost: a.body.test\r\n"
            f"Proxy-Authorization: Basic {word}\r\n{fields}"
            f"Content-Length: {length}\r\n\r\n").encode()  # fmt: skip


async def post_bodies(spec: Spec, until: float) -> Seen:
    seen: collections.Counter[str] = collections.Counter()
    path, fields, body = BODIES[spec["body"]]()
    request = post(spec, path, fields, len(body)) + body

    async def go_on() -> None:
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    reader, writer = await asyncio.open_connection(
                        spec["host"], spec["port"], local_addr=(spec["attacker"], 0))
                    with contextlib.closing(writer):
                        writer.write(request)
                        head = await reader.readuntil(b"\r\n\r\n")
                seen[f"answered_{head[9:12].decode()}"] += 1
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                seen[type(error).__name__] += 1
                await asyncio.sleep(0.1)  # a refusal is no end of the attack

    await asyncio.gather(*(go_on() for _ in range(spec["conns"])))
    return {"size": len(body), **seen}


def bodies(spec: Spec, until: float) -> Seen:
    """Sends costly bodies from several connections, each again behind its answer."""
    return asyncio.run(post_bodies(spec, until))


def held(spec: Spec, until: float) -> Seen:
    """Sends most of bodies that are collected, then nothing."""
    return crowd(spec, until, post(spec, "/raw", "", 4 << 20) + bytes(4_000_000))


ATTACKERS: dict[str, Callable[[Spec, float], Seen]] = {
    "guess": guess, "idle": idle, "heads": heads, "leave": leave, "hellos": hellos,
    "greetings": greetings, "shake": shake, "bodies": bodies, "held": held,
}  # fmt: skip


def main() -> None:
    name, spec, seconds = sys.argv[1:]
    # The attackers stand for other hosts: their own CPU must not delay the regulars.
    # The scheduler compares sessions, of which the attackers are one, before
    # processes, so that the session is niced as well (sched(7), autogroup)
    os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")
    # A slice of a tick, 4 ms, would delay the regulars nevertheless
    duty_cycle.start()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    until = time.monotonic() + float(seconds)
    print(json.dumps(ATTACKERS[name](json.loads(spec), until)))


if __name__ == "__main__":
    main()
