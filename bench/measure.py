"""One run: a fresh proxy, one scenario through it, and its cost.

If the client saw an error, or its count differs from the origin's, the run is void: its
row has `failed` and no figure.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.beside import (
    measure_ceiling,
    measure_crowd,
    measure_tail,
    measure_workers,
)
from bench.children import HERE, BenchError
from bench.clients import (
    CREDENTIALS,
    Counted,
    Held,
    IdleTunnels,
    build_load_command,
    run_load,
    run_load_command,
    run_rate,
    run_siege,
    run_wrk,
    warm_up,
)
from bench.collect import (
    Sampler,
    busy_seconds,
    count_fds,
    cpu_times,
    private_bytes,
    reaped_cpu,
    resident_kib,
)
from bench.cores import placed
from bench.origin import Origin, build_tool
from bench.peers import CACHE
from bench.proxies import FAULTS, PROXIES
from bench.rows import Row, shown
from bench.running import Proxy, Running, Target
from bench.scenarios import (
    SCENARIOS,
    STEADY_CONNS,
    STEADY_RATE,
    STEPS,
    Scenario,
)

MIB = 1 << 20
#: For bodies of this length or more, the cost is also given per MiB.
BULK_BYTES = 64 << 10
ALL_PROXIES: dict[str, Proxy] = {**PROXIES, **FAULTS}


def cannot(scenario: Scenario, proxy: Proxy) -> str:
    """Return the reason if this proxy cannot run this scenario, or nothing."""
    if scenario.socks != proxy.socks:
        return "speaks no SOCKS" if scenario.socks else "speaks SOCKS only"
    if scenario.socks:
        return ""
    if scenario.tunnel and not proxy.tunnels:
        return "knows no CONNECT"
    if not scenario.tunnel and not proxy.plain:
        return "only tunnels"
    if scenario.keeps and not proxy.keeps:
        return "closes after every response"
    if scenario.closes and not proxy.closes:
        return "does not always close when it is asked to"
    return ""


def _check_counts(scenario: Scenario, counted: Counted, origin: Origin) -> int:
    """Return the origin's count; raise if the client's differs.

    At the end of its time wrk drops the requests in flight, at most one a connection,
    without counting them. load waits for all, so its count must be equal.
    """
    in_flight = scenario.conns if scenario.tool == "wrk" else 0
    seen = origin.count_requests(
        counted.requests, scenario.path, cut=in_flight, kind=scenario.endpoint
    )
    if not counted.requests <= seen <= counted.requests + in_flight:
        raise BenchError(f"client counted {counted.requests}, origin {seen}")
    return seen


def _measure_load(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    run = {"wrk": run_wrk, "siege": run_siege}.get(scenario.tool, run_load)
    tree = proxy.tree()
    rss_before, cpu_before = resident_kib(tree), cpu_times(tree)
    origin_before, client_before = cpu_times(origin.tree()).total, reaped_cpu()
    busy, began = busy_seconds(), time.monotonic()
    with Sampler(proxy.tree) as sampler:
        counted, command = run(scenario, proxy, origin, seconds)
    client_cpu = reaped_cpu() - client_before
    origin_cpu = cpu_times(origin.tree()).total - origin_before
    tree = proxy.tree()
    cpu_after = cpu_times(tree)
    others = busy_seconds() - busy - client_cpu - origin_cpu
    others -= cpu_after.total - cpu_before.total
    others /= time.monotonic() - began
    seen = _check_counts(scenario, counted, origin)
    carried = counted.requests * origin.lengths.get(scenario.path, 0)
    if scenario.path in ("/page/", "/up", "/both"):  # what load counted itself
        carried = counted.bytes + int(counted.more.pop("up_bytes", 0))
    counted.more.pop("up_bytes", None)
    row: Row = {
        "requests": counted.requests,
        "success": counted.requests,
        "errors": 0,
        "seconds": counted.seconds,
        "throughput_rps": counted.requests / counted.seconds,
        **counted.latencies_ms(),
        **counted.more,
        "bytes_total": carried,
        "mib_per_s": carried / MIB / counted.seconds,
        "origin_requests": seen,
        "client_us_per_request": client_cpu * 1e6 / seen,
        "origin_us_per_request": origin_cpu * 1e6 / seen,
        "others_percent": max(0.0, 100 * others),
        "command": shown(command),
    }
    if not tree:  # direct: no proxy, so no cost
        return row
    cpu, user = cpu_after.total - cpu_before.total, cpu_after.user - cpu_before.user
    # Per request that the origin saw, because dropped requests also cost CPU.
    row |= {"cpu_seconds": cpu, "cpu_us_per_request": cpu * 1e6 / seen}
    row["user_us_per_request"] = user * 1e6 / seen
    if carried / counted.requests >= BULK_BYTES:
        mib = carried / MIB * seen / counted.requests
        row |= {"cpu_us_per_mib": cpu * 1e6 / mib, "user_us_per_mib": user * 1e6 / mib}
    rss_after = resident_kib(tree)
    row |= {"rss_before_kib": rss_before, "rss_after_kib": rss_after}
    row["rss_growth_bytes_per_request"] = (rss_after - rss_before) * 1024 / seen
    return {**row, **sampler.usage(), "hwm_kib": resident_kib(tree, "VmHWM")}


def _measure_idle(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    uss_before = private_bytes(proxy.tree())
    with IdleTunnels(scenario, proxy, origin) as tunnels:
        time.sleep(0.5)  # the last ones come to rest
        tree = proxy.tree()
        uss_after, cpu_before = private_bytes(tree), cpu_times(tree).total
        time.sleep(1)  # the second over which CPU at rest is measured
        cpu_at_rest = cpu_times(tree).total - cpu_before
        hwm, fds = resident_kib(tree, "VmHWM"), count_fds(tree)
    counted = tunnels.counted
    assert counted is not None
    row: Row = {
        "requests": counted.requests,
        "success": counted.requests,
        "errors": 0,
        "throughput_rps": counted.requests / counted.seconds,
        "origin_requests": _check_counts(scenario, counted, origin),
        "command": shown(tunnels.command),
    }
    if not tree:
        return row
    return row | {
        "uss_before_kib": uss_before >> 10,
        "uss_after_kib": uss_after >> 10,
        "uss_bytes_per_tunnel": (uss_after - uss_before) / scenario.conns,
        "fds_per_tunnel": fds / scenario.conns,
        "cpu_at_rest_percent": cpu_at_rest * 100,
        "hwm_kib": hwm,
    }


def _measure_end(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    """Measure the time to end, with idle keep-alive connections."""
    crowd = IdleTunnels(scenario, proxy, origin, "crowd").__enter__()
    try:
        rss = resident_kib(proxy.tree())
        took = proxy.stop()
    finally:
        crowd.__exit__(BenchError)  # that its connections end is no error here
    row: Row = {"requests": scenario.conns, "success": scenario.conns, "errors": 0}
    row |= {"stop_ms": took * 1e3, "rss_kib": rss, "command": shown(crowd.command)}
    return row


def _measure_steps(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    """Return each step's latency, CPU and memory, as step<n>_<rate>_<key>."""
    row: Row = {"requests": 0, "success": 0, "errors": 0}
    each = seconds / len(STEPS)
    for number, rate in enumerate(STEPS, 1):
        with Sampler(proxy.tree) as sampler:
            counted, command = run_rate(proxy, origin, rate, scenario.conns, each)
        row["requests"] = row["success"] = int(str(row["requests"])) + counted.requests
        figures = {f"{k}_ms": us / 1e3 for k, us in counted.latency_us.items()}
        for key, value in {**figures, **sampler.usage()}.items():
            row[f"step{number}_{rate}_{key}"] = value
        row["command"] = shown(command)
    total = int(str(row["requests"]))
    row["origin_requests"] = origin.count_requests(total, scenario.path)
    if row["origin_requests"] != total:
        raise BenchError(f"client counted {total}, origin {row['origin_requests']}")
    return row


def _measure_soak(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    fds_before = count_fds(proxy.tree())
    with Sampler(proxy.tree) as sampler:
        row = _measure_load(scenario, proxy, origin, seconds)
    time.sleep(0.3)  # what the clients have closed is closed
    if proxy.tree():
        row["rss_slope_kib_per_minute"] = sampler.slope_per_minute(2)
        row["fds_slope_per_minute"] = sampler.slope_per_minute(3)
        row |= {"fds_before": fds_before, "fds_after": count_fds(proxy.tree())}
    return row


def _measure_hostile(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    """Run the same steady load twice: alone, and beside the hostile clients."""
    each = seconds / 2
    command = [build_tool("hostile"), scenario.mode, "--host", proxy.ip]
    command += ["--port", str(proxy.port), "--conns", str(scenario.conns)]
    command += ["--target", origin.authority, "--path", scenario.path]
    command += [] if proxy.blind else ["--absolute", "--user", CREDENTIALS]
    quiet, _ = run_rate(proxy, origin, STEADY_RATE, STEADY_CONNS, each)
    seen = origin.count_requests(quiet.requests, "/index.html", strangers=True)
    with Held(command, proxy) as held:
        time.sleep(0.3)  # until they are there
        with Sampler(proxy.tree) as sampler:
            beside, _ = run_rate(proxy, origin, STEADY_RATE, STEADY_CONNS, each)
    seen += origin.count_requests(beside.requests, "/index.html", strangers=True)
    total = quiet.requests + beside.requests
    if seen != total:
        raise BenchError(f"client counted {total}, origin {seen}")
    row: Row = {"requests": total, "success": total, "errors": 0}
    row |= {"origin_requests": seen, "throughput_rps": beside.requests / beside.seconds}
    row |= {"quiet_p99_ms": quiet.latency_us["p99"] / 1e3, **beside.latencies_ms()}
    row["p99_factor"] = beside.latency_us["p99"] / quiet.latency_us["p99"]
    said = dict(p.split("=", 1) for p in held.result.split() if "=" in p)
    row |= {f"hostile_{key}": int(said[key]) for key in said if key != "mode"}
    return row | {**sampler.usage(), "command": shown(command)}


OWN = {
    "idle": _measure_idle,
    "lifecycle": _measure_end,
    "steps": _measure_steps,
    "soak": _measure_soak,
    "hostile": _measure_hostile,
    "crowd": measure_crowd,
    "workers": measure_workers,
    "tail": measure_tail,
    "ceiling": measure_ceiling,
}


def run_once(name: str, proxy_name: str, origin: Origin, seconds: float) -> Row:
    """Start a proxy, run one scenario through it, stop it; a void run has `failed`."""
    scenario = SCENARIOS[name]
    proxy: Running | None = None
    began, started = time.monotonic(), 0.0
    try:
        target = Target(origin.site, origin.authority_of(scenario.endpoint))
        start = ALL_PROXIES[proxy_name].start
        try:
            proxy = start(target)
        except BenchError:
            proxy = start(target)  # its port was taken since; nothing was measured yet
        if scenario.tool == "lifecycle":
            options = ("--requests", "1")
            first = build_load_command("plain", proxy, origin, scenario.path, *options)
            run_load_command(first, proxy, 5)
            started = time.monotonic() - began
        warm_up(scenario, proxy, origin)
        measure = OWN.get(scenario.tool, _measure_load)
        with placed(scenario.place, proxy.tree(), origin.tree()):
            row = measure(scenario, proxy, origin, seconds * scenario.weight)
        if scenario.tool == "lifecycle":
            row["start_ms"] = started * 1e3
        return {**row, "proxy_command": shown(proxy.command)}
    except BenchError as error:
        died = proxy and proxy.process and proxy.process.poll() is not None
        said = proxy.said().splitlines()[-1:] if proxy and died else []
        reason = " ".join([str(error), *said])[:600]
        for directory in (f"{HERE.parent}/", f"{CACHE}/", f"{Path.home()}/"):
            reason = reason.replace(directory, "")  # of this machine alone
        return {"failed": reason}
    finally:
        if proxy is not None:
            proxy.close()
