"""The counters of all workers as Prometheus metrics; docs/conventions.md names them.

Everything is read from the workers' shared pages, so a scrape interrupts no worker.
Labels come from the proxy's own tables and configuration, never from the wire (R38).
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import psutil
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import (
    CONTENT_TYPE_LATEST as OPENMETRICS,
)
from prometheus_client.openmetrics.exposition import (
    generate_latest as generate_openmetrics,
)
from prometheus_client.registry import Collector, CollectorRegistry

import cutthrough
from cutthrough.admin import bundle_metrics, fleet_metrics, parents, rule_metrics
from cutthrough.net.buffers import SHARES
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.process.bundle_state import BundleState
from cutthrough.process.fleet_state import FleetState, RegistryState
from cutthrough.session.model.counters import BUCKETS
from cutthrough.wire.openings import PROTOCOLS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Page = Mapping[str, int]

#: The fates of exchanges that rules capture.
CAPTURE_RESULTS = ("captured", "dropped", "partial", "unwritten", "failed")
#: The kinds of connections closed to make room, by bound.
AT_REST = ("stranger", "head", "guest")
SHED = {"connections": AT_REST, "client": AT_REST, "memory": ("head",),
        "descriptors": (*AT_REST, "pooled"), "handshakes": ("head",)}


class Configuration(NamedTuple):
    """The generation in force in all workers, and since when, in seconds of the epoch;
    requested reloads by result, and whether the last one is in force."""

    generation: int
    since: float
    reloads: Mapping[str, int]
    is_last_in_force: bool = True


class Expiries(NamedTuple):
    """When certificates expire, in seconds of the epoch, by path. `authorities`: our
    own."""

    certificates: Mapping[str, int]
    authorities: Mapping[str, int]


NO_EXPIRIES = Expiries({}, {})


@dataclass(slots=True)
class Reading:
    """The supervisor's figures at one moment.

    `pages`: all counters pages, those of ended workers included, for totals. `living`:
    the pages of running workers by process id, for gauges. `workers`: the process id on
    each slot; 0: none. `deaths`: unexpected ends, by slot. A retired worker is in
    `living`, but not in `workers`. `fleet`, `registry`, `bundle`: None if there is
    none.
    """

    pages: Sequence[Page]
    living: Mapping[int, Page]
    workers: Mapping[int, int]
    deaths: Mapping[int, int]
    configuration: Configuration
    fleet: FleetState | None = None
    registry: RegistryState | None = None
    expiries: Expiries = NO_EXPIRIES
    bundle: BundleState | None = None
    captures: Mapping[str, int] = field(default_factory=dict)   # exchanges, by result
    traces: tuple[int, int] = (0, 0)        # exchanges: exported, and lost

    def total(self, name: str) -> int:
        return sum(page[name] for page in self.pages)

    def totals(self, prefix: str) -> dict[str, int]:
        """Returns the sums of the counters `prefix:label` by label, without zeros."""
        sums: dict[str, int] = {}
        for page in self.pages:
            for name, value in page.items():
                head, _, label = name.partition(":")
                if head == prefix and value:
                    sums[label] = sums.get(label, 0) + value
        return sums

    def lag(self, pid: int) -> float:
        """How late this worker's loop was, in seconds, or is now: a loop that hangs
        writes nothing."""
        page = self.living[pid]
        overdue = time.monotonic() * 1e6 - page["due_us"] if page["due_us"] else 0
        return max(page["lag_us"], overdue) / 1e6

    def listeners(self) -> dict[str, int]:
        """Accepted connections by listening address, zeros included."""
        sums: dict[str, int] = {}
        for page in self.pages:
            for name, value in page.items():
                if name.startswith("accepted:"):
                    label = name.partition(":")[2]
                    sums[label] = sums.get(label, 0) + value
        return sums

    def gauge(self, name: str) -> int:
        return sum(page[name] for page in self.living.values())


def collect(r: Reading) -> Iterator[Metric]:
    yield _gauge("build_info", "The running version, as a label; always 1.",
                 [((cutthrough.__version__,), 1)], ["version"])
    up = GaugeMetricFamily("cutthrough_worker_up",
                           "1 if the slot has a worker that is ready, else 0.",
                           labels=["worker"])
    for slot, pid in sorted(r.workers.items()):
        up.add_metric([str(slot)], pid in r.living)
    yield up
    yield _labelled("worker_deaths", "Workers that ended unexpectedly.",
                    "worker", {str(slot): n for slot, n in r.deaths.items()})
    yield from _connections(r)
    yield from _requests(r)
    yield from _outcomes(r)
    yield from _tls(r)
    yield from parents.collect(r)
    yield from rule_metrics.collect(r)
    yield from _services(r)
    yield from fleet_metrics.collect(r)
    yield from bundle_metrics.collect(r)
    yield from _processes(r)


def _connections(r: Reading) -> Iterator[Metric]:
    states = sorted({name for page in r.living.values() for name in page
                     if name.startswith("state:") and name != "state:CLOSED"})
    yield _gauge("connections", "Open client connections by state.",
                 [((name.partition(":")[2].lower(),), r.gauge(name))
                  for name in states],
                 ["state"])
    yield _labelled("connections", "Accepted client connections.", "listener",
                    r.listeners())
    yield _gauge("connections_peak",
                 "Most client connections open at one time, summed over the workers.",
                 [((), r.total("peak"))])
    yield _counter("connections_refused",
                   "Accepted client connections refused at once because of a limit.",
                   r.total("refused"))
    shed = CounterMetricFamily(
        "cutthrough_connections_shed", "Connections closed to make room for others.",
        labels=["bound", "kind"])
    for bound, kinds in SHED.items():
        for kind in kinds:
            shed.add_metric([bound, kind], r.total(f"shed:{bound} {kind}"))
    yield shed
    yield _counter("starved", "Times that no descriptor, memory or pipe was available.",
                   r.total("starved"))
    yield _gauge("tunnels", "Open tunnels.",
                 [((), sum(r.gauge(f"state:{state}")
                           for state in ("PEEK", "TUNNEL", "HALF_CLOSED")))])


def _requests(r: Reading) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "cutthrough_requests", "Answered requests, CONNECT included.",
        labels=["method", "code"])
    # The usual labels exist from the start, because a rate needs a first value
    replies = {"GET 200": 0, "CONNECT 200": 0} | r.totals("reply")
    for label, value in sorted(replies.items()):
        requests.add_metric(label.split(" "), value)
    yield requests
    moved = CounterMetricFamily("cutthrough_bytes", "Relayed bytes.",
                                labels=["direction", "path"])
    for direction in ("up", "down"):
        spliced = r.total(f"spliced_{direction}")
        moved.add_metric([direction, "copy"], r.total(f"bytes_{direction}") - spliced)
        moved.add_metric([direction, "splice"], spliced)
    yield moved
    yield _histogram("tunnel_duration_seconds", "Lifetime of tunnels.",
                     r, "tunnel_ms")
    connects = HistogramMetricFamily(
        "cutthrough_connect_seconds", "Time to connect to an origin.",
        labels=["family"])
    for family in ("ipv4", "ipv6"):
        connects.add_metric([family], *_buckets(r, f"connect_{family}_ms"))
    yield connects
    yield _histogram("first_byte_seconds", "Time from the connection to the origin to "
                     "the first byte of its response.", r, "first_byte_ms")
    yield _histogram("request_duration_seconds", "Duration of plain requests answered "
                     "by an origin, tunnels excluded.", r, "request_ms")


def _outcomes(r: Reading) -> Iterator[Metric]:
    ended, tunnels = r.totals("outcome"), r.totals("tunnel")
    yield _labelled("tunnels", "Ended tunnels.", "reason",
                    {row.label: tunnels.get(row.label, 0) for row in OUTCOMES})
    protocols = r.totals("protocol")
    yield _labelled("tunnel_protocols", "Tunnels whose first bytes were looked at.",
                    "protocol",
                    {word: protocols.get(word, 0) for word in PROTOCOLS if word})
    every = {row.label: ended.get(row.label, 0) for row in OUTCOMES}
    yield _labelled("ended", "Ended requests and tunnels.", "reason", every)
    yield _labelled("failed", "Of them, those that ended by a fault: of the client, "
                    "the policy, the network, the origin or the proxy.", "reason",
                    {row.label: every[row.label] for row in OUTCOMES if row.fault})
    denied = {row.label: every[row.label] for row in OUTCOMES
              if row.tag == "TCP_DENIED" and row.status != 407}
    yield _labelled("denied", "Requests refused, by policy or by a fault of the "
                    "proxy.", "reason", denied)
    yield _labelled("auth", "Requests by the result of authentication.", "result",
                    {"ok": r.total("identified")}
                    | {row.label: every[row.label] for row in OUTCOMES
                       if row.label.startswith("auth_")})
    yield _labelled("auth_cache", "Look-ups in the cache of verified credentials.",
                    "result",
                    {"hit": r.total("identified") - r.total("verified"),
                     "miss": r.total("verified")})
    yield _gauge("auth_queue", "Credentials whose password hash is queued or being "
                 "computed.", [((), r.gauge("auth_queue"))])
    yield _gauge("auth_held", "Requests answered late because their address failed "
                 "authentication often.", [((), r.gauge("auth_held"))])
    yield _counter("auth_hashes", "Computed password hashes.",
                   r.total("auth_hashes"))
    yield _counter("auth_evicted", "Verified credentials and counts of failures "
                   "evicted to make room.", r.total("auth_evicted"))
    yield _histogram("auth_wait_seconds", "Time that requests with credentials not in "
                     "the cache waited for verification.", r, "auth_wait_ms")
    yield _labelled("connect_errors", "Failed connections to origins.", "reason",
                    {row.label: every[row.label] for row in OUTCOMES
                     if row.fault == "network" and row.status
                     and not row.label.startswith("dns_")})
    yield _labelled("timeouts", "Expired deadlines.", "kind",
                    {row.label.removesuffix("_timeout"): every[row.label]
                     for row in OUTCOMES if row.label.endswith("_timeout")})
    yield _counter("faults", "Connections ended by an internal error.",
                   r.total("faults"))


def _tls(r: Reading) -> Iterator[Metric]:
    yield _labelled("tls_handshakes", "Handshakes of listeners that were completed.",
                    "kind", {kind: r.total(f"tls:{kind}") for kind in (
                        "full", "resumed")})
    yield _gauge("tls_handshakes_under_way", "Handshakes begun and not complete.",
                 [((), r.gauge("tls_under_way"))])
    yield _gauge("tls_connections", "Open connections over TLS, handshakes included.",
                 [((), r.gauge("tls_open"))])
    yield _counter("intercepted_connections", "Connections that were intercepted.",
                   r.total("intercepted"))
    yield _counter("pinned_tunnels", "Tunnels that passed unopened, because clients "
                   "had rejected our certificate.", r.total("pinned"))
    yield _labelled("leaves", "Certificates shown to clients of such connections.",
                    "how", {how: r.total(f"leaf:{how}") for how in ("made", "kept")})
    yield _gauge("tls_certificate_expiry_timestamp_seconds",
                 "When a certificate of a listener, or for a parent, expires.",
                 _by_path(r.expiries.certificates),
                 ["certificate"])
    yield _gauge("ca_certificate_expiry_timestamp_seconds",
                 "When the certificate of ca_certificate or intercept_ca expires.",
                 _by_path(r.expiries.authorities),
                 ["certificate"])


def _by_path(expiries: Mapping[str, int]) -> list[tuple[tuple[str], int]]:
    return [((path,), at) for path, at in sorted(expiries.items())]


def _services(r: Reading) -> Iterator[Metric]:
    yield _labelled("dns_queries", "Host name look-ups.", "result",
                    {name: r.total(f"dns_{name}") for name in (
                        "answered", "not_found", "failed", "hit", "stale",
                        "prefetched", "dropped", "refused")})
    yield _gauge("dns_open_questions", "Look-ups waiting for a name server.",
                 [((), r.gauge("dns_open"))])
    yield _labelled("hook_questions", "Calls of the policy hook.", "result",
                    {name: r.total(f"hook_{name}") for name in (
                        "asked", "failed", "dropped", "refused")})
    yield _labelled("filter_calls", "Calls of functions of filters.", "result",
                    {name: r.total(f"filter_{name}") for name in (
                        "calls", "failed", "overran")})
    yield _labelled("activity_calls", "Calls of functions of the activity tracker.",
                    "result", {name: r.total(f"activity:{name}") for name in (
                        "calls", "failed", "overran", "dropped")})
    yield _counter("activity_call_seconds", "Time from these calls to their ends.",
                   r.total("activity_us") / 1e6)
    yield _labelled("breakpoints", "Requests and responses at breakpoints.", "result",
                    {name: r.total(f"breakpoint:{name}") for name in (
                        "held", "edited", "passed", "aborted", "expired", "skipped")})
    yield _gauge("breakpoint_holds", "Requests and responses that a breakpoint holds.",
                 [((), r.gauge("breakpoint_holds"))])
    yield _gauge("hook_open_questions", "Calls of the policy hook in progress.",
                 [((), r.gauge("hook_open"))])
    yield _gauge("dns_cache_entries", "Host names in the caches.",
                 [((), r.gauge("dns_entries"))])
    yield _gauge("upstream_pool", "Pooled connections to origins.",
                 [(("idle",), r.gauge("upstream_idle"))], ["state"])
    yield _labelled("upstream", "How requests got a connection to their origin; "
                    "retried: sent once more, on a fresh one.", "how",
                    {"dialled": r.total("dialled"), "reused": r.total("reused"),
                     "retried": r.total("retried")})
    ended = r.totals("outcome")
    yield _labelled("drain", "Connections in use when a drain began.", "result",
                    {"finished": r.total("drain_finished"),
                               "cut": ended.get("drained", 0),
                               "stopped": ended.get("stopped", 0)})
    yield _gauge("buffer_bytes", "Memory of buffered bytes, by share.",
                 [((share,), r.gauge(f"held:{share}")) for share in SHARES], ["share"])
    yield _labelled("buffer_refused", "Times that a share of the buffer memory was "
                    "used up.", "share",
                    {share: r.total(f"no_room:{share}") for share in SHARES})
    yield _counter("log_dropped", "Access log lines that could not be written.",
                   r.total("log_dropped"))
    yield _labelled("capture_exchanges", "Exchanges that a rule captures; partial: "
                    "heads and pieces of bodies that found no room.", "result",
                    {result: r.captures.get(result, 0)
                     for result in CAPTURE_RESULTS})
    yield _labelled("trace_exchanges", "Sampled exchanges, by the fate of their spans.",
                    "result", dict(zip(("exported", "lost"), r.traces, strict=True)))
    yield _labelled("recording_requests", "Requests that a rule records; waited: for "
                    "the writer; passed: they went on unrecorded.", "result",
                    {result: r.total(f"recording:{result}") for result in (
                        "waited", "passed")})
    yield _gauge("recording_waiting", "Requests that wait for room to be recorded.",
                 [((), r.gauge("recording_waiting"))])
    yield _gauge("config_generation", "Configuration generation in force in every "
                 "worker.",
                 [((), r.configuration.generation)])
    yield _labelled("reloads", "Requested reloads.", "result", r.configuration.reloads)
    yield _gauge("config_last_reload_successful",
                 "1 if the last requested reload is in force or none was requested, "
                 "else 0.", [((), r.configuration.is_last_in_force)])
    yield _gauge("config_last_reload_success_timestamp_seconds",
                 "Unix time at which the configuration came into force.",
                 [((), r.configuration.since)])
    yield _gauge("loop_lag_seconds", "How late the event loop's timer was in the last "
                 "second, or is now.",
                 [((str(slot),), r.lag(pid))
                  for slot, pid in sorted(r.workers.items()) if pid in r.living],
                 ["worker"])


def _processes(r: Reading) -> Iterator[Metric]:
    cpu = CounterMetricFamily("cutthrough_process_cpu_seconds", "CPU time used.",
                              labels=["worker", "mode"])
    memory = GaugeMetricFamily("cutthrough_process_resident_memory_bytes",
                               "Resident memory.", labels=["worker"])
    fds = GaugeMetricFamily("cutthrough_process_open_fds", "Open file descriptors.",
                            labels=["worker"])
    most_fds = GaugeMetricFamily("cutthrough_process_max_fds",
                                 "Limit of open file descriptors.", labels=["worker"])
    named = {str(slot): pid for slot, pid in sorted(r.workers.items()) if pid}
    for name, pid in (named | {"supervisor": os.getpid()}).items():
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                cpu.add_metric([name, "user"], times.user)
                cpu.add_metric([name, "system"], times.system)
                memory.add_metric([name], process.memory_info().rss)
            fds.add_metric([name], process.num_fds())
            most_fds.add_metric([name], process.rlimit(psutil.RLIMIT_NOFILE)[0])
        except psutil.Error:
            continue                        # the process has just ended
    yield from (cpu, memory, fds, most_fds)


def _gauge(name: str, text: str, values: Sequence[tuple[tuple[str, ...], float]],
           labels: Sequence[str] = ()) -> Metric:
    family = GaugeMetricFamily(f"cutthrough_{name}", text, labels=labels)
    for names, value in values:
        family.add_metric(names, value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"cutthrough_{name}", text, value=value)


def _labelled(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"cutthrough_{name}", text, labels=[label])
    for value_label, value in sorted(values.items()):
        family.add_metric([value_label], value)
    return family


def _histogram(name: str, text: str, r: Reading, counter: str) -> Metric:
    family = HistogramMetricFamily(f"cutthrough_{name}", text)
    family.add_metric([], *_buckets(r, counter))
    return family


def _buckets(r: Reading, counter: str) -> tuple[list[tuple[str, float]], float]:
    """Returns cumulative buckets by upper bound, and the sum, both in seconds."""
    counts = r.totals(counter)
    buckets: list[tuple[str, float]] = []
    so_far = 0
    for bound_ms in BUCKETS:
        so_far += counts.get(str(bound_ms), 0)
        buckets.append((str(bound_ms / 1000), so_far))
    buckets.append(("+Inf", so_far + counts.get("more", 0)))
    return buckets, counts.get("sum_us", 0) / 1e6


class _Once(Collector):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Metric]:
        return collect(self._reading)


def render(reading: Reading, accept: str = "") -> tuple[bytes, str]:
    """Returns the exposition of one reading and its type: OpenMetrics, which has
    exemplars, for a client whose Accept names it, else Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(reading))
    if "application/openmetrics-text" in accept:
        generate: Callable[[CollectorRegistry], bytes] = generate_openmetrics
        return generate(registry), OPENMETRICS
    return generate_latest(registry), CONTENT_TYPE
