"""HTTP/2 to an `https://` proxy: a stream is a request or a tunnel (R62)."""

import contextlib
import hashlib
import random
import signal
import socket
import ssl
import threading
import time

import pytest

from tests.support.certificates import client_context, localhost
from tests.support.client import build_request
from tests.support.http2 import (
    END_STREAM,
    HEADERS,
    NO_ERROR,
    PREFACE,
    frame,
)
from tests.support.http2_listener import BOTH, LOGIN, OKAY
from tests.support.http2_listener import reach as reach
from tests.support.http2_listener import serve as serve
from tests.support.http2_listener import shared as shared
from tests.support.origin import Connection, answer, answer_and_close, echo
from tests.support.parents import parent
from tests.support.proxy import Proxy
from tests.support.sockets import count_segments, unsent
from tests.support.tls_listener import table
from tests.support.wait import wait_until
from tests.wire.twin_proxy import read_proxy_header

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop


def test_a_plain_request(shared, reach, make_origin) -> None:
    origin = make_origin(answer(OKAY))
    peer = reach(shared)
    got = peer.wait(peer.get(origin.url("/a?b"), LOGIN, ("x-y", "z"), ("cookie", "a=1"),
                             ("cookie", "b=2")))
    assert (got.status, got.body, got.ended) == (200, b"hello", True)
    request = origin.requests[0]
    assert request.target == "/a?b"
    assert request.get("cookie") == "a=1; b=2"
    assert request.get("x-y") == "z"
    assert request.get("proxy-authorization") is None


def test_answers_that_come_together_are_sent_together(
        shared, reach, make_origin) -> None:
    """A record of TLS for each connection of clients, not for each answer."""
    go, gone = threading.Event(), threading.Semaphore(0)

    def script(conn: Connection) -> None:
        conn.read_request()
        go.wait(30)
        conn.send(OKAY)
        gone.release()

    origin = make_origin(script)
    peer = reach(shared)
    streams = [peer.get(origin.url(), LOGIN) for _ in range(5)]
    origin.wait_requests(5)
    # Behind this answer no frame about the five is on its way
    assert peer.wait(peer.get(make_origin().url(), LOGIN)).status == 200
    shared.worker.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: shared.worker.status() == "stopped", "stopped")
        before = count_segments(peer.sock)
        go.set()
        assert all(gone.acquire(timeout=30) for _ in streams)
        # Sent is not received: with a busy processor the kernel delivers later
        wait_until(lambda: unsent(origin.port) == 0, "delivered")
    finally:
        shared.worker.send_signal(signal.SIGCONT)
    assert peer.wait(*streams).status == 200
    assert count_segments(peer.sock) == before + 1


def test_a_client_of_http_11_is_served(shared, opened, make_origin) -> None:
    origin = make_origin(answer(OKAY))
    context = client_context()
    context.set_alpn_protocols(["http/1.1"])
    sock = socket.create_connection(("127.0.0.1", shared.port), 10)
    client = opened.enter_context(
        context.wrap_socket(sock, server_hostname="localhost"))
    assert client.selected_alpn_protocol() == "http/1.1"
    client.sendall(build_request("GET", origin.url("/")))
    assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_listener_without_it_does_not_offer_it(loop_name, directory, opened) -> None:
    proxy = opened.enter_context(
        Proxy(directory("tls"), loop=loop_name, config=table(localhost())))
    context = client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    sock = socket.create_connection(("127.0.0.1", proxy.port), 10)
    with context.wrap_socket(sock, server_hostname="localhost") as client:
        assert client.selected_alpn_protocol() == "http/1.1"


def test_a_tunnel(shared, reach, make_origin) -> None:
    origin = make_origin(echo)
    peer = reach(shared)
    stream = peer.connect(origin.authority, LOGIN)
    assert peer.wait_head(stream).heads == [{":status": "200"}]
    peer.send(stream, b"there and back")
    assert peer.wait_body(stream, 14) == b"there and back"
    peer.send(stream, b"", ends=True)
    assert peer.wait(stream).ended


def test_credentials_belong_to_their_stream(shared, reach, make_origin) -> None:
    origin = make_origin(answer(OKAY))
    peer = reach(shared)
    one = peer.get(origin.url("/"), LOGIN)
    two = peer.get(origin.url("/"))
    three = peer.connect(origin.authority)
    peer.wait(one, two, three)
    assert peer.answers[one].status == 200
    for refused in (two, three):
        assert peer.answers[refused].status == 407
        assert "proxy-authenticate" in peer.answers[refused].heads[0]
        assert "connection" not in peer.answers[refused].heads[0]


def test_each_stream_is_logged_as_its_own_request(serve, reach, make_origin) -> None:
    origin = make_origin(answer(OKAY))
    proxy = serve()
    peer = reach(proxy)
    peer.wait(peer.get(origin.url("/one"), LOGIN), peer.get(origin.url("/two"), LOGIN),
              peer.get(origin.url("/three")))
    found = proxy.wait_log(3)
    assert {one["url"] for one in found if one["status"] == 200} == {
        origin.url("/one"), origin.url("/two")}
    assert [one["reason"] for one in found if one["status"] == 407] == ["auth_required"]
    assert len({one["id"] for one in found}) == 3
    assert len({one["client"] for one in found}) == 1


def test_bodies_without_a_length_and_trailers(shared, reach, make_origin) -> None:
    reply = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
             b"3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Sum: 7\r\n\r\n")
    origin = make_origin(answer(reply))
    peer = reach(shared)
    stream = peer.get(origin.url("/"), LOGIN, method="POST", ends=False)
    peer.send(stream, b"hello ")
    peer.send(stream, b"world")
    peer.h2.send_headers(stream, [("x-t", "u")], end_stream=True)
    peer.flush()
    got = peer.wait(stream)
    assert (got.status, got.body, got.trailers) == (200, b"abcdefg", [("x-sum", "7")])
    assert origin.requests[0].body == b"hello world"


def test_a_head_and_an_empty_answer(shared, reach, make_origin) -> None:
    origin = make_origin(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"))
    peer = reach(shared)
    got = peer.wait(peer.get(origin.url("/"), LOGIN, method="HEAD"))
    assert (got.status, got.body, got.ended) == (200, b"", True)


def test_a_hundred_streams_at_a_time(shared, reach, make_origin) -> None:
    barrier = threading.Barrier(100, timeout=20)

    def script(conn: Connection) -> None:
        request = conn.read_request()
        barrier.wait()
        body = request.target.encode() * 100
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body)

    origin = make_origin(script)
    peer = reach(shared)
    peer.h2.remote_settings[3] = 100
    streams = [peer.get(origin.url(f"/{n}"), LOGIN) for n in range(100)]
    peer.wait(*streams)
    for n, stream in enumerate(streams):
        assert peer.answers[stream].body == f"/{n}".encode() * 100


MOST = 20_000_000


def pattern(n: int) -> bytes:
    return random.Random(n).randbytes(n)


def test_twenty_megabytes_down(shared, reach, make_origin) -> None:
    data = pattern(MOST)
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MOST + data))
    peer = reach(shared)
    got = peer.wait(peer.get(origin.url("/"), LOGIN))
    assert hashlib.sha256(got.body).digest() == hashlib.sha256(data).digest()
    assert got.ended


@pytest.mark.parametrize("framed", [True, False])
def test_twenty_megabytes_up(shared, reach, make_origin, framed) -> None:
    most = MOST if framed else MOST // 4
    data = pattern(most)
    origin = make_origin(answer(OKAY))
    peer = reach(shared)
    length = [("content-length", str(most))] if framed else []
    stream = peer.get(origin.url("/"), LOGIN, *length, method="POST", ends=False)
    sent = 0
    while sent < most:
        n = peer.send(stream, data[sent:sent + 100_000],
                      ends=sent + 100_000 >= most)
        sent += n
        if n < 100_000 and sent < most:
            peer.read()
        assert peer.answers[stream].reset is None
    assert peer.wait(stream).status == 200
    assert hashlib.sha256(origin.requests[0].body).digest() == (
        hashlib.sha256(data).digest())


def test_both_ways_through_a_tunnel_beside_another(shared, reach, make_origin) -> None:
    """An unread stream does not hold up its neighbour."""
    data = pattern(2_000_000)
    origin = make_origin(echo)
    peer = reach(shared)
    slow = peer.connect(origin.authority, LOGIN)
    fast = peer.connect(origin.authority, LOGIN)
    peer.wait_head(slow)
    peer.wait_head(fast)
    peer.send(slow, bytes(60_000))
    sent = 0
    while sent < len(data) or len(peer.answers[fast].body) < len(data):
        sent += peer.send(fast, data[sent:sent + 50_000])
        assert peer.read()
    assert peer.answers[fast].body == data


# --- ends


def test_a_reset_ends_the_request_at_the_origin(serve, reach, make_origin) -> None:
    ended = threading.Event()

    def script(conn: Connection) -> None:
        conn.read_head()
        with contextlib.suppress(OSError):
            while conn.fill():
                pass
        ended.set()

    origin = make_origin(script)
    proxy = serve()
    peer = reach(proxy)
    stream = peer.get(origin.url("/"), LOGIN, method="POST", ends=False)
    peer.send(stream, b"a part")
    origin.wait_connections(1)
    wait_until(lambda: b"a part" in origin.received, "the part")
    peer.h2.reset_stream(stream)
    peer.flush()
    assert ended.wait(10)
    assert proxy.wait_log(1)[0]["reason"] == "client_reset"
    got = peer.wait(peer.get(make_origin(answer(OKAY)).url("/"), LOGIN))
    assert got.body == b"hello"


def test_a_cut_answer_resets_its_stream_alone(shared, reach, make_origin) -> None:
    cut = make_origin(answer_and_close(
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"))
    peer = reach(shared)
    stream = peer.get(cut.url("/"), LOGIN)
    got = peer.wait(stream)
    assert got.body == b"hello"
    assert got.reset is not None
    assert not got.ended
    got = peer.wait(peer.get(make_origin(answer(OKAY)).url("/"), LOGIN))
    assert got.body == b"hello"


def test_an_answer_until_the_close(shared, reach, make_origin) -> None:
    origin = make_origin(answer_and_close(b"HTTP/1.1 200 OK\r\n\r\nhello"))
    peer = reach(shared)
    got = peer.wait(peer.get(origin.url("/"), LOGIN))
    assert (got.body, got.ended) == (b"hello", True)


def test_a_client_that_goes_takes_its_tunnels_along(serve, reach, make_origin) -> None:
    origin = make_origin(echo)
    proxy = serve()
    before = proxy.sockets()
    peer = reach(proxy)
    for _ in range(3):
        stream = peer.connect(origin.authority, LOGIN)
        peer.wait_head(stream)
    peer.sock.close()
    assert {one["reason"] for one in proxy.wait_log(3)} == {"client_reset"}
    wait_until(lambda: proxy.sockets() == before, lambda: f"{proxy.sockets()} sockets")


# --- drain and deadlines


def test_a_stop_is_announced_and_streams_go_on(serve, reach, make_origin) -> None:
    released = threading.Event()

    def script(conn: Connection) -> None:
        conn.read_request()
        released.wait(10)
        conn.send(OKAY)

    origin = make_origin(script)
    proxy = serve("drain_timeout = \"8s\"\n")
    peer = reach(proxy)
    idle = reach(proxy)
    idle.read()
    stream = peer.get(origin.url("/"), LOGIN)
    origin.wait_requests(1)
    proxy.signal(15)
    assert idle.wait_end() is not None
    while peer.goaway is None:
        assert peer.read()
    assert peer.goaway[0] == NO_ERROR
    released.set()
    assert peer.wait(stream).body == b"hello"
    peer.wait_end()
    assert proxy.wait_exit() == 0


def test_an_idle_connection_is_closed_in_time(serve, reach, make_origin) -> None:
    origin = make_origin(answer(OKAY))
    proxy = serve("keepalive_timeout = \"1s\"\n")
    peer = reach(proxy)
    peer.wait(peer.get(origin.url("/"), LOGIN))
    began = time.monotonic()
    code, _ = peer.wait_end()
    assert code == NO_ERROR
    assert time.monotonic() - began > 0.8
    assert len(proxy.log()) == 1


@pytest.mark.parametrize("data", [
    b"", frame(4) + frame(HEADERS, END_STREAM, 1, b"\x82")])
def test_an_unfinished_head_is_ended_by_its_deadline(serve, opened, data) -> None:
    proxy = serve("head_timeout = \"500ms\"\n")
    context = client_context()
    context.set_alpn_protocols(["h2"])
    sock = socket.create_connection(("127.0.0.1", proxy.port), 10)
    client = opened.enter_context(
        context.wrap_socket(sock, server_hostname="localhost"))
    if data:
        client.sendall(PREFACE + data)
    with contextlib.suppress(ssl.SSLError):
        while client.recv(4096):
            pass
    assert proxy.wait_log(1)[0]["reason"] == "head_timeout"


def test_a_reload_keeps_connections(serve, reach, make_origin) -> None:
    origin = make_origin(answer(OKAY))
    proxy = serve()
    peer = reach(proxy)
    peer.wait(peer.get(origin.url("/"), LOGIN))
    assert "generation 2" in proxy.reload(
        "idle_timeout = \"77s\"\n" + table(localhost(), **BOTH))
    assert peer.wait(peer.get(origin.url("/"), LOGIN)).status == 200


def test_http2_without_certificates_is_refused(loop_name, directory) -> None:
    with pytest.raises(AssertionError, match="http2 needs http and certificates"):
        Proxy(directory("http2"), loop=loop_name, config=(
            '[[listeners]]\naddress = "127.0.0.1:0"\nprotocols = ["http", "http2"]\n'))


def test_nothing_is_left(serve, reach, make_origin) -> None:
    origin = make_origin(answer_and_close(OKAY))
    proxy = serve()
    worker = proxy.worker.pid
    proxy.take_baseline()
    for _ in range(5):
        peer = reach(proxy)
        peer.wait(*[peer.get(origin.url("/"), LOGIN) for _ in range(20)])
        peer.sock.close()
    proxy.wait_settled()
    assert proxy.worker.pid == worker


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_proxy_header_to_a_parent_names_client_and_listener(
        serve, reach, make_origin, version) -> None:
    """A stream has no address of its own: the connection has."""
    named = []

    def script(conn: Connection) -> None:
        data = b""
        while read_proxy_header(data) is None:
            data += conn.read_exact(1)
        named.append(data)
        conn.read_request()
        conn.send(OKAY)

    way = make_origin(script)
    proxy = serve('route = "corp"\n' + parent(way, proxy_protocol=version))
    peer = reach(proxy)
    peer.wait(peer.get("http://127.0.0.1:4711/", LOGIN))
    port = peer.sock.getsockname()[1]
    (data,) = named
    if version == "v1":
        assert data == b"PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\n" % (port, proxy.port)
    else:
        assert data[16:] == bytes([127, 0, 0, 1] * 2) + port.to_bytes(2) + (
            proxy.port.to_bytes(2))
