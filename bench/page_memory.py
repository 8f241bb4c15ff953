"""Does the memory of the pages stay flat? `python -m bench page`.

Chromium has the live page and /traffic open, each in a program of its own, while
`cutthrough inspect` serves requests at a steady rate: plain ones, some in opened
tunnels, and some to addresses at which nobody listens. First the live page gets as many
endings as its bounded tables hold. Once a minute, after a collection of garbage:
JavaScript's heap, nodes and listeners, and private memory of the page's process.

Prints a line a minute and page, and the last quarter beside the second one: the least
of each, because what a look meets before its collection is let go at a later one, and a
leak is not. Exit status 1 if the live page has more than MOST_GROWTH of anything, or
/traffic more than MOST_ROW_BYTES of heap for each further row; that list grows, up to
200 000 flows.
`--name NAME` keeps the lines in bench/results.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.children import BenchError, Site
from bench.debuggers import Debugger, make_ours
from bench.origin import Origin
from bench.page_speed import UNBOUNDED
from bench.result import write_rows
from bench.rows import Row, format_row
from bench.running import Target
from tests.support.browser import PROGRAM, Browser

RATE = 20                                    # requests a second
#: Of ten requests: plain on a kept connection, in a new tunnel, to nobody
SHARES = ("plain", "nobody", "plain", "tunnel", "plain", "nobody", "plain", "tunnel",
          "plain", "plain")
#: More than live_refused.js keeps of names (MOST_NAMES), the largest of its bounds
ENDINGS = 2200
MOST_GROWTH, MOST_ROW_BYTES = 1.1, 2000.0
READY = {"live": "location.pathname === '/' && overview !== null && "
                 "$('state').textContent === 'live'",
         "traffic": "typeof complete_ !== 'undefined' && complete_"}
WAIT_SECONDS = 60.0


class Sender(threading.Thread):
    """Sends requests until `over` is set; `counts` by kind, `failed` of all."""

    def __init__(self, ours: Debugger, origin: Origin) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.counts = {"plain": 0, "tunnel": 0, "nobody": 0, "failed": 0}
        self._port, self._origin = ours.running.port, origin
        self._fields = {"Proxy-Authorization": f"Basic {ours.word()}"}
        self._kept: http.client.HTTPConnection | None = None
        # Each of another name: 127.1.0.0 and on
        self._nobodies: Iterator[str] = (
            f"127.{1 + n // 65536 % 250}.{n // 256 % 256}.{n % 256}"
            for n in itertools.count())

    def run(self) -> None:
        began = time.monotonic()
        for turn, kind in enumerate(itertools.cycle(SHARES)):
            if self.over.wait(max(0.0, began + turn / RATE - time.monotonic())):
                return
            self.send(kind, turn)

    def send(self, kind: str, turn: int = 0) -> None:
        self.counts[kind] += 1
        try:
            is_right = getattr(self, f"_{kind}")(turn)
        except (OSError, http.client.HTTPException):
            self._kept, is_right = None, False
        self.counts["failed"] += not is_right

    def _plain(self, turn: int) -> bool:
        if self._kept is None:
            self._kept = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        self._kept.request(
            "GET", f"http://{self._origin.authority}/1k?turn={turn % 500}",
            headers=self._fields)
        answer = self._kept.getresponse()
        answer.read()
        if answer.will_close:
            self._kept.close()
            self._kept = None
        return answer.status == 200

    def _tunnel(self, turn: int) -> bool:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=10,
            context=ssl._create_unverified_context())
        connection.set_tunnel("localhost", self._origin.ports["tls"], self._fields)
        with contextlib.closing(connection):
            connection.request("GET", f"/1k?turn={turn % 500}")
            answer = connection.getresponse()
            answer.read()
            return answer.status == 200

    def _nobody(self, turn: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", f"http://{next(self._nobodies)}:1/",
                         headers=self._fields)
            answer = connection.getresponse()
            answer.read()
            return answer.status == 502


class Tab:
    """One of the pages, in a browser of its own."""

    def __init__(self, name: str, address: str, token: str, home: Path) -> None:
        self.name = name
        home.mkdir()
        self.browser = Browser(home)
        self.browser.look(1280, 900, "light")
        # The address of the list begins a session, which the live page has too
        self.browser.send("Page.navigate", url=f"{address}/traffic#token={token}")
        self._wait("typeof isSignedIn !== 'undefined' && isSignedIn()")
        if name == "live":
            self.browser.send("Page.navigate", url=f"{address}/")
        self._wait(f"typeof overview !== 'undefined' && {READY[name]}")
        self.browser.send("Performance.enable")
        self.browser.send("Network.disable")     # its events would be kept here

    def _wait(self, script: str) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while not self.browser.run(script):
            if time.monotonic() > until:
                raise BenchError(f"the page {self.name}: {script} is not true")
            time.sleep(0.1)                  # between looks at the page

    def look(self, minute: float) -> Row:
        for _ in range(2):                   # what finalizers let go, goes then
            self.browser.send("HeapProfiler.collectGarbage")
        values = {metric["name"]: metric["value"] for metric in self.browser.send(
            "Performance.getMetrics")["metrics"]}
        if self.browser.faults:
            raise BenchError(f"the page {self.name}: {self.browser.faults[0]}")
        row: Row = {
            "page": self.name, "minute": round(minute, 2),
            "heap_kib": values["JSHeapUsedSize"] / 1024,
            "process_mib": self._private_bytes() / 2**20,
            "nodes": int(values["Nodes"]), "listeners": int(values["JSEventListeners"])}
        if self.name == "traffic":
            row["rows"] = self.browser.run("newer.length + older.length")
        else:
            row["groups"] = self.browser.run("groups.size")
            row["names"] = self.browser.run("hosts.size")
        return row

    def _private_bytes(self) -> int:
        """Returns the private bytes of the browser's largest process; others have no
        page."""
        sizes = [0]
        for process in psutil.Process(self.browser.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "--type=renderer" in process.cmdline():
                    sizes.append(process.memory_full_info().uss)
        return max(sizes)


def wait_until(moment: float, tabs: list[Tab]) -> None:
    """Reads what the browsers say meanwhile: unread, it hides the answers to the
    connection's pings."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, 2.0))           # the span between two looks is measured
        for tab in tabs:
            tab.browser.run("0")


def number(row: Row, key: str) -> float:
    return float(str(row[key]))


def quarter(rows: list[Row], n: int, key: str) -> float:
    """The least of a quarter of the rows, of 0 to 3."""
    part = rows[len(rows) * n // 4:len(rows) * (n + 1) // 4] or rows[-1:]
    return min(number(row, key) for row in part)


def judge(rows: list[Row]) -> Row:
    """The last quarter beside the second one; `missed`: the goals that were not met."""
    name = str(rows[0]["page"])
    growth = {key: quarter(rows, 3, key) / quarter(rows, 1, key)
              for key in ("heap_kib", "process_mib", "nodes", "listeners")}
    row: Row = {"page": name, "looks": len(rows),
                **{f"{key.partition('_')[0]}_growth": value
                   for key, value in growth.items()}}
    if name == "live":
        missed = [key for key in ("heap_kib", "process_mib", "nodes", "listeners")
                  if growth[key] > MOST_GROWTH]
    else:
        added = quarter(rows, 3, "rows") - quarter(rows, 1, "rows")
        heap = quarter(rows, 3, "heap_kib") - quarter(rows, 1, "heap_kib")
        row["row_bytes"] = heap * 1024 / added if added else 0.0
        missed = ["row_bytes"] if number(row, "row_bytes") > MOST_ROW_BYTES else []
    return {**row, "missed": ",".join(missed) or "nothing"}


def run_page(options: argparse.Namespace) -> int:
    if PROGRAM is None:
        raise BenchError("chromium is not installed")
    rows: list[Row] = []
    looks: dict[str, list[Row]] = {}

    def note(kind: str, row: Row) -> None:
        print(format_row(kind, row), flush=True)
        rows.append({"line": kind, **row})

    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(Origin())
        ours = make_ours(Target(Site(), origin.authority_of("tls")),
                         origin.directory / "origin.pem", UNBOUNDED)
        stack.callback(ours.running.close)
        ours.start(origin.ports["tls"])
        assert ours.running.directory is not None
        token = (ours.directory / "state/token").read_text().strip()
        tabs = []
        for name in READY:
            tabs.append(Tab(name, f"http://127.0.0.1:{ours.running.admin_port}", token,
                            ours.directory / f"browser-{name}"))
            stack.callback(tabs[-1].browser.close)
        sender = Sender(ours, origin)
        for _ in range(ENDINGS):
            sender.send("nobody")
        began = time.monotonic()
        sender.start()
        stack.callback(sender.join, 20)
        stack.callback(sender.over.set)
        step = min(1.0, options.minutes / 8)
        for look in range(1, round(options.minutes / step) + 1):
            wait_until(began + look * step * 60, tabs)
            for tab in tabs:
                row = tab.look((time.monotonic() - began) / 60)
                looks.setdefault(tab.name, []).append(row)
                note("perf_page_memory", row)
    missed = 0
    for series in looks.values():
        verdict = judge(series)
        missed += verdict["missed"] != "nothing"
        note("perf_page_memory_end", verdict)
    note("perf_page_memory_requests", {
        "minutes": options.minutes, "rate": RATE, **sender.counts})
    if options.name:
        write_rows(options.name, rows)
    return 1 if missed or sender.counts["failed"] else 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=60, help="length [60]")
    parser.add_argument("--name", default="", help="name of the stored result")
