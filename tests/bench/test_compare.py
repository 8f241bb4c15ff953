"""Guardrails: each deliberate fault is caught by name, and nothing else is."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from bench import compare, measure, summary
from bench.origin import Origin
from bench.summary import summarise
from tests.bench.servers import needs_compiler, needs_nginx

Key = tuple[str, str]
GOOD: dict[str, Any] = {
    "runs": 3, "ratio": 0.8, "p95_ratio": 1.2, "cpu_ratio": 1.2,
    "throughput_median_rps": 40_000.0, "throughput_max_rps": 41_000.0,
    "uss_bytes_per_tunnel_median": 900.0, "rss_after_median_kib": 60_000.0,
    "user_mean_us_per_mib": 20.0, "most_requests": 100_000,
    "rss_growth_bytes_per_request_median": 5.0, "p99_factor_median": 1.1,
    "latency_p99_median_ms": 9.0, "fds_slope_per_minute_median": 0.0,
}  # fmt: skip


def rows(**changed: Any) -> dict[Key, compare.Row]:
    row = {"scenario": "bulk", "proxy": "cutthrough", **GOOD, **changed}
    return {("bulk", "cutthrough"): row}


def figures(base: dict[Key, compare.Row], new: dict[Key, compare.Row]) -> list[str]:
    return [finding.figure for finding in compare.compare(base, new)]


@pytest.mark.parametrize(
    ("changed", "figure"),
    [
        ({"ratio": 0.67}, "throughput"),
        ({"ratio": 0.67, "of_direct": 0.94}, "throughput"),
        ({"p95_ratio": 1.45}, "p95"),
        ({"cpu_ratio": 1.45}, "cpu"),
        ({"user_mean_us_per_mib": 31.0}, "copies"),
        ({"uss_bytes_per_tunnel_median": 991.0}, "memory_per_tunnel"),
        ({"rss_after_median_kib": 60_000 + (129 << 10)}, "memory"),
        ({"rss_growth_bytes_per_request_median": 600.0}, "leak"),
        ({"fds_slope_per_minute_median": 60.0}, "descriptors"),
        ({"p99_factor_median": 2.5}, "hostile"),
        ({"failed": 1, "reason": "1 errors"}, "errors"),
        ({"unstable": "yes", "ratio": 0.6}, "throughput"),
    ],
)
def test_each_guardrail_names_its_figure(changed: dict[str, Any], figure: str) -> None:
    assert figures(rows(), rows(**changed)) == [figure]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"ratio": 0.6, "of_direct": 0.95},
        {"ratio": 0.69},
        {"p95_ratio": 1.43},
        {"throughput_median_rps": 400.0},  # another machine: only ratios count
        {"uss_bytes_per_tunnel_median": 960.0},
        # Too few requests to call it a leak: a pool that fills.
        {"rss_growth_bytes_per_request_median": 600.0, "most_requests": 1000},
        # A doubled p99 that no user feels.
        {"p99_factor_median": 2.5, "latency_p99_median_ms": 1.0},
        # One of its runs was as fast as ever.
        {"unstable": "yes", "ratio": 0.6, "throughput_max_rps": 60_000.0},
        # The latency of an unstable row is not known.
        {"unstable": "yes", "p95_ratio": 3.0},
    ],
)
def test_what_is_within_the_guardrails_passes(changed: dict[str, Any]) -> None:
    assert figures(rows(), rows(**changed)) == []


def test_yardsticks_are_judged_by_their_errors_alone() -> None:
    base, slow, void = (
        {("bulk", "relay"): {**GOOD, **changed}}
        for changed in ({}, {"ratio": 0.1}, {"failed": 1, "reason": "1 errors"})
    )
    assert figures(base, slow) == []
    assert figures(base, void) == ["errors"]


def test_a_row_that_is_gone_is_named() -> None:
    assert figures(rows(), {}) == ["missing"]


def test_a_new_row_with_errors_is_named() -> None:
    new = rows() | {("page", "squid"): {"runs": 3, "failed": 3, "reason": "no"}}
    assert figures(rows(), new) == ["errors"]


def rate(scenario: str, proxy: str, rps: float) -> dict[Key, compare.Row]:
    row = {"scenario": scenario, "proxy": proxy, "throughput_median_rps": rps}
    return {(scenario, proxy): row}


def test_what_is_out_of_order_is_named() -> None:
    """A proxy faster than the relay, a relay faster than none: a pipe was measured."""
    in_order = rate("plain-keepalive", "direct", 90_000.0)
    in_order |= rate("plain-keepalive", "relay", 60_000.0)
    in_order |= rate("plain-keepalive", "cutthrough", 50_000.0)
    in_order |= rate("plain-new", "cutthrough", 20_000.0)
    assert compare.check_order(in_order) == []
    for faster in (
        rate("plain-keepalive", "relay", 110_000.0),
        rate("plain-keepalive", "cutthrough", 70_000.0),
        rate("plain-new", "cutthrough", 60_000.0),
    ):
        findings = [str(f) for f in compare.check_order(in_order | faster)]
        assert any(f"scenario={next(iter(faster))[0]}" in text for text in findings)


def test_features_that_a_request_does_not_use_cost_it_nothing() -> None:
    def both(unused: float) -> dict[Key, compare.Row]:
        return {("plain-keepalive", name): {"scenario": "plain-keepalive",
                                            "proxy": name, "cpu_ratio": ratio}
                for name, ratio in (("cutthrough", 1.2), ("cutthrough-unused", unused))}

    assert compare.check_unused(both(1.25)) == []
    (finding,) = compare.check_unused(both(1.5))
    assert "figure=unused: +25% CPU time" in str(finding)


def test_the_exit_status_tells(tmp_path: Path, capsys: Any) -> None:
    base, new = tmp_path / "base.json", tmp_path / "new.json"
    base.write_text(json.dumps({"summaries": list(rows().values())}))
    new.write_text(json.dumps({"summaries": list(rows(ratio=0.5).values())}))
    assert compare.main(base, base) == 0
    assert compare.main(base, new) == 1
    output = capsys.readouterr().out
    assert "scenario=bulk proxy=cutthrough figure=throughput" in output


def test_a_time_is_compared_on_the_same_cpu_only(tmp_path: Path, capsys: Any) -> None:
    """All other figures are ratios, memory or counts."""
    runs = (("base", "A", 10.0), ("new", "A", 40.0), ("far", "B", 40.0))
    for name, cpu, user in runs:
        row = rows(user_mean_us_per_mib=user)
        result = {"environment": {"cpu": cpu}, "summaries": list(row.values())}
        (tmp_path / name).write_text(json.dumps(result))
    assert compare.main(tmp_path / "base", tmp_path / "new") == 1
    assert compare.main(tmp_path / "base", tmp_path / "far") == 0
    assert "figure=copies reason=measured_on_another_CPU" in capsys.readouterr().out


def test_a_time_is_read_by_the_speed_of_the_day() -> None:
    """If the yardstick needs more or less time, the proxy does, too."""
    base = rows(cpu_us_per_request_median=400.0)
    slow = {"cpu_us_per_request_median": 600.0, "user_mean_us_per_mib": 40.0}
    assert figures(base, rows(**slow)) == []
    assert figures(base, rows(**slow, cpu_ratio=1.8)) == ["cpu", "copies"]
    fast = {"cpu_us_per_request_median": 200.0, "user_mean_us_per_mib": 20.0}
    assert figures(base, rows(**fast)) == ["copies"]


# ---- the same with real faults, in a real relay ----


@functools.cache
def subject(
    fault: str, scenario: str, seconds: float, attempt: int
) -> dict[Key, compare.Row]:
    """Two interleaved repetitions of the relay, and of a relay with this fault."""
    measured: list[summary.Row] = []
    with Origin() as origin:
        for repetition in (1, 2):
            for name, proxy in (("relay", "relay"), ("subject", f"relay{fault}")):
                row = measure.run_once(scenario, proxy, origin, seconds)
                row |= {"scenario": scenario, "proxy": name, "repetition": repetition}
                measured.append(row)
    return {(str(r["scenario"]), str(r["proxy"])): r for r in summarise(measured)}


@needs_nginx
@needs_compiler
@pytest.mark.parametrize(
    ("fault", "scenario", "seconds", "figure"),
    [
        ("sleep", "plain-keepalive", 1, "throughput"),
        ("leak", "plain-keepalive", 2, "leak"),
        ("copy", "bulk", 2, "copies"),
        ("status", "plain-keepalive", 3, "errors"),
    ],
)
@pytest.mark.slow
def test_a_deliberate_fault_is_caught_by_name(
    fault: str, scenario: str, seconds: float, figure: str
) -> None:
    """The kernel samples which part of the time is user CPU, so beside other work a
    short run may miss a copy."""
    for attempt in range(4):
        base = subject("", scenario, 2 if scenario == "bulk" else 1, attempt)
        new = subject(f"-{fault}", scenario, seconds, attempt)
        findings = [f for f in compare.compare(base, new) if f.proxy == "subject"]
        if figure in [finding.figure for finding in findings]:
            break
    assert figure in [finding.figure for finding in findings], (base, new)
    assert all(f"scenario={scenario} proxy=subject" in str(f) for f in findings)
