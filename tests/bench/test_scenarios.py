"""Each kind of scenario, run once for less than it takes to say something: it counts
right and has the figures that the report shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.children import BenchError
from bench.clients import run_siege
from bench.figures import figures_of
from bench.measure import run_once
from bench.origin import Origin
from bench.peers import PEERS
from bench.proxies import PROXIES
from bench.running import Target
from bench.scenarios import SCENARIOS, STEPS, most_files
from bench.summary import median_name
from tests.bench.servers import needs_compiler, needs_nginx

pytestmark = [needs_compiler, needs_nginx]
FULL = "cutthrough-full"


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    most_files()
    with Origin() as running:
        yield running


def run(scenario: str, proxy: str, origin: Origin, seconds: float) -> dict[str, float]:
    if missing := SCENARIOS[scenario].missing or PROXIES[proxy].missing:
        pytest.skip(missing)
    row = run_once(scenario, proxy, origin, seconds)
    assert "failed" not in row, row
    assert row["errors"] == 0 and int(str(row["requests"])) > 0
    return {key: value for key, value in row.items() if isinstance(value, int | float)}


@pytest.mark.parametrize(
    ("scenario", "proxy", "seconds"),
    [
        ("plain-16k", "relay", 0.2),
        ("plain-new-siege", "relay", 0.2),
        ("bulk-both", "relay-splice", 0.2),
        ("idle-1000", "cutthrough", 1),
        ("crowd", f"{FULL}-crowd", 0.3),
        ("lifecycle", "cutthrough", 1),
        pytest.param("rate-500", "relay", 0.5, marks=pytest.mark.quiet),
        ("tail", FULL, 0.3),
        ("page", "relay", 0.3),
        ("workers", f"{FULL}-2", 0.6),
        ("soak", "relay", 0.4),
        ("hostile-slow-head", "cutthrough", 0.4),
        ("hostile-slow-read", "relay", 0.4),
        ("hostile-churn", "relay", 0.4),
    ],
)
def test_a_run_has_every_figure_that_is_shown(
    scenario: str, proxy: str, seconds: float, origin: Origin
) -> None:
    row = run(scenario, proxy, origin, seconds)
    named = {median_name(key) for key in row}
    of_siege = {"latency_p99_median_ms"} if scenario.endswith("siege") else set()
    assert {key for _, _, key in figures_of(scenario)} <= named | of_siege
    if "origin_requests" in row:
        assert row["origin_requests"] == row["requests"]


KEEPING = [
    name
    for name, peer in PEERS.items()
    if peer.keeps and not (peer.blind or peer.socks)
]


def count_ended(port: int) -> int:
    """Return how many TCP connections to this port of loopback wait in TIME_WAIT."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [(row[1], row[2]) for row in rows if row[3] == "06"]
    return sum(any(end.endswith(f":{port:04X}") for end in both) for both in ends)


@pytest.mark.parametrize("name", [*KEEPING, FULL])
def test_who_keeps_the_clients_connections_keeps_the_origins_or_its_row_says_no(
    name: str,
) -> None:
    """Apache made one for each request, and no report showed it. 100 clients; Go's
    transport may dial once more for each, and the request then takes a free one."""
    with Origin() as origin:
        row = run("plain-keepalive", name, origin, 0.5)
        if row["requests"] < 300:
            pytest.skip("too slow here to tell")
        reuses = name not in PEERS or PEERS[name].reuses
        assert (count_ended(origin.port) <= 215) == reuses


def test_siege_must_have_read_every_byte(
    origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = SCENARIOS["plain-new-siege"]
    if scenario.missing:
        pytest.skip(scenario.missing)
    proxy = PROXIES["direct"].start(Target(origin.site, origin.authority))
    monkeypatch.setitem(origin.lengths, "/index.html", 600)
    with pytest.raises(BenchError, match=r"siege: \d+ responses in"):
        run_siege(scenario, proxy, origin, 0.3)
    origin.skip_log()


@pytest.mark.quiet
def test_each_step_of_the_load_has_its_own_cpu_and_memory(origin: Origin) -> None:
    row = run("steps", "cutthrough", origin, 0.5)
    for number, rate in enumerate(STEPS, 1):
        assert row[f"step{number}_{rate}_rss_avg_kib"] > 1000
        busy = row[f"step{number}_{rate}_cpu_avg_percent"]
        assert 0 < busy <= row[f"step{number}_{rate}_cpu_peak_percent"] * 1.01
        assert row[f"step{number}_{rate}_p95_ms"] > 0
    # 200 a second cost more than 10: below a tick they once were all 0
    assert row["step5_200_cpu_avg_percent"] > row["step1_10_cpu_avg_percent"]
