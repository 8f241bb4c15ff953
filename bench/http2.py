"""HTTP/2 between client and proxy, beside other servers: `python -m bench http2`.

One worker or thread each, one ECDSA certificate, the same nginx behind them, and h2load
in front. CPU time of the server's processes for each request, rate, and latency, for
the loads of LOADS. HAProxy and nghttpx have one fixed origin, and nghttpx checks no
credentials. `cutthrough-named` has a named origin and no login too. All run at once,
and each load goes round them several times, in alternating order.

Prints a line for each server and load, and one of ratios to the best of the others;
exit status 1 if a request failed. `--name NAME` keeps the lines in bench/results.

`python -m bench fingerprint` compares two of ours, without and with `fingerprints`, by
requests of HTTP/1.1 and HTTP/2 and by full handshakes. Before, it has the microseconds
that each fingerprint of a connection takes, in loops over recorded first bytes
(bench/micro/prints.py); exit status 1 if one takes more than is asked there.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench import tls
from bench.children import BenchError, Site
from bench.collect import cpu_times
from bench.micro import measure_micro, prints
from bench.origin import Origin
from bench.peers import OF_HTTP2, Peer
from bench.result import write_rows
from bench.rows import Row, format_row
from bench.running import Running, Target

OURS, NAMED, PRINTS = "cutthrough", "cutthrough-named", "cutthrough-named-fingerprints"
WARM_REQUESTS = 2000
H2LOAD = "h2load"


class Load(NamedTuple):
    """Connections, streams of each, and a path of the origin; `flags` of h2load."""

    conns: int
    streams: int
    path: str
    flags: tuple[str, ...] = ()


LOADS = {
    "index": Load(20, 10, "/index.html"),
    "16k": Load(20, 10, "/16k"),
    "single": Load(100, 1, "/index.html"),
    "1m": Load(4, 4, "/1m"),
}  # fmt: skip
OF_PRINTS = {"http1": Load(32, 1, "/index.html", ("--h1",)), "http2": LOADS["index"]}
SHAKE = "1.3 full"
TO_NAMED = """[[rules]]
action = "allow"
hosts = ["bench.example"]
origin = "bench"
"""


class Server:
    """One server, the fields of its requests, and what was measured of it."""

    def __init__(self, name: str, running: Running, fields: tuple[str, ...],
                 version: str = "this tree") -> None:  # fmt: skip
        self.name, self.running, self.version = name, running, version
        self.fields = fields
        self.failed = 0
        self.figures: dict[str, dict[str, list[float]]] = {}

    def load(self, name: str, what: Load, requests: int, warm: bool = False) -> float:
        """Send that many; return their rate."""
        with tempfile.NamedTemporaryFile("r") as log:
            command = [H2LOAD, *what.flags, "-t1", f"-n{requests}", f"-c{what.conns}",
                       f"-m{what.streams}", f"--log-file={log.name}"]  # fmt: skip
            for field in self.fields:
                command += ["-H", field]
            command.append(f"https://127.0.0.1:{self.running.port}{what.path}")
            before = cpu_times(self.running.tree()).total
            done = subprocess.run(command, capture_output=True, text=True)
            spent = cpu_times(self.running.tree()).total - before
            times = sorted(int(line.split("\t")[2]) for line in log)
        said = re.search(r"finished in \S+, ([\d.]+) req/s", done.stdout)
        codes = re.search(r"status codes: (\d+) 2xx", done.stdout)
        if said is None or codes is None or not times:
            raise BenchError(f"{self.name}, {name}: {done.stdout} {done.stderr}")
        self.failed += requests - int(codes[1])
        if not warm:
            for key, value in {
                "us": spent / requests * 1e6, "rate": float(said[1]),
                "p50_ms": times[len(times) // 2] / 1e3,
                "p99_ms": times[len(times) * 99 // 100] / 1e3,
            }.items():  # fmt: skip
                self.figures.setdefault(name, {}).setdefault(key, []).append(value)
        return float(said[1])

    def rows(self) -> Iterator[Row]:
        for name, figures in self.figures.items():
            yield {"server": self.name, "version": self.version, "load": name,
                   **{key: statistics.median(v) for key, v in figures.items()}}


@contextlib.contextmanager
def servers(origin: Origin, ours: tuple[str, ...],
            peers: Mapping[str, Peer]) -> Iterator[list[Server]]:  # fmt: skip
    """Start ours, and the peers that are installed."""
    target = Target(Site(), origin.authority)
    login = f"proxy-authorization: Basic {tls.WORD}"
    with contextlib.ExitStack() as stack:
        pem = tls.make_certificate(origin.directory)
        started = []
        for name, peer in peers.items():
            if peer.missing():
                print(f"{name}: {peer.missing()}")
                continue
            running = peer.start(target, {"both.pem": pem})
            stack.callback(running.close)
            started.append(Server(name, running, (login,), peer.read_version()))
        for name in ours:
            if name == OURS:
                fields: tuple[str, ...] = (
                    ":scheme: http", f":authority: {target.authority}", login)
                running = tls.start_ours(pem, target)
            else:
                fields = (":authority: bench.example",)
                running = tls.start_ours(
                    pem, target, "fingerprints = true" if name == PRINTS else "",
                    TO_NAMED, login=False,
                    tables=f'[origins.bench]\nurls = ["http://{target.authority}"]\n')
            stack.callback(running.close)
            started.append(Server(name, running, fields))
        yield started


def measure(compared: list[Server], loads: Mapping[str, Load], seconds: float,
            repetitions: int) -> None:  # fmt: skip
    counts = {}
    for name, what in loads.items():
        few = WARM_REQUESTS // (10 if name == "1m" else 1)
        for server in compared:
            server.load(name, what, few, warm=True)
            rate = server.load(name, what, few, warm=True)
            counts[server.name, name] = max(few, int(rate * seconds))
    for turn in range(repetitions):
        for name, what in loads.items():
            for server in compared[:: -1 if turn % 2 else 1]:
                server.load(name, what, counts[server.name, name])


def run_http2(options: argparse.Namespace) -> int:
    with Origin() as origin, servers(origin, (OURS, NAMED), OF_HTTP2) as compared:
        measure(compared, LOADS, options.seconds, options.repetitions)
    return report("perf_http2", compared, ratios(compared), options.name)


def report(word: str, compared: list[Server], ratio: Row, name: str,
           before: Sequence[Row] = ()) -> int:
    """`before`: further rows of the stored result."""
    rows = [row for server in compared for row in server.rows()]
    failed = sum(server.failed for server in compared)
    for row in rows:
        print(format_row(word, row))
    ratio = {**ratio, "failed": failed}
    print(format_row(f"{word}_ratio", ratio))
    if name:
        write_rows(name, [*before, *({"line": word, **row} for row in rows),
                          {"line": f"{word}_ratio", **ratio}])
    return 1 if failed else 0


def ratios(compared: list[Server]) -> Row:
    """Return the CPU time of ours to the best of the others, of each load: medians of
    the ratios of two runs of one turn."""
    of = {server.name: server.figures for server in compared}
    out: Row = {}
    for name in LOADS:
        peers = [of[peer][name]["us"] for peer in OF_HTTP2 if peer in of]
        if peers:
            best = min(peers, key=statistics.median)
            out[name] = _median_ratio(of[OURS][name]["us"], best)
    return out


def measure_prints(repetitions: int) -> Iterator[Row]:
    """What each fingerprint takes of a connection, the least of the repetitions, for
    what disturbs a loop only ever makes it slower."""
    for bench in prints.BENCHES:
        row = measure_micro(bench, repetitions)
        ns, median = (float(str(row[key])) for key in ("ns", "ns_median"))
        out: Row = {"name": bench.name, "what": bench.question, "us": ns / 1e3,
                    "us_median": median / 1e3}
        if bench.name in prints.MOST_US:
            out["most_us"] = prints.MOST_US[bench.name]
        print(format_row("perf_fingerprint_each", out), flush=True)
        yield {"line": "perf_fingerprint_each", **out}


def is_dear(row: Row) -> bool:
    """Does this fingerprint take more than is asked?"""
    return "most_us" in row and float(str(row["us"])) > float(str(row["most_us"]))


def run_fingerprint(options: argparse.Namespace) -> int:
    each = list(measure_prints(options.repetitions))
    with Origin() as origin, servers(origin, (NAMED, PRINTS), {}) as both:
        shakers = [tls.Server(server.name, server.running, origin.authority)
                   for server in both]
        for shaker in shakers:
            shaker.shake(SHAKE, options.seconds, warm=True)
        measure(both, OF_PRINTS, options.seconds, options.repetitions)
        for turn in range(options.repetitions):
            for shaker in shakers[:: -1 if turn % 2 else 1]:
                shaker.shake(SHAKE, options.seconds)
    for server, shaker in zip(both, shakers, strict=True):
        server.failed += shaker.failed
        server.figures["handshake"] = {
            key: shaker.figures[f"{key}_1.3_full"] for key in ("us", "rate")}
    without, with_them = (server.figures for server in both)
    ratio: Row = {name: _median_ratio(with_them[name]["us"], without[name]["us"])
                  for name in without}
    status = report("perf_fingerprint", both, ratio, options.name, each)
    return 1 if any(map(is_dear, each)) else status


def _median_ratio(these: list[float], those: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=1,
                        help="length of a run, about [1]")
    parser.add_argument("--repetitions", type=int, default=5,
                        help="rounds of each load [5]")
    parser.add_argument("--name", default="", help="name of the stored result")
