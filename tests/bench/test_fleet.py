"""What a fleet costs Redis: a short run, and a join that others do not notice."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]


# `make test` installs it: without it, somebody runs this file alone
@pytest.mark.skipif(not shutil.which("redis-server"),
                    reason="redis-server is not installed")
def test_the_time_of_redis_is_printed() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "fleet", "--hosts", "3", "--users", "130",
         "--steps", "2"], cwd=TREE, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^redis \d+\.\d ms$", ran.stdout, re.M)
    row = dict(word.split("=") for word in ran.stdout.splitlines()[0].split()[1:])
    assert (row["hosts"], row["users"], row["failed"]) == ("3", "130", "nothing")
    assert row["received_after_join"] == "0"
    assert float(row["received"]) >= 3 * 130
