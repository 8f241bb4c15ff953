"""The parents, and the servers of named origins, as the workers' pages have them: for
metrics, for /parents and for /origins.

Each worker has a state of its own, because it judges them by its own requests. A
server's row has the name ORIGIN/HOST:PORT.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from cutthrough.policy.parents import LOSSES, LOSSES_OF_SERVERS
from cutthrough.session.model.counters import PARENT_STATES, PARENT_TOTALS

US = 1e6
CHECKED = ("ok", "failed")
ENDS = ("used", "lost")         # of connections that waited for a request


class Pages(Protocol):
    """See metrics.Reading."""

    pages: Sequence[Mapping[str, int]]
    living: Mapping[int, Mapping[str, int]]
    workers: Mapping[int, int]


class Kind(NamedTuple):
    """How rows of a kind are exported. `losses`: reasons of failures, by the reasons of
    a row."""

    word: str
    labels: tuple[str, ...]
    who: str
    losses: Mapping[str, str]


PARENT = Kind("parent", ("parent",), "a parent", {reason: reason for reason in LOSSES})
SERVER = Kind("origin", ("origin", "server"), "a server of a named origin",
              LOSSES_OF_SERVERS)


def describe(r: Pages) -> list[dict[str, Any]]:
    """The parents in force: their state in each worker, and the totals of all."""
    return [{"name": name, **row, "standby": {
        end: totals[f"standby {end}"] for end in ENDS}}
        for name, row, totals in _rows(r, PARENT)]


def describe_origins(r: Pages) -> list[dict[str, Any]]:
    """The named origins in force, and the same of each of their servers."""
    origins: dict[str, list[dict[str, Any]]] = {}
    for name, row, _ in _rows(r, SERVER):
        origin, _, server = name.partition("/")
        for worker in row["workers"]:
            del worker["standby"]
        origins.setdefault(origin, []).append({"server": server, **row})
    return [{"name": name, "servers": servers} for name, servers in origins.items()]


def _rows(r: Pages, kind: Kind) -> Iterator[tuple[str, dict[str, Any], dict[str, int]]]:
    for name, totals in sorted(totals_of(r, kind).items()):
        workers = [{"worker": slot, "state": PARENT_STATES[page["state"]],
                    "retry_s": page["retry_ms"] / 1000,
                    "connect_ms": page["setup_us"] / 1000,
                    "standby": page["standby"],
                    "open_requests": page["open"]}
                   for slot, page in gauges_of(r, name) if page["state"]]
        if workers:
            yield name, {
                "workers": workers, "requests": totals["requests"],
                "connects": totals["connects"],
                "failures": {reason: totals[f"lost {of_row}"]
                             for of_row, reason in kind.losses.items()},
                "checks": {result: totals[f"checks {result}"] for result in CHECKED},
            }, totals


def totals_of(r: Pages, kind: Kind = PARENT) -> dict[str, dict[str, int]]:
    """The totals by name, those of ended workers and of former rows included."""
    sums: dict[str, dict[str, int]] = {}
    for page in r.pages:
        for key, value in page.items():
            if key.startswith("parent:"):
                name, _, word = key.removeprefix("parent:").partition(" ")
                if ("/" in name) != (kind is SERVER):
                    continue
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
    """Without parents and named origins these have no values."""
    ready = GaugeMetricFamily(
        "cutthrough_parent_standby_connections", "Connections to a parent that wait "
        "for a request.", labels=["parent"])
    waited = CounterMetricFamily(
        "cutthrough_parent_standby", "Connections to a parent that waited: used by a "
        "request, or lost: ended by the parent, or not made.",
        labels=["parent", "end"])
    for name, totals in sorted(totals_of(r).items()):
        for end in ENDS:
            waited.add_metric([name, end], totals[f"standby {end}"])
        ready.add_metric([name], _open(r, name, "standby"))
    yield from (*_collect(r, PARENT), ready, waited, *_collect(r, SERVER))


def _open(r: Pages, name: str, word: str) -> int:
    return sum(page.get(f"parent:{name} {word}", 0) for page in r.living.values())


def _collect(r: Pages, kind: Kind) -> Iterator[Metric]:
    start, who, labels = f"cutthrough_{kind.word}", kind.who, [*kind.labels]
    requests = CounterMetricFamily(
        f"{start}_requests", f"Requests and tunnels that took {who}.", labels=labels)
    failures = CounterMetricFamily(
        f"{start}_failures", f"Failures of {who} to connect or to answer, by reason.",
        labels=[*labels, "reason"])
    checks = CounterMetricFamily(
        f"{start}_checks", f"Checks of {who}, by one of the workers each.",
        labels=[*labels, "result"])
    connects = SummaryMetricFamily(
        f"{start}_connect_seconds", f"Time from the dial to {who} to the end of its "
        "set-up.", labels=labels)
    state = GaugeMetricFamily(
        f"{start}_workers", f"Workers in which {who} is up, or passed over: its "
        "circuit is open, or its check has failed.", labels=[*labels, "state"])
    in_hand = GaugeMetricFamily(
        f"{start}_open_requests", f"Requests and tunnels through {who}, open now.",
        labels=labels)
    for name, totals in sorted(totals_of(r, kind).items()):
        values = name.split("/", len(labels) - 1)
        requests.add_metric(values, totals["requests"])
        for of_row, reason in kind.losses.items():
            failures.add_metric([*values, reason], totals[f"lost {of_row}"])
        for result in CHECKED:
            checks.add_metric([*values, result], totals[f"checks {result}"])
        connects.add_metric(values, count_value=totals["connects"],
                            sum_value=totals["connects_us"] / US)
        rows = [about for _, about in gauges_of(r, name)]
        if any(row["state"] for row in rows):
            for number, word in enumerate(PARENT_STATES):
                if word:
                    state.add_metric([*values, word], sum(
                        row["state"] == number for row in rows))
        in_hand.add_metric(values, _open(r, name, "open"))
    yield from (requests, failures, checks, connects, state, in_hand)
