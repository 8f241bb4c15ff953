"""Measures the workers' CPU if /metrics is read twice a second.

Ten thousand connections are open and idle. Turns with and without a scraper alternate,
first alone, then beside wrk. The workers' CPU time is read in nanoseconds from
schedstat, because at rest it is too small for the clock ticks of stat.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import statistics
import threading
import time
from contextlib import closing
from pathlib import Path

from bench.clients import run_wrk, warm_up
from bench.origin import Origin
from bench.proxies import start_cutthrough
from bench.rows import format_row
from bench.running import Target
from bench.scenarios import Scenario

STEADY = Scenario(8, "index.html beside connections at rest", "wrk", 50)
TURNS = 5
EVERY_SECONDS = 0.5
#: Promised limit, as a part of one CPU, at rest.
MOST_PERCENT = 1.0


def _cpu_ns(pids: list[int]) -> int:
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
               for pid in pids)


def _open_now(text: str) -> int:
    return sum(int(float(line.split()[1])) for line in text.splitlines()
               if line.startswith("cutthrough_connections{"))


class Scraper:
    """Requests /metrics in its own thread while it is entered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scrapes = 0
        self.text = ""
        self.took: list[float] = []
        self._over = threading.Event()

    def __enter__(self) -> Scraper:
        self._over.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            began = time.monotonic()
            connection = http.client.HTTPConnection("localhost")
            connection.sock = socket.socket(socket.AF_UNIX)
            with closing(connection):
                connection.sock.connect(str(self.path))
                connection.request("GET", "/metrics")
                self.text = connection.getresponse().read().decode()
            self.scrapes += 1
            self.took.append(time.monotonic() - began)


def run_scrape(conns: int, seconds: int) -> int:
    """Print one line; return 0 if the promise held."""
    flags = ("--max-connections", str(conns + 1000), "--head-timeout", "1h",
             "--access-log", "off", "--admin", "unix:@DIR@/admin")
    rest: dict[bool, list[float]] = {True: [], False: []}
    load: dict[bool, list[float]] = {True: [], False: []}
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(Origin())
        proxy = stack.enter_context(
            closing(start_cutthrough(*flags)(Target(origin.site, origin.authority))))
        warm_up(STEADY, proxy, origin)
        workers = [process.pid for process in proxy.tree()[1:]]
        for _ in range(conns):
            stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        assert proxy.directory is not None
        scraper = Scraper(proxy.directory / "admin")
        for turn in range(2 * TURNS):
            scraped = turn % 2 == 1
            with scraper if scraped else contextlib.nullcontext():
                before = _cpu_ns(workers)
                time.sleep(seconds)  # the span that is measured
                spent = _cpu_ns(workers) - before
                rest[scraped].append(spent / 1e7 / seconds)
                before = _cpu_ns(workers)
                counted, _ = run_wrk(STEADY, proxy, origin, seconds)
                spent = _cpu_ns(workers) - before
                load[scraped].append(spent / 1e3 / counted.requests)
                origin.skip_log()
    at_rest = {key: statistics.median(values) for key, values in rest.items()}
    each = {key: statistics.median(values) for key, values in load.items()}
    row: dict[str, object] = {
        "scenario": "scrape", "connections": _open_now(scraper.text), "turns": TURNS,
        "errors": 0,
        "scrapes": scraper.scrapes, "scrape_bytes": len(scraper.text),
        "scrape_ms": statistics.median(scraper.took) * 1e3,
        "rest_cpu_percent": at_rest[False], "rest_cpu_percent_scraped": at_rest[True],
        "load_cpu_us": each[False], "load_cpu_us_scraped": each[True],
        "load_spread_us": max(load[False]) - min(load[False]),
    }
    failed = (at_rest[True] - at_rest[False] >= MOST_PERCENT
              or _open_now(scraper.text) < conns)
    row["failed"] = "cpu" if failed else "nothing"
    print(format_row("perf_scrape", row))
    return int(failed)
