"""A pooled connection may have died: some requests are sent again, some not (R19)."""

import threading

import pytest

from tests.support.origin import OK
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


class Stale:
    """Answers `good` requests of its first connection, then reads one more and closes.

    The close comes after the next request has been taken, so the proxy cannot have seen
    it beforehand: a stale connection as it happens at an origin's keep-alive timeout.
    """

    def __init__(self, good: int = 1, partial: bytes = b"") -> None:
        self.good = good
        self.partial = partial
        self.lock = threading.Lock()
        self.first = True

    def __call__(self, conn) -> None:
        with self.lock:
            first, self.first = self.first, False
        for _ in range(self.good if first else 1 << 30):
            conn.read_request()
            conn.send(OK)
        conn.note(conn.read_head())
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


@pytest.mark.parametrize("options", [(), ("--upstream-idle-per-origin", "1")])
def test_a_connection_without_a_place_leaves_its_port_at_once(
    start_proxy, make_origin, dial, options
):
    """R31: closed by FIN each would hold one in TIME_WAIT for 60 s: 470 POSTs a second
    to one origin use up all there are. A POST dials, so an idle connection leaves its
    place to it, or there would be as many as POSTs in 30 s."""
    proxy = start_proxy(*options)

    def script(conn):
        conn.read_request()
        conn.send(OK)
        try:
            conn.stall()
            ends.append("FIN")
        except ConnectionResetError:
            ends.append("RST")

    ends: list[str] = []
    origin = make_origin(script)
    client = dial(proxy)
    post = ("POST", origin.url("/post"), "Content-Length: 4")
    for _ in range(5):
        assert client.ask(*post, body=b"data").status == 200
    wait_until(lambda: len(ends) == 4, lambda: f"four of five ended: {ends}")
    assert set(ends) == {"RST"}
    proxy.wait_log(5, reason="ok")


def test_a_connection_that_the_origin_closed_while_idle_is_not_used(
    proxy, make_origin, dial
):
    """A POST after the idle FIN goes to a fresh connection, and only there."""

    def script(conn):
        conn.read_request()
        conn.send(OK)
        if len(conn.origin.connections) == 1:
            released.wait(30)
            conn.close()
            closed.set()
        else:
            conn.stall()

    released, closed = threading.Event(), threading.Event()
    origin = make_origin(script)
    client = dial()
    assert client.get(origin.url()).status == 200
    proxy.wait_log(1)
    released.set()
    closed.wait(30)
    assert (
        client.ask("POST", origin.url(), "Content-Length: 2", body=b"hi").status == 200
    )
    assert len(origin.connections) == 2
