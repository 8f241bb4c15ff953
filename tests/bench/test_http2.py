"""The benches of HTTP/2 and of fingerprints: their ratios, and a short run of each."""

import subprocess
import sys

import pytest

from bench.children import Site
from bench.http2 import LOADS, NAMED, OURS, PRINTS, Server, is_dear, ratios
from bench.micro import prints
from bench.running import Running, Target
from tests.bench.servers import needs_nginx
from tests.support.proxy import ROOT


def test_ours_is_compared_with_the_best_of_the_others():
    rows = []
    for name, costs in (("haproxy-tls", [20.0, 10.0, 20.0]), ("nghttpx", [30.0] * 3),
                        (OURS, [22.0, 12.0, 30.0])):
        server = Server(name, Running([], Target(Site(), "127.0.0.1:1")), ())
        server.figures = {load: {"us": costs} for load in LOADS}
        rows.append(server)
    assert ratios(rows) == dict.fromkeys(LOADS, 1.2)


@pytest.mark.parametrize(("row", "dear"), [
    ({"us": 2.9, "most_us": 3.0}, False), ({"us": 3.1, "most_us": 3.0}, True),
    ({"us": 9.0}, False)])
def test_a_fingerprint_that_takes_more_than_is_asked_fails(
        row: dict[str, object], dear: bool) -> None:
    assert is_dear(row) == dear


def test_what_is_asked_of_fingerprints_is_of_loops_that_there_are() -> None:
    assert {bench.name for bench in prints.BENCHES} >= prints.MOST_US.keys()


def run(verb: str) -> list[dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "bench", verb, "--seconds=0.1", "--repetitions=1"],
        cwd=ROOT, text=True, capture_output=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    return [dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in done.stdout.splitlines() if " server=" in line]


@pytest.mark.slow
@needs_nginx
def test_a_short_run():
    rows = run("http2")
    assert {row["load"] for row in rows if row["server"] == OURS} == {*LOADS}
    assert all(float(row["us"]) > 0 for row in rows)


@pytest.mark.slow
@needs_nginx
def test_a_short_run_with_fingerprints():
    rows = run("fingerprint")
    assert [(row["server"], row["load"]) for row in rows] == [
        (name, load) for name in (NAMED, PRINTS)
        for load in ("http1", "http2", "handshake")]
