"""`cutthrough inspect` beside other debuggers: `python -m bench inspect`.

Each opens every tunnel and keeps all that passes: ours in its database, mitmdump in a
file, mitmweb in memory, HTTP Toolkit's server in a page. One after the other they are
started, with and without the files of an earlier start; rest for a tenth of --minutes;
have RATE requests a second for --minutes, and then each of STEPS for a tenth. CPU time
and resident memory are of all processes of a debugger but a browser's, sampled five
times a second; pages that its processes share count in each, and not in `uss`. Then all
run at once, and the latency of one request after another through each is compared with
that of the origin. The page's figures are those of Chromium (page_speed.py).

Prints a line for each phase; exit status 1 if a request failed. `--name NAME` keeps
the lines in bench/results, and `python -m bench inspect-picture NAME` draws them.
`--through` chooses among the debuggers, and `--add` leaves the stored lines of others
there: each takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from bench import intercept, tls
from bench.children import BenchError, Site
from bench.collect import Sampler, private_bytes
from bench.debuggers import PATHS, Debugger, debuggers, send
from bench.origin import Origin
from bench.paced import Answers, Task
from bench.page_speed import measure_page
from bench.result import RESULTS, write_rows
from bench.rows import Row, format_row
from bench.running import Target

RATE, STEPS, CONNS = 50, (100, 200, 400), 8
PARTS = ("start", "load", "latency", "page")
STARTS = 3                                   # of either kind
POINTS = 20                                  # of a phase, in its row
STOP_SECONDS = 120.0                         # mitmweb frees what it has kept
LATENCY_RATE, LATENCY_SECONDS, LATENCY_TURNS = 50, 2.0, 5
OPENED = "cutthrough-opened"                 # it keeps nothing

Note = Callable[[str, Row], None]


def quantiles_ms(seconds: Sequence[float]) -> Row:
    if len(seconds) < 2:
        raise BenchError("too few answers for a quantile")
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


def measure_starts(compared: list[Debugger], port: int, note: Note) -> None:
    """Medians of some starts, in alternating order."""
    rows: dict[tuple[str, bool], list[Row]] = {}
    for turn in range(STARTS):
        for debugger in compared[:: -1 if turn % 2 else 1]:
            for is_first in (True, False):
                with contextlib.ExitStack() as stack:
                    stack.callback(debugger.running.stop, STOP_SECONDS)
                    rows.setdefault((debugger.name, is_first), []).append(
                        debugger.time_start(port, is_first))
    for starts in rows.values():
        note("perf_inspect_start", {
            key: statistics.median(float(str(row[key])) for row in starts)
            if key.endswith("_ms") else value for key, value in starts[0].items()})


def thin(samples: Sequence[tuple[float, float, int, int]]) -> Row:
    """Resident memory and CPU time over the phase, in POINTS equal parts."""
    began, length = samples[0][0], samples[-1][0] - samples[0][0]
    at = [0]
    for number in range(1, POINTS):
        at.append(next(i for i, sample in enumerate(samples)
                       if sample[0] - began >= length * number / POINTS))
    at.append(len(samples) - 1)
    return {"rss_mib": [round(samples[i][2] / 1024, 1) for i in at],
            "cpu_percent": [
                round(100 * (samples[j][1] - samples[i][1])
                      / max(samples[j][0] - samples[i][0], 0.001), 2)
                for i, j in pairwise(at)]}


def measure_load(debugger: Debugger, port: int, minutes: float, note: Note) -> int:
    """At rest, and under each rate. Return the number of failed requests."""
    phases = [("rest", 0, minutes / 10), ("sustained", RATE, minutes)]
    phases += [("step", rate, minutes / 10) for rate in STEPS]
    failed = 0
    debugger.start(port)
    with contextlib.ExitStack() as stack:
        stack.callback(debugger.running.stop, STOP_SECONDS)
        for name, rate, length in phases:
            answers = Answers([], 0)
            sampler = Sampler(debugger.running.tree)
            if rate:
                answers = debugger.send(port, rate, length * 60, CONNS, sampler)
            else:
                with sampler:
                    time.sleep(length * 60)  # the proxy at rest is what is measured
            usage = sampler.usage()
            row: Row = {"proxy": debugger.name, "phase": name, "rate": rate,
                        "seconds": length * 60,
                        "cpu_avg_percent": usage["cpu_avg_percent"],
                        "cpu_peak_percent": usage["cpu_peak_percent"],
                        "rss_avg_mib": usage["rss_avg_kib"] / 1024,
                        "rss_peak_mib": usage["rss_peak_kib"] / 1024,
                        "uss_mib": private_bytes(debugger.running.tree()) / 2**20}
            if rate:
                row |= thin(sampler.samples)
                spent = sampler.samples[-1][1] - sampler.samples[0][1]
                row |= {**quantiles_ms(answers.seconds),
                        "us": spent / len(answers.seconds) * 1e6,
                        "requests": len(answers.seconds), "failed": answers.failed}
            note("perf_inspect", row)
            failed += answers.failed
    return failed


def measure_latency(compared: list[Debugger], port: int, trusted: Path, note: Note
                    ) -> int:
    """What each adds to the origin's time, all running at once, and what ours adds
    without capture."""
    ways: dict[str, tuple[int, Callable[[], str]]] = {"direct": (0, str)}
    times: dict[str, list[float]] = {}
    failed = 0
    with contextlib.ExitStack() as stack:
        opened = intercept.start_ours(
            "", Target(Site(), f"127.0.0.1:{port}"), trusted, "auto")
        stack.callback(opened.close)
        ways[OPENED] = (opened.port, lambda: tls.WORD)
        for debugger in compared:
            debugger.start(port)
            stack.callback(debugger.running.stop, STOP_SECONDS)
            ways[debugger.name] = (debugger.running.port, debugger.word)
        for turn in range(LATENCY_TURNS + 1):
            for name in list(ways)[:: -1 if turn % 2 else 1]:
                proxy_port, word = ways[name]
                answers = send(Task(proxy_port, port, word(), PATHS[:1], LATENCY_RATE,
                                    LATENCY_SECONDS, 1), contextlib.nullcontext())
                failed += answers.failed
                if turn:                     # the first one warms up
                    times.setdefault(name, []).extend(answers.seconds)
    direct = quantiles_ms(times["direct"])
    for name, taken in times.items():
        row = quantiles_ms(taken)
        added = {f"added_{key}": float(str(row[key])) - float(str(direct[key]))
                 for key in row if name != "direct"}
        note("perf_inspect_latency", {"proxy": name, **row, **added})
    return failed


def kept_rows(name: str, rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of the stored result that these rows do not replace."""
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    measured = {(row["line"], row.get("proxy")) for row in rows}
    return [row for row in before if (row["line"], row.get("proxy")) not in measured]


def run_inspect(options: argparse.Namespace) -> int:
    rows: list[Row] = []
    failed = 0

    def note(kind: str, row: Row) -> None:
        print(format_row(kind, {key: value for key, value in row.items()
                                if not isinstance(value, list)}), flush=True)
        rows.append({"line": kind, **row})

    with Origin() as origin:
        target = Target(Site(), origin.authority_of("tls"))
        trusted, port = origin.directory / "origin.pem", origin.ports["tls"]
        with debuggers(target, trusted, options.through) as compared:
            if "start" in options.only:
                measure_starts(compared, port, note)
            if "load" in options.only:
                for debugger in compared:
                    failed += measure_load(debugger, port, options.minutes, note)
            if "latency" in options.only:
                failed += measure_latency(compared, port, trusted, note)
        if "page" in options.only:
            measure_page(target, trusted, options.rows, note)
    note("perf_inspect_end", {"minutes": options.minutes, "failed": failed})
    if options.name:
        write_rows(options.name, [*kept_rows(options.name, rows), *rows]
                   if options.add else rows)
    return 1 if failed else 0


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"parts are {', '.join(PARTS)}")
    return names


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=10,
                        help="of sustained requests for each debugger [10]")
    parser.add_argument("--only", type=_parts, default=PARTS, metavar="PART,…",
                        help=f"parts, of {', '.join(PARTS)} [all]")
    parser.add_argument("--through", type=lambda text: tuple(text.split(",")),
                        default=(), metavar="NAME,…", help="these debuggers [all]")
    parser.add_argument("--rows", type=int, default=100_000,
                        help="flows in the page's list [100000]")
    parser.add_argument("--name", default="", help="name of the stored result")
    parser.add_argument("--add", action="store_true",
                        help="to its lines of other debuggers and parts")
