"""The summary of the runs of one scenario and proxy: medians, spread, ratios.

Ratios pair the runs of one repetition, which are neighbours in time, so that
disturbances of the machine cancel. `ratio_to_*` compares throughput,
`p95_ratio` latency and `cpu_ratio` CPU per request, each with the yardstick of the
scenario, the relay that does the same work.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from bench.scenarios import SCENARIOS

Row = dict[str, object]

#: A coefficient of variation above this is shown as unstable, not as a result.
CV_LIMIT = 0.20

#: Keys whose medians are omitted, because they are given elsewhere or once.
_NOT_MEDIAN = {
    "repetition", "repetitions", "errors", "success", "seconds", "origin_requests",
    "requests", "bytes_total", "cpu_seconds", "rss_before_kib",
}  # fmt: skip
_UNITS = ("_rps", "_ms", "_kib", "_percent", "_per_s", "_us_per_mib")


def median_name(key: str) -> str:
    """throughput_rps -> throughput_median_rps: the unit stays at the end."""
    for unit in _UNITS:
        if key.endswith(unit) and key != unit.strip("_"):
            return f"{key.removesuffix(unit)}_median{unit}"
    return f"{key}_median"


def number(row: Row, key: str) -> float | None:
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) else None


def _group(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row["scenario"]), str(row["proxy"])), []).append(row)
    return groups


def is_unstable(values: list[float]) -> bool:
    """Do they vary too much to be a result?"""
    if len(values) < 2 or statistics.mean(values) <= 0:
        return False
    return statistics.stdev(values) / statistics.mean(values) > CV_LIMIT


def _medians(runs: list[Row]) -> Row:
    summary: Row = {}
    for key in dict.fromkeys(key for run in runs for key in run):
        values = [value for run in runs if (value := number(run, key)) is not None]
        if key not in _NOT_MEDIAN and len(values) == len(runs):
            summary[median_name(key)] = statistics.median(values)
    # Ticks of 10 ms: all runs together, because the median of a few ticks is one tick.
    user = [value for run in runs if (value := number(run, "user_us_per_mib"))]
    if user or "user_median_us_per_mib" in summary:
        summary["user_mean_us_per_mib"] = sum(user) / len(runs)
    requests = [n for run in runs if (n := number(run, "requests"))]
    if requests:
        summary["most_requests"] = max(requests)
    rates = [rate for run in runs if (rate := number(run, "throughput_rps"))]
    if rates:
        spread = statistics.stdev(rates) / statistics.mean(rates) if rates[1:] else 0.0
        summary |= {
            "throughput_min_rps": min(rates),
            "throughput_max_rps": max(rates),
            "throughput_cv": spread,
        }
        if spread > CV_LIMIT:
            summary["unstable"] = "yes"
    return summary


def paired(runs: list[Row], base: list[Row], key: str) -> list[float]:
    """Return the ratio of `key` in each repetition that both have."""
    of_base = {row.get("repetition"): number(row, key) for row in base}
    ratios = []
    for run in runs:
        value, other = number(run, key), of_base.get(run.get("repetition"))
        if value is not None and other:
            ratios.append(value / other)
    return ratios


def summarise(rows: list[Row]) -> list[Row]:
    """Return one row per scenario and proxy; a group with a void run has no figures."""
    groups = _group(rows)
    good = {
        key: [] if any("failed" in run for run in runs) else runs
        for key, runs in groups.items()
    }
    summaries = []
    for (scenario, proxy), runs in groups.items():
        summary: Row = {"scenario": scenario, "proxy": proxy, "runs": len(runs)}
        summaries.append(summary)
        if void := [run for run in runs if "failed" in run]:
            summary |= {"failed": len(void), "reason": void[0]["failed"]}
            continue
        summary |= _medians(runs)
        yardstick = SCENARIOS[scenario].yardstick
        for other, key, label in (
            ("relay", "throughput_rps", "ratio_to_relay"),
            ("direct", "throughput_rps", "ratio_to_direct"),
            (yardstick, "throughput_rps", "ratio"),
            (yardstick, "latency_p95_ms", "p95_ratio"),
            (yardstick, "cpu_us_per_request", "cpu_ratio"),
        ):
            if other == proxy:
                continue
            ratios = paired(runs, good.get((scenario, other), []), key)
            if ratios:
                summary[label] = statistics.median(ratios)
                summary["yardstick"] = yardstick
                if label.startswith("ratio_to_"):
                    summary |= {
                        f"{label}_min": min(ratios),
                        f"{label}_max": max(ratios),
                    }
    return summaries
