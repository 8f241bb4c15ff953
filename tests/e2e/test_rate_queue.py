"""Requests beyond a rate that wait for their turn, as their limits say."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.client import build_request
from tests.support.origin import answer
from tests.support.recordings import recorded
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

RULE = """
[limits.paced]
requests_per_second = {rate}
burst = 1
{keys}
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
limits = "paced"
{more}
"""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def start(start_policy):
    def run(keys, rate=10, more="", config=""):
        return start_policy(RULE.format(keys=keys, rate=rate, more=more), DOOR + config)
    return run


def test_requests_beyond_the_rate_wait_and_all_are_answered_at_the_rate(
        start, make_origin, dial):
    proxy = start('queue = 20\nqueue_timeout = "60s"')
    origin = make_origin(answer(OK))
    clients = [dial(proxy) for _ in range(8)]
    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        got = [reply.status for reply in pool.map(
            lambda client: client.get(origin.url("/a")), clients)]
    assert got == [200] * 8
    assert time.monotonic() - begun > 0.6, "seven of them waited for a tenth each"
    assert {line["reason"] for line in proxy.wait_log(8)} == {"ok"}


def held(proxy):
    return sum(one["state"] == "held" for one in operator_of(proxy).connections())


def test_they_are_let_go_in_the_order_in_which_they_came(start, make_origin, dial):
    proxy = start('queue = 20\nqueue_timeout = "60s"', rate=1)
    origin, client = make_origin(answer(OK)), dial(proxy)
    assert client.get(origin.url("/0")).status == 200
    clients = [client, *(dial(proxy) for _ in range(3))]
    for n, one in enumerate(clients, 1):
        one.send(build_request("GET", origin.url(f"/{n}")))
        wait_until(lambda n=n: held(proxy) + len(origin.requests) > n, "it waits")
    for one in clients:
        assert one.read_response().status == 200
    assert [request.target for request in origin.requests] == [
        "/0", "/1", "/2", "/3", "/4"]


def test_beyond_the_queue_and_its_time_it_is_429_with_the_time_to_wait(
        start, make_origin, dial):
    proxy = start('queue = 1\nqueue_timeout = "2s"', rate=0.01)
    origin = make_origin(answer(OK))
    assert dial(proxy).get(origin.url("/a")).status == 200
    waiting = dial(proxy)
    waiting.send(build_request("GET", origin.url("/b")))
    wait_until(lambda: held(proxy) == 1 or proxy.log(reason="rate_limited"), "a line")
    for reply in (dial(proxy).get(origin.url("/c")), waiting.read_response()):
        assert (reply.status, reply.error) == (429, "http_request_denied")
        assert int(reply.get("Retry-After")) > 50
    lines = {line["url"][-2:]: line for line in proxy.wait_log(3)}
    assert lines["/b"]["reason"] == lines["/c"]["reason"] == "rate_limited"
    assert lines["/b"]["hook_ms"] >= 1900
    assert len(origin.requests) == 1


def test_a_client_that_leaves_makes_room(start, make_origin, dial):
    proxy = start('queue = 1\nqueue_timeout = "60s"', rate=0.2)
    origin = make_origin(answer(OK))
    assert dial(proxy).get(origin.url("/a")).status == 200
    gone = dial(proxy)
    gone.send(build_request("GET", origin.url("/gone")))
    wait_until(lambda: held(proxy) == 1 or len(origin.requests) > 1, "it waits")
    gone.reset()
    proxy.wait_log(2)
    assert dial(proxy).get(origin.url("/b")).status == 200


def test_what_is_recorded_is_paced_and_nothing_is_refused(
        start, make_origin, dial, directory):
    folder = directory("sessions")
    proxy = start('queue = 20\nqueue_timeout = "60s"', more='recording = "record"',
                  config=f'recording_directory = "{folder}"\n')
    origin = make_origin(answer(OK))
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda n: dial(proxy).get(origin.url(f"/{n}")).status,
                            range(6)))
    assert got == [200] * 6
    wait_until(lambda: recorded(folder) == 6, "six recordings")
