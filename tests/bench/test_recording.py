"""The bench of recordings: its guardrails, and a short run."""

import os
import subprocess
import sys

import pytest

from bench.cores import cannot_hold_back
from bench.recording import MOST_RSS_KIB, broken_guardrails, variation
from tests.bench.servers import needs_nginx
from tests.support.proxy import ROOT

GOOD = {
    "record": {"rate": 100.0, "rate_cv": 0.5}, "cold": {"rate": 100.0, "rate_cv": 0.5},
    "replay": {"rate": 200.0, "rate_cv": 0.1}, "warm": {"rate": 200.0, "rate_cv": 0.1},
}


def row(scenario, **figures):
    origin = 0 if scenario in ("replay", "warm") else 5
    return {"scenario": scenario, "requests": 5, "origin": origin,
            "rss_delta_kib": 0} | figures


def test_a_good_run_breaks_nothing():
    assert broken_guardrails([row(name) for name in GOOD], GOOD, 0.2) == []


@pytest.mark.parametrize(("rows", "summaries", "said"), [
    ([row("replay", origin=1)], {}, "replay: the origin counted 1"),
    ([row("record", origin=4)], {}, "record: the origin counted 4"),
    ([row("record", rss_delta_kib=MOST_RSS_KIB + 1)], {}, "record: 131073 KiB more"),
    ([], {"replay": {"rate": 9.0, "rate_cv": 0.0}}, "replay is not faster than record"),
    ([], {"warm": {"rate": 100.0, "rate_cv": 0.0}}, "warm is not faster than cold"),
    ([], {"warm": {"rate": 200.0, "rate_cv": 0.3}}, "warm: varies by 0.30"),
])
def test_what_does_not_hold_is_said(rows, summaries, said):
    assert broken_guardrails(rows, GOOD | summaries, 0.2) == [said]


def test_one_value_does_not_vary():
    assert variation([7.0]) == 0.0
    assert variation([1.0, 3.0]) == pytest.approx(0.707, abs=1e-3)


@pytest.mark.slow
@needs_nginx
def test_a_short_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "recording", "--requests=300", "--warm-up=20",
         "--repetitions=1", "--conns=4"], cwd=ROOT, text=True, capture_output=True,
        timeout=110, check=False,
        env=os.environ | {"CUTTHROUGH_BENCH_PEERS": str(tmp_path)})
    rows = [dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in done.stdout.splitlines() if line.startswith("perf_result ")]
    held = {} if cannot_hold_back() else {"plain_held": 300, "record_held": 300}
    assert {row["scenario"]: int(row["origin"]) for row in rows} == {
        "plain": 300, "record": 300, "replay": 0, "cold": 300, "warm": 0, **held,
    }, done.stdout + done.stderr  # fmt: skip
    assert " replay_cpu_to_plain=" in done.stdout
