"""Tables of pages, from committed results: `python -m bench readme`.

The block between two marks has the machine, the versions and the figures of the file
that the first mark names. A test compares each with its file. README's first table is
made here, the others in page_tables.py.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench import page_tables
from bench.asked import FULL, LOGGED, Runs, group_runs
from bench.charts import shown
from bench.children import HERE, BenchError
from bench.page_tables import Result, cells, machine, short_version
from bench.summary import number, paired

END = "<!-- end of it -->"
HEAD = (
    "", "lean relay", "relay", "cutthrough", "to the lean relay", "full",
    "full to the lean relay", "HAProxy", "nginx",
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

    def ratio(proxy: str, remark: str = "") -> str:
        other = runs.get((line.scenario, line.against), [])
        ratios = paired(runs.get((line.scenario, proxy), []), other, line.key)
        if not ratios:
            raise BenchError(f"no {line.scenario} of {proxy} and {line.against}")
        return (
            f"{statistics.median(ratios):.2f}×{remark} "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )

    blind = BLIND if line.haproxy in ("haproxy-tcp", "haproxy-splice") else ""
    return cells(
        line.name, cost("lean"), cost(line.relay), cost(LOGGED),
        ratio(LOGGED, line.remark), cost(FULL), ratio(FULL),
        cost(line.haproxy, blind), cost(line.nginx, ""),
    )  # fmt: skip


def build_asked(result: Result) -> list[str]:
    """Return the lines of README's first block."""
    rows = result["results"]
    runs = group_runs(rows)
    void = sum("failed" in row for row in rows)
    versions = [
        f"{name} {short_version(result['peers'][peer]['version'])}"
        for name, peer in (("HAProxy", "haproxy-http"), ("nginx", "nginx"))
        if peer in result["peers"]
    ]  # fmt: skip
    idle = _median(runs, "idle-10000", f"{FULL}-2", "uss_bytes_per_tunnel")
    last = ("private memory of a tunnel at rest, 10 000 of them", "", "", "", "",
            f"{idle} B", "", "", "")  # fmt: skip
    return [
        f"{machine(result['environment'], versions)}. {len(rows)} runs,"
        f" {void or 'none'} void:", "",
        cells(*HEAD), f"|{'---|' * len(HEAD)}",
        *(_row(line, runs) for line in LINES), cells(*last),
    ]  # fmt: skip


class Block(NamedTuple):
    """A page, the result whose figures it has, and who makes the lines."""

    page: str
    result: str
    build: Callable[[Result], list[str]]

    @property
    def file(self) -> str:
        return f"bench/results/{self.result}.json"

    @property
    def begin(self) -> str:
        return f"<!-- {self.file}, by python -m bench readme -->"

    def render(self, text: str, result: Result) -> str:
        """Return the page's text with the block made again. Raises BenchError."""
        before, begin, rest = text.partition(self.begin)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise BenchError(f"{self.page} has no {self.begin!r} and {END!r}")
        try:
            lines = self.build(result)
        except (BenchError, KeyError) as error:
            raise BenchError(f"{self.file}: {error}") from None
        return f"{before}{chr(10).join([self.begin, *lines, END])}{after}"


METHOD = "docs/benchmarking.md"
BLOCKS = (
    Block("README.md", "asked", build_asked),
    Block("README.md", "intercept", page_tables.intercept_short),
    Block("README.md", "recording", page_tables.recording_short),
    Block(METHOD, "http2", page_tables.http2_table),
    Block(METHOD, "intercept", page_tables.intercept_long),
    Block(METHOD, "recording", page_tables.recording_long),
    Block("docs/fingerprints.md", "fingerprint", page_tables.fingerprint_table),
)  # fmt: skip


def render_pages(root: Path) -> dict[Path, str]:
    """Return the text of each page of this tree, with all its blocks made again."""
    pages: dict[Path, str] = {}
    for block in BLOCKS:
        page, file = root / block.page, root / block.file
        try:
            result: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise BenchError(f"{block.file}: {error}") from None
        pages[page] = block.render(pages.get(page) or page.read_text(), result)
    return pages


def main() -> int:
    """Write the blocks; returns the exit status."""
    for page, text in render_pages(HERE.parent).items():
        page.write_text(text)
    for block in BLOCKS:
        print(f"written to {block.page}, from {block.file}")
    return 0


def stale_pages(root: Path) -> list[str]:
    """Return the pages of this tree that have other figures than the results that they
    name."""
    return [str(page.relative_to(root)) for page, text in render_pages(root).items()
            if page.read_text() != text]
