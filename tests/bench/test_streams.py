"""The bench of what is long inside interceptions: its ratios, and a short run."""

import os
import subprocess
import sys

import pytest

from bench.streams import LOADS, OURS, VARIANTS, ratios
from tests.bench.servers import needs_nginx
from tests.support.proxy import ROOT


def test_the_others_are_compared_with_ours():
    rows = [{"proxy": "peer", **{f"us_{load}": 50.0 for load in LOADS}},
            {"proxy": OURS, "us_http2": 25.0, "us_grpc": 10.0, "us_websocket": 100.0}]
    assert ratios(rows) == {"http2_peer": 2.0, "grpc_peer": 5.0, "websocket_peer": 0.5}


@pytest.mark.slow
@needs_nginx
def test_a_short_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "streams", "--seconds=0.2",
         "--repetitions=1"], cwd=ROOT, text=True, capture_output=True, timeout=110,
        check=False, env=os.environ | {"CUTTHROUGH_BENCH_PEERS": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    rows = [dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in done.stdout.splitlines() if line.startswith("perf_streams ")]
    assert {row["proxy"] for row in rows} == set(VARIANTS)
    assert all(float(row[f"us_{load}"]) > 0 for row in rows for load in LOADS)
    assert "perf_streams_ratio" in done.stdout and "failed=0" in done.stdout
