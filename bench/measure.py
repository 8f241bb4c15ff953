"""One run, its repetitions, and what may be said of them.

The proxies take turns (A B C A B C …), each run on a fresh process. A run whose
client saw an error, or whose count differs from the origin's, is void: it is printed
with its reason, no summary is made of it, and the exit status is 1.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

from bench.collect import (
    cpu_seconds,
    describe_environment,
    private_bytes,
    resident_kib,
)
from bench.origin import HERE, BenchError, Origin
from bench.proxies import PROXIES, Running
from bench.scenarios import (
    SCENARIOS,
    Counted,
    IdleTunnels,
    Scenario,
    run_load,
    run_wrk,
    warm_up,
)

RESULTS = HERE / "results"
MIB = 1 << 20
#: From this length of a body on, its cost is given per MiB too.
BULK_BYTES = 64 << 10
#: A coefficient of variation above this is shown as unstable, not as a result.
CV_LIMIT = 0.20

Row = dict[str, object]


def format_row(kind: str, row: Row) -> str:
    """Return `kind key=value …`; floats with four figures at least, no spaces."""
    parts = [kind]
    for key, value in row.items():
        if isinstance(value, float):
            value = f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
        parts.append(f"{key}={str(value).replace(' ', '_')}")
    return " ".join(parts)


def shown(command: list[str]) -> str:
    """Return a command as another machine could run it: no directory of this one."""
    words = [word.removeprefix(f"{HERE.parent}/") for word in command]
    return " ".join(
        Path(word).name if word.startswith("/") else word for word in words
    )


def _check_counts(scenario: Scenario, counted: Counted, origin: Origin) -> int:
    """Return the origin's count; raise unless it is the client's.

    When its time is over wrk drops what is in flight, one request a connection at
    most, uncounted; load waits for all, so there the two must be equal.
    """
    in_flight = scenario.conns if scenario.tool == "wrk" else 0
    seen = origin.count_requests(counted.requests, scenario.path, cut=in_flight)
    if not counted.requests <= seen <= counted.requests + in_flight:
        raise BenchError(f"client counted {counted.requests}, origin {seen}")
    return seen


def _measure_load(
    scenario: Scenario, proxy: Running, origin: Origin, seconds: int
) -> Row:
    tree = proxy.tree()
    rss_before, cpu_before = resident_kib(tree), cpu_seconds(tree)
    run = run_wrk if scenario.tool == "wrk" else run_load
    counted, command = run(scenario, proxy, origin, seconds)
    cpu = cpu_seconds(tree) - cpu_before
    seen = _check_counts(scenario, counted, origin)
    length = origin.lengths[scenario.path]
    row: Row = {
        "requests": counted.requests,
        "success": counted.requests,
        "errors": 0,
        "seconds": counted.seconds,
        "throughput_rps": counted.requests / counted.seconds,
        **{f"latency_{key}_ms": us / 1e3 for key, us in counted.latency_us.items()},
        "bytes_total": counted.requests * length,
        "mib_per_s": counted.requests * length / MIB / counted.seconds,
        "origin_requests": seen,
        "command": shown(command),
    }
    if not tree:  # direct: no proxy, so no cost
        return row
    # Per request that the origin saw: what wrk dropped in flight cost CPU as well.
    row |= {"cpu_seconds": cpu, "cpu_us_per_request": cpu * 1e6 / seen}
    if length >= BULK_BYTES:
        row["cpu_us_per_mib"] = cpu * 1e6 / (seen * length / MIB)
    row |= {"rss_before_kib": rss_before, "rss_after_kib": resident_kib(tree)}
    return {**row, "hwm_kib": resident_kib(tree, "VmHWM")}


def _measure_idle(scenario: Scenario, proxy: Running, origin: Origin) -> Row:
    tree = proxy.tree()
    uss_before = private_bytes(tree)
    with IdleTunnels(scenario, proxy, origin) as tunnels:
        time.sleep(0.5)  # the last ones come to rest
        uss_after, cpu_before = private_bytes(tree), cpu_seconds(tree)
        time.sleep(1)  # the second over which CPU at rest is measured
        cpu_at_rest = cpu_seconds(tree) - cpu_before
    assert tunnels.counted is not None
    seen = _check_counts(scenario, tunnels.counted, origin)
    return {
        "requests": tunnels.counted.requests,
        "success": tunnels.counted.requests,
        "errors": 0,
        "throughput_rps": tunnels.counted.requests / tunnels.counted.seconds,
        "uss_before_kib": uss_before >> 10,
        "uss_after_kib": uss_after >> 10,
        "uss_bytes_per_tunnel": (uss_after - uss_before) / scenario.conns,
        "cpu_at_rest_percent": cpu_at_rest * 100,
        "hwm_kib": resident_kib(tree, "VmHWM"),
        "origin_requests": seen,
        "command": shown(tunnels.command),
    }


def run_once(name: str, proxy_name: str, origin: Origin, seconds: int) -> Row:
    """Start a proxy, run one scenario through it, stop it; a void run has `failed`."""
    scenario = SCENARIOS[name]
    proxy: Running | None = None
    try:
        proxy = PROXIES[proxy_name].start(origin)
        warm_up(scenario, proxy, origin)
        if scenario.tool == "idle":
            row = _measure_idle(scenario, proxy, origin)
        else:
            row = _measure_load(scenario, proxy, origin, seconds)
        return {**row, "proxy_command": shown(proxy.command)}
    except BenchError as error:
        return {"failed": str(error)}
    finally:
        if proxy is not None:
            proxy.close()
        origin.skip_log()


#: What a summary takes the median of, and what it calls it.
MEDIANS = {
    "throughput_rps": "throughput_median_rps",
    "mib_per_s": "mib_per_s_median",
    "latency_p50_ms": "latency_p50_median_ms",
    "latency_p95_ms": "latency_p95_median_ms",
    "latency_p99_ms": "latency_p99_median_ms",
    "cpu_us_per_request": "cpu_us_per_request_median",
    "cpu_us_per_mib": "cpu_us_per_mib_median",
    "uss_bytes_per_tunnel": "uss_bytes_per_tunnel_median",
}


def summarise(rows: list[Row]) -> list[Row]:
    """Return one row per scenario and proxy, with ratios to that scenario's yardsticks.

    `ratio_to_*` compares throughput; `cpu_ratio` is CPU per request against
    `yardstick`, the relay that does the same work: splicing, where bytes are many.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row["scenario"]), str(row["proxy"])), []).append(row)
    summaries: dict[tuple[str, str], Row] = {}
    for (scenario, proxy), runs in groups.items():
        summary: Row = {"scenario": scenario, "proxy": proxy, "runs": len(runs)}
        summaries[scenario, proxy] = summary
        if void := sum("failed" in run for run in runs):
            summary["failed"] = void
            continue
        for key, median_key in MEDIANS.items():
            values = [float(str(run[key])) for run in runs if key in run]
            if values:
                summary[median_key] = statistics.median(values)
        rates = [float(str(run["throughput_rps"])) for run in runs]
        cv = statistics.stdev(rates) / statistics.mean(rates) if len(rates) > 1 else 0.0
        summary["throughput_cv"] = cv
        if cv > CV_LIMIT:
            summary["unstable"] = "yes"
    for (scenario, proxy), summary in summaries.items():
        yardstick = SCENARIOS[scenario].yardstick
        for other, key, label in (
            ("relay", "throughput_median_rps", "ratio_to_relay"),
            ("direct", "throughput_median_rps", "ratio_to_direct"),
            (yardstick, "cpu_us_per_request_median", "cpu_ratio"),
        ):
            base = summaries.get((scenario, other), {})
            if other != proxy and base.get(key) and key in summary:
                summary[label] = float(str(summary[key])) / float(str(base[key]))
                if label == "cpu_ratio":
                    summary["yardstick"] = yardstick
    return list(summaries.values())


def run_all(
    scenarios: list[str],
    proxies: list[str],
    *,
    seconds: int,
    repetitions: int,
    name: str = "",
) -> int:
    """Measure, print as it goes, write bench/results/NAME.json; return the exit status.

    Without a name the file is called run-<time>.json, which git ignores.
    """
    environment = describe_environment()
    rows: list[Row] = []
    with Origin() as origin:
        for scenario in scenarios:
            for repetition in range(1, repetitions + 1):
                for proxy in proxies:
                    row: Row = {"scenario": scenario, "proxy": proxy}
                    row |= {"repetition": repetition, "repetitions": repetitions}
                    row |= run_once(scenario, proxy, origin, seconds)
                    rows.append(row)
                    quiet = {"command", "proxy_command"}
                    shown = {k: v for k, v in row.items() if k not in quiet}
                    print(format_row("perf_result", shown), flush=True)
        origin_config = origin.config.read_text()
    summaries = summarise(rows)
    for summary in summaries:
        print(format_row("perf_summary", summary))
    _write(name, environment, origin_config, rows, summaries)
    return 1 if any("failed" in row for row in rows) else 0


def _write(
    name: str,
    environment: dict[str, object],
    origin_config: str,
    rows: list[Row],
    summaries: list[Row],
) -> None:
    RESULTS.mkdir(exist_ok=True)
    file = Path(RESULTS, f"{name or time.strftime('run-%Y%m%d-%H%M%S')}.json")
    result = {
        "environment": environment,
        "origin_config": origin_config,
        "results": rows,
        "summaries": summaries,
    }
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {file.relative_to(HERE.parent)}")
