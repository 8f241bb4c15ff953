"""Requests by rule and by group as metrics, of the rows that workers write."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, Exemplar, Metric

from cutthrough.session.model.counters import TALLIES

KINDS = {"rule": "the rule that decided", "group": "the group of their user"}
RESULTS = ("passed", "refused")


class Pages(Protocol):
    @property
    def pages(self) -> Sequence[Mapping[str, int]]: ...


def collect(r: Pages) -> Iterator[Metric]:
    """Without `rule_metrics` these have no values. A refusal's exemplar has the id that
    the request refused last has in the log."""
    tallies = read_tallies(r)
    for kind, what in KINDS.items():
        family = CounterMetricFamily(
            f"cutthrough_{kind}_requests",
            f"Requests and tunnels that ended, by {what}.",
            labels=[kind, "result"])
        for name, counts in sorted(tallies.items()):
            if name.partition(" ")[0] not in (kind, "others"):
                continue
            label = name.partition(" ")[2] or "others"
            family.add_metric([label, "passed"], counts["passed"])
            family.add_metric([label, "refused"], counts["refused"], exemplar=Exemplar(
                {"request_id": f"{counts['worker']}-{counts['id']}"}, 1.0,
                counts["at_ms"] / 1000) if counts["id"] else None)
        yield family


def read_tallies(r: Pages) -> dict[str, dict[str, int]]:
    """Returns, by name of a rule and with its kind, the sums of all workers, and the id
    of the last request that was refused, with the number of its worker."""
    tallies: dict[str, dict[str, int]] = {}
    for page in r.pages:
        for key, value in page.items():
            if not key.startswith("tally:"):
                continue
            name, _, word = key.removeprefix("tally:").partition("\n")
            row = tallies.setdefault(name, dict.fromkeys(TALLIES, 0))
            if word in RESULTS:
                row[word] += value
            elif word == "at_ms" and value > row["at_ms"]:
                row |= {word: page[f"tally:{name}\n{word}"]
                        for word in TALLIES if word not in RESULTS}
    return tallies
