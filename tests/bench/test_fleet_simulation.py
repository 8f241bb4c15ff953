"""The simulation of a fleet: it plays what was measured, then what nobody has."""

import itertools
import subprocess
import sys
from collections import Counter

import pytest

from bench.fleet_simulation import (
    P50,
    RPS,
    TOLERANCE,
    Fleet,
    Storm,
    excess,
    maglev,
    read_storm,
    reproduce,
)
from tests.support.proxy import ROOT


def test_measured_points_are_reproduced_within_the_tolerance():
    rows = [row for row in reproduce() if not row["outside"]]
    assert {row["figure"] for row in rows} == {RPS, P50} and len(rows) == 5
    assert {row["point"]: abs(row["off"]) <= TOLERANCE for row in rows} == {
        row["point"]: True for row in rows}, rows


def test_maglev_spreads_evenly_and_moves_few_when_a_host_goes():
    hosts = [f"host{number}" for number in range(100)]
    before, after = maglev(hosts), maglev(hosts[1:])
    counts = Counter(before)
    assert set(counts) == set(hosts)
    assert max(counts.values()) - min(counts.values()) <= 1
    moved = sum(a not in (hosts[0], b) for a, b in zip(before, after, strict=True))
    assert moved / len(before) < 0.1


@pytest.fixture(scope="module")
def death():
    storm = Storm(Fleet(hosts=10, clients=50), read_storm())
    storm.run()
    return storm


def test_every_client_of_the_dead_host_is_served_again(death):
    assert len(death.served) == death.counts["host0"] > 0
    assert min(death.served) >= Fleet.patience
    assert all(wait > 0 for wait in death.waits)


def test_the_same_seed_is_the_same_storm(death):
    again = Storm(Fleet(hosts=10, clients=50), read_storm())
    again.run()
    assert again.served == death.served


def test_known_credentials_cost_no_hash():
    storm = Storm(Fleet(hosts=10, clients=50, shared=True), read_storm())
    storm.run()
    assert storm.most_hashes == 0 and max(storm.waits) < read_storm()["hash_s"]


def test_a_user_gets_no_more_than_the_documented_excess():
    rows = [excess(hosts, rate, 20, delay) for hosts, rate, delay in itertools.product(
        (1, 3, 20), (10, 50), (0.1, 0.4))]
    assert all(row["excess"] <= row["bound"] + 1 for row in rows), rows
    assert all(row["excess"] == 0 for row in rows if row["hosts"] == 1)


def test_the_verb_prints_points_and_predictions():
    done = subprocess.run([sys.executable, "-m", "bench", "fleet-simulation"], cwd=ROOT,
                          capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"fleet_point", "fleet_death", "fleet_limit", "fleet_capacity"} <= kinds
