"""Guardrails as code: has NEW become worse than BASE, and in which row?

Two results come from two runs, at two times, perhaps on two machines. So no rates are
compared, but their ratios to the yardstick of the same run. If the yardstick needs more
CPU than in the base, the user CPU of a copy may be as much higher; if less, it must be
lower. Memory is compared directly. Each finding names scenario, proxy and figure; if
there is a finding, the exit status is 1. Results of `bench recording` have bounds of
their own (recording.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import recording
from bench.children import BenchError
from bench.proxies import UNUSED
from bench.summary import number

Row = dict[str, object]

THROUGHPUT_LOSS = 0.15
#: At this share of the rate without a proxy, client and origin are the limit. Then the
#: ratio to the relay moves with the relay alone, and only CPU can judge the proxy.
AS_DIRECT = 0.95
P95_GROWTH = 0.20
CPU_GROWTH = 0.20
RSS_GROWTH_KIB = 128 << 10
#: An idle tunnel may cost this much more: a tenth, or a few pages if that is more.
TUNNEL_GROWTH, TUNNEL_BYTES = 0.10, 64
#: Growth of the resident set per request. A pool that fills is a one-time cost, so the
#: run must have been long enough for it to be little.
LEAK_BYTES, LEAK_REQUESTS = 256, 5000
#: User CPU per MiB: a good relay spends almost all its time in the kernel, so that one
#: more copy shows here long before it does in the sum (measured: the kernel 340 µs
#: ± 10 %, a copy within the second-level cache 15 to 30).
COPIES, USER_US_PER_MIB, USER_GROWTH = "user_mean_us_per_mib", 8.0, 0.5
#: What features cost a request that no rule gives them to, compared with a proxy
#: without a policy: of that, its three rules about hosts take a twentieth.
UNUSED_GROWTH = 0.15
#: Tolerance of the checks of order, for noise.
ORDER_SLACK = 0.15
#: A hostile neighbour may multiply the p99 of others by this, and it must be felt: a
#: p99 below 5 ms is not.
HOSTILE_FACTOR, HOSTILE_MS = 2.0, 5.0
FD_GROWTH = 20  # descriptors a minute, at the end of a soak
#: Same-run scenarios whose keep-alive form must be faster than the other.
KEEP_ALIVE, NEW_CONNECTION = "plain-keepalive", "plain-new"


@dataclass(frozen=True)
class Finding:
    scenario: str
    proxy: str
    figure: str
    text: str

    def __str__(self) -> str:
        return (
            f"perf_regression scenario={self.scenario} proxy={self.proxy}"
            f" figure={self.figure}: {self.text}"
        )


def read_summaries(file: Path) -> tuple[dict[tuple[str, str], Row], str]:
    """Return the rows by scenario and proxy, and on which CPU they were measured."""
    try:
        result = json.loads(file.read_text())
        rows = result["summaries"]
    except (OSError, ValueError, KeyError) as error:
        raise BenchError(f"{file}: not a result: {error}") from None
    cpu = str(result.get("environment", {}).get("cpu", ""))
    direct = {row["scenario"]: number(row, "throughput_median_rps")
              for row in rows if row["proxy"] == "direct"}
    for row in rows:
        without = direct.get(row["scenario"])
        rate = number(row, "throughput_median_rps")
        if without and rate:
            row["of_direct"] = rate / without
    return {(row["scenario"], row["proxy"]): row for row in rows}, cpu


def _errors(base: Row, new: Row) -> Iterator[tuple[str, str]]:
    if new.get("failed"):
        yield "errors", f"{new['failed']} of {new['runs']} runs void: {new['reason']}"


def _throughput(base: Row, new: Row) -> Iterator[tuple[str, str]]:
    """Against the yardstick; an unstable row fails only when its best run does."""
    if (number(new, "of_direct") or 0) >= AS_DIRECT:
        return
    for key in ("ratio", "ratio_to_direct"):
        old, now = number(base, key), number(new, key)
        if old is None or now is None:
            continue
        if new.get("unstable"):
            now *= _best(new)
        if base.get("unstable"):
            old /= _best(base)
        if now < old * (1 - THROUGHPUT_LOSS):
            yield "throughput", f"{key} {old:.3f} -> {now:.3f} ({now / old - 1:+.0%})"
        return


def _best(row: Row) -> float:
    most, median = (
        number(row, "throughput_max_rps"), number(row, "throughput_median_rps")
    )  # fmt: skip
    return most / median if most and median else 1.0


def _p95(base: Row, new: Row) -> Iterator[tuple[str, str]]:
    old, now = number(base, "p95_ratio"), number(new, "p95_ratio")
    if new.get("unstable") or base.get("unstable"):
        return  # its throughput is judged; where latency has settled is not known
    if old and now and now > old * (1 + P95_GROWTH):
        yield "p95", f"p95_ratio {old:.3f} -> {now:.3f} ({now / old - 1:+.0%})"


def _cpu(base: Row, new: Row) -> Iterator[tuple[str, str]]:
    old, now = number(base, "cpu_ratio"), number(new, "cpu_ratio")
    if old and now and now > old * (1 + CPU_GROWTH):
        yield "cpu", f"cpu_ratio {old:.3f} -> {now:.3f} ({now / old - 1:+.0%})"
    old, now = number(base, COPIES), number(new, COPIES)
    if old is not None and now is not None:
        old *= _slowdown(base, new)
        if now > max(old + USER_US_PER_MIB, old * (1 + USER_GROWTH)):
            yield "copies", f"user CPU per MiB {old:.1f} -> {now:.1f} µs"


def _slowdown(base: Row, new: Row) -> float:
    """The yardstick's CPU for the same work, as a multiple of that in the base."""
    old, now = _yardstick_cpu(base), _yardstick_cpu(new)
    return now / old if old and now else 1.0


def _yardstick_cpu(row: Row) -> float:
    cpu, ratio = number(row, "cpu_us_per_request_median"), number(row, "cpu_ratio")
    return cpu / ratio if cpu and ratio else 0.0


def _memory(base: Row, new: Row) -> Iterator[tuple[str, str]]:
    key = "uss_bytes_per_tunnel_median"
    old, now = number(base, key), number(new, key)
    if old is not None and now is not None:
        if now > old + max(TUNNEL_BYTES, old * TUNNEL_GROWTH):
            yield "memory_per_tunnel", f"{old:.0f} -> {now:.0f} bytes"
    for key in ("rss_after_median_kib", "hwm_median_kib"):
        old, now = number(base, key), number(new, key)
        if old is not None and now is not None and now > old + RSS_GROWTH_KIB:
            yield "memory", f"{key} {old / 1024:.0f} -> {now / 1024:.0f} MiB"
            break
    key, requests = "rss_growth_bytes_per_request_median", number(new, "most_requests")
    old, now = number(base, key), number(new, key)
    if old is not None and now is not None and (requests or 0) >= LEAK_REQUESTS:
        if now > max(old, 0) + LEAK_BYTES:
            yield "leak", f"{old:.0f} -> {now:.0f} bytes a request stay"
    old, now = (
        number(base, "fds_slope_per_minute_median"),
        number(new, "fds_slope_per_minute_median"),
    )
    if old is not None and now is not None and now > max(old, 0) + FD_GROWTH:
        yield "descriptors", f"{old:.0f} -> {now:.0f} a minute"


def _hostile(base: Row, new: Row) -> Iterator[tuple[str, str]]:
    factor, p99 = number(new, "p99_factor_median"), number(new, "latency_p99_median_ms")
    old = number(base, "p99_factor_median")
    if factor and p99 and old and p99 > HOSTILE_MS and factor > HOSTILE_FACTOR:
        if factor > old * (1 + P95_GROWTH):
            yield "hostile", f"p99 of the steady load ×{old:.1f} -> ×{factor:.1f}"


Guard = Callable[[Row, Row], Iterator[tuple[str, str]]]
GUARDS: tuple[Guard, ...] = (_errors, _throughput, _p95, _cpu, _memory, _hostile)


#: The yardsticks themselves are only checked for errors.
YARDSTICKS = {
    "direct", "direct-again", "lean", "relay", "relay-splice", "relay-socks"
}  # fmt: skip


def guards_of(scenario: str, proxy: str) -> tuple[Guard, ...]:
    """Return the checks of a row. The set-up rate of idle tunnels is not among them: it
    is a burst of a tenth of a second, and connect-setup measures it."""
    if proxy in YARDSTICKS:
        return (_errors,)
    resting = scenario.startswith("idle")
    return tuple(g for g in GUARDS if not (resting and g is _throughput))


def check_order(rows: dict[tuple[str, str], Row]) -> list[Finding]:
    """Return violations of the expected order in one run: the run is then not valid.

    direct ≥ relay ≥ a forward proxy where all keep their connections; keep-alive ≥ a
    new connection for each request.
    """
    findings = []

    def rate(scenario: str, proxy: str) -> float:
        row = rows.get((scenario, proxy), {})
        return 0.0 if row.get("unstable") else number(row, "throughput_median_rps") or 0

    for scenario, proxy in rows:
        mine = rate(scenario, proxy)
        if not mine:
            continue
        above = "direct" if proxy in ("lean", "relay") else "relay"
        if scenario.startswith("plain-keepalive") and "direct" not in proxy:
            other = rate(scenario, above)
            if proxy != "relay-splice" and other and mine > other * (1 + ORDER_SLACK):
                findings.append(
                    Finding(
                        scenario,
                        proxy,
                        "order",
                        f"{mine:.0f}/s > {above} {other:.0f}/s",
                    )
                )
        if scenario == NEW_CONNECTION:
            kept = rate(KEEP_ALIVE, proxy)
            if kept and mine > kept * (1 + ORDER_SLACK):
                text = f"{mine:.0f}/s > {KEEP_ALIVE} {kept:.0f}/s"
                findings.append(Finding(scenario, proxy, "order", text))
    return findings


def check_unused(rows: dict[tuple[str, str], Row]) -> list[Finding]:
    """Return where features cost requests that do not use them, in one run."""
    unused, own = (number(rows.get((KEEP_ALIVE, name), {}), "cpu_ratio")
                   for name in (UNUSED, "cutthrough"))
    if unused and own and unused > own * (1 + UNUSED_GROWTH):
        text = f"{unused / own - 1:+.0%} CPU time for requests without them"
        return [Finding(KEEP_ALIVE, UNUSED, "unused", text)]
    return []


def compare(
    base: dict[tuple[str, str], Row], new: dict[tuple[str, str], Row]
) -> list[Finding]:
    """Return every guardrail that NEW exceeds, and the rows of BASE that it lacks."""
    findings = []
    for (scenario, proxy), old in base.items():
        now = new.get((scenario, proxy))
        if now is None:
            findings.append(
                Finding(scenario, proxy, "missing", "not in the new result")
            )
            continue
        for guard in guards_of(scenario, proxy):
            for figure, text in guard({} if old.get("failed") else old, now):
                findings.append(Finding(scenario, proxy, figure, text))
    for key in new.keys() - base.keys():
        for figure, text in _errors({}, new[key]):
            findings.append(Finding(*key, figure, text))
    return findings + check_order(new) + check_unused(new)


def main(base_file: Path, new_file: Path) -> int:
    if recording.is_result(base_file):
        return recording.compare_stored(base_file, new_file)
    (base, old_cpu), (new, cpu) = read_summaries(base_file), read_summaries(new_file)
    if cpu != old_cpu:  # the one figure that is a time and no ratio
        print("perf_skipped figure=copies reason=measured_on_another_CPU")
        for row in base.values():
            row.pop(COPIES, None)
    for (scenario, proxy), row in new.items():
        if row.get("unstable"):
            print(
                f"perf_unstable scenario={scenario} proxy={proxy}"
                f" throughput_cv={row['throughput_cv']:.2f}: judged by its best run"
            )
    findings = compare(base, new)
    for finding in findings:
        print(finding)
    if not findings:
        print(f"perf_compared rows={len(base)}: nothing has become worse")
    return 1 if findings else 0
