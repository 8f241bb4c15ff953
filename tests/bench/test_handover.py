"""`make handover`, for a few seconds: it is run by hand, and would rot unseen."""

import subprocess
import sys

import pytest

from tests.support.proxy import ROOT


@pytest.mark.slow
def test_tunnels_notice_nothing_of_a_short_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "handover", "--tunnels=40", "--replacements=2",
         "--upgrades=1", "--interval=0.2"],
        cwd=ROOT, text=True, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    values = dict(pair.split("=", 1) for pair in done.stdout.split()[1:])
    assert [values[name] for name in ("moves", "log_lines", "errors")] == [
        "120", "40", "0"]
    assert float(values["pause_p999_ms"]) > 0
