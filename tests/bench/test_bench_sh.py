"""bench.sh: it ends with the table and the origin's counts, and leaves nothing."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.bench.processes import wait_below
from tests.bench.servers import needs_compiler, needs_nginx

TREE = Path(__file__).resolve().parents[2]
pytestmark = [
    needs_compiler,
    needs_nginx,
    pytest.mark.skipif(
        not (shutil.which("wrk") and shutil.which("siege")), reason="no wrk, no siege"
    ),
]


def bench_sh(directory: Path) -> subprocess.Popen[str]:
    environ = {**os.environ, "TMPDIR": str(directory), "DURATION": "1", "CONC": "5"}
    return subprocess.Popen(
        ["./bench.sh"], cwd=TREE, env=environ, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.slow
def test_it_ends_with_the_table_and_what_the_origin_counted(tmp_path: Path) -> None:
    bench = bench_sh(tmp_path)
    said, errors = bench.communicate(timeout=150)
    assert bench.returncode == 0, said + errors
    assert said.count("in flight): ok") == 8
    names = ("direct", "relay", "cutthrough")
    *lines, words, verdict = said.splitlines()
    assert verdict == (
        "verdict: the origin counted what the clients reported in all 8 runs, without "
        "an error"
    )
    assert re.match(r"cutthrough answered \d+ requests a second with one worker", words)
    rows = [line.split() for line in lines[-len(names) :]]
    assert tuple(row[0] for row in rows) == names
    for name, rate, *rest in rows:
        seen, reported = re.findall(r"(\d+) of (\d+) reported", " ".join(rest))[0]
        assert int(rate) > 100
        assert 0 <= int(seen) - int(reported) <= 3 * 5
        assert ("µs" in rest) == (name != "direct")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["wrk -t1", "-m bench short"])
def test_ctrl_c_leaves_nothing_behind(begun: str, tmp_path: Path) -> None:
    bench = bench_sh(tmp_path)
    try:
        below = wait_below(bench, begun)
        os.killpg(bench.pid, signal.SIGINT)  # as a terminal does
        bench.communicate(timeout=30)
        assert bench.returncode == 130
        _, left = psutil.wait_procs(below, timeout=5)
        assert not left
        assert not list(tmp_path.iterdir())
    finally:
        bench.kill()
        bench.communicate()
