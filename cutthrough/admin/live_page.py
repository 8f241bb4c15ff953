"""The live page, and its data beside the metrics.

    GET /           the page, without data
    GET /overview   the program: host, version, listeners, bounds
    GET /history    the last hour, a row for each ten seconds

None takes a token. The history is in this process, so a new program begins its own.
"""

import asyncio
import collections
import socket
import time
from collections.abc import Callable
from typing import Any

import psutil
from aiohttp import web

import cutthrough
from cutthrough.admin.metrics import Reading
from cutthrough.admin.traffic_page import make_page
from cutthrough.outcome import TABLE

EVERY_S = 10
MOST_ROWS = 3600 // EVERY_S
# Of a row: its end, in seconds of the epoch; its sums; and the gauges at its end
FIELDS = ("at", "up", "down", "requests", "failed", "cpu_s", "connections", "memory")
FAULTS = tuple(row.label for row in TABLE if row.fault)
SCRIPTS = ("session.js", "live_chart.js", "live_rows.js", "live_refused.js",
           "live_program.js", "live.js")


class History:
    """The last hour's rows. Events before the first reading are in none."""

    def __init__(self) -> None:
        self._rows: collections.deque[list[float]] = collections.deque(maxlen=MOST_ROWS)
        self._sums: list[float] | None = None

    def add(self, reading: Reading, at: float) -> None:
        ended = reading.totals("outcome")
        cpu, memory = usage_of([pid for pid in reading.workers.values() if pid])
        sums = [reading.total("bytes_up"), reading.total("bytes_down"),
                reading.total("requests"), sum(ended.get(name, 0) for name in FAULTS),
                cpu]
        before, self._sums = self._sums, sums
        if before is not None:
            # A worker that has ended takes its CPU time with it
            grown = [max(0.0, now - then)
                     for now, then in zip(sums, before, strict=True)]
            self._rows.append([round(at), *(round(n, 2) for n in grown),
                               open_connections(reading), memory])

    def rows(self, after: float) -> list[list[float]]:
        return [row for row in self._rows if row[0] > after]


def usage_of(pids: list[int]) -> tuple[float, int]:
    """CPU seconds and resident bytes of these processes together."""
    cpu, memory = 0.0, 0
    for pid in pids:
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            cpu += times.user + times.system
            memory += process.memory_info().rss
        except psutil.Error:
            continue                         # it has just ended
    return cpu, memory


def open_connections(reading: Reading) -> int:
    return sum(value for page in reading.living.values()
               for name, value in page.items()
               if name.startswith("state:") and name != "state:CLOSED")


class LivePage:
    """`describe`: the supervisor's view of the program, for /overview."""

    def __init__(self, describe: Callable[[], dict[str, Any]],
                 read_counters: Callable[[], Reading]) -> None:
        self._describe = describe
        self._read_counters = read_counters
        self._history = History()
        self._task: asyncio.Task[None] | None = None

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/", self.page), web.get("/overview", self.overview),
                web.get("/history", self.history)]

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._sample())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _sample(self) -> None:
        while True:
            self._history.add(self._read_counters(), time.time())
            await asyncio.sleep(EVERY_S)

    async def page(self, request: web.Request) -> web.StreamResponse:
        text, policy = make_page("live.html", SCRIPTS, "live.css")
        return web.Response(text=text, content_type="text/html",
                            headers={"Content-Security-Policy": policy})

    async def overview(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({
            "host": socket.gethostname(), "version": cutthrough.__version__,
            **self._describe()})

    async def history(self, request: web.Request) -> web.StreamResponse:
        text = request.query.get("after", "0")
        if not (text.isascii() and text.isdecimal() and len(text) <= 12):
            raise ValueError(f"after: {text[:40]!r} is not a number of seconds")
        return web.json_response({"every_s": EVERY_S, "fields": FIELDS,
                                  "rows": self._history.rows(int(text))})
