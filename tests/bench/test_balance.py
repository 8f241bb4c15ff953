"""The bench of servers of one origin: what fails it, and a short run."""

import subprocess
import sys

import pytest

from bench.balance import WAYS, has_failed
from tests.bench.servers import needs_nginx
from tests.support.proxy import ROOT


def row(choose: str, *shares: float, errors: int = 0) -> dict[str, object]:
    return {"choose": choose, "errors": errors,
            **{f"share_{n}": share for n, share in enumerate(shares, 1)}}


@pytest.mark.parametrize(("figures", "failed"), [
    (row("round_robin", 0.6, 0.2, 0.2), False),
    (row("round_robin", 0.5, 0.3, 0.2), True),
    (row("round_robin", 0.6, 0.2, 0.2, errors=1), True),
    (row("failover", 1, 0, 0), False),
    (row("failover", 1, 0, 0, errors=1), True),
])
def test_an_error_and_a_wrong_share_in_turns_are_failures(figures, failed):
    assert has_failed(figures) == failed


@pytest.mark.slow
@needs_nginx
def test_a_short_run():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "balance", "--seconds=1"],
        cwd=ROOT, text=True, capture_output=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == [
        f"choose={way}" for way in WAYS]
