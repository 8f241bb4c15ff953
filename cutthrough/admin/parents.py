"""The parents as the workers' pages have them: for metrics, and for /parents.

Each worker has a state of its own, because it judges its parents by its own requests.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from cutthrough.policy.parents import LOSSES
from cutthrough.session.model.counters import PARENT_STATES, PARENT_TOTALS

US = 1e6
CHECKED = ("ok", "failed")
ENDS = ("used", "lost")         # of connections that waited for a request


class Pages(Protocol):
    """See metrics.Reading."""

    pages: Sequence[Mapping[str, int]]
    living: Mapping[int, Mapping[str, int]]
    workers: Mapping[int, int]


def describe(r: Pages) -> list[dict[str, Any]]:
    """The parents in force: their state in each worker, and the totals of all."""
    parents = []
    for name, totals in sorted(totals_of(r).items()):
        workers = [{"worker": slot, "state": PARENT_STATES[page["state"]],
                    "retry_s": page["retry_ms"] / 1000,
                    "connect_ms": page["setup_us"] / 1000,
                    "standby": page["standby"],
                    "open_requests": page["open"]}
                   for slot, page in gauges_of(r, name) if page["state"]]
        if workers:
            parents.append({
                "name": name, "workers": workers, "requests": totals["requests"],
                "connects": totals["connects"],
                "failures": {reason: totals[f"lost {reason}"] for reason in LOSSES},
                "checks": {result: totals[f"checks {result}"] for result in CHECKED},
                "standby": {end: totals[f"standby {end}"] for end in ENDS}})
    return parents


def totals_of(r: Pages) -> dict[str, dict[str, int]]:
    """The totals by parent, those of ended workers and of former parents included."""
    sums: dict[str, dict[str, int]] = {}
    for page in r.pages:
        for key, value in page.items():
            if key.startswith("parent:"):
                name, _, word = key.removeprefix("parent:").partition(" ")
                row = sums.setdefault(name, dict.fromkeys(PARENT_TOTALS, 0))
                if word in row:
                    row[word] += value
    return sums


def gauges_of(r: Pages, name: str) -> Iterator[tuple[int, dict[str, int]]]:
    """The slot, and the words about this parent, of each running worker."""
    start = f"parent:{name} "
    for slot, pid in sorted(r.workers.items()):
        about = {key.removeprefix(start): value
                 for key, value in r.living.get(pid, {}).items()
                 if key.startswith(start)}
        if about:
            yield slot, about


def collect(r: Pages) -> Iterator[Metric]:
    """Without parents these have no values."""
    requests = CounterMetricFamily(
        "cutthrough_parent_requests", "Requests and tunnels that took this parent.",
        labels=["parent"])
    failures = CounterMetricFamily(
        "cutthrough_parent_failures", "Connections through a parent that were not "
        "made, by reason.", labels=["parent", "reason"])
    checks = CounterMetricFamily(
        "cutthrough_parent_checks", "Checks of a parent, by one of the workers each.",
        labels=["parent", "result"])
    connects = SummaryMetricFamily(
        "cutthrough_parent_connect_seconds", "Time from the dial to a parent to its "
        "last answer.", labels=["parent"])
    state = GaugeMetricFamily(
        "cutthrough_parent_workers", "Workers in which the parent is up, or passed "
        "over: its circuit is open, or its check has failed.",
        labels=["parent", "state"])
    in_hand = GaugeMetricFamily(
        "cutthrough_parent_open_requests", "Requests and tunnels through a parent, "
        "open now.", labels=["parent"])
    ready = GaugeMetricFamily(
        "cutthrough_parent_standby_connections", "Connections to a parent that wait "
        "for a request.", labels=["parent"])
    waited = CounterMetricFamily(
        "cutthrough_parent_standby", "Connections to a parent that waited: used by a "
        "request, or lost: ended by the parent, or not made.",
        labels=["parent", "end"])
    for name, totals in sorted(totals_of(r).items()):
        requests.add_metric([name], totals["requests"])
        for reason in LOSSES:
            failures.add_metric([name, reason], totals[f"lost {reason}"])
        for result in CHECKED:
            checks.add_metric([name, result], totals[f"checks {result}"])
        for end in ENDS:
            waited.add_metric([name, end], totals[f"standby {end}"])
        connects.add_metric([name], count_value=totals["connects"],
                            sum_value=totals["connects_us"] / US)
        rows = [about for _, about in gauges_of(r, name)]
        if any(row["state"] for row in rows):
            for number, word in enumerate(PARENT_STATES):
                if word:
                    state.add_metric([name, word], sum(
                        row["state"] == number for row in rows))
        for family, word in ((in_hand, "open"), (ready, "standby")):
            family.add_metric([name], sum(
                page.get(f"parent:{name} {word}", 0) for page in r.living.values()))
    yield from (requests, failures, checks, connects, state, in_hand, ready, waited)
