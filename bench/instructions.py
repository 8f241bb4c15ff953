"""Instructions of a worker for a request, counted by valgrind: `make instructions`.

Times vary with what else runs on a machine, instructions by some hundredths, because
events meet in one turn of the loop or come in two. One client asks, one request at a
time. Each load is made WARM times, and in a run of its own MORE times beyond that. The
difference of both runs, divided by MORE, is a request's.

Prints a line for each load, compared with bench/results/instructions.json. Exit status
1: a load takes MOST times as many. `--keep` stores the result. It needs a build without
AVX-512, which valgrind cannot run.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from bench.children import BenchError, Site
from bench.collect import read_tree
from bench.origin import Origin
from bench.proxies import HERE, TREE
from bench.result import RESULTS, write_rows
from bench.rows import Row, format_row
from bench.running import PASSWORD, USER, Running, Target

NAME = "instructions"
WARM, MORE = 100, 4000
MOST = 1.1
#: Valgrind starts a worker in 10 s on an idle machine, in minutes beside other work
START_S = 600
HEAD = (f"User-Agent: bench\r\nAccept: */*\r\nProxy-Authorization: Basic "
        f"{base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}\r\n")


class Client:
    """One connection to the proxy, for requests to `authority`."""

    def __init__(self, port: int, authority: str) -> None:
        self.authority = authority
        self._socket = socket.create_connection(("127.0.0.1", port), START_S)
        self._input = self._socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._input.close()
        self._socket.close()

    def plain(self) -> None:
        self._ask(f"GET http://{self.authority}/index.html HTTP/1.1\r\n"
                  f"Host: {self.authority}\r\n{HEAD}\r\n")

    def connect(self) -> None:
        self._ask(f"CONNECT {self.authority} HTTP/1.1\r\nHost: {self.authority}\r\n"
                  f"{HEAD}\r\n")

    def ping(self) -> None:
        self._ask(f"GET /index.html HTTP/1.1\r\nHost: {self.authority}\r\n\r\n")

    def _ask(self, request: str) -> None:
        self._socket.sendall(request.encode())
        status, length = self._input.readline(), 0
        if not status.startswith(b"HTTP/1.1 200 "):
            raise BenchError(f"answered {status!r}")
        while (line := self._input.readline().lower()) not in (b"\r\n", b""):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        self._input.read(length)


Open = Callable[[], Client]


def keep_alive(opened: Open, count: int) -> None:
    with opened() as client:
        for _ in range(count):
            client.plain()


def new_connections(opened: Open, count: int) -> None:
    for _ in range(count):
        keep_alive(opened, 1)


def set_ups(opened: Open, count: int) -> None:
    for _ in range(count):
        with opened() as client:
            client.connect()
            client.ping()


def pings(opened: Open, count: int) -> None:
    with opened() as client:
        client.connect()
        for _ in range(count):
            client.ping()


LOADS = {"keep-alive": keep_alive, "new-connection": new_connections,
         "connect": set_ups, "ping": pings}
FLAGS = {"default": ("--user", USER, "--password", PASSWORD, "--access-log", "off"),
         "full": ("--users-file", str(HERE / "features" / "users"),
                  "--policy", str(HERE / "features" / "policy.toml"),
                  "--access-log-format", "json", "--access-log")}


def count(flags: tuple[str, ...], loads: dict[str, int], origin: Origin) -> int:
    """Return the instructions of a worker from its start to its end."""
    running = Running([], Target(Site(), origin.authority))
    directory = running.make_directory()
    log = [str(directory / "access.log")] if flags[-1] == "--access-log" else []
    running.command = [
        "valgrind", "--tool=callgrind", "--trace-children=yes",
        "--trace-children-skip-by-arg=*_process*",      # hashes are slow enough
        f"--callgrind-out-file={directory}/calls.%p",
        sys.executable, "-m", "cutthrough", "serve", "--workers", "1",
        "--listen", "127.0.0.1:0", "--origin",
        f"http://{origin.authority}", "--address-floor", "off", *flags, *log]
    with contextlib.closing(running):
        # The start takes 1 300 million, and others with each seed of Python's hashes
        running.start(cwd=TREE, env=os.environ | {"PYTHONHASHSEED": "0"})
        port = int(running.await_line(r"listening on 127\.0\.0\.1:(\d+)", START_S))
        for name, number in loads.items():
            LOADS[name](lambda: Client(port, origin.authority), number)
        running.stop(START_S)
        counts = [read_total(path) for path in directory.glob("calls.*")]
    return max(counts, default=0)


def read_total(path: Path) -> int:
    """Return the total of a worker's file; 0: it is another process's."""
    text = path.read_text(errors="replace")
    total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
    is_worker = re.search(r"^cmd: .*cutthrough\.worker\.main", text, re.MULTILINE)
    return int(total[1]) if total and is_worker else 0


def measure(kind: str, origin: Origin) -> list[Row]:
    warm = dict.fromkeys(LOADS, WARM)
    base = count(FLAGS[kind], warm, origin)
    rows: list[Row] = []
    for load in LOADS:
        more = count(FLAGS[kind], warm | {load: WARM + MORE}, origin)
        rows.append({"proxy": kind, "load": load,
                     "instructions": round((more - base) / MORE)})
    return rows


def read_stored() -> dict[tuple[str, str], int]:
    file = RESULTS / f"{NAME}.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return {(row["proxy"], row["load"]): row["instructions"] for row in rows}


def compare(rows: list[Row], stored: dict[tuple[str, str], int]) -> list[Row]:
    """Add what is stored of each load, and the ratio to it: 1 if nothing is."""
    compared: list[Row] = []
    for row in rows:
        now = int(str(row["instructions"]))
        before = stored.get((str(row["proxy"]), str(row["load"])), now)
        compared.append(row | {"stored": before, "ratio": now / before})
    return compared


def run_instructions(options: argparse.Namespace) -> int:
    if shutil.which("valgrind") is None:
        raise BenchError("valgrind is not installed")
    read_tree()
    with Origin() as origin:
        rows = [row for kind in FLAGS for row in measure(kind, origin)]
    compared = compare(rows, read_stored())
    for row in compared:
        print(format_row("perf_instructions", row), flush=True)
    if options.keep:
        write_rows(NAME, rows)
        return 0
    return int(any(float(str(row["ratio"])) > MOST for row in compared))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true",
                        help="store the result, and compare with none")
