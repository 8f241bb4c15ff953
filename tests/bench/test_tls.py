"""The bench of TLS: which proxies are compared, and a short run."""

import subprocess
import sys

import pytest

from bench.children import Site
from bench.running import Running, Target
from bench.tls import KINDS, OURS, Server, ratios
from tests.bench.servers import needs_nginx
from tests.support.proxy import ROOT


def test_ours_is_compared_with_the_best_of_the_others():
    rows = []
    for name, full, kept in (("nginx", [200.0, 100.0, 200.0], [40.0, 40.0, 40.0]),
                             ("hitch", [90.0, 90.0, 90.0], [20.0, 20.0, 20.0]),
                             (OURS, [210.0, 110.0, 90.0], [25.0, 25.0, 24.0])):
        one = Server(name, Running([], Target(Site(), "127.0.0.1:1")), "127.0.0.1:1")
        one.figures = {"us_1.2_full": full, "us_kept": kept, "rate_kept": [1.0, 2.0]}
        rows.append(one)
    assert ratios(rows) == {"us_1.2_full": 1.05, "us_kept": 1.25}


@pytest.mark.slow
@needs_nginx
def test_a_short_run():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "tls", "--seconds=0.2", "--repetitions=1",
         "--conns=20"], cwd=ROOT, text=True, capture_output=True, timeout=110,
        check=False)
    assert done.returncode == 0, done.stderr
    rows = [dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in done.stdout.splitlines() if line.startswith("perf_tls ")]
    assert [row["server"] for row in rows][-1] == OURS
    assert all(float(row[f"us_{kind.replace(' ', '_')}"]) > 0
               for row in rows for kind in KINDS)
    assert "perf_tls_ratio" in done.stdout and "failed=0" in done.stdout
