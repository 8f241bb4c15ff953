"""The bench of interception: its ratios, and a short run."""

import os
import subprocess
import sys

import pytest

from bench.children import Site
from bench.intercept import LISTENER, OURS, VARIANTS, Opener, ratios
from bench.running import Running, Target
from tests.bench.servers import needs_nginx
from tests.support.proxy import ROOT


def opener(name, **figures):
    one = Opener(name, Running([], Target(Site(), "127.0.0.1:1")), "localhost:1", "1")
    one.figures = {key: [value] for key, value in figures.items()}
    return one


def test_ours_is_compared_with_the_listener_and_the_peers():
    rows = [opener(LISTENER, us_kept=20.0),
            opener("squid-bump", us_kept=100.0, rate_kept=500.0, rate_new=50.0),
            opener(OURS, us_kept=30.0, rate_kept=5000.0, rate_new=100.0,
                   rate_fresh=60.0)]
    assert ratios(rows) == {
        "kept_to_listener": 1.5, "rate_kept_to_squid": 10.0, "rate_new_to_squid": 2.0}


@pytest.mark.slow
@needs_nginx
def test_a_short_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "intercept", "--seconds=0.3",
         "--repetitions=1"], cwd=ROOT, text=True, capture_output=True, timeout=110,
        check=False, env=os.environ | {"CUTTHROUGH_BENCH_PEERS": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    rows = [dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in done.stdout.splitlines() if line.startswith("perf_intercept ")]
    assert {row["proxy"] for row in rows} >= {"listener", *VARIANTS}
    assert all(float(row["us_kept"]) > 0 for row in rows)
    assert "perf_intercept_ratio" in done.stdout and "failed=0" in done.stdout


@pytest.mark.slow
@needs_nginx
def test_memory_is_told_while_requests_come():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "intercept-soak", "--exchanges=2000"],
        cwd=ROOT, text=True, capture_output=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    rows = [dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in done.stdout.splitlines()]
    assert int(rows[-2]["exchanges"]) >= 2000
    assert rows[-1]["failed"] == "0"
