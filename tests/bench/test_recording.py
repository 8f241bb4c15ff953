"""The bench of recordings: its guardrails, and a short run."""

import os
import subprocess
import sys

import pytest

from bench import compare
from bench.children import BenchError
from bench.cores import cannot_hold_back
from bench.recording import (
    MOST_RSS_KIB,
    broken_guardrails,
    read_baseline,
    regressions,
    variation,
)
from bench.result import RESULTS, write_rows
from tests.bench.servers import needs_nginx
from tests.support.proxy import ROOT

GOOD = {
    "record": {"rate": 100.0, "rate_cv": 0.5}, "cold": {"rate": 100.0, "rate_cv": 0.5},
    "replay": {"rate": 200.0, "rate_cv": 0.1}, "warm": {"rate": 200.0, "rate_cv": 0.1},
}


def row(scenario, **figures):
    origin = 0 if scenario in ("replay", "warm") else 5
    return {"scenario": scenario, "requests": 5, "errors": 0, "origin": origin,
            "rss_delta_kib": 0} | figures


def test_a_good_run_breaks_nothing():
    assert broken_guardrails([row(name) for name in GOOD], GOOD, 0.2) == []


@pytest.mark.parametrize(("rows", "summaries", "said"), [
    ([row("replay", origin=1)], {}, "replay: the origin counted 1"),
    ([row("record", origin=4)], {}, "record: the origin counted 4"),
    ([row("record", errors=2)], {}, "record: 2 errors"),
    ([row("record", rss_delta_kib=MOST_RSS_KIB + 1)], {}, "record: 131073 KiB more"),
    ([], {"replay": {"rate": 9.0, "rate_cv": 0.0}}, "replay is not faster than record"),
    ([], {"warm": {"rate": 100.0, "rate_cv": 0.0}}, "warm is not faster than cold"),
    ([], {"warm": {"rate": 200.0, "rate_cv": 0.3}}, "warm: varies by 0.30"),
])
def test_what_does_not_hold_is_said(rows, summaries, said):
    assert broken_guardrails(rows, GOOD | summaries, 0.2) == [said]


BEFORE = {"proxy": "cutthrough", "scenario": "replay", "rate": 100.0, "p95_ms": 1.0}


def store(monkeypatch, folder, name, *rows):
    monkeypatch.setattr("bench.result.RESULTS", folder)
    write_rows(name, [{"line": "perf_summary", **row} for row in rows])
    return folder / f"{name}.json"


@pytest.mark.parametrize(("figures", "said"), [
    ({}, []), ({"rate": 86.0, "p95_ms": 1.19}, []),
    ({"rate": 84.0}, ["replay: rate is 84, and was 100: -16%"]),
    ({"p95_ms": 1.21}, ["replay: p95_ms is 1.21, and was 1: +21%"]),
    ({"rate": 200.0, "p95_ms": 0.1}, [])])
def test_what_has_become_worse_than_a_stored_result_is_said(
        tmp_path, monkeypatch, capsys, figures, said):
    """Before, no run was compared with another."""
    base = store(monkeypatch, tmp_path, "base", BEFORE)
    new = store(monkeypatch, tmp_path, "new", BEFORE | figures)
    assert read_baseline(base) == {
        ("cutthrough", "replay"): {"line": "perf_summary", **BEFORE}}
    assert regressions(BEFORE | figures, BEFORE) == said
    assert compare.main(base, new) == bool(said)
    assert capsys.readouterr().out.splitlines() == (
        [f"cutthrough: {text}" for text in said] or
        ["perf_compared rows=1: cutthrough has become no worse"])


def test_a_peer_that_has_become_worse_fails_nothing(tmp_path, monkeypatch, capsys):
    peer = BEFORE | {"proxy": "hoverfly"}
    base = store(monkeypatch, tmp_path, "base", BEFORE, peer)
    new = store(monkeypatch, tmp_path, "new", BEFORE, peer | {"rate": 1.0})
    assert compare.main(base, new) == 0
    assert "hoverfly: replay: rate is 1, and was 100" in capsys.readouterr().out


def test_a_scenario_that_has_gone_fails(tmp_path, monkeypatch):
    base = store(monkeypatch, tmp_path, "base", BEFORE)
    new = store(monkeypatch, tmp_path, "new", BEFORE | {"scenario": "record"})
    assert compare.main(base, new) == 1


def test_what_is_no_result_at_all_is_refused(tmp_path):
    (tmp_path / "none.json").write_text("[")
    with pytest.raises(BenchError, match="not a result"):
        compare.main(tmp_path / "none.json", RESULTS / "baseline.json")


def test_one_value_does_not_vary():
    assert variation([7.0]) == 0.0
    assert variation([1.0, 3.0]) == pytest.approx(0.707, abs=1e-3)


@pytest.mark.slow
@needs_nginx
def test_a_short_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "recording", "--requests=300", "--warm-up=20",
         "--repetitions=1", "--conns=4"], cwd=ROOT, text=True, capture_output=True,
        timeout=110, check=False,
        env=os.environ | {"CUTTHROUGH_BENCH_PEERS": str(tmp_path)})
    rows = [dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in done.stdout.splitlines() if line.startswith("perf_result ")]
    held = {} if cannot_hold_back() else {"plain_held": 300, "record_held": 300}
    assert {row["scenario"]: int(row["origin"]) for row in rows} == {
        "plain": 300, "record": 300, "replay": 0, "cold": 300, "warm": 0, **held,
    }, done.stdout + done.stderr  # fmt: skip
    assert " replay_cpu_to_plain=" in done.stdout
    for row in rows:
        assert row["success"] == row["requests"] and row["errors"] == "0"
        assert int(row["bytes"]) >= 2048 * int(row["requests"]), row
        assert float(row["total_ms"]) > 0
        assert int(row["rss_most_kib"]) >= int(row["rss_kib"]) - 1024, row
    assert {row["scenario"]: int(row["hits"]) > 0 for row in rows} == {
        name: name in ("replay", "warm") for name in ("plain", "record", "replay",
                                                      "cold", "warm", *held)}
