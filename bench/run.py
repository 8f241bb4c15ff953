"""Runs: a plan of scenarios and proxies, interleaved, with progress, kept as JSON.

The proxies of a scenario take turns (A B C A B C …). The file has one run on one
line, so that a figure can name the line that it comes from.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bench.children import HERE, BenchError, Site
from bench.collect import describe_environment
from bench.measure import ALL_PROXIES, Row, cannot, format_row, run_once
from bench.origin import Origin
from bench.peers import FILES, PEERS
from bench.scenarios import SCENARIOS
from bench.summary import summarise

RESULTS = HERE / "results"
#: Seconds that a run takes beside its load: start, warm-up, counting, end. On a quiet
#: machine 1 for most, 3 to 4 for what starts an interpreter or a JVM.
OVERHEAD = {"mitmproxy": 4.0, "littleproxy": 3.5, "proxy.py": 3.0, "proxy-chain": 2.0}
OVERHEAD_ELSE = 1.3


@dataclass(frozen=True)
class Part:
    """Some scenarios through some proxies."""

    scenarios: tuple[str, ...]
    proxies: tuple[str, ...]


@dataclass
class Skipped:
    """What was asked for and cannot run here, with the reason."""

    proxies: dict[str, str]
    scenarios: dict[str, str]
    pairs: list[tuple[str, str, str]]


def check_plan(parts: list[Part]) -> tuple[list[tuple[str, list[str]]], Skipped]:
    """Return what can run, scenario by scenario, and what is skipped."""
    skipped = Skipped({}, {}, [])
    todo: dict[str, list[str]] = {}
    for part in parts:
        for name in (*part.scenarios, *part.proxies):
            if name not in SCENARIOS and name not in ALL_PROXIES:
                raise BenchError(f"unknown: {name}; see python -m bench --list")
        for proxy in part.proxies:
            if missing := ALL_PROXIES[proxy].missing:
                skipped.proxies[proxy] = missing
        for scenario in part.scenarios:
            row = SCENARIOS[scenario]
            if row.missing:
                skipped.scenarios[scenario] = row.missing
                continue
            for proxy in part.proxies:
                if proxy in skipped.proxies or proxy in todo.get(scenario, []):
                    continue
                if reason := cannot(row, ALL_PROXIES[proxy]):
                    if (scenario, proxy, reason) not in skipped.pairs:
                        skipped.pairs.append((scenario, proxy, reason))
                else:
                    todo.setdefault(scenario, []).append(proxy)
    return list(todo.items()), skipped


def estimate(
    todo: list[tuple[str, list[str]]], seconds: float, repetitions: int
) -> float:
    """Return how many seconds the plan takes, roughly."""
    total = 0.0
    for scenario, proxies in todo:
        for proxy in proxies:
            total += seconds * SCENARIOS[scenario].weight
            total += OVERHEAD.get(proxy, OVERHEAD_ELSE)
    return total * repetitions


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def _stop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _each(
    todo: list[tuple[str, list[str]]], repetitions: int
) -> Iterator[tuple[str, str, int]]:
    for scenario, proxies in todo:
        for repetition in range(1, repetitions + 1):
            for proxy in proxies:
                yield scenario, proxy, repetition


def run_all(
    parts: list[Part],
    *,
    seconds: float,
    repetitions: int,
    name: str = "",
    site: Site | None = None,
    command: str = "",
    after: Callable[[], list[Row]] | None = None,
) -> int:
    """Measure, print as it goes, write bench/results/NAME.json; return the exit status.

    Without a name the file is called run-<time>.json, which git ignores. Interrupted,
    it ends what it started, keeps what it has, and says that it is not all.
    """
    todo, skipped = check_plan(parts)
    for kind, table in (("proxy", skipped.proxies), ("scenario", skipped.scenarios)):
        for what, reason in table.items():
            print(f"perf_skipped {kind}={what} reason={reason.replace(' ', '_')}")
    runs = sum(len(proxies) for _, proxies in todo) * repetitions
    left = estimate(todo, seconds, repetitions)
    print(f"# {runs} runs, about {_clock(left)} min", file=sys.stderr, flush=True)
    rows: list[Row] = []
    began, foreseen, interrupted = time.monotonic(), 0.0, False
    old = signal.signal(signal.SIGTERM, _stop)
    with site or Site() as place:
        environment = describe_environment(place)
        try:
            with Origin(place) as origin:
                origin_config = origin.config.read_text()
                void: set[tuple[str, str]] = set()  # no figure will come of these
                for scenario, proxy, repetition in _each(todo, repetitions):
                    foreseen += estimate([(scenario, [proxy])], seconds, 1)
                    if (scenario, proxy) in void:
                        runs -= 1
                        continue
                    row: Row = {"scenario": scenario, "proxy": proxy}
                    row |= {"repetition": repetition, "repetitions": repetitions}
                    row |= run_once(scenario, proxy, origin, seconds)
                    rows.append(row)
                    if "failed" in row:
                        void.add((scenario, proxy))
                    quiet = {"command", "proxy_command"}
                    line = {k: v for k, v in row.items() if k not in quiet}
                    print(format_row("perf_result", line), flush=True)
                    spent = time.monotonic() - began
                    rest = (left - foreseen) * spent / foreseen
                    print(
                        f"# {len(rows)}/{runs} {_clock(spent)} gone,"
                        f" {_clock(rest)} left", file=sys.stderr, flush=True,
                    )  # fmt: skip
        except KeyboardInterrupt:
            interrupted = True
            print("interrupted: what follows is not all", file=sys.stderr)
        finally:
            signal.signal(signal.SIGTERM, old)
    summaries = summarise(rows)
    for summary in summaries:
        print(format_row("perf_summary", summary))
    micro = after() if after is not None and not interrupted else []
    environment |= {
        "command": command, "seconds": seconds, "repetitions": repetitions,
        "took_seconds": round(time.monotonic() - began), "interrupted": interrupted,
    }  # fmt: skip
    if rows:
        file = RESULTS / f"{name or time.strftime('run-%Y%m%d-%H%M%S')}.json"
        write_result(file, environment, origin_config, skipped, rows, summaries, micro)
        print(f"written to {file.relative_to(HERE.parent)}")
    return 130 if interrupted else int(any("failed" in row for row in rows))


def _used_peers(rows: list[Row]) -> dict[str, object]:
    """Return version and configuration of each peer that took part."""
    used: dict[str, object] = {}
    for name in dict.fromkeys(str(row["proxy"]) for row in rows):
        if name in PEERS:
            files = [word.partition(" as ")[0] for word in PEERS[name].files]
            used[name] = {
                "version": PEERS[name].read_version(),
                "source": PEERS[name].source,
                "files": {
                    f"bench/peers/{file}": (FILES / file).read_text() for file in files
                },
            }
    return used


def write_result(
    file: Path,
    environment: dict[str, object],
    origin_config: str,
    skipped: Skipped,
    rows: list[Row],
    summaries: list[Row],
    micro: list[Row],
) -> None:
    """Write the result, each run and each summary on a line of its own."""
    file.parent.mkdir(exist_ok=True)
    head = {
        "environment": environment,
        "origin_config": origin_config,
        "skipped": {
            "proxies": skipped.proxies,
            "scenarios": skipped.scenarios,
            "pairs": skipped.pairs,
        },
        "peers": _used_peers(rows),
    }
    parts = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    for key, table in (("results", rows), ("summaries", summaries), ("micro", micro)):
        lines = ",\n".join(json.dumps(row) for row in table)
        parts.append(f'"{key}": [\n{lines}\n]')
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n")
