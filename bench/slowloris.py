"""Measures wrk's latency beside slow clients.

Thousands of connections each send one byte a second of a head that never ends, while
wrk sends requests steadily. Its p99 beside them must be less than twice its p99 alone,
the head deadline must end all of them with 408, and memory must be bounded.
"""

from __future__ import annotations

import contextlib
import subprocess
from contextlib import closing

from bench.children import BenchError
from bench.clients import run_wrk, warm_up
from bench.collect import cpu_times, resident_kib
from bench.origin import Origin, build_tool
from bench.proxies import start_cutthrough
from bench.rows import format_row
from bench.running import Target
from bench.scenarios import Scenario

STEADY = Scenario(8, "index.html beside slow clients", "wrk", 50)
#: The head deadline of the run, and how much later the last connection may end: it was
#: the last of thousands whose deadlines come within the same second.
HEAD_SECONDS, SLACK_SECONDS = 10, 2
MOST_RATIO = 2.0
#: Of resident memory for each slow connection: the session, a head block of 17 KiB of
#: which a page or two are touched.
MOST_KIB_EACH = 16


def _parse(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


def run_slowloris(conns: int, seconds: int) -> int:
    """Print one line; return 0 if the promise held."""
    flags: tuple[str, ...] = (
        "--max-connections",
        str(conns + 1000),
        "--access-log",
        "@DIR@/access.log",
    )
    flags += ("--head-timeout", f"{HEAD_SECONDS}s")
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(Origin())
        target = Target(origin.site, origin.authority)
        proxy = stack.enter_context(closing(start_cutthrough(*flags)(target)))
        warm_up(STEADY, proxy, origin)
        alone, _ = run_wrk(STEADY, proxy, origin, seconds)
        origin.skip_log()
        tree = proxy.tree()
        rss, cpu = resident_kib(tree), cpu_times(tree).total
        command = [build_tool("slow"), "--port", str(proxy.port)]
        command += ["--conns", str(conns), "--seconds", str(3 * HEAD_SECONDS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as slow:
            try:
                beside, _ = run_wrk(STEADY, proxy, origin, seconds)
                said, _ = slow.communicate()
            finally:
                slow.kill()
        cpu = cpu_times(tree).total - cpu
        peak = resident_kib(tree, "VmHWM")
    end = _parse(said)
    if "ended_408" not in end:
        raise BenchError(f"no result from slow: {said!r}")
    row: dict[str, object] = {
        "scenario": "slowloris",
        "requests_alone": alone.requests,
        "requests_beside": beside.requests,
        "errors": 0,
        "p50_alone_ms": alone.latency_us["p50"] / 1e3,
        "p50_beside_ms": beside.latency_us["p50"] / 1e3,
        "p99_alone_ms": alone.latency_us["p99"] / 1e3,
        "p99_beside_ms": beside.latency_us["p99"] / 1e3,
        "p99_ratio": beside.latency_us["p99"] / alone.latency_us["p99"],
        "cpu_seconds_beside": cpu,
        "rss_before_kib": rss,
        "rss_peak_kib": peak,
        "rss_kib_per_slow": (peak - rss) / conns,
        **end,
    }
    failed = [
        reason
        for reason, bad in (
            ("p99", beside.latency_us["p99"] >= MOST_RATIO * alone.latency_us["p99"]),
            ("slow_errors", end["slow_errors"] != "0"),
            ("not_ended", int(end["ended_408"]) != conns),
            ("late", float(end["last_end_s"]) > HEAD_SECONDS + SLACK_SECONDS),
            ("memory", peak - rss > MOST_KIB_EACH * conns),
        )
        if bad
    ]
    row["failed"] = ",".join(failed) or "nothing"
    print(format_row("perf_hostile", row))
    return 1 if failed else 0
