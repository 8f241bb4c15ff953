"""One load beside another: idle connections, new tunnels, workers with limited CPU;
and the load generator alone.

Each compares within one run, or at the same rate.
"""

from __future__ import annotations

import functools
import subprocess

from bench.children import BenchError, end, spawn
from bench.clients import (
    PATIENCE,
    Counted,
    Held,
    build_load_command,
    parse_result,
    run_load_command,
    run_rate,
    warm_up,
)
from bench.collect import cpu_times, private_bytes, reaped_cpu
from bench.cores import USABLE, held_back, placed
from bench.origin import Origin, build_tool
from bench.proxies import PROXIES, start_tool
from bench.rows import Row, shown
from bench.running import Running, Target
from bench.scenarios import SCENARIOS, TUNNEL_MODES, Scenario

PATH = "/index.html"
#: Active connections beside idle ones; and connections of the steady load.
ACTIVE, STEADY = 100, 50
#: Tunnels a second that are set up beside the steady load, which is half of what the
#: proxy named here takes from as many connections.
TUNNELS_PER_SECOND, HALF_OF = 200, "cutthrough-full"


def _count(origin: Origin, *loads: Counted) -> int:
    """Return the sum of the loads' counts; raise if the origin's count differs."""
    total = sum(load.requests for load in loads)
    seen = origin.count_requests(total, PATH)
    if seen != total:
        raise BenchError(f"client counted {total}, origin {seen}")
    return seen


def _row(total: int, load: Counted, command: list[str]) -> Row:
    return {
        "requests": total, "success": total, "errors": 0, "origin_requests": total,
        "throughput_rps": load.requests / load.seconds, **load.latencies_ms(),
        "command": shown(command),
    }  # fmt: skip


def _run_closed(proxy: Running, origin: Origin, conns: int, seconds: float) -> Counted:
    options = ("--conns", f"{conns}", "--seconds", f"{seconds:g}")
    command = build_load_command("plain", proxy, origin, PATH, *options)
    return run_load_command(command, proxy, seconds)


def measure_crowd(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    """A closed loop of ACTIVE connections alone, beside idle ones, and alone again."""
    each = seconds / 3
    command = build_load_command(
        "crowd", proxy, origin, PATH, "--conns", str(scenario.conns - ACTIVE)
    )
    before = _run_closed(proxy, origin, ACTIVE, each)
    uss = private_bytes(proxy.tree())
    with Held(command, proxy) as crowd:
        ready = crowd.read_line()
        if f"tunnels={scenario.conns - ACTIVE} errors=0" not in ready:
            raise BenchError(f"not all connections opened: {ready.strip()}")
        uss = private_bytes(proxy.tree()) - uss
        cpu = cpu_times(proxy.tree()).total
        beside = _run_closed(proxy, origin, ACTIVE, each)
        cpu = cpu_times(proxy.tree()).total - cpu
    rested = parse_result(crowd.result, command)
    after = _run_closed(proxy, origin, ACTIVE, each)
    total = _count(origin, before, rested, beside, after)
    quiet = (before.requests + after.requests) / (before.seconds + after.seconds)
    row = _row(total, beside, command)
    row |= {"quiet_rps": quiet, "crowd_ratio": beside.requests / beside.seconds / quiet}
    row["cpu_us_per_request"] = cpu * 1e6 / beside.requests
    row["uss_bytes_per_connection"] = uss / (scenario.conns - ACTIVE)
    return row


@functools.cache
def _half_rate(origin: Origin) -> float:
    """Return half of HALF_OF's present rate; the same for all proxies."""
    proxy = PROXIES[HALF_OF].start(Target(origin.site, origin.authority))
    try:
        warm_up(SCENARIOS["plain-keepalive"], proxy, origin)
        load = _run_closed(proxy, origin, STEADY, 1)
        _count(origin, load)
    finally:
        proxy.close()
    return round(load.requests / load.seconds / 2, -2)


def measure_tail(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    """A steady load while tunnels are set up beside it, both at a fixed rate."""
    rate = _half_rate(origin)
    options = ("--conns", "50", "--rate", str(TUNNELS_PER_SECOND))
    command = build_load_command(
        "rate-setup", proxy, origin, PATH, *options, "--seconds", f"{seconds:g}"
    )
    pipe = subprocess.PIPE
    setup = spawn(proxy.site.within("client", command), stdout=pipe, stderr=pipe)
    try:
        cpu = cpu_times(proxy.tree()).total
        steady, steady_command = run_rate(proxy, origin, rate, STEADY, seconds)
        said, _ = setup.communicate(timeout=seconds + PATIENCE)
        cpu = cpu_times(proxy.tree()).total - cpu
    except subprocess.TimeoutExpired:
        raise BenchError("the tunnels did not end") from None
    finally:
        end(setup)
    tunnels = parse_result(said, command)
    total = _count(origin, steady, tunnels)
    row = _row(total, steady, steady_command)
    row |= {"rate": rate, "tunnels": tunnels.requests, "beside": shown(command)}
    row["setup_p99_ms"] = tunnels.latency_us["p99"] / 1e3
    return row | {"cpu_us_per_request": cpu * 1e6 / total} if proxy.tree() else row


# ---- workers ----


def measure_workers(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    """Measure workers limited to SHARE of a core, so that the client does not bound the
    ratio of two workers to one. Then measure without a limit."""
    pids = [process.pid for process in proxy.tree()[1:]]
    cpu = cpu_times(proxy.tree()).total
    with held_back(pids):
        held = _run_closed(proxy, origin, scenario.conns, seconds / 2)
    share = 100 * (cpu_times(proxy.tree()).total - cpu) / held.seconds
    cpu, client = cpu_times(proxy.tree()).total, reaped_cpu()
    served = cpu_times(origin.tree()).total
    free = _run_closed(proxy, origin, scenario.conns, seconds / 2)
    cpu, client = cpu_times(proxy.tree()).total - cpu, reaped_cpu() - client
    served = cpu_times(origin.tree()).total - served
    command = ["load", "plain", "--conns", str(scenario.conns)]
    row = _row(_count(origin, held, free), held, command)
    row |= {"workers": len(pids), "free_rps": free.requests / free.seconds}
    row["held_cpu_percent"] = share
    row["cpu_us_per_request"] = cpu * 1e6 / free.requests
    row["client_us_per_request"] = client * 1e6 / free.requests
    return row | {"origin_us_per_request": served * 1e6 / free.requests}


def measure_ceiling(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: float
) -> Row:
    """The load generator against a server that answers at once.

    On one core each, the result is the highest rate of one client core. Or one process
    of each on every core.
    """
    target, server_ip = Target(proxy.site, origin.authority), proxy.site.proxy_ip
    length = str(origin.lengths[PATH])
    processes = [] if scenario.place else [str(len(USABLE))]
    answer = (build_tool("answer"), server_ip, "0", length, *processes)
    server = start_tool(target, *answer)
    server.blind = scenario.mode not in TUNNEL_MODES
    try:
        options = ["--conns", str(scenario.conns), "--seconds", f"{seconds:g}"]
        options += ["--processes", *processes] if processes else []
        command = build_load_command(scenario.mode, server, origin, PATH, *options)
        with placed(scenario.place, server.tree(), []):
            client = reaped_cpu()
            load = run_load_command(command, server, seconds)
            client = reaped_cpu() - client
    finally:
        server.close()
    row = _row(load.requests, load, command)
    return row | {"client_us_per_request": client * 1e6 / load.requests}
