"""The bench of starts: a short run."""

import re
import subprocess
import sys

import pytest

from tests.bench.servers import needs_nginx
from tests.support.proxy import ROOT


@pytest.mark.slow
@needs_nginx
def test_a_short_run():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "start", "--starts=2"],
        cwd=ROOT, text=True, capture_output=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"server=(\w+) (starts|wall)", done.stdout) == [
        ("cutthrough", "wall"), ("nginx", "wall")] * 2 + [
        ("cutthrough", "starts"), ("nginx", "starts")]
