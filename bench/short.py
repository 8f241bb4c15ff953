"""The table that bench.sh ends with: direct, blind relay, cutthrough, in one run.

`python -m bench short` runs wrk over keep-alive connections to index.html, three
interleaved repetitions. It prints medians with their cost, and whether the origin
counted as many requests as wrk reported.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from bench import measure
from bench.origin import Origin
from bench.proxies import PROXIES, start_cutthrough
from bench.rows import Row
from bench.running import Proxy
from bench.scenarios import SCENARIOS, most_files
from bench.summary import number, summarise

SCENARIO = "plain-keepalive-wrk"
REPETITIONS = 3
NAMES = ("direct", "relay", "cutthrough")
HEAD = f"{'':12}{'requests/s':>12}{'of direct':>11}{'of relay':>10}{'CPU/request':>13}"


def print_short(seconds: float, conns: int, flags: list[str]) -> int:
    """Measure and print the table; 1 if a run is void. `flags` are the proxy's."""
    most_files()
    SCENARIOS[SCENARIO] = replace(SCENARIOS[SCENARIO], conns=conns)
    if flags:
        start = start_cutthrough("--access-log", "off", *flags)
        measure.ALL_PROXIES["cutthrough"] = Proxy("as asked for", start)
    names = [name for name in NAMES if not PROXIES[name].missing]
    rows: list[Row] = []
    with Origin() as origin:
        for repetition in range(1, REPETITIONS + 1):
            for name in names:
                row = measure.run_once(SCENARIO, name, origin, seconds)
                row |= {"scenario": SCENARIO, "proxy": name, "repetition": repetition}
                rows.append(row)
    print(f"{HEAD}   origin counted (up to {conns} a run may have been in flight)")
    summaries = summarise(rows)
    for summary in summaries:
        name = str(summary["proxy"])
        if "failed" in summary:
            print(f"{name:12}void: {summary['reason']}")
            continue
        runs = [row for row in rows if row["proxy"] == name]
        reported = sum(int(str(row["requests"])) for row in runs)
        seen = sum(int(str(row["origin_requests"])) for row in runs)
        rate = statistics.median(float(str(row["throughput_rps"])) for row in runs)
        cpu = number(summary, "cpu_us_per_request_median")
        cells = f"{name:12}{rate:12.0f}"
        for key in ("ratio_to_direct", "ratio_to_relay"):
            ratio = number(summary, key)
            width = 11 if key == "ratio_to_direct" else 10
            cells += f"{ratio:{width}.2f}" if ratio else f"{'–':>{width}}"
        cells += f"{cpu:10.1f} µs" if cpu else f"{'–':>13}"
        mark = "  unstable" if summary.get("unstable") else ""
        print(f"{cells}   {seen} of {reported} reported{mark}")
    for name in NAMES:
        if name not in names:
            print(f"{name:12}skipped: {PROXIES[name].missing}")
    print(in_words(summaries))
    return int(any("failed" in row for row in rows))


def in_words(summaries: list[Row]) -> str:
    """Return what the table says about cutthrough, as a sentence."""
    ours = next((row for row in summaries if row["proxy"] == "cutthrough"), Row())
    rate = number(ours, "throughput_median_rps")
    if rate is None:
        return "cutthrough has no figure: its runs are void"
    text = f"cutthrough answered {rate:.0f} requests a second with one worker"
    if ratio := number(ours, "ratio_to_relay"):
        text += f", {ratio:.2f} times the rate of a relay that reads nothing"
    if cost := number(ours, "cpu_us_per_request_median"):
        text += f", at {cost:.1f} µs of CPU a request"
    if ratio := number(ours, "cpu_ratio"):
        text += f", {ratio:.2f} times the relay's"
    return text + (
        "; it varied too much to be a result" if ours.get("unstable") else ""
    )
