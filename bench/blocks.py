"""The order of runs: parts as requested, blocks as they run.

A block is one scenario and the proxies that take turns in it. A scenario may have two
blocks, far apart in time. Its repetitions are then numbered on, and the yardstick is in
both, because ratios pair the runs of one repetition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.children import BenchError
from bench.measure import ALL_PROXIES, cannot
from bench.scenarios import SCENARIOS

#: Seconds of a run besides its load: start, warm-up, counting, end. On a quiet machine
#: 1 for most proxies, 3 to 4 for an interpreter or a JVM.
OVERHEAD = {"mitmproxy": 4.0, "littleproxy": 3.5, "proxy.py": 3.0, "proxy-chain": 2.0}
OVERHEAD_ELSE = 1.3
#: The same of scenarios that do more than one thing.
OVERHEAD_OF = {"idle": 2.0, "crowd": 2.5, "workers": 0.5, "tail": 0.5, "lifecycle": 1.0}


@dataclass(frozen=True)
class Part:
    """Some scenarios through some proxies; 0: the default repetitions and seconds.

    `again` are proxies that run once more even if an earlier part had them, because
    the others are compared with them.
    """

    scenarios: tuple[str, ...]
    proxies: tuple[str, ...]
    repetitions: int = 0
    seconds: float = 0
    again: tuple[str, ...] = ()


@dataclass
class Block:
    """One scenario, the proxies that take turns, how often and how long."""

    scenario: str
    proxies: list[str]
    repetitions: int
    seconds: float
    first: int = 1

    def turns(self) -> Iterator[tuple[str, int]]:
        """Return A B C, C B A, A B C: a drift then affects all alike."""
        for number in range(self.repetitions):
            order = self.proxies if number % 2 == 0 else self.proxies[::-1]
            for proxy in order:
                yield proxy, self.first + number


@dataclass
class Skipped:
    """Requested runs that cannot be made here, with the reason; `late`: scenario, proxy
    and number of runs for which there was no time."""

    proxies: dict[str, str] = field(default_factory=dict)
    scenarios: dict[str, str] = field(default_factory=dict)
    pairs: list[tuple[str, str, str]] = field(default_factory=list)
    late: dict[tuple[str, str], int] = field(default_factory=dict)


def _check_names(part: Part) -> None:
    for name in (*part.scenarios, *part.proxies, *part.again):
        if name not in SCENARIOS and name not in ALL_PROXIES:
            raise BenchError(f"unknown: {name}; see python -m bench --list")


def check_plan(
    parts: list[Part], repetitions: int = 3, seconds: float = 3
) -> tuple[list[Block], Skipped]:
    """Return what can run, block by block, and what is skipped."""
    skipped = Skipped()
    seen: dict[str, list[Block]] = {}
    todo: list[Block] = []
    for part in parts:
        _check_names(part)
        for proxy in part.proxies:
            if missing := ALL_PROXIES[proxy].missing:
                skipped.proxies[proxy] = missing
        for scenario in part.scenarios:
            row = SCENARIOS[scenario]
            if row.missing:
                skipped.scenarios[scenario] = row.missing
                continue
            before = seen.setdefault(scenario, [])
            had = {proxy for block in before for proxy in block.proxies}
            block = Block(
                scenario, [], part.repetitions or repetitions, part.seconds or seconds,
                1 + sum(block.repetitions for block in before),
            )  # fmt: skip
            for proxy in part.proxies:
                if proxy in skipped.proxies or proxy in had | {*part.again}:
                    continue
                if reason := cannot(row, ALL_PROXIES[proxy]):
                    if (scenario, proxy, reason) not in skipped.pairs:
                        skipped.pairs.append((scenario, proxy, reason))
                else:
                    block.proxies.append(proxy)
            if block.proxies or not before:
                block.proxies[:0] = [
                    proxy for proxy in part.again if not ALL_PROXIES[proxy].missing
                ]
            if block.proxies:
                before.append(block)
                todo.append(block)
    return todo, skipped


def estimate_run(scenario: str, proxy: str, seconds: float) -> float:
    """Return how many seconds one run takes, roughly."""
    row = SCENARIOS[scenario]
    beside = OVERHEAD.get(proxy, OVERHEAD_ELSE) + OVERHEAD_OF.get(row.tool, 0)
    return seconds * row.weight + beside


def estimate(todo: list[Block]) -> float:
    """Return how many seconds the plan takes, roughly."""
    return sum(
        estimate_run(block.scenario, proxy, block.seconds) * block.repetitions
        for block in todo
        for proxy in block.proxies
    )
