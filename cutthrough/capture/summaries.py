"""Captured exchanges together: each host's, and the slowest ones.

They are counted when the rows are read, newest first, because any filter may choose
them, and both stores must give the same.
"""

import heapq
from collections.abc import Iterable
from typing import Any

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
