"""The bench of `cutthrough inspect`: its client, and a short run."""

import asyncio
import contextlib
import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from bench.children import Site
from bench.debuggers import send
from bench.inspection import OPENED, POINTS, STEPS, quantiles_ms, thin
from bench.inspection_picture import draw
from bench.origin import Origin
from bench.paced import Paced, Task
from tests.bench.servers import needs_nginx
from tests.support.browser import needs_chromium
from tests.support.proxy import ROOT


def test_quantiles_are_of_the_answers():
    assert quantiles_ms([n / 1000 for n in range(101)]) == {"p50_ms": 50, "p99_ms": 99}


def test_an_answer_that_is_no_success_is_a_failure():
    """Its connection is made again, and the next request uses that."""
    answers = [b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
               b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"]

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop(0))
        await reader.read()
        writer.close()

    class Plain(Paced):
        async def _open(self):
            return await asyncio.open_connection("127.0.0.1", self.task.port)

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            paced = Plain(Task(0, port, "", ("/",), 100, 0.02, 1))
            await paced.open()
            return await paced.run()

    results = asyncio.run(run())
    assert (len(results.seconds), results.failed, answers) == (1, 1, [])


def test_a_phase_has_memory_and_cpu_in_equal_parts():
    samples = [(100 + n / 5, n / 50, 1024 * (50 + n // 50), 0) for n in range(501)]
    row = thin(samples)
    assert len(row["rss_mib"]) == POINTS + 1 and len(row["cpu_percent"]) == POINTS
    assert row["rss_mib"][0] == 50 and row["rss_mib"][-1] == 60
    assert set(row["cpu_percent"]) == {10.0}


def test_a_picture_has_a_line_for_each_debugger():
    rows = [{"proxy": name, "seconds": 600.0, "cpu_avg_percent": 3.0,
             "rss_peak_mib": 90.0, "cpu_percent": [n, n + 1.0], "rss_mib": [80, 85, 90]}
            for n, name in enumerate(("cutthrough", "a<b"), 3)]
    picture = ElementTree.fromstring(draw(rows))
    texts = [node.text for node in picture.iter() if node.tag.endswith("text")]
    assert sum("cutthrough" in text for text in texts) == 2 == sum(
        "a<b" in text for text in texts)
    assert len([node for node in picture.iter() if node.tag.endswith("path")]) == 4
    assert "10 min" in texts and "100" in texts


@needs_nginx
def test_requests_come_at_their_rate():
    with Origin(Site()) as origin:
        results = send(Task(0, origin.ports["tls"], "", ("/1k",), 50, 0.4, 2),
                     contextlib.nullcontext())
        assert (len(results.seconds), results.failed) == (20, 0)
        assert origin.count_requests(20, "/1k", kind="tls") == 20


def run(*flags, **more):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "inspect", *flags], cwd=ROOT, text=True,
        capture_output=True, timeout=110, check=False, env=os.environ | more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "perf_inspect_end" in done.stdout and "failed=0" in done.stdout
    return [(line.split()[0], dict(pair.split("=", 1) for pair in line.split()[1:]))
            for line in done.stdout.splitlines() if line.startswith("perf_")]


@pytest.mark.slow
@needs_nginx
def test_a_short_run(tmp_path):
    rows = run("--minutes=0.02", "--only=start,load,latency",
               CUTTHROUGH_BENCH_PEERS=str(tmp_path))
    starts = [row for kind, row in rows if kind == "perf_inspect_start"]
    assert [row["start"] for row in starts] == ["first", "again"]
    assert all(float(row["request_ms"]) > float(row["listen_ms"]) for row in starts)
    phases = [row for kind, row in rows if kind == "perf_inspect"]
    assert [int(row["rate"]) for row in phases] == [0, 50, *STEPS]
    assert all(float(row["rss_peak_mib"]) > 20 for row in phases)
    ways = {row["proxy"]: row for kind, row in rows if kind == "perf_inspect_latency"}
    assert ways.keys() == {"direct", OPENED, "cutthrough"}
    assert float(ways["cutthrough"]["added_p50_ms"]) > 0


@pytest.mark.slow
@pytest.mark.dials_out                       # Chromium checks if IPv6 has a route
@needs_nginx
@needs_chromium
def test_the_page_is_measured():
    rows = {row["measure"]: row for kind, row in run("--only=page", "--rows=3000")
            if kind == "perf_inspect_page"}
    assert rows.keys() == {"load", "scroll-rest", "scroll-wheel", "scroll-bar",
                           "selection", "body", "filter"}
    assert all(0 < float(row["ms"]) < 20_000 for row in rows.values() if "ms" in row)
