"""README's table, from a committed result: `python -m bench readme`.

The block between two marks has the machine, the versions and the figures of the file
that the first mark names. A test compares it with that file.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from bench.asked import FULL, Runs, group_runs
from bench.charts import shown
from bench.children import HERE, BenchError
from bench.summary import number, paired

README = HERE.parent / "README.md"
RESULT = "bench/results/asked.json"
BEGIN = f"<!-- {RESULT}, by python -m bench readme -->"
END = "<!-- end of it -->"
HEAD = (
    "", "lean relay", "relay", "cutthrough", "full", "full to the lean relay",
    "HAProxy", "nginx",
)  # fmt: skip
#: Of a tunnel, HAProxy knows bytes alone.
BLIND = " blind"
_SIZES = {"ms": 1000.0}  # to microseconds


class Line(NamedTuple):
    """A row: its name, the scenario, the figure, the fuller relay, and the relay that
    its ratio is against."""

    name: str
    scenario: str
    key: str = "cpu_us_per_request"
    relay: str = "relay"
    against: str = "lean"
    haproxy: str = ""
    nginx: str = ""
    remark: str = ""


LINES = (
    Line("plain, keep-alive, 100 connections", "plain-keepalive",
         haproxy="haproxy-http", nginx="nginx"),
    Line("the same, 16 KiB", "plain-16k", haproxy="haproxy-http", nginx="nginx"),
    Line("plain, new client connection each", "plain-new", haproxy="haproxy-http",
         nginx="nginx", remark=": it reuses origin connections"),
    Line("CONNECT, one request, close", "connect-setup", haproxy="haproxy-tcp"),
    Line("small requests in 100 tunnels", "ping-c100", haproxy="haproxy-tcp"),
    Line("one at a time in one tunnel, all on one core: p50", "ping-c1",
         "latency_p50_ms"),
    Line("the same, the proxy on a core of its own", "ping-c1-apart",
         "latency_p50_ms"),
    Line("1 MiB in tunnels, against a splicing relay", "bulk", "cpu_us_per_mib",
         "relay-splice", against="relay-splice", haproxy="haproxy-splice"),
)  # fmt: skip


def _median(runs: Runs, scenario: str, proxy: str, key: str) -> str:
    values = [
        value for row in runs.get((scenario, proxy), [])
        if (value := number(row, key)) is not None
    ]  # fmt: skip
    factor = _SIZES.get(key.rpartition("_")[2], 1.0)
    return shown(statistics.median(values) * factor) if values else ""


def _row(line: Line, runs: Runs) -> str:
    def cost(proxy: str, unit: str = " µs") -> str:
        value = _median(runs, line.scenario, proxy, line.key) if proxy else ""
        return f"{value}{unit}" if value else "–"

    full = runs.get((line.scenario, FULL), [])
    ratios = paired(full, runs.get((line.scenario, line.against), []), line.key)
    if not ratios:
        raise BenchError(f"{RESULT}: no {line.scenario} of {FULL} and {line.against}")
    ratio = (
        f"{statistics.median(ratios):.2f}×{line.remark} "
        f"({min(ratios):.2f} to {max(ratios):.2f})"
    )
    blind = BLIND if line.haproxy in ("haproxy-tcp", "haproxy-splice") else ""
    return _cells(
        line.name, cost("lean"), cost(line.relay), cost("cutthrough"), cost(FULL),
        ratio, cost(line.haproxy, blind), cost(line.nginx, ""),
    )  # fmt: skip


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def build_block(result: dict[str, Any]) -> str:
    """Return the block with its marks."""
    environment, rows = result["environment"], result["results"]
    runs = group_runs(rows)
    void = sum("failed" in row for row in rows)
    versions = ", ".join(
        f"{name} {re.split('[-+]', str(result['peers'][peer]['version']))[0]}"
        for name, peer in (("HAProxy", "haproxy-http"), ("nginx", "nginx"))
        if peer in result["peers"]
    )  # fmt: skip
    machine = (
        f"{environment['cpu']}, {environment['usable_cores']} cores, Linux "
        f"{environment['kernel'].partition('-')[0]}, Python {environment['python']}, "
        f"{environment['cutthrough']} ({environment['commit'][:8]}), {versions}. "
        f"{len(rows)} runs, {void or 'none'} void:"
    )
    idle = _median(runs, "idle-10000", f"{FULL}-2", "uss_bytes_per_tunnel")
    last = ("private memory of a tunnel at rest, 10 000 of them", "", "", "",
            f"{idle} B", "", "", "")  # fmt: skip
    table = [
        _cells(*HEAD), f"|{'---|' * len(HEAD)}",
        *(_row(line, runs) for line in LINES), _cells(*last),
    ]  # fmt: skip
    return "\n".join([BEGIN, machine, "", *table, END])


def render(readme: str, result: dict[str, Any]) -> str:
    """Return README's text with the block made again. Raises BenchError."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"README.md has no {BEGIN!r} and {END!r}")
    return f"{before}{build_block(result)}{after}"


def main() -> int:
    """Write the block; returns the exit status."""
    result = json.loads((HERE.parent / RESULT).read_text())
    README.write_text(render(README.read_text(), result))
    print(f"written to {README}, from {RESULT}")
    return 0


def is_current(root: Path) -> bool:
    """Does the README of this tree have the figures of the result that it names?"""
    text = (root / "README.md").read_text()
    return render(text, json.loads((root / RESULT).read_text())) == text
