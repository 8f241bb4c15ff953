"""The bench of attacks: requests in time, missed goals, and a short run."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench import attack, lone
from bench.attack import ATTACKS, flat, judge, keep, outcomes, p99, share
from bench.attackers import ATTACKERS
from tests.bench.servers import needs_nginx
from tests.support.dns import A, encode_name, read_question
from tests.support.network import own_network

TREE = Path(__file__).parents[2]


def served(n: int, took: float = 0.01, kind: str = "fresh", seen: str = "ok") -> list:
    return [(0.0, kind, seen, took)] * n


@pytest.mark.parametrize(("beside", "memory", "missed"), [
    (served(99) + served(1, seen="503_overloaded"), (100, 110), []),
    (served(98) + served(2, seen="ECONNRESET"), (100, 100), ["share"]),
    (served(98) + served(2, took=2.1), (100, 100), ["share", "p99"]),
    (served(90, took=0.02) + served(10, took=0.06), (100, 111), ["p99", "memory"]),
    (served(90) + served(10, took=0.05), (100, 100), []),      # no delay to speak of
    (served(99) + served(10, took=4.0, kind="first"), (100, 100), []),
    (served(99) + served(10, took=5.1, kind="first"), (100, 100), ["share"]),
])
def test_what_was_missed_is_named(beside, memory, missed):
    assert judge(served(100), beside, *memory) == missed


def test_a_quiet_run_that_was_not_served_judges_nothing():
    assert "in_peace" in judge(served(9) + served(1, seen="503"), served(10), 1, 1)


def test_what_came_late_is_counted_apart():
    records = served(3) + served(2, took=3.0) + served(1, seen="503_auth_timeout")
    assert outcomes(records) == {"ok": 3, "late": 2, "503_auth_timeout": 1}
    assert share(records) == 0.5
    assert p99(records) == 3.0
    assert flat({"a": {"ok": 3, "late": 2}, "b": 1}) == {"a": "ok:3,late:2"}


def test_each_attack_names_an_attacker():
    assert {one.attacker for one in ATTACKS.values()} == {"", *ATTACKERS}


def test_results_are_kept_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(attack, "RESULT", tmp_path / "attack.json")
    keep("before", [{"scenario": "idle", "share": 0.1}, {"scenario": "hook"}])
    keep("after", [{"scenario": "idle", "share": 0.9}])
    keep("before", [{"scenario": "idle", "share": 0.2}])
    kept = json.loads((tmp_path / "attack.json").read_text())
    assert kept["before"]["rows"] == [{"scenario": "hook"},
                                      {"scenario": "idle", "share": 0.2}]
    assert kept["after"]["rows"] == [{"scenario": "idle", "share": 0.9}]


def test_the_name_server_answers_for_some_and_counts_the_others():
    def query(name: str) -> bytes:
        return bytes(2) + b"\1\0\0\1\0\0\0\0\0\0" + encode_name(name) + b"\0\1\0\1"

    try:
        names = lone.NameServer()
    except PermissionError:  # not root, and no capability in the namespace
        pytest.skip("port 53 of a loopback address may not be bound")
    with names, socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.sendto(query("n1.drop.test"), (lone.NAMES, 53))
        sock.sendto(query("ok1.test"), (lone.NAMES, 53))
        reply = sock.recv(4096)
        assert names.unanswered == 1 and len(names.ports) == 1
    assert read_question(reply)[:2] == ("ok1.test", A)
    assert reply.endswith(socket.inet_aton("127.0.0.1"))


@pytest.mark.slow
@needs_nginx
def test_a_short_attack_is_told():
    """Its verdict about a busy machine is not tested here."""
    with own_network():
        done = subprocess.run(
            [sys.executable, "-m", "bench", "attack", "--only=hook,idle,handshakes",
             "--seconds=2", "--settle=0", "--cost=4"], cwd=TREE, text=True,
            capture_output=True, timeout=160, check=False)
    assert done.returncode in (0, 1), done.stderr
    rows = [dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in done.stdout.splitlines()]
    assert [row["scenario"] for row in rows] == ["hook", "idle", "handshakes"], (
        done.stderr)
    for row in rows:
        assert int(row["requests"]) > 100 and "ok:" in row["outcomes"]
    assert int(rows[0]["attacker"].partition("asked:")[2].partition(",")[0]) > 100
    assert int(rows[1]["attacker"].partition("peak:")[2].partition(",")[0]) > 1000
    shaken = rows[2]["attacker"].partition("handshakes:")[2].partition(",")[0]
    assert float(shaken) > 50
