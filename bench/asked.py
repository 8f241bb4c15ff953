"""The requirements for the data plane, and whether one result meets them.

One worker with credentials and an access log (`cutthrough-log`) against the lean relay
of the same run; in bulk against the splicing one. Hashed users, a policy and a log in
JSON (`cutthrough-full`) may cost a little more than that. Each figure is the median of
the ratios of neighbouring runs, its spread from the least to the largest of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.charts import BLIND, shown, table
from bench.peers import PEERS
from bench.rows import format_row
from bench.summary import number, paired

Row = dict[str, Any]
Runs = dict[tuple[str, str], list[Row]]
#: A note beside a figure: a text, and the scenario and proxy whose line has it.
Aside = tuple[str, str, str]
LOGGED = "cutthrough-log"
FULL = "cutthrough-full"
#: Both are about the harness: the largest difference between equals, and how many times
#: the fastest forward proxy's rate the client must be able to send.
SELF_MOST, CLIENT_LEAST = 0.05, 2.0
#: Every column of the table of the field: scenario, key, title. Microseconds but one.
COLUMNS = (
    ("plain-keepalive", "cpu_us_per_request", "keep-alive"),
    ("plain-16k", "cpu_us_per_request", "16 KiB"),
    ("plain-new", "cpu_us_per_request", "new connection"),
    ("connect-setup", "cpu_us_per_request", "CONNECT set-up"),
    ("ping-c100", "cpu_us_per_request", "ping in tunnel"),
    ("bulk", "cpu_us_per_mib", "1 MiB in tunnel"),
    ("idle-1000", "uss_bytes_per_tunnel", "bytes an idle tunnel"),
)


@dataclass(frozen=True)
class Verdict:
    """One row: the requirement, the values, and whether the median meets it."""

    what: str
    most: float | None  # the limit: at most, or else at least
    least: float | None
    scenario: str
    proxy: str
    values: list[float]
    aim: str = ""
    asides: tuple[Aside, ...] = ()

    @property
    def beside(self) -> str:
        return ", ".join(text for text, _, _ in self.asides)

    @property
    def asked(self) -> str:
        limit = f"≥ {self.least:g}" if self.most is None else f"≤ {self.most:g}"
        if self.most is not None and self.least is not None:
            limit = f"{self.least:g} to {self.most:g}"
        return f"{limit} ({self.aim})" if self.aim else limit

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def held(self) -> str:
        if self.median is None:
            return "not measured"
        return "yes" if self._holds(self.median) else "no"

    def _holds(self, value: float) -> bool:
        over = self.most is not None and value > self.most
        under = self.least is not None and value < self.least
        return not (over or under)

    @property
    def held_in(self) -> str:
        """Returns in how many of its runs; empty if in none."""
        times = sum(map(self._holds, self.values))
        return f"{times} of {len(self.values)}" if self.values else ""

    @property
    def spread(self) -> str:
        if not self.values:
            return ""
        return f"{shown(min(self.values))} to {shown(max(self.values))}"


def group_runs(rows: list[Row]) -> Runs:
    """Return the runs of each scenario and proxy that are not void."""
    runs: Runs = {}
    for row in rows:
        both = sum(row.get(f"{who}_us_per_request", 0) for who in ("client", "origin"))
        runs.setdefault((row["scenario"], row["proxy"]), []).append(
            {**row, "both_us": both}
        )
    return {
        key: group for key, group in runs.items()
        if not any("failed" in row for row in group)
    }  # fmt: skip


def _ratio(runs: Runs, scenario: str, key: str, proxy: str, base: str) -> list[float]:
    mine, other = runs.get((scenario, proxy), []), runs.get((scenario, base), [])
    return paired(mine, other, key)


def _values(runs: Runs, scenario: str, proxy: str, key: str) -> list[float]:
    rows = runs.get((scenario, proxy), [])
    return [value for row in rows if (value := number(row, key)) is not None]


def _aside(
    text: str, runs: Runs, scenario: str, proxy: str, key: str
) -> tuple[Aside, ...]:
    """Return `text` with the median of `key`; nothing if it was not measured."""
    if not (values := _values(runs, scenario, proxy, key)):
        return ()
    return ((text.format(statistics.median(values)), scenario, proxy),)


def _beside(runs: Runs, scenario: str, key: str, base: str) -> tuple[Aside, ...]:
    """Return the figures of other proxies in the same row."""
    asides = []
    blind = () if scenario.startswith("plain") else BLIND
    for name in ("haproxy-http", "nginx", *blind, "cutthrough", FULL):
        if ratios := _ratio(runs, scenario, key, name, base):
            text = f"{name} {statistics.median(ratios):.2f}"
            asides.append((text, scenario, name))
    return tuple(asides)


def _against_relay(runs: Runs) -> Iterator[Verdict]:
    for what, scenario, most, aim, key, base in (
        ("plain keep-alive, index.html, c100", "plain-keepalive", 1.1, "goal 0.95",
         "cpu_us_per_request", "lean"),
        ("plain keep-alive, 16 KiB, c100", "plain-16k", 1.1, "goal 1",
         "cpu_us_per_request", "lean"),
        ("plain, new client connection each", "plain-new", 0.5, "goal 0.45",
         "cpu_us_per_request", "lean"),
        ("CONNECT set-up, one request, close", "connect-setup", 1.2, "goal 1.05",
         "cpu_us_per_request", "lean"),
        ("small requests in long tunnels, c100", "ping-c100", 1.0, "goal 0.8",
         "cpu_us_per_request", "lean"),
        ("the same at c1: latency p50, all on one core", "ping-c1", 1.04, "goal 1",
         "latency_p50_ms", "lean"),
        ("the same at c1, the proxy on its own core", "ping-c1-apart", 1.2, "",
         "latency_p50_ms", "lean"),
        ("the same at c1, as the scheduler has it", "ping-c1-free", 1.2, "",
         "latency_p50_ms", "lean"),
        ("1 MiB in tunnels: CPU per MiB", "bulk", 1.05, "goal 1", "cpu_us_per_mib",
         "relay-splice"),
    ):  # fmt: skip
        ratios = _ratio(runs, scenario, key, LOGGED, base)
        beside = _beside(runs, scenario, key, base)
        text = f"{what}, of {base}"
        yield Verdict(text, most, None, scenario, LOGGED, ratios, aim, beside)
    rates = _ratio(runs, "bulk", "throughput_rps", LOGGED, "relay-splice")
    beside = _beside(runs, "bulk", "throughput_rps", "relay-splice")
    text = "1 MiB in tunnels: rate, of relay-splice"
    yield Verdict(text, None, 0.9, "bulk", LOGGED, rates, "", beside)


def _with_all(runs: Runs) -> Iterator[Verdict]:
    """Compare `cutthrough-full` with `cutthrough-log`."""
    for what, scenario in (
        ("plain keep-alive", "plain-keepalive"), ("16 KiB", "plain-16k"),
        ("new client connections", "plain-new"), ("CONNECT set-up", "connect-setup"),
        ("pings", "ping-c100"),
    ):  # fmt: skip
        ratios = _ratio(runs, scenario, "cpu_us_per_request", FULL, LOGGED)
        text = f"hashed users, a policy and a log in JSON: {what}, of {LOGGED}"
        yield Verdict(text, 1.05, None, scenario, FULL, ratios)


def _workers(runs: Runs) -> Verdict:
    """With limited workers the ratio counts; without, all CPUs together bound it."""
    two = f"{FULL}-2"
    ratios = _ratio(runs, "workers", "throughput_rps", two, FULL)
    free = _ratio(runs, "workers", "free_rps", two, FULL)
    rows = runs.get(("workers", FULL), [])
    allowed = [
        2e6 / row["free_rps"] / (
            row["both_us"] + row["cpu_us_per_request"]
        ) for row in rows if row["both_us"]
    ]  # fmt: skip
    asides = []
    if free and allowed:
        text = (
            f"as they are {statistics.median(free):.2f}, where client, origin and proxy"
            f" leave room for {statistics.median(allowed):.2f} on two cores"
        )
        asides.append((text, "workers", two))
    for name, text in ((FULL, "one got {:.0f} % of a core"), (two, "two got {:.0f} %")):
        asides += _aside(text, runs, "workers", name, "held_cpu_percent")
    text = "two workers against one, each with a fifth of a core: rate"
    return Verdict(text, None, 1.8, "workers", two, ratios, "", tuple(asides))


def judge(rows: list[Row]) -> list[Verdict]:
    """Return a verdict for each row of the table."""
    runs = group_runs(rows)
    two, crowd = f"{FULL}-2", f"{FULL}-crowd"
    idle = _values(runs, "idle-10000", two, "uss_bytes_per_tunnel")
    one = _values(runs, "idle-9800", FULL, "uss_bytes_per_tunnel")
    open_ = _values(runs, "crowd", crowd, "crowd_ratio")
    tail = _ratio(runs, "tail", "latency_p999_ms", FULL, "relay")
    beside = "in two workers, for nofile allows one no more than 9800"
    beside += f": {statistics.median(one):.0f} in that" if one else ""
    return [
        *_against_relay(runs),
        *_with_all(runs),
        Verdict("private bytes a tunnel at rest, 10 000 of them", 666, None,
                "idle-10000", two, idle, "goal 614", ((beside, "idle-9800", FULL),)),
        Verdict("10 000 keep-alive connections open, 100 active, of 100 open: rate",
                None, 0.9, "crowd", crowd, open_, "",
                _aside("nginx {:.2f}", runs, "crowd", "nginx", "crowd_ratio")),
        _workers(runs),
        Verdict("p99.9 at half the rate, 200 tunnels a second beside it, of relay",
                3, None, "tail", FULL, tail, "",
                _aside("{:.0f}/s", runs, "tail", FULL, "rate")),
        *_judge_harness(runs),
    ]  # fmt: skip


def _judge_harness(runs: Runs) -> Iterator[Verdict]:
    for scenario in dict.fromkeys(s for s, proxy in runs if proxy == "direct-again"):
        for key, what in (
            ("throughput_rps", "rate"), ("both_us", "CPU of client and origin"),
        ):  # fmt: skip
            ratios = _ratio(runs, scenario, key, "direct-again", "direct")
            text = f"the harness: direct against direct, {what}"
            yield Verdict(text, 1 + SELF_MOST, 1 - SELF_MOST, scenario, "direct-again",
                          ratios)  # fmt: skip
    for scenario in ("plain-keepalive", "ping-c100"):
        what = f"the harness: a core of its client, of a core of a proxy ({scenario})"
        quickest, ratios = _core_for_core(runs, scenario, "ceiling")
        asides = ((quickest, scenario, quickest),) if quickest else ()
        yield Verdict(what, None, CLIENT_LEAST, "ceiling", "direct",
                      ratios, "", asides)  # fmt: skip
    yield _judge_setups(runs)


def _forward_proxies(runs: Runs, scenario: str, key: str) -> dict[str, float]:
    """Return the median of each proxy, except blind relays and our variants: the
    luckiest of many variants is always fast."""
    proxies = ["cutthrough", FULL, *(name for name in PEERS if name not in BLIND)]
    return {
        proxy: statistics.median(values)
        for proxy in proxies if (values := _values(runs, scenario, proxy, key))
    }  # fmt: skip


def _core_for_core(runs: Runs, scenario: str, alone: str) -> tuple[str, list[float]]:
    """Return a client core's rate, as a multiple of the answers of the fastest proxy's
    core."""
    costs = _forward_proxies(runs, scenario, "cpu_us_per_request")
    if not costs:
        return "", []
    quickest = min(costs, key=costs.__getitem__)
    rates = _values(runs, alone, "direct", "throughput_rps")
    return quickest, [rate * costs[quickest] / 1e6 for rate in rates]


def _judge_setups(runs: Runs) -> Verdict:
    """Compare all cores, the server's included. On loopback connect(2) also does the
    server's handshake, so the kernel keeps a client's core as busy as a proxy's."""
    scenario, alone = "connect-setup", "ceiling-setup-all"
    taken = _forward_proxies(runs, scenario, "throughput_rps")
    rates = _values(runs, alone, "direct", "throughput_rps")
    ratios = [rate / max(taken.values()) for rate in rates] if taken else []
    asides: list[Aside] = []
    if taken:
        most = max(taken, key=taken.__getitem__)
        asides.append((most, scenario, most))
    quickest, cores = _core_for_core(runs, scenario, "ceiling-setup")
    if cores:
        text = f"core for core {statistics.median(cores):.2f} of {quickest}"
        asides.append((text, "ceiling-setup", "direct"))
    what = f"the harness: its client on all cores, of a proxy on them ({scenario})"
    return Verdict(what, None, CLIENT_LEAST, alone, "direct", ratios, "", tuple(asides))


def in_words(rows: list[Row]) -> str:
    """Return how many of the requirements held, and which did not, as a sentence."""
    verdicts = [verdict for verdict in judge(rows) if verdict.median is not None]
    if not verdicts:
        return "No requirement was measured."
    missed = [
        f"{verdict.what} ({shown(verdict.median or 0.0)}, asked {verdict.asked})"
        for verdict in verdicts if verdict.held == "no"
    ]  # fmt: skip
    if not missed:
        return f"All {len(verdicts)} requirements that were measured held."
    held = len(verdicts) - len(missed)
    return (
        f"{held} of {len(verdicts)} requirements held. Not: {'; '.join(missed)}."
    )


def print_verdicts(rows: list[Row]) -> None:
    for verdict in judge(rows):
        if verdict.median is not None:
            print(format_row("perf_asked", {
                "scenario": verdict.scenario, "proxy": verdict.proxy,
                "asked": verdict.asked, "measured": verdict.median,
                "spread": verdict.spread, "held": verdict.held,
                "held_in": verdict.held_in, "what": verdict.what,
            }))  # fmt: skip


Link = Callable[[str, str, str], str]  # scenario, proxy, text -> a link to its line


def verdict_table(rows: list[Row], link: Link) -> str:
    """Return the table as HTML, one row for each requirement."""
    cells = []
    for verdict in judge(rows):
        median = verdict.median
        text = shown(median) if median is not None else "–"
        held = f'<b class="{verdict.held[:2]}">{verdict.held}</b>'
        cells.append([
            verdict.what, verdict.asked, link(verdict.scenario, verdict.proxy, text),
            link(verdict.scenario, verdict.proxy, verdict.spread),
            f"{held} {verdict.held_in}",
            ", ".join(link(name, proxy, text) for text, name, proxy in verdict.asides),
        ])  # fmt: skip
    head = ["what", "asked", "measured", "spread", "held? in runs", "beside"]
    return table(head, cells)


def field_table(summaries: list[Row], rows: list[Row], link: Link) -> str:
    """Return the cost of each proxy, one line each, ours and the yardsticks first."""
    runs = group_runs(rows)
    columns = {scenario for scenario, *_ in COLUMNS}
    names = dict.fromkeys(r["proxy"] for r in summaries if r["scenario"] in columns)
    hidden = {"direct", "direct-again"} | {
        name for name in names
        if name.startswith("cutthrough-") and name not in (LOGGED, FULL)
    }
    void = {(row["scenario"], row["proxy"]) for row in rows if "failed" in row}
    cells = []
    for name in names:
        if name in hidden:
            continue
        line = [f"<b>{name}</b>" if name.startswith("cutthrough") else name]
        for scenario, key, _ in COLUMNS:
            values = _values(runs, scenario, name, key)
            none = "void" if (scenario, name) in void else "–"
            text = shown(statistics.median(values)) if values else none
            line.append(link(scenario, name, text))
        cells.append(line)
    return table(["proxy", *(title for *_, title in COLUMNS)], cells)
