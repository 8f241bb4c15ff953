"""Runs: a plan of scenarios and proxies, interleaved, with progress, kept as JSON.

The proxies of a scenario take turns, back and forth (A B C, C B A …). The file is
rewritten after every scenario. If time runs out, the last runs are skipped, by name.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from bench.asked import print_verdicts
from bench.blocks import Block, Part, Skipped, check_plan, estimate, estimate_run
from bench.children import HERE, Site
from bench.collect import describe_environment
from bench.measure import run_once
from bench.origin import Origin
from bench.result import write_result
from bench.rows import Row, format_row
from bench.summary import summarise

RESULTS = HERE / "results"
#: Seconds of --minutes kept in reserve: for a run that takes longer than planned, which
#: is then cut off, and for the micro-benchmarks and the last file.
OVERRUN, KEPT_BACK = 15.0, 25.0


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


class OutOfTime(Exception):
    """The time of --minutes ended within a run."""


def interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _ring(signum: int, frame: FrameType | None) -> None:
    raise OutOfTime


@contextmanager
def _signals(seconds: float) -> Iterator[None]:
    """Raise on SIGTERM, and after `seconds` if there is a limit."""
    old = signal.signal(signal.SIGTERM, interrupt), signal.signal(signal.SIGALRM, _ring)
    if seconds:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, old[0])
        signal.signal(signal.SIGALRM, old[1])


@dataclass
class _Field:
    """The execution of a plan, with its results so far."""

    todo: list[Block]
    skipped: Skipped
    limit: float  # seconds; 0: none
    file: Path
    environment: dict[str, object]
    origin_config: str = ""
    rows: list[Row] = field(default_factory=list)
    micro: list[Row] = field(default_factory=list)
    void: set[tuple[str, str]] = field(default_factory=set)  # no figure will come
    began: float = field(default_factory=time.monotonic)
    foreseen: float = 0.0

    def spent(self) -> float:
        return time.monotonic() - self.began

    def measure(self, origin: Origin) -> None:
        """Run every block; raise OutOfTime or KeyboardInterrupt in the middle."""
        whole = estimate(self.todo)
        runs = sum(len(block.proxies) * block.repetitions for block in self.todo)
        print(f"# {runs} runs, about {_clock(whole)} min", file=sys.stderr, flush=True)
        for block in self.todo:
            for proxy, repetition in block.turns():
                expected = estimate_run(block.scenario, proxy, block.seconds)
                self.foreseen += expected
                if (block.scenario, proxy) in self.void:
                    runs -= 1
                    continue
                if self.limit and self.spent() + expected > self.limit:
                    continue  # `name_late` tells of it
                row: Row = {"scenario": block.scenario, "proxy": proxy}
                row |= {"repetition": repetition, "repetitions": block.repetitions}
                row |= run_once(block.scenario, proxy, origin, block.seconds)
                self.rows.append(row)
                if "failed" in row:
                    self.void.add((block.scenario, proxy))
                quiet = {"command", "proxy_command"}
                line = {k: v for k, v in row.items() if k not in quiet}
                print(format_row("perf_result", line), flush=True)
                rest = (whole - self.foreseen) * self.spent() / self.foreseen
                print(
                    f"# {len(self.rows)}/{runs} {_clock(self.spent())} gone,"
                    f" {_clock(rest)} left", file=sys.stderr, flush=True,
                )  # fmt: skip
            self.write()

    def name_late(self) -> None:
        """Record the runs for which there was no time."""
        done = {(row["scenario"], row["proxy"], row["repetition"]) for row in self.rows}
        self.skipped.late.clear()
        for block in self.todo:
            for proxy, repetition in block.turns():
                pair = (block.scenario, proxy)
                if (*pair, repetition) not in done and pair not in self.void:
                    self.skipped.late[pair] = self.skipped.late.get(pair, 0) + 1

    def write(self) -> list[Row]:
        """Write the results so far; return the summaries."""
        summaries = summarise(self.rows)
        self.environment["took_seconds"] = round(self.spent())
        if self.rows:
            write_result(self.file, self.environment, self.origin_config, self.skipped,
                         self.rows, summaries, self.micro)  # fmt: skip
        return summaries


def run_all(
    parts: list[Part],
    *,
    seconds: float,
    repetitions: int,
    name: str = "",
    site: Site | None = None,
    command: str = "",
    minutes: float = 0,
    after: Callable[[], list[Row]] | None = None,
) -> int:
    """Measure, print as it goes, write bench/results/NAME.json; return the exit status.

    Without a name the file is run-<time>.json, which git ignores. If it is interrupted,
    or `minutes` are over, it ends its children, keeps the results so far, and reports
    that they are incomplete. Runs skipped for lack of time are no failure.
    """
    todo, skipped = check_plan(parts, repetitions, seconds)
    for kind, table in (("proxy", skipped.proxies), ("scenario", skipped.scenarios)):
        for what, reason in table.items():
            print(f"perf_skipped {kind}={what} reason={reason.replace(' ', '_')}")
    interrupted = False
    limit = max(60 * minutes - KEPT_BACK, 1.0) if minutes else 0.0  # at the latest
    file = RESULTS / f"{name or time.strftime('run-%Y%m%d-%H%M%S')}.json"
    with site or Site() as place:
        environment = describe_environment(place) | {
            "command": command, "seconds": seconds, "repetitions": repetitions,
            "interrupted": True,  # until it is whole
        }  # fmt: skip
        run = _Field(todo, skipped, max(limit - OVERRUN, 0), file, environment)
        try:
            with _signals(limit), Origin(place) as origin:
                run.origin_config = origin.config.read_text()
                run.measure(origin)
        except OutOfTime:
            print("time limit reached: the remaining runs are skipped", file=sys.stderr)
        except KeyboardInterrupt:
            interrupted = True
            print("interrupted: the results below are incomplete", file=sys.stderr)
    run.name_late()
    if after is not None and not interrupted:
        run.micro = after()
    environment["interrupted"] = interrupted
    for summary in run.write():
        print(format_row("perf_summary", summary))
    print_verdicts(run.rows)
    for (scenario, proxy), runs in skipped.late.items():
        print(f"perf_skipped scenario={scenario} proxy={proxy} runs={runs} reason=time")
    if run.rows:
        print(f"written to {file.relative_to(HERE.parent)}")
    return 130 if interrupted else int(bool(run.void))
