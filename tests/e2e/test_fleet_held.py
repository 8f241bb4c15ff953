"""What breakpoints of all programs hold, and metrics of the registry."""

import json

import psutil
import pytest

from tests.support.breakpoints import RULE
from tests.support.client import build_request
from tests.support.fleet import redis as redis
from tests.support.fleet import secret as secret
from tests.support.fleet import server as server
from tests.support.registered import join as join
from tests.support.registered import name
from tests.support.registered import verb as verb
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def test_what_breakpoints_hold_is_listed_with_its_program(
        join, verb, tmp_path, make_origin, dial):
    policy = tmp_path / "policy.toml"
    policy.write_text(f'{RULE}breakpoint = "request"\n')
    members = [join("--policy", str(policy)) for _ in range(2)]
    url = make_origin().url("/held")
    assert verb("flows", "arm", "600", "--fleet").returncode == 0
    clients = [dial(member.proxy) for member in members]
    for client in clients:
        client.send(build_request("GET", url))

    def held() -> list[dict]:
        done = verb("flows", "held", "--fleet", "--json")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return rows if [len(row["held"]) for row in rows] == [1, 1] else []

    assert [row["proxy"] for row in wait_until(held, "both")] == sorted(
        map(name, members))
    done = verb("flows", "held", "--fleet")
    assert (done.returncode, done.stderr) == (0, "")
    for member in members:
        armed, head, row = (line.removeprefix(f"{name(member)}: ")
                            for line in done.stdout.splitlines()
                            if line.startswith(f"{name(member)}: "))
        assert armed.startswith("armed for") and head.startswith("ID ")
        assert row.endswith(url)
    worker = psutil.Process(members[0].proxy.worker.pid)
    worker.suspend()
    try:
        done = verb("flows", "held", "--fleet")
    finally:
        worker.resume()
    assert done.returncode == 1 and done.stdout.count(url) == 1
    assert f"{name(members[0])}: worker 0 (pid {worker.pid}) does not answer" in (
        done.stderr)
    done = verb("flows", "held", "4711-1", "--fleet")
    assert done.returncode == 2 and "name it with --admin" in done.stderr
    assert verb("flows", "disarm", "--fleet").returncode == 0
    assert [client.read_response().status for client in clients] == [200, 200]


def test_metrics_have_what_a_program_knows_of_the_registry(join, redis):
    stays, dies = join(lease="3s"), join(lease="3s")
    wait_until(lambda: stays.metric("programs") == 2, "both")
    assert stays.metric("registered") == 1
    assert stays.metric("leases_expired_total") == 0
    dies.kill()
    wait_until(lambda: stays.metric("leases_expired_total"), "the end of its lease")
    assert stays.metric("programs") == 1
    redis.kill()
    wait_until(lambda: not stays.metric("registered"), "a renewal that fails")
    assert stays.metric("programs") == 0
    assert stays.metric('renewals_total{result="connection"}') >= 1
    renewed = stays.metric('renewals_total{result="ok"}')
    redis.start()
    wait_until(lambda: stays.metric("registered"), "another renewal")
    assert stays.metric("programs") == 1
    assert stays.metric('renewals_total{result="ok"}') > renewed
