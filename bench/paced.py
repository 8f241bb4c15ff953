"""Requests over TLS that fall due at a fixed rate, through a proxy or straight to the
origin.

Each takes a kept connection that is free, or waits for one, and its time counts from
when it was due (an open loop). A connection that fails is made again. `python -m
bench.paced` reads its task as one line of JSON, opens its connections, prints a line,
and at the next line of its input sends the requests; then it prints the result. No
certificate is verified, because the client's time is not the question.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

PATIENCE = 20.0
FAILURES = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
LAST = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Task:
    """`proxy_port`: on loopback; 0 is straight to the origin. `port` of the origin,
    whose name is localhost. `word`: the proxy's credentials, in Base64. `rate`: of
    requests a second."""

    proxy_port: int
    port: int
    word: str
    paths: Sequence[str]
    rate: float
    seconds: float
    conns: int


@dataclass(frozen=True)
class Answers:
    """The times of answers in seconds, and how many requests had no whole answer."""

    seconds: list[float]
    failed: int


class Paced:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.taken: list[float] = []
        self.failed = 0
        self._tls = ssl._create_unverified_context()
        self._tls.set_alpn_protocols(["http/1.1"])
        self._free: asyncio.Queue[Streams | None] = asyncio.Queue()

    async def open(self) -> None:
        for _ in range(self.task.conns):
            self._free.put_nowait(await self._open())

    async def run(self) -> Answers:
        task, began = self.task, time.monotonic()
        waiting = set()
        for number in range(round(task.rate * task.seconds)):
            due = began + number / task.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            path = task.paths[number % len(task.paths)]
            waiting.add(request := asyncio.create_task(self._exchange(due, path)))
            request.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        while not self._free.empty():
            if (streams := self._free.get_nowait()) is not None:
                streams[1].close()
        return Answers(self.taken, self.failed)

    async def _open(self) -> Streams:
        task, name = self.task, "localhost"
        if not task.proxy_port:
            return await asyncio.open_connection(
                "127.0.0.1", task.port, ssl=self._tls, server_hostname=name)
        reader, writer = await asyncio.open_connection("127.0.0.1", task.proxy_port)
        writer.write(f"CONNECT {name}:{task.port} HTTP/1.1\r\n"
                     f"Host: {name}:{task.port}\r\n"
                     f"Proxy-Authorization: Basic {task.word}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:13]:
            writer.close()
            raise OSError(head[:40].decode(errors="replace"))
        await writer.start_tls(self._tls, server_hostname=name)
        return reader, writer

    async def _exchange(self, due: float, path: str) -> None:
        streams = await self._free.get()
        try:
            async with asyncio.timeout(PATIENCE):
                streams = streams or await self._open()
                goes_on = await self._ask(*streams, path)
            self.taken.append(time.monotonic() - due)
        except FAILURES:
            self.failed += 1
            goes_on = False
        if streams is not None and not goes_on:
            streams[1].close()
            streams = None
        self._free.put_nowait(streams)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                   path: str) -> bool:
        """May the connection carry another request? Raises FAILURES."""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost:{self.task.port}\r\n"
                     "\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        if b" 200 " not in head[:13] or length is None:
            raise ValueError(head[:40])
        await reader.readexactly(int(length[1]))
        return LAST.search(head) is None


async def run() -> Answers:
    paced = Paced(Task(**json.loads(sys.stdin.readline())))
    await paced.open()
    print("open", flush=True)
    sys.stdin.readline()
    return await paced.run()


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(run()))), flush=True)
