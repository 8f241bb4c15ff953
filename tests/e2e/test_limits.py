"""Limits, with one worker and two: exact, and given back."""

import contextlib
import os
import signal
import time

import pytest

from tests.support.client import Client, build_request
from tests.support.limits import attempt, retry_after
from tests.support.origin import answer_and_close, echo, flood, stall
from tests.support.proxy import Proxy
from tests.support.stream import TIMEOUT, Closed
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


# Connections


def test_connections_of_one_client_are_limited(start_proxy, make_origin, dial):
    proxy = start_proxy("--max-connections-per-client", "2", "--workers", "2")
    origin = make_origin()
    echoing = make_origin(echo)
    held = [dial(proxy).tunnel(echoing.authority) for _ in range(2)]
    refused = dial(proxy).read_response()
    assert (refused.status, refused.get("Connection")) == (429, "close")
    assert refused.error == "http_request_denied" and retry_after(refused) == 1
    proxy.wait_reason("client_limit")
    held.pop().close()
    wait_until(lambda: serves(proxy, origin), "room for another")


def test_connections_of_all_workers_together_are_limited(
    start_proxy, make_origin, dial
):
    proxy = start_proxy("--max-connections-total", "8", "--workers", "2")
    origin = make_origin()
    echoing = make_origin(echo)
    callers = (dial(proxy) for _ in range(20))      # one after the other
    served = [caller for caller in callers if has_tunnel(caller, echoing)]
    assert len(served) == 8
    proxy.wait_log(12, reason="overloaded", status=503)
    served[0].close()
    wait_until(lambda: serves(proxy, origin), "room for another")


def has_tunnel(client: Client, origin) -> bool:
    with contextlib.suppress(OSError, Closed):
        return client.connect(origin.authority).status == 200
    return False


def greeted(client: Client, origin) -> bool:
    with contextlib.suppress(OSError, Closed):
        return client.get(origin.url()).status == 200
    return False


def serves(proxy: Proxy, origin) -> bool:
    with proxy.client() as client:
        return greeted(client, origin)


def test_a_user_s_connections_are_limited(limited, make_origin, dial):
    proxy = limited(connections=1)
    origin = make_origin()
    first, second = dial(proxy), dial(proxy)
    assert first.get(origin.url()).status == 200
    assert first.get(origin.url()).status == 200, "the same connection"
    refused = second.get(origin.url())
    assert refused.status == 429 and retry_after(refused) == 1
    proxy.wait_reason("user_limit", method="GET")
    first.close()
    wait_until(lambda: second.get(origin.url()).status == 200, "room for the second")


# Tunnels


def test_two_workers_give_exactly_as_many_tunnels_as_are_allowed(limited, make_origin):
    proxy = limited("--workers", "2", tunnels=100)
    origin = make_origin(echo)
    for _ in range(2):  # and again after all are closed
        held: list[Client] = []
        try:
            statuses = attempt(proxy, origin.authority, 500, held)
            assert (statuses.count(200), statuses.count(429)) == (100, 400)
            for client in held:
                client.send(b"through")
                assert client.read_exact(7) == b"through"
        finally:
            for client in held:
                client.close()
        refused = proxy.wait_log(400, reason="user_limit")
        assert len({record["worker"] for record in refused}) == 2
        proxy.wait_log(100, reason="ok")  # all have ended
        proxy.mark()


def test_a_killed_worker_s_share_is_given_back(limited, make_origin):
    proxy = limited("--workers", "2", tunnels=40)
    origin = make_origin(echo)
    held: list[Client] = []
    try:
        assert attempt(proxy, origin.authority, 80, held).count(200) == 40
        victim = max(proxy.workers(), key=lambda worker: len(worker.net_connections()))
        os.kill(victim.pid, signal.SIGKILL)
        alive = [client for client in held if not is_cut(client)]
        assert len(alive) < 40
        wait_until(
            lambda: (
                len(proxy.workers()) == 2
                and victim.pid not in [w.pid for w in proxy.workers()]
            ),
            "two workers",
        )
        again: list[Client] = []
        try:
            statuses = attempt(proxy, origin.authority, 80, again)
            assert statuses.count(200) == 40 - len(alive)
        finally:
            for client in again:
                client.close()
    finally:
        for client in held:
            client.close()


def is_cut(client: Client) -> bool:
    try:
        client.send(b"?")
        return not client.read_exact(1)
    except (OSError, Closed):
        return True


def test_a_tunnel_that_fails_to_connect_is_given_back(limited, make_origin, dial):
    proxy = limited(tunnels=1)
    for _ in range(3):
        assert dial(proxy).connect("127.0.0.1:1").status == 502
    assert dial(proxy).connect(make_origin(echo).authority).status == 200


def test_an_upgraded_connection_is_a_tunnel_too(limited, make_origin, dial):
    reply = b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n"

    def raw(conn) -> None:
        conn.read_request()
        conn.send(reply)
        echo(conn)

    proxy = limited(tunnels=1)
    origin = make_origin(raw)
    fields = "Connection: upgrade", "Upgrade: raw"
    assert dial(proxy).get(origin.url(), *fields).status == 101
    assert dial(proxy).get(origin.url(), *fields).status == 429
    proxy.wait_reason("user_limit")


# Requests


def test_requests_beyond_the_rate_are_told_when_to_come_again(
    limited, make_origin, dial
):
    proxy = limited("--workers", "2", requests_per_second=0.5, burst=6)
    origin = make_origin()
    clients = [dial(proxy) for _ in range(20)]
    replies = [client.get(origin.url()) for client in clients]
    refused = [reply for reply in replies if reply.status == 429]
    assert len(refused) == 14 and len(origin.requests) == 6
    assert {retry_after(reply) for reply in refused} <= {1, 2}
    assert all(reply.get("Connection") is None for reply in refused), "it may stay"
    proxy.wait_log(14, reason="rate_limited", status=429)


# Bytes per day


def test_a_quota_cuts_a_running_tunnel_and_refuses_what_comes_then(
    limited, make_origin, dial
):
    quota = 3_000_000
    proxy = limited(bytes_per_day=quota)
    origin = make_origin(flood)
    client = dial(proxy).tunnel(origin.authority)
    client.send(b"!")
    seen = 0
    with contextlib.suppress(ConnectionResetError):
        while n := len(client.sock.recv(65536)):
            seen += n
    record = proxy.wait_reason("quota_exceeded")
    moved = record["bytes_up"] + record["bytes_down"]
    assert quota <= moved <= quota + 2 * 16_384
    assert seen <= moved
    refused = dial(proxy).connect(origin.authority)
    assert refused.status == 429 and 0 < retry_after(refused) <= 86_400
    assert dial(proxy).get(origin.url()).status == 429


def test_a_quota_cuts_the_tunnels_at_rest_too(limited, make_origin, dial):
    """Booked each second, and looked at by each worker: no byte of theirs is awaited.
    Else they would live until `idle_timeout`, which is longer than a client waits."""
    proxy = limited("--workers", "2", bytes_per_day=1_000_000)
    at_rest = [dial(proxy).tunnel(make_origin(echo).authority) for _ in range(6)]
    busy = dial(proxy).tunnel(make_origin(flood).authority)
    busy.send(b"!")
    with contextlib.suppress(ConnectionResetError):
        while busy.sock.recv(65536):
            pass
    assert all(client.at_eof() for client in at_rest)
    proxy.wait_log(7, reason="quota_exceeded")


def test_a_trickle_is_cut_too(limited, make_origin, dial):
    """Booked each second, and not only when a quantum is full."""
    proxy = limited(bytes_per_day=100)
    client = dial(proxy).tunnel(make_origin(echo).authority)
    begin = time.monotonic()
    with contextlib.suppress(OSError, Closed):
        client.send(bytes(60))
        client.read_exact(60)
        while time.monotonic() - begin < TIMEOUT:
            assert client.is_silent(0.05)
    proxy.wait_reason("quota_exceeded")


def test_an_upload_beyond_the_quota_is_told_so(limited, make_origin, dial):
    proxy = limited(bytes_per_day=100_000)
    origin = make_origin(stall)
    client = dial(proxy)
    client.send(build_request("POST", origin.url(), "Content-Length: 400000"))
    client.send(bytes(200_000))
    reply = client.read_response()
    assert (reply.status, reply.get("Connection")) == (429, "close")
    assert retry_after(reply) > 1 or time.time() % 86400 > 86390
    proxy.wait_reason("quota_exceeded", status=429)


def test_a_quota_cuts_a_response_in_the_middle(limited, make_origin, dial):
    proxy = limited(bytes_per_day=1_000_000)
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + bytes(4_000_000)
    client = dial(proxy)
    with pytest.raises((Closed, ConnectionResetError)):
        client.get(make_origin(answer_and_close(reply)).url())
    proxy.wait_reason("quota_exceeded")
