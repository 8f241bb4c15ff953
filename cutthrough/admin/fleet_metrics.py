"""Programs that share limits with this one, and those in the registry, as metrics."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cutthrough.process.fleet_state import FAILURES, FleetState, RegistryState


class Fleets(Protocol):
    @property
    def fleet(self) -> FleetState | None: ...
    @property
    def registry(self) -> RegistryState | None: ...


def collect(r: Fleets) -> Iterator[Metric]:
    """Without a fleet, and without a registry, their gauges have no values, so that no
    alert fires."""
    up = GaugeMetricFamily("cutthrough_fleet_up",
                           "1 while limits are shared through Redis, else 0.")
    instances = GaugeMetricFamily("cutthrough_fleet_instances",
                                  "Programs that share limits, this one included.")
    registered = GaugeMetricFamily("cutthrough_fleet_registered",
                                   "1 while this program is in the registry, else 0.")
    programs = GaugeMetricFamily("cutthrough_fleet_programs",
                                 "Programs in the registry, this one included.")
    fleet, registry = r.fleet, r.registry
    if fleet is not None:
        up.add_metric([], fleet.is_up)
        instances.add_metric([], fleet.instances)
    if registry is not None:
        registered.add_metric([], registry.is_registered)
        programs.add_metric([], registry.programs)
    yield from (up, instances, registered, programs)
    yield CounterMetricFamily(
        "cutthrough_fleet_leases_expired", "Programs that left the registry because "
        "their lease ended, as this one was the first to see.",
        value=registry.expired if registry else 0)
    steps = CounterMetricFamily("cutthrough_fleet_steps", "Exchanges with Redis.",
                                labels=["result"])
    renewals = CounterMetricFamily("cutthrough_fleet_renewals",
                                   "Writes of this program's entry.", labels=["result"])
    for result in ("ok", *FAILURES):
        steps.add_metric([result], 0 if fleet is None else fleet.steps if result == "ok"
                         else fleet.failures[result])
        renewals.add_metric([result], 0 if registry is None else registry.renewals
                            if result == "ok" else registry.failures[result])
    yield from (steps, renewals)
