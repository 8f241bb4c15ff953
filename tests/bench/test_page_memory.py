"""`python -m bench page`: its verdict, and a short run."""

import subprocess
import sys

import pytest

from bench.page_memory import judge
from tests.support.browser import needs_chromium
from tests.support.proxy import ROOT


def looks(name, **grown):
    """Sixteen looks; what is named grows by a part of itself in the run."""
    return [{"page": name, "minute": n, "rows": 1000 * n, **{
        key: 1000.0 * (1 + grown.get(key, 0.0) * n / 16)
        for key in ("heap_kib", "process_mib", "nodes", "listeners")}}
        for n in range(16)]


def test_a_page_that_grows_is_named_with_what_grew():
    assert judge(looks("live"))["missed"] == "nothing"
    assert judge(looks("live", heap_kib=0.05))["missed"] == "nothing"
    assert judge(looks("live", heap_kib=0.6, listeners=1.0))["missed"] == (
        "heap_kib,listeners")


def test_the_list_grows_by_its_rows_and_not_by_more():
    grown = judge(looks("traffic", heap_kib=8.0))
    assert grown["row_bytes"] == pytest.approx(1000 * 8 * 1024 / 16 / 1000, rel=0.01)
    assert grown["missed"] == "nothing"
    assert judge(looks("traffic", heap_kib=80.0))["missed"] == "row_bytes"


@pytest.mark.slow
@needs_chromium
@pytest.mark.dials_out                        # a browser asks its maker for this
def test_a_short_run_looks_at_both_pages():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "page", "--minutes", "0.4"], cwd=ROOT,
        capture_output=True, text=True, timeout=280)
    rows = [line for line in done.stdout.splitlines()
            if line.startswith("perf_page_memory ")]
    assert len(rows) == 16, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    assert sum("page=live" in line for line in rows) == 8
