"""Record and replay, beside other proxies: `python -m bench recording`.

One worker or process each, over the same nginx, with plain requests over kept
connections: as many different URLs as requests. The scenarios of each repetition:

    plain    ours alone: no recording (mode off)
    record   each answer is recorded
    replay   each answer is a recording
    cold     passthrough cache, empty: each is asked for, and recorded
    warm     the same again: each is a recording
    plain_held, record_held
             ours alone: the same while the worker has a fifth of a core, so that
             client, origin and writer have as much as they need

A row for each scenario and repetition has requests a second, latencies, the client's
time and bytes, CPU time and resident memory of the proxy's processes (before, after and
at most), what was replayed and missed, and what the origin counted. The summaries have
medians, least and most, and the coefficient of variation. Exit status 1 if a guardrail
does not hold: no error; in replay and warm the origin counts nothing, in the others
each request; warm is faster than cold and replay faster than record; a scenario adds at
most MOST_RSS_KIB; replay and warm vary by at most --most-cv. With --baseline, a result
that --name has kept: no scenario has more than LESS_RATE less requests a second, or
more than MORE_P95 more p95. `python -m bench compare` says so of two stored ones.

A proxy that is slow gets fewer requests: as many as it does in SECONDS. One that
replays them all in less than PLAYED_S is asked for all of them again, and the row has
the sums; before each round its session comes into force anew, which is not measured.
Answers of ours are recorded by another process: `settled_s` is when the last one was in
the file, and CPU time is counted until then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.children import BenchError, Site
from bench.clients import Counted, build_load_command, run_load_command
from bench.collect import cpu_times, resident_kib
from bench.cores import cannot_hold_back, held_back
from bench.origin import Origin
from bench.peers import OF_RECORDING
from bench.recorders import Hoverfly, Mitmproxy, Ours, Recorder, Replayproxy
from bench.result import RESULTS, write_rows
from bench.rows import Row, format_row
from bench.running import Target

# Scenario: the mode, and whether the session is new
SCENARIOS = {
    "plain": ("off", True), "record": ("record", True), "replay": ("replay", False),
    "cold": ("cache", True), "warm": ("cache", False),
    "plain_held": ("off", True), "record_held": ("record", True),
}  # fmt: skip
PLAYED = ("replay", "warm")
HELD = ("plain_held", "record_held")
MOST_RSS_KIB = 128 << 10
#: Of a baseline's: replayproxy's own thresholds (its docs/performance.md).
LESS_RATE, MORE_P95 = 0.15, 0.20
SECONDS = 4.0
PLAYED_S = 1.0
#: Of a run with requests: its client waits so long beyond its patience.
LONG = 60


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--requests", type=int, default=20000,
                      help="different URLs, each asked for once a scenario [20000]")
    verb.add_argument("--conns", type=int, default=32, help="kept connections [32]")
    verb.add_argument("--warm-up", type=int, default=200,
                      help="requests of a scenario that are not measured [200]")
    verb.add_argument("--bytes", type=int, default=2048, help="of an answer [2048]")
    verb.add_argument("--repetitions", type=int, default=3, help="[3]")
    verb.add_argument("--most-cv", type=float, default=0.2,
                      help="of requests a second in replay and warm [0.2]")
    verb.add_argument("--name", default="", help="name of the stored result")
    verb.add_argument("--baseline", default="", metavar="NAME",
                      help="a stored result, of which no scenario may fall short")


@contextlib.contextmanager
def recorders(target: Target) -> Iterator[list[Recorder]]:
    """Ours, and those that are installed."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rec.")))
        started: list[Recorder] = [Ours(target, folder)]
        stack.callback(started[0].close)
        for name, peer in OF_RECORDING.items():
            if peer.missing():
                print(f"{name}: {peer.missing()}")
                continue
            made: Recorder = (
                Replayproxy(target) if name == "replayproxy" else
                Hoverfly(target) if name == "hoverfly" else Mitmproxy(target, folder))
            stack.callback(made.close)
            started.append(made)
        yield started


class Round(NamedTuple):
    """Each URL asked for once."""

    done: int
    seconds: float
    bytes: int                               # of bodies
    latencies: dict[str, float]
    cpu_s: float
    settled_s: float


class Runner:
    def __init__(self, recorder: Recorder, origin: Origin, path: str,
                 options: argparse.Namespace) -> None:
        self.recorder, self.origin = recorder, origin
        self.path, self.options = path, options
        self.requests = min(int(options.requests), recorder.most_requests)
        self.rows: list[Row] = []
        self.workers = [] if cannot_hold_back() else recorder.workers()

    def _load(self, requests: int) -> Counted:
        """Ask for the first `requests` URLs. Raises BenchError if one fails."""
        running = self.recorder.running
        command = build_load_command(
            "plain", running, self.origin, self.path, "--requests", str(requests),
            "--distinct", str(requests), "--conns", str(self.options.conns))
        return run_load_command(command, running, LONG)

    def _count(self, expected: int) -> int:
        """What the origin answered since the last call."""
        size = self.origin.lengths[self.path]
        lengths = {f"{self.path}?n={n:06d}": size for n in range(self.requests)}
        return self.origin.logs["web"].count(expected, lengths)

    def _warm_up(self, scenario: str, mode: str) -> None:
        """In a session of its own, if answers are recorded; and tell what is slow."""
        session = f"unmeasured-{scenario}-{len(self.rows)}"
        if scenario not in PLAYED:
            self.recorder.switch(mode, session, 0)
        counted = self._load(min(self.options.warm_up, self.requests))
        done = counted.requests
        if scenario not in PLAYED and mode in ("record", "cache"):
            # Else the last are in the next session
            self.recorder.settle(session, done)
        if not self.rows:
            self.requests = min(
                self.requests, int(done / counted.seconds * SECONDS))

    def run(self, scenario: str, repetition: int) -> None:
        mode, is_new = SCENARIOS[scenario]
        if mode not in self.recorder.modes:
            return
        if (held := scenario in HELD) and not self.workers:
            return
        kind = "held" if held else "kept" if mode == "cache" else "taken"
        session = f"{kind}{repetition}"
        if not is_new:
            self.recorder.switch(mode, session, self.requests)
        self._warm_up(scenario, mode)
        if is_new:
            self.recorder.switch(mode, session, 0)
        self.origin.skip_log()
        rss, rounds = resident_kib(self.recorder.running.tree()), list[Round]()
        with held_back(self.workers if held else []):
            rounds.append(self._measure(mode, session))
        while scenario in PLAYED and sum(
                played.seconds for played in rounds) < PLAYED_S:
            self.recorder.switch(mode, session, self.requests)
            rounds.append(self._measure(mode, session))
        done, took = (sum(column) for column in zip(
            *((played.done, played.seconds) for played in rounds), strict=True))
        asked, origin = self.requests * len(rounds), self._count(
            0 if scenario in PLAYED else done)
        row: Row = {
            "proxy": self.recorder.name, "version": self.recorder.version,
            "scenario": scenario, "repetition": repetition,
            "repetitions": self.options.repetitions,
            "requests": asked, "success": done, "errors": asked - done,
            "rate": done / took, "total_ms": took * 1e3,
            **{name: statistics.median(played.latencies[name] for played in rounds)
               for name in rounds[0].latencies},
            "cpu_us": sum(played.cpu_s for played in rounds) / done * 1e6,
            "settled_s": rounds[-1].settled_s,
            "bytes": sum(played.bytes for played in rounds), "rss_before_kib": rss,
            "rss_kib": (after := resident_kib(self.recorder.running.tree())),
            "rss_delta_kib": after - rss,
            "rss_most_kib": resident_kib(self.recorder.running.tree(), "VmHWM"),
            # Of what may be replayed, the rest of what came is from the origin
            "hits": done - origin, "misses": origin if mode == "cache" else 0,
            "origin": origin,
        }  # fmt: skip
        self.rows.append(row)
        print(format_row("perf_result", row), flush=True)

    def _measure(self, mode: str, session: str) -> Round:
        tree = self.recorder.running.tree()
        cpu, began = cpu_times(tree).total, time.monotonic()
        counted = self._load(self.requests)
        if mode in ("record", "cache"):
            self.recorder.settle(session, self.requests)
        return Round(counted.requests, counted.seconds, counted.bytes,
                     counted.latencies_ms(), cpu_times(tree).total - cpu,
                     time.monotonic() - began)

    def median(self, scenario: str, figure: str) -> float:
        return statistics.median(self.of(scenario, figure))

    def of(self, scenario: str, figure: str) -> list[float]:
        return [float(str(row[figure])) for row in self.rows
                if row["scenario"] == scenario]

    def summary(self, scenario: str) -> Row:
        rates, p95 = self.of(scenario, "rate"), self.of(scenario, "latency_p95_ms")
        return {
            "proxy": self.recorder.name, "version": self.recorder.version,
            "scenario": scenario, "runs": len(rates),
            "urls": self.requests,
            "rate": statistics.median(rates), "rate_least": min(rates),
            "rate_most": max(rates), "rate_cv": variation(rates),
            "p95_ms": statistics.median(p95), "p95_least_ms": min(p95),
            "p95_most_ms": max(p95), "p95_cv": variation(p95),
            "cpu_us": self.median(scenario, "cpu_us"),
            "rss_delta_kib": max(self.of(scenario, "rss_delta_kib")),
        }  # fmt: skip


def variation(values: list[float]) -> float:
    """The coefficient of variation: 0 of one value."""
    return statistics.stdev(values) / statistics.mean(values) if values[1:] else 0.0


def broken_guardrails(rows: list[Row], summaries: dict[str, Row],
                      most_cv: float) -> list[str]:
    """Returns the guardrails that one proxy broke. A run with an error has raised
    before."""
    broken = []
    for row in rows:
        wanted = 0 if row["scenario"] in PLAYED else row["requests"]
        if row["errors"]:
            broken.append(f"{row['scenario']}: {row['errors']} errors")
        if row["origin"] != wanted:
            broken.append(f"{row['scenario']}: the origin counted {row['origin']}")
        if int(str(row["rss_delta_kib"])) > MOST_RSS_KIB:
            broken.append(f"{row['scenario']}: {row['rss_delta_kib']} KiB more")
    def of(scenario: str, figure: str) -> float:
        return float(str(summaries[scenario][figure]))

    for slow, fast in (("cold", "warm"), ("record", "replay")):
        if {slow, fast} <= summaries.keys() and of(fast, "rate") <= of(slow, "rate"):
            broken.append(f"{fast} is not faster than {slow}")
    for scenario in PLAYED:
        if scenario in summaries and of(scenario, "rate_cv") > most_cv:
            broken.append(f"{scenario}: varies by {of(scenario, 'rate_cv'):.2f}")
    return broken


def is_result(file: Path) -> bool:
    """Is this a result of this bench?"""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        rows = json.loads(file.read_text()).get("rows", [])
        return any(row.get("line") == "perf_summary" for row in rows)
    return False


def read_baseline(file: Path) -> dict[tuple[str, str], Row]:
    """The summaries of a stored result, by proxy and scenario."""
    rows = json.loads(file.read_text())["rows"]
    return {(row["proxy"], row["scenario"]): row for row in rows
            if row["line"] == "perf_summary"}


def compare_stored(base: Path, new: Path) -> int:
    """Print what each proxy has lost from one stored result to another; 1 if ours
    has, or lacks a scenario."""
    before, now = read_baseline(base), read_baseline(new)
    failed = 0
    for (proxy, scenario), row in before.items():
        summary = now.get((proxy, scenario))
        for text in (regressions(summary, row) if summary
                     else [f"{scenario}: is not in {new}"]):
            print(f"{proxy}: {text}")
            failed += proxy == Ours.name
    if not failed:
        print(f"perf_compared rows={len(before)}: {Ours.name} has become no worse")
    return 1 if failed else 0


def regressions(summary: Row, before: Row) -> list[str]:
    """What a scenario has lost since a baseline."""
    texts = []
    for figure, sign, most in (("rate", -1, LESS_RATE), ("p95_ms", 1, MORE_P95)):
        now, then = (float(str(row[figure])) for row in (summary, before))
        if sign * (now / then - 1) > most:
            texts.append(f"{summary['scenario']}: {figure} is {now:.4g}, and was "
                         f"{then:.4g}: {now / then - 1:+.0%}")
    return texts


def run_recording(options: argparse.Namespace) -> int:
    failed = 0
    baseline = (read_baseline(RESULTS / f"{options.baseline}.json")
                if options.baseline else {})
    kept: list[Row] = []
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(Origin())
        path = f"/bytes{options.bytes}"
        (origin.directory / "files" / path[1:]).write_bytes(bytes(options.bytes))
        origin.lengths[path] = options.bytes
        for recorder in stack.enter_context(
                recorders(Target(Site(), origin.authority))):
            runner = Runner(recorder, origin, path, options)
            try:
                for repetition in range(options.repetitions):
                    for scenario in SCENARIOS:
                        runner.run(scenario, repetition)
            except BenchError as error:
                print(f"{recorder.name}: {error}")
                failed += recorder.name == Ours.name
                kept.append({"line": "perf_void", "proxy": recorder.name,
                             "reason": str(error)})
            summaries = {
                scenario: runner.summary(scenario) for scenario in SCENARIOS
                if runner.of(scenario, "rate")}
            kept += [{"line": "perf_result", **row} for row in runner.rows]
            broken = broken_guardrails(runner.rows, summaries, options.most_cv)
            for scenario, row in summaries.items():
                print(format_row("perf_summary", row), flush=True)
                kept.append({"line": "perf_summary", **row})
                if before := baseline.get((recorder.name, scenario)):
                    broken += regressions(row, before)
            for text in broken:
                print(f"{recorder.name}: {text}")
                kept.append({"line": "perf_broken", "proxy": recorder.name,
                             "what": text})
                failed += recorder.name == Ours.name
            if {"plain", "record", "replay"} <= summaries.keys():
                print(format_row("perf_recording_ratio", ratios(summaries)), flush=True)
    if options.name:
        write_rows(options.name, kept)
    return 1 if failed else 0


def ratios(summaries: dict[str, Row]) -> Row:
    def of(scenario: str, figure: str) -> float:
        return float(str(summaries[scenario][figure]))

    held: Row = {}
    if set(HELD) <= summaries.keys():
        held["record_rate_to_plain_held"] = (
            of("record_held", "rate") / of("plain_held", "rate"))
    return held | {
        "replay_cpu_to_plain": of("replay", "cpu_us") / of("plain", "cpu_us"),
        "replay_rate_to_plain": of("replay", "rate") / of("plain", "rate"),
        "record_rate_to_plain": of("record", "rate") / of("plain", "rate"),
        "record_cpu_to_plain": of("record", "cpu_us") / of("plain", "cpu_us"),
    }
