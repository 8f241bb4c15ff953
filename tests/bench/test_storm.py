"""The storm: failures with and without an explanation; a short one is survived."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.callers import Failure
from bench.children import BenchError
from bench.storm import Kill, explain, explain_wrk, failures_of_proxy
from tests.bench.servers import needs_nginx

TREE = Path(__file__).resolve().parents[2]
needs_wrk = pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")

KILLS = [Kill(10.0, {1001, 1002}, {1002}), Kill(20.0, {1002, 1003}, {1003})]


def fails(at: float, port: int, opened_at: float = 5.0) -> Failure:
    return Failure(opened_at, at, port, "request: an end of stream")


def test_a_failure_on_a_killed_connection_is_explained() -> None:
    assert explain([fails(10.1, 1001), fails(20.0, 1002, 15.0)], KILLS) == []


@pytest.mark.parametrize("failure", [
    fails(10.1, 1003), fails(9.9, 1001), fails(15.0, 1001, 12.0), fails(10.1, 0)],
    ids=["another's", "before", "opened after", "never connected"])
def test_a_failure_elsewhere_is_not(failure: Failure) -> None:
    assert explain([failure], KILLS) == [failure]


def test_a_killed_connection_explains_one_failure() -> None:
    twice = [fails(10.1, 1001), fails(10.2, 1001)]
    assert explain(twice, KILLS) == twice[1:]


def said_by_wrk(errors: str) -> str:
    count = sum(int(word.partition(":")[2]) for word in errors.split(","))
    return f"tool=wrk requests=100 errors={count} first_error={errors} seconds=1.000"


@pytest.mark.parametrize("errors, unexplained", [
    ("connect:0,read:2,write:0,timeout:0,status:0", 0),
    ("connect:0,read:1,write:1,timeout:0,status:0", 0),
    ("connect:0,read:3,write:0,timeout:0,status:0", 1),
    ("connect:1,read:0,write:0,timeout:0,status:0", 1),
    ("connect:0,read:1,write:0,timeout:1,status:2", 3),
])
def test_wrk_may_fail_once_for_each_connection_that_was_killed(
        errors: str, unexplained: int) -> None:
    requests, _, left = explain_wrk(said_by_wrk(errors), KILLS)
    assert (requests, left) == (100, unexplained)


def test_a_wrk_that_says_nothing_is_no_result() -> None:
    with pytest.raises(BenchError):
        explain_wrk("unable to connect", KILLS)


def test_what_the_proxy_counted_is_added_up_but_for_the_clients_own() -> None:
    account = "cutthrough: served 5 requests and 1 tunnel, …; failures: {}\n"
    said = account.format("client_reset 4, drained 1") + account.format(
        "drained 2, internal_error 1") + account.format("none")
    assert failures_of_proxy(said) == {"drained": 3, "internal_error": 1}


@pytest.mark.slow
@needs_nginx
@needs_wrk
def test_a_short_storm_is_survived() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "storm", "--seconds=9", "--kill-every=2",
         "--conns=20"], cwd=TREE, text=True, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    values = dict(pair.split("=", 1) for pair in done.stdout.split()[1:])
    assert int(values["kills"]) >= 3 and values["upgrades"] == "2"
    # Before the first upgrade; if cores are busy it lasts, and the others wait
    assert int(values["reloads"]) >= 2
    assert int(values["killed_connections"]) >= int(values["failed"])
