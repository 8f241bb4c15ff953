"""The bundle in force, and requests for bundles, as metrics."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cutthrough.process.bundle_state import RESULTS, BundleState


class Bundles(Protocol):
    @property
    def bundle(self) -> BundleState | None: ...


def collect(r: Bundles) -> Iterator[Metric]:
    """Without bundles the gauges have no values, so that no alert fires."""
    state = r.bundle
    info = GaugeMetricFamily("cutthrough_bundle_info", "The revision of the bundle in "
                             "force, as a label; always 1.", labels=["revision"])
    serial = GaugeMetricFamily("cutthrough_bundle_serial",
                               "The serial of the bundle in force.")
    answered = GaugeMetricFamily(
        "cutthrough_bundle_last_answer_timestamp_seconds",
        "Unix time at which the source of bundles answered last.")
    if state is not None:
        info.add_metric([state.revision], 1)
        serial.add_metric([], state.serial)
        answered.add_metric([], state.answered_at)
    polls = CounterMetricFamily("cutthrough_bundle_polls", "Requests for bundles.",
                                labels=["result"])
    for result in RESULTS:
        polls.add_metric([result], state.polls[result] if state else 0)
    yield from (info, serial, answered, polls)
