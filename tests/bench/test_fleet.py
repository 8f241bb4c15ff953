"""What a fleet costs Redis: short runs, a join that others do not notice, a death."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]


# `make test` installs it: without it, somebody runs this file alone
# `make test` installs it, and with CI=true a skip for it is a failure
pytestmark = pytest.mark.skipif(not shutil.which("redis-server"),
                                reason="redis-server is not installed")


def run(*words: str) -> dict[str, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "fleet", *words], cwd=TREE, capture_output=True,
        text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^redis \d+\.\d ms$", ran.stdout, re.M)
    return dict(word.split("=") for word in ran.stdout.splitlines()[0].split()[1:])


def test_the_time_of_redis_is_printed() -> None:
    row = run("--hosts", "3", "--users", "130", "--steps", "2")
    assert (row["hosts"], row["users"], row["failed"]) == ("3", "130", "nothing")
    assert row["received_after_join"] == "0"
    assert float(row["received"]) >= 3 * 130


def test_supervisors_among_other_hosts_know_them_all_and_one_that_dies() -> None:
    row = run("--hosts", "5", "--users", "3", "--steps", "5", "--supervisors", "2")
    assert (row["supervisors"], row["failed"]) == ("2", "nothing")
    # An interval is that of the supervisors, or longer on a busy machine; the first of
    # five may begin within one of theirs
    assert float(row["interval_ms"]) >= 160 and float(row["steps_of_a_supervisor"]) > 0
    assert 0 < float(row["death_s"]) <= 3
