"""Limits in bytes hold for what is written here: by the player of recordings and by
filters, whose bytes are read from no origin."""

import time

import pytest

from tests.support.client import build_request
from tests.support.filters import FILTERS
from tests.support.origin import echo
from tests.support.recordings import RULE, fill, made
from tests.support.recordings import folder as folder

pytestmark = pytest.mark.any_loop

LIMITED = "[limits.slow]\nbytes_per_second = {rate}\n" + RULE


def config(folder):
    return f'recording_directory = "{folder}"'


def text(size):
    return bytes(range(250)) * (size // 250)


@pytest.fixture
def start(start_policy, folder):
    """A proxy that replays `body`, at this rate."""
    def run(body, rate):
        fill(folder, made(9, body=body))
        return start_policy(LIMITED.format(rate=rate, mode="replay",
                                           keys='limits = "slow"'), config(folder))
    return run


def has_pace(call, body, rate):
    """An eighth of a second's bytes may come at once."""
    began = time.monotonic()
    assert call() == body
    return time.monotonic() - began >= (len(body) - rate / 8) / rate * 0.95


@pytest.mark.parametrize("size", [30_000, 300_000])
def test_a_replayed_answer_has_its_rate(start, dial, size):
    """All of it was sent at once, in one piece or in many."""
    body = text(size)
    proxy = start(body, size)
    assert has_pace(lambda: dial(proxy).get("http://127.0.0.1:9/a").body, body, size)
    assert [line["reason"] for line in proxy.wait_log(1)] == ["replayed"]


def test_a_reload_that_lifts_the_rate_holds_for_a_replay_under_way(start, dial):
    body = text(60_000)
    proxy = start(body, 1024)
    client = dial(proxy)
    client.send(build_request("GET", "http://127.0.0.1:9/a"))
    head = client.read_until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    proxy.policy.write_text(LIMITED.format(rate=1 << 30, mode="replay",
                                           keys='limits = "slow"'))
    proxy.hup()
    assert client.read_exact(len(body)) == body         # a minute at the old rate
    assert client.get("http://127.0.0.1:9/a").body == body


def test_a_client_that_leaves_a_paced_replay_ends_it(start, dial):
    proxy = start(text(60_000), 1024)
    client = dial(proxy)
    client.send(build_request("GET", "http://127.0.0.1:9/a"))
    client.read_until(b"\r\n\r\n")
    client.reset()
    assert [line["reason"] for line in proxy.wait_log(1)] == ["client_reset"]


def test_limit_data_ends_a_replay_after_so_many_bytes(start_policy, folder, dial):
    """A bound of faults did not hold for an answer that is written here."""
    body = text(30_000)
    fill(folder, made(9, body=body))
    proxy = start_policy("[faults.bad]\nlimit_data = 5000\n" + RULE.format(
        mode="replay", keys='faults = "bad"'), config(folder))
    client = dial(proxy)
    client.send(build_request("GET", "http://127.0.0.1:9/a"))
    received = client.read_rest()
    assert len(received) == 5000 and body.startswith(
        received.partition(b"\r\n\r\n")[2])
    assert [line["reason"] for line in proxy.wait_log(1)] == ["fault_reset"]


def test_a_filter_s_own_answer_has_its_rate(start_policy, make_origin, dial):
    proxy = start_policy(
        '[filters.local]\ncode = "sieve:Local"\n'
        "[limits.slow]\nbytes_per_second = 300_000\n"
        '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
        'limits = "slow"\nfilters = ["local"]\n',
        modules={"sieve": FILTERS})
    url, body = make_origin().url("/local"), b"x" * 300_000
    assert has_pace(lambda: dial(proxy).get(url).body, body, 300_000)


def test_a_collected_body_goes_up_at_its_rate(
        start_policy, folder, make_origin, dial):
    body, origin = text(300_000), make_origin()
    proxy = start_policy(LIMITED.format(rate=300_000, mode="cache",
                                        keys='limits = "slow"'), config(folder))
    client = dial(proxy)

    def send():
        assert client.ask("POST", origin.url("/a"), f"Content-Length: {len(body)}",
                          body=body).body == b"ok"
        return origin.requests[0].body

    assert has_pace(send, body, 300_000)


SLOW = ('[limits.slow]\nbytes_per_second = 4096\n[[rules]]\naction = "allow"\n'
        'addresses = ["127.0.0.0/8"]\nlimits = "slow"\n')


def test_an_upload_that_the_limits_hold_back_is_not_late(
        start_policy, make_origin, dial):
    """What comes with a head is sent at once, and then paid for: four seconds without a
    byte, and the client, who had sent all, got 408."""
    origin = make_origin()
    proxy = start_policy(SLOW, 'body_timeout = "500ms"\n')
    client = dial(proxy)
    client.send(build_request("POST", origin.url("/"), "Content-Length: 18000"),
                bytes(18000))
    assert client.read_response("POST").status == 200


def test_a_tunnel_that_the_limits_hold_back_is_not_idle(
        start_policy, make_origin, dial):
    """It was `idle_timeout`."""
    proxy = start_policy(SLOW, 'idle_timeout = "500ms"\n')
    origin = make_origin(echo)
    client = dial(proxy)
    client.tunnel(origin.authority, bytes(12000))
    assert client.read_exact(12000) == bytes(12000)
