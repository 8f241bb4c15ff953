"""Captured exchanges together: each host's, the slowest ones, failures, statistics.

They are counted when the rows are read, newest first, because any filter may choose
them, and both stores must give the same.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from cutthrough.capture.shown import show_row
from cutthrough.exchange.flow import Flow


def by_host(flows: Iterable[Flow]) -> list[dict[str, Any]]:
    """`host`, `count`, `failed`, `bytes` both ways; those with the most first."""
    rows: dict[str, dict[str, Any]] = {}
    for flow in flows:
        host = flow.host or ""
        row = rows.get(host)
        if row is None:
            row = rows[host] = {"host": host, "count": 0, "failed": 0, "bytes": 0}
        row["count"] += 1
        row["failed"] += flow.has_failed
        row["bytes"] += (flow.bytes_up or 0) + (flow.bytes_down or 0)
    return sorted(rows.values(), key=lambda row: (-row["count"], row["host"]))


def slowest(flows: Iterable[Flow], most: int) -> list[Flow]:
    """The slowest first. Without tunnels, because these last as long as they are in
    use."""
    return heapq.nlargest(most, (flow for flow in flows if flow.kind != "tunnel"),
                          key=lambda flow: flow.total_us or 0)


def by_failure(flows: Iterable[Flow]) -> list[dict[str, Any]]:
    """Returns a row for each failure: `reason`, `fault`, `status`, `rule`, `count`, and
    of the newest flow `id` and `host`; the most frequent first."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for flow in flows:
        if not flow.has_failed:
            continue
        key = flow.reason, flow.status, flow.rule
        row = rows.get(key)
        if row is None:
            row = rows[key] = {
                "reason": flow.reason, "fault": flow.fault, "status": flow.status,
                "rule": flow.rule, "count": 0, "id": flow.id, "host": flow.host}
        row["count"] += 1
    return sorted(rows.values(), key=lambda row: -row["count"])


def statistics(flows: Iterable[Flow], most: int) -> dict[str, Any]:
    """Numbers of all; of each kind at most so many values, the most frequent ones.
    Durations are in ms, without tunnels'."""
    counts = Counter[str]()
    kinds = {name: Counter[str]() for name in ("status", "method", "type")}
    ms: list[float] = []
    for flow in flows:
        counts["count"] += 1
        counts["failed"] += flow.has_failed
        counts["tunnels"] += flow.kind == "tunnel"
        counts["bytes_up"] += flow.bytes_up or 0
        counts["bytes_down"] += flow.bytes_down or 0
        kinds["status"][str(flow.status or "none")] += 1
        kinds["method"][flow.method or ""] += 1
        kinds["type"][flow.response_type.partition(";")[0].strip().lower()] += 1
        if flow.kind != "tunnel":
            ms.append((flow.total_us or 0) / 1000)
    ms.sort()
    return {**counts, **{name: dict(values.most_common(most))
                         for name, values in kinds.items()},
            "ms": {name: ms[int(part * (len(ms) - 1))] for name, part in (
                ("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1))}
            if ms else {}}


def _bounded(name: str, group: Callable[[Iterable[Flow]], list[dict[str, Any]]]
             ) -> "Summary":
    def summarize(flows: Iterable[Flow], limit: int) -> tuple[dict[str, Any], int]:
        rows = group(flows)
        shown = rows[:limit]
        return {name: shown, "left": len(rows) - len(shown)}, len(rows)

    return summarize


def _slowest(flows: Iterable[Flow], limit: int) -> tuple[dict[str, Any], int]:
    rows = slowest(flows, limit)
    return {"flows": list(map(show_row, rows))}, len(rows)


def _statistics(flows: Iterable[Flow], limit: int) -> tuple[dict[str, Any], int]:
    sums = statistics(flows, limit)
    return sums, sums.get("count", 0)


Summary = Callable[[Iterable[Flow], int], tuple[dict[str, Any], int]]
# What the admin listener answers, and the number of rows for the log of reads
SUMMARIES: dict[str, Summary] = {
    "hosts": _bounded("hosts", by_host), "failures": _bounded("failures", by_failure),
    "slowest": _slowest, "statistics": _statistics}
