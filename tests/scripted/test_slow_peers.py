"""A deadline ends a peer that trickles to hold a connection for ever (R30, R31).

If each byte moves a deadline, the deadline never comes: so peers owe a rate as well.
"""

import itertools
from collections.abc import Iterable

import pytest

from tests.support.client import Client, build_request
from tests.support.origin import OK
from tests.support.scripted import Network
from tests.support.scripted_peers import SLOW, echo, stall
from tests.support.stream import Closed, Stream, chunked

#: 1000 bytes a second on an average over 300 ms; no other deadline comes before that.
RATE = ("--min-rate", "1000", "--min-rate-grace", "300ms")
TICK = 0.05


def trickle(network: Network, peer: Stream, pieces: Iterable[bytes],
            listener: Client) -> None:
    """Sends a piece each TICK, until the listener gets something."""
    for piece in pieces:
        peer.send(piece)
        network.pass_time(TICK)
        if not listener.is_silent(0):
            return


def take_it_all(conn):
    yield conn.read_request
    conn.send(OK)


def pour(conn):
    """More than any buffer holds."""
    yield conn.read_request
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    while True:
        yield conn.send, bytes(1 << 20)


@pytest.mark.parametrize(
    ("framing", "piece"),
    [
        ("Content-Length: 1000000", b"x"),
        ("Transfer-Encoding: chunked", b"1\r\nx\r\n"),
        ("Transfer-Encoding: chunked", b"1;" + b"e" * 60 + b"\r\nx\r\n"),
    ],
    ids=["length", "chunks", "extensions"],
)
def test_a_body_that_trickles_is_a_408(
    start_proxy, network, make_origin, dial, framing, piece
):
    """20 bytes a second; 1.2 kB/s with extensions, but no origin gets extensions."""
    proxy = start_proxy(*RATE)
    client = dial(proxy)
    client.send(build_request("POST", make_origin(take_it_all).url(), framing))
    trickle(network, client, itertools.repeat(piece), client)
    reply = client.read_response()
    assert (reply.status, reply.get("Connection")) == (408, "close")
    assert 300 <= proxy.wait_reason("body_timeout")["total_ms"] < 1000


def test_a_body_that_is_fast_enough_is_taken(start_proxy, network, make_origin, dial):
    """2000 bytes a second, for four times the grace."""
    proxy = start_proxy(*RATE)
    client = dial(proxy)
    origin = make_origin(take_it_all)
    client.send(build_request("POST", origin.url(), "Content-Length: 2500"))
    trickle(network, client, [b"x" * 100] * 25, client)
    assert client.read_response().status == 200
    assert origin.requests[0].body == b"x" * 2500


def test_a_body_is_still_cut_by_silence_first(start_proxy, make_origin, dial):
    """Credit with the rate does not allow a body to be silent."""
    proxy = start_proxy("--min-rate-grace", "30s", "--body-timeout", "300ms")
    client = dial(proxy)
    client.send(
        build_request("POST", make_origin(take_it_all).url(), "Content-Length: 99999")
    )
    client.send(bytes(50_000))
    assert client.read_response().status == 408
    assert 300 <= proxy.wait_reason("body_timeout")["total_ms"] <= 332


def test_an_origin_that_takes_a_body_by_the_byte_is_a_504(
    start_proxy, network, make_origin, dial
):
    """Not a 408: the client would send."""
    proxy = start_proxy(*RATE)
    client = dial(proxy)
    origin = make_origin(None, **SLOW)
    client.send(
        build_request("POST", origin.url(), "Content-Length: 1000000000"))
    conn = origin.connections[0]
    conn.read_head()
    client.send(bytes(1 << 22))
    while client.is_silent(0):
        conn.sock.recv(1)
        network.pass_time(TICK)
    assert client.read_response().status == 504
    proxy.wait_reason("response_timeout")


def test_a_reader_that_takes_a_byte_now_and_then_is_cut(
    start_proxy, network, make_origin, dial
):
    proxy = start_proxy(*RATE)
    client = dial(proxy, **SLOW)
    client.send(build_request("GET", make_origin(pour).url()))
    client.read_head()
    while not proxy.log():
        client.sock.recv(1)
        network.pass_time(TICK)
    assert 300 <= proxy.wait_reason("write_timeout")["total_ms"] < 1000


def test_a_reader_that_is_fast_enough_is_served(
    start_proxy, network, make_origin, dial
):
    """80 kB/s, so that megabytes of socket buffers hide every byte of it from epoll."""
    proxy = start_proxy(*RATE)
    client = dial(proxy, window=8192, queue=2_500_000)
    client.send(build_request("GET", make_origin(pour).url()))
    client.read_head()
    for _ in range(40):
        assert len(client.sock.recv(4096)) == 4096
        network.pass_time(TICK)
    assert proxy.log() == []


def trickle_a_response(conn):
    yield conn.read_request
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    yield conn.stall


def test_events_may_come_when_they_come(start_proxy, network, make_origin, dial):
    """An origin owes no rate, because half of the slow responses are so on purpose."""
    proxy = start_proxy(*RATE)
    client, origin = dial(proxy), make_origin(trickle_a_response)
    client.send(build_request("GET", origin.url()))
    client.read_head()
    for _ in range(24):                     # 1.2 s: four graces
        network.pass_time(TICK)
        origin.connections[0].send(b"1\r\n.\r\n")
        assert client.read_exact(6) == b"1\r\n.\r\n"
    assert proxy.log() == []


def test_a_response_that_trickles_has_a_greatest_age(
    start_proxy, network, make_origin, dial
):
    proxy = start_proxy("--lifetime", "500ms")
    client, origin = dial(proxy), make_origin(trickle_a_response)
    client.send(build_request("GET", origin.url()))
    client.read_head()
    with pytest.raises((Closed, ConnectionResetError)):
        for _ in range(100):
            network.pass_time(TICK)
            origin.connections[0].send(b"1\r\n.\r\n")
            client.read_exact(6)
    assert 500 <= proxy.wait_reason("lifetime")["total_ms"] <= 532


def test_a_response_head_that_trickles_is_a_504(
    start_proxy, network, make_origin, dial
):
    def begin_a_head(conn):
        yield conn.read_request
        conn.send(b"HTTP/1.1 200 OK\r\nX: ")
        yield conn.stall

    proxy = start_proxy("--response-timeout", "300ms")
    client, origin = dial(proxy), make_origin(begin_a_head)
    client.send(build_request("GET", origin.url()))
    trickle(network, origin.connections[0], itertools.repeat(b"x"), client)
    reply = client.read_response()
    assert (reply.status, reply.error) == (504, "http_response_timeout")
    assert 300 <= proxy.wait_reason("response_timeout")["total_ms"] <= 332


def test_a_request_has_a_greatest_age(start_proxy, make_origin, dial):
    """If nothing was sent to the client yet, it gets a reply."""
    proxy = start_proxy("--lifetime", "300ms")
    reply = dial(proxy).get(make_origin(stall).url())
    assert (reply.status, reply.error) == (504, "connection_timeout")
    proxy.wait_reason("lifetime")


def switch(conn):
    yield conn.read_head
    conn.send(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
    yield from echo(conn)


@pytest.mark.parametrize("how", ["CONNECT", "upgrade"])
def test_a_tunnel_owes_no_rate(start_proxy, network, make_origin, dial, how):
    proxy = start_proxy(*RATE)
    client = dial(proxy)
    if how == "CONNECT":
        client.tunnel(make_origin(echo).authority)
    else:
        fields = ("Connection: upgrade", "Upgrade: raw")
        assert client.get(make_origin(switch).url(), *fields).status == 101
    for _ in range(24):
        client.send(b".")
        assert client.read_exact(1) == b"."
        network.pass_time(TICK)
    assert proxy.log() == []


def test_without_a_rate_a_body_may_trickle(start_proxy, network, make_origin, dial):
    proxy = start_proxy("--min-rate", "0", "--min-rate-grace", "100ms")
    client = dial(proxy)
    origin = make_origin(take_it_all)
    client.send(build_request("POST", origin.url(), "Transfer-Encoding: chunked"))
    pieces = [b"1\r\nx\r\n"] * 15 + [chunked([])]
    trickle(network, client, pieces, client)
    assert client.read_response().status == 200
    assert origin.requests[0].body == b"x" * 15
