"""Regular clients of a proxy: known users who send requests at a fixed rate.

Requests fall due at a fixed rate (an open loop), and the time of each counts from then.
They alternate between GET on a new connection, GET on a kept one, and CONNECT with the
tunnel's first bytes after the head. If a kept connection ends without an answer, that
is no failure: the request is sent again on a fresh connection, as clients do.

`python -m bench.regulars` reads its task as one line of JSON, sends requests until its
input ends, and writes a line for each request: its due time (time.monotonic), its kind,
its result ("ok", a status with its reason word, or an error), and seconds.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import re
import socket
import sys
import time
from collections import defaultdict
from typing import Any

from bench.callers import Connection, Lost

#: A client gives up after this time: later than the proxy, which then reports why.
PATIENCE = 12.0
KINDS = ("fresh", "kept", "tunnel")
REASON = re.compile(rb'details="(\w+)"')
#: A user is cached in each worker after this many fast answers in a row.
QUICK, QUICK_SECONDS, WARM_SECONDS = 12, 0.1, 300.0

Record = tuple[float, str, str, float]


def credentials(name: str, secret: str) -> str:
    return base64.b64encode(f"{name}:{secret}".encode()).decode()


class Regulars:
    """The clients' requests, and `records` of the results."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.records: list[Record] = []
        self.over = False
        self._kept: dict[str, list[Connection]] = defaultdict(list)
        self._tasks: set[asyncio.Task[None]] = set()

    async def warm_up(self) -> None:
        """Log in until each worker has cached each user. Raises TimeoutError."""
        async with asyncio.timeout(WARM_SECONDS):
            await asyncio.gather(*map(self._warm_up, self.spec["users"]))

    async def _warm_up(self, user: str) -> None:
        quick = 0
        while quick < QUICK:
            began = time.monotonic()
            seen = await self._try("fresh", user, 0)
            fast = seen == "ok" and time.monotonic() - began < QUICK_SECONDS
            quick = quick + 1 if fast else 0
            if seen != "ok":
                await asyncio.sleep(0.5)  # as one who is told to come again

    async def visit(self) -> None:
        """Send requests at the rate until `over`, then wait for all answers."""
        spec, began, turn = self.spec, time.monotonic(), 0
        while not self.over:
            due = began + turn / spec["rate"]
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            user = spec["users"][turn // len(KINDS) % len(spec["users"])]
            self._begin(due, KINDS[turn % len(KINDS)], user, turn)
            if spec["newcomers"] and turn % (spec["newcomers"] * spec["rate"]) == 0:
                self._begin(due, "first", f"new{turn // spec['rate']}", turn)
            turn += 1
        await asyncio.gather(*self._tasks)
        for connections in self._kept.values():
            for connection in connections:
                connection.close()

    def _begin(self, due: float, kind: str, user: str, turn: int) -> None:
        task = asyncio.create_task(self._visit(due, kind, user, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _visit(self, due: float, kind: str, user: str, turn: int) -> None:
        seen = await self._try(kind, user, turn)
        self.records.append((due, kind, seen, time.monotonic() - due))

    async def _try(self, kind: str, user: str, turn: int) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                if kind == "kept":
                    while self._kept[user]:
                        connection = self._kept[user].pop()
                        with contextlib.suppress(Lost, OSError):
                            return await self._ask(connection, kind, user, turn)
                return await self._ask(await self._open(), kind, user, turn)
        except OSError as error:  # TimeoutError has no number
            return errno.errorcode.get(error.errno or 0, "timeout")
        except (Lost, RuntimeError):
            return "cut"

    async def _open(self) -> Connection:
        return await Connection.open((self.spec["host"], self.spec["port"]),
                                     self.spec["source"])  # fmt: skip

    async def _ask(
        self, connection: Connection, kind: str, user: str, turn: int
    ) -> str:
        """Send one request; keep or close the connection."""
        hosts = self.spec["hosts"]
        host = hosts[turn % len(hosts)].format(turn=turn)
        word = credentials(user, self.spec["secret"])
        auth = f"Host: {host}\r\nProxy-Authorization: Basic {word}\r\n\r\n"
        keep = False
        try:
            if kind == "tunnel":
                request = f"CONNECT {host} HTTP/1.1\r\n{auth}"
                request += "GET /1k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                await connection.send(request.encode())
                head, rest = await connection.read_response(False)
                while b" 200 " in head[:13] and len(rest) < self.spec["bytes"]:
                    rest += await connection.read(65536)
            else:
                request = f"GET http://{host}/1k HTTP/1.1\r\n{auth}"
                await connection.send(request.encode())
                head, rest = await connection.read_response(True)
                keep = kind == "kept" and b"\r\nconnection: close" not in head
        finally:
            if not keep:
                connection.close()
        if keep:
            self._kept[user].append(connection)
        if b" 200 " in head[:13]:
            return "ok" if len(rest) >= self.spec["bytes"] else "short"
        reason = REASON.search(head)
        status = head[9:12].decode()
        return f"{status}_{reason[1].decode()}" if reason else status


async def main() -> None:
    loop = asyncio.get_running_loop()
    spec = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    regulars = Regulars(spec)
    await regulars.warm_up()
    print("warm", flush=True)
    visits = asyncio.create_task(regulars.visit())
    await loop.run_in_executor(None, sys.stdin.read)
    regulars.over = True
    await visits
    for record in regulars.records:
        print(json.dumps(record))


if __name__ == "__main__":
    socket.setdefaulttimeout(PATIENCE)
    asyncio.run(main())
