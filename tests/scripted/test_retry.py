"""A pooled connection may have died: some requests are sent again, some not (R19)."""

import pytest

from tests.support.client import build_request
from tests.support.origin import OK


class Stale:
    """Answers `good` requests of its first connection, then reads one more and closes.

    The close comes after the next request has been taken, so the proxy cannot have seen
    it beforehand: a stale connection as it happens at an origin's keep-alive timeout.
    """

    def __init__(self, good: int = 1, partial: bytes = b"") -> None:
        self.good = good
        self.partial = partial

    def __call__(self, conn):
        is_first = len(conn.origin.connections) == 1
        for _ in range(self.good if is_first else 1 << 30):
            yield conn.read_request
            conn.send(OK)
        conn.note((yield conn.read_head))
        conn.send(self.partial)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_safe_request_is_sent_again_on_a_fresh_connection(
    proxy, make_origin, dial, method
):
    origin = make_origin(Stale())
    client = dial()
    assert client.get(origin.url("/first")).status == 200
    assert client.ask(method, origin.url("/second")).status == 200
    assert [r.target for r in origin.requests] == ["/first", "/second", "/second"]
    assert len(origin.connections) == 2
    assert [r["reason"] for r in proxy.wait_log(2)] == ["ok", "ok"]


def test_a_retry_carries_no_credentials_and_one_via(proxy, make_origin, dial):
    """R15: the rules of the first sending hold for the second."""
    origin = make_origin(Stale())
    client = dial()
    client.get(origin.url())
    client.get(origin.url())
    first, second = origin.requests[1:]
    assert first.raw == second.raw
    assert second.get("Proxy-Authorization") is None
    assert second.get("Via") == "1.1 test-proxy"


@pytest.mark.parametrize(
    ("method", "fields", "body"),
    [
        ("POST", ("Content-Length: 4",), b"data"),
        ("POST", ("Content-Length: 0",), b""),
        ("POST", ("Transfer-Encoding: chunked",), b"4\r\ndata\r\n0\r\n\r\n"),
        ("PUT", ("Content-Length: 4",), b"data"),
        ("PATCH", (), b""),
    ],
)
def test_what_may_have_happened_is_not_sent_twice(
    proxy, make_origin, dial, method, fields, body
):
    """So it never goes to a connection that its origin may have given up: 60 of 60
    first POSTs of a client were 502, at an origin that closes without a word."""
    origin = make_origin(Stale())
    assert dial().get(origin.url("/first")).status == 200
    proxy.wait_log(1)
    reply = dial().ask(method, origin.url("/once"), *fields, body=body)
    assert (reply.status, reply.body) == (200, b"ok")
    assert [r.target for r in origin.requests] == ["/first", "/once"]
    assert len(origin.connections) == 2
    proxy.wait_log(2, reason="ok")


def test_an_origin_that_closes_on_a_fresh_connection_is_asked_once(
    proxy, make_origin, dial
):
    origin = make_origin(Stale(good=0))
    client = dial()
    reply = client.ask("POST", origin.url("/once"), "Content-Length: 4", body=b"data")
    assert (reply.status, reply.error) == (502, "connection_terminated")
    assert [r.target for r in origin.requests] == ["/once"]
    assert proxy.wait_log(1)[0]["reason"] in ("origin_closed", "origin_reset")


def test_the_connection_of_a_post_is_kept_for_others(proxy, make_origin, dial):
    """The pool serves requests that may be sent twice, on any request's connections."""
    origin = make_origin()
    client = dial()
    post = ("POST", origin.url("/post"), "Content-Length: 4")
    for _ in range(3):
        assert client.ask(*post, body=b"data").status == 200
    assert len(origin.connections) == 3
    for _ in range(3):
        assert client.get(origin.url("/get")).status == 200
    assert len(origin.connections) == 3


def test_a_connection_without_a_place_leaves_its_port_at_once(
    start_proxy, make_origin, dial
):
    """R31: closed by FIN each would hold one in TIME_WAIT for 60 s: 470 POSTs a second
    to one origin use up all there are."""
    proxy = start_proxy("--upstream-idle-per-origin", "1")

    def script(conn):
        yield conn.read_request
        conn.send(OK)
        try:
            yield conn.stall
            ends.append("FIN")
        except ConnectionResetError:
            ends.append("RST")

    ends: list[str] = []
    origin = make_origin(script)
    client = dial(proxy)
    post = ("POST", origin.url("/post"), "Content-Length: 4")
    for _ in range(5):
        assert client.ask(*post, body=b"data").status == 200
    proxy.wait_log(5, reason="ok")
    assert ends == ["RST"] * 4


def test_after_a_byte_of_the_response_nothing_is_sent_again(proxy, make_origin, dial):
    origin = make_origin(Stale(partial=b"HTTP/1.1 2"))
    client = dial()
    assert client.get(origin.url("/first")).status == 200
    assert client.get(origin.url("/once")).status == 502
    assert [r.target for r in origin.requests] == ["/first", "/once"]


def test_a_fresh_connection_that_closes_is_not_tried_again(proxy, make_origin, dial):
    """If an origin answers no request, it gets each request once."""
    origin = make_origin(Stale(good=0))
    assert dial().get(origin.url()).status == 502
    proxy.wait_reason("origin_closed")
    assert len(origin.connections) == 1


def test_a_connection_that_the_origin_closed_while_idle_is_not_used(
    proxy, make_origin, dial
):
    """A POST after the idle FIN goes to a fresh connection, and only there."""
    origin = make_origin()
    client = dial()
    assert client.get(origin.url()).status == 200
    proxy.wait_log(1)
    origin.connections[0].close()
    assert (
        client.ask("POST", origin.url(), "Content-Length: 2", body=b"hi").status == 200
    )
    assert len(origin.connections) == 2


def test_pipelined_requests_survive_a_retry(proxy, make_origin, dial):
    origin = make_origin(Stale(good=2))
    client = dial()
    client.send(b"".join(build_request("GET", origin.url(f"/{n}")) for n in range(5)))
    assert [client.read_response().status for _ in range(5)] == [200] * 5


def test_an_idle_connection_is_closed_after_its_time(
    start_proxy, network, make_origin, dial
):
    proxy = start_proxy("--upstream-idle-timeout", "200ms")
    ended = []

    def script(conn):
        yield conn.read_request
        conn.send(OK)
        ended.append((yield conn.read_rest))

    assert dial(proxy).get(make_origin(script).url()).status == 200
    network.pass_time(0.15)
    assert not ended
    network.pass_time(0.1)
    assert ended == [b""], "the idle connection stays"


def test_the_pool_is_bounded(start_proxy, make_origin, dial):
    """R31: of many connections to one origin only so many are kept."""
    proxy = start_proxy("--upstream-idle-per-origin", "2")
    origin = make_origin(None)
    clients = [dial(proxy) for _ in range(6)]
    for client in clients:
        client.send(build_request("GET", origin.url()))
    for conn in origin.connections:
        conn.read_request()
        conn.send(OK)
    for client in clients:
        assert client.read_response().status == 200
        client.close()
    proxy.wait_log(6)
    assert len(origin.connections) == 6
    assert proxy.worker.idle_pool.idle == 2
    assert [conn.sock.peer.is_open for conn in origin.connections].count(True) == 2


def test_an_origin_that_is_asked_again_is_kept_in_place_of_the_eldest(
    start_proxy, make_origin, dial
):
    """R31: a full pool kept no newer connection until an older one had timed out."""
    proxy = start_proxy("--upstream-idle", "1")
    once, again = make_origin(Stale(1 << 30)), make_origin(Stale(1 << 30))
    client = dial(proxy)
    for origin in (once, again, again, again, once):
        assert client.get(origin.url()).status == 200
    assert [len(one.connections) for one in (once, again)] == [2, 1]
    proxy.wait_log(5, reason="ok")
