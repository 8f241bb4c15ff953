"""Observers: the phases of a request, and the bytes that taps are passed."""

import asyncio
import contextlib
import socket

import pytest

import cutthrough
from cutthrough.config.parents import Parent
from cutthrough.net import buffers
from cutthrough.policy.source import Policy
from tests.doors.observing import Recorder
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.intercepting import NETWORKS, SERVERS, routed
from tests.support.origin import Origin, answer, echo
from tests.support.socks import ASSOCIATE, GRANTED, SocksClient
from tests.support.stream import Stream, chunked
from tests.support.wait import wait_until

BULK = 4 << 20


def observe(journey, script=echo, tap_in="", raises_in="", **options):
    """Runs journey(client, origin) through a worker; returns its Recorder. No
    connection may be left."""
    async def main():
        async with cutthrough.serve(
                user=USER, password=PASSWORD, access_log="off", **options) as proxy:
            recorder = Recorder(proxy.worker.context, tap_in)
            recorder.raises_in = raises_in

            def run():
                with Origin(script) as origin, Client(proxy.port) as client:
                    journey(client, origin)

            await asyncio.to_thread(run)
            left = asyncio.get_running_loop().time() + 10
            while any(proxy.worker.leaks().values()):
                assert asyncio.get_running_loop().time() < left, proxy.worker.leaks()
                await asyncio.sleep(0.01)
            return recorder

    return asyncio.run(main())


def phases(recorder, nth=1):
    """The phases of the nth request and the report of each."""
    requests = list(dict.fromkeys(request for _, request, _ in recorder.phases))
    return [(phase, detail) for phase, request, detail in recorder.phases
            if request == requests[nth - 1]]


HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
BODY = chunked([b"one", b"two"])
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY


def test_two_requests_have_four_phases_each():
    def journey(client, origin):
        for path in ("a", "b"):
            assert client.get(origin.url(f"/{path}")).body == b"hello"

    seen = observe(journey, answer(HELLO))
    for number, path in ((1, "a"), (2, "b")):
        (first, target), *rest = phases(seen, number)
        assert (first, target.rpartition("/")[2]) == ("request", path)
        assert rest == [("route", 0), ("response", 200), ("end", "ok")]
    assert (seen.up, seen.down) == ([], [])


def test_a_tunnel_has_the_same_phases():
    def journey(client, origin):
        client.tunnel(origin.authority)
        client.send(b"ping")
        assert client.read_exact(4) == b"ping"
        client.half_close()
        assert client.read_rest() == b""

    seen = observe(journey)
    assert phases(seen)[0][0] == "request"
    assert phases(seen)[1:] == [
        ("route", 0), ("response", None), ("end", "ok")]


SOCKS = [{"address": "127.0.0.1:0", "protocols": ["http", "socks5"], "udp": True}]


def socks(client):
    """Another connection to the listener of `client`."""
    return SocksClient(client.sock.getpeername()[1])


def test_a_tunnel_by_socks_has_them_without_a_head():
    """It had no request."""
    def journey(client, origin):
        with socks(client) as one:
            one.socks_tunnel(origin.authority, early=b"ping")
            assert one.read_exact(4) == b"ping"
            one.half_close()
            assert one.read_rest() == b""
            names.append(origin.authority)

    names = []
    seen = observe(journey, listeners=SOCKS)
    assert phases(seen) == [("request", names[0]), ("route", 0), ("response", None),
                            ("end", "ok")]


def test_an_association_has_a_request_and_an_end():
    def journey(client, origin):
        with socks(client) as one:
            assert one.log_in() == GRANTED
            assert one.request("0.0.0.0:9", ASSOCIATE) == GRANTED

    seen = observe(journey, listeners=SOCKS)
    assert phases(seen) == [("request", "0.0.0.0:0"), ("end", "ok")]


def test_a_login_by_socks_that_fails_only_ends():
    def journey(client, origin):
        with socks(client) as one:
            assert one.log_in(password="guess") != GRANTED

    assert phases(observe(journey, listeners=SOCKS)) == [("end", "auth_failed")]


def test_a_fault_of_the_observer_is_answered_by_socks():
    """R34."""
    def journey(client, origin):
        with socks(client) as one:
            assert one.log_in() == GRANTED
            assert one.request(origin.authority) == 1
            assert one.read_rest() == b""

    seen = observe(journey, raises_in="request", listeners=SOCKS)
    assert [phase for phase, _ in phases(seen)] == ["request", "end"]


def test_a_transparent_tunnel_has_them_without_a_head():
    """It had no request."""
    def journey(client, origin):
        with Origin(echo, SERVERS[4], port=443), Stream(
                router.dial(SERVERS[4], 443)) as one:
            one.send(b"\0 no protocol that anybody knows")
            assert one.read_exact(4) == b"\0 no"
            one.half_close()
            one.read_rest()

    with routed() as router:
        router.intercept("redirect", "3129", "--in", "near", "--ports", "443")
        seen = observe(
            journey, address_floor="off", policy=Policy(default="allow", source="test"),
            listeners=[{"address": "0.0.0.0:3129", "transparent": "redirect",
                        "auth": "none", "auth_none_from": NETWORKS}])
    assert phases(seen) == [("request", f"{SERVERS[4]}:443"), ("route", 0),
                            ("response", None), ("end", "ok")]


def test_a_refused_request_has_no_route():
    def journey(client, origin):
        assert client.get(origin.url(), auth=None).status == 407
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        assert client.get(url).status == 502

    seen = observe(journey)
    assert [phase for phase, _ in phases(seen, 1)] == ["request", "end"]
    assert [phase for phase, _ in phases(seen, 2)] == ["request", "end"]


def test_a_head_that_cannot_be_read_only_ends():
    def journey(client, origin):
        client.send(b"GET\r\n\r\n")
        assert client.read_response("GET").status == 400

    assert phases(observe(journey)) == [("end", "bad_request")]


@pytest.mark.parametrize("phase", ["request", "route"])
def test_taps_are_passed_what_the_sinks_are(phase):
    """The rewritten head, the body, and the response as it is sent on."""
    def journey(client, origin):
        reply = client.ask("POST", origin.url(), "Content-Length: 4", body=b"body")
        assert reply.status == 200

    def script(conn):
        assert conn.read_request().body == b"body"
        conn.send(CHUNKED)

    seen = observe(journey, script, tap_in=phase)
    head, _, body = b"".join(seen.up).partition(b"\r\n\r\n")
    assert head.startswith(b"POST / HTTP/1.1\r\n") and b"\r\nVia: 1.1 " in head
    assert b"Proxy-Authorization" not in head
    assert body == b"body"
    head, _, body = b"".join(seen.down).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == BODY


@pytest.mark.parametrize("phase", ["request", "route"])
@pytest.mark.parametrize("body", [b"", b"body"])
def test_a_tap_never_sees_the_parents_credentials(phase, body):
    """It was passed the head as the parent gets it (R45)."""
    def journey(client, origin):
        reply = client.ask("POST", "http://a.test/b", f"Content-Length: {len(body)}",
                           body=body)
        assert reply.status == 200

    with Origin(answer(HELLO)) as way:
        seen = observe(journey, tap_in=phase, route="corp", parents=(Parent(
            name="corp", url=f"http://127.0.0.1:{way.port}", resolve="parent",
            plain="absolute", credentials="me:secret"),))
        (request,) = way.requests
    assert request.target == "http://a.test/b" and request.body == body
    assert request.all("proxy-authorization") == ["Basic bWU6c2VjcmV0"]
    head, _, rest = b"".join(seen.up).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /b HTTP/1.1\r\n") and rest == body
    assert b"Authorization" not in head


def test_bulk_through_a_tapped_tunnel_is_copied_whole():
    data = bytes(range(256)) * (BULK // 256)

    def journey(client, origin):
        client.tunnel(origin.authority)
        client.send(b"go")
        assert client.read_exact(BULK) == data
        client.half_close()
        assert client.read_rest() == b""

    def script(conn):
        assert conn.read_exact(2) == b"go"
        conn.send(data)

    seen = observe(journey, script, tap_in="response")
    assert b"".join(seen.up) == b"go"
    assert b"".join(seen.down) == b"HTTP/1.1 200 Connection established\r\n\r\n" + data


def test_a_tap_that_is_set_in_the_middle_of_bulk_misses_nothing():
    """The origin answers before it has the whole body; half of it was spliced."""
    half = bytes(range(256)) * (BULK // 256)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"

    def journey(client, origin):
        client.send(build_request("POST", origin.url(), f"Content-Length: {2 * BULK}"))
        client.send(half)
        client.read_until(b"\r\n\r\n")
        client.send(half)
        assert client.read_exact(5) == b"hello"

    def script(conn):
        conn.read_until(b"\r\n\r\n")
        conn.read_exact(BULK)
        conn.send(head)
        conn.read_exact(BULK)
        conn.send(b"hello")

    seen = observe(journey, script, tap_in="response")
    assert b"".join(seen.up) == half


def test_each_request_sets_its_own_taps():
    def journey(client, origin):
        for _ in range(2):
            assert client.get(origin.url()).body == b"hello"

    seen = observe(journey, answer(HELLO), tap_in="request")
    assert b"".join(seen.down).count(b"hello") == 2


@pytest.mark.parametrize("phase", ["request", "route", "response", "end"])
def test_a_fault_of_the_observer_ends_one_connection_and_leaves_nothing(phase):
    """R34: the fault is the session's, at any point of its life."""
    def journey(client, origin):
        client.send(build_request("GET", origin.url()))
        with contextlib.suppress(ConnectionResetError):
            client.read_rest()

    seen = observe(journey, answer(HELLO), raises_in=phase)
    assert phase in [one for one, _ in phases(seen)]


def test_a_fault_while_a_client_is_turned_away_is_not_the_acceptors():
    """The session stayed, without a deadline, and held its descriptor."""
    def journey(client, origin):
        client.send(build_request("GET", origin.url()))
        origin.wait_requests(1)
        port = client.sock.getpeername()[1]
        with contextlib.suppress(OSError), Client(port) as second:   # reset at once
            second.read_rest()
        client.close()

    def script(conn):
        conn.read_request()
        conn.stall()

    seen = observe(journey, script, raises_in="end", max_connections_per_client=1)
    assert phases(seen, 2)[0] == ("end", "client_limit")


def test_a_tapped_tunnel_waits_for_memory_and_goes_on():
    """If no block was free, nothing was read, and nothing told of a free one: it stood
    still until its deadline. A tap sees bytes once, so they cannot be peeked."""
    def journey(client, origin):
        client.tunnel(origin.authority)
        refused = buffers.stats()["refused"]
        buffers.set_bound(0, "relays")
        client.send(b"ping")
        wait_until(lambda: buffers.stats()["refused"] > refused, "starving")
        buffers.set_bound(512 << 20)
        assert client.read_exact(4) == b"ping"

    try:
        seen = observe(journey, tap_in="route")
    finally:
        buffers.set_bound(512 << 20)
    assert seen.up == [b"ping"]
    assert seen.down[-1] == b"ping"
