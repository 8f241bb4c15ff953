"""Interception below TLS that is there already: of an HTTPS proxy, or a parent's."""

import hashlib
import time

import pytest

from tests.support.certificates import (
    Authority,
    TlsSocket,
    client_context,
    localhost,
)
from tests.support.http2 import Peer
from tests.support.inside import (
    ALL,
    HERE,
    ask,
    certificate,
    config,
    enter,
    okay,
    origins,
    over_tls,
    send,
    shake,
)
from tests.support.inside_tls import carrier
from tests.support.inside_tls import reach as reach
from tests.support.origin import Connection, answer, echo
from tests.support.parents import parent
from tests.support.tls_listener import table

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

BIG = bytes(range(256)) * 20_000        # 5 MB


@pytest.fixture
def start(start_policy):
    def make(policy: str = ALL, more: str = "", **kinds):
        listener = table(localhost(), protocols='["http", "http2"]')
        return start_policy(policy, config(more + listener), **kinds)
    return make


def test_requests_inside_are_requests(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, reach(proxy), origin.port)
    assert [ask(client, path=path).body for path in ("/1", "/2")] == [b"ok", b"ok"]
    assert client.sock.tls.getpeercert()["subjectAltName"] == (("DNS", "a.example"),)
    records = proxy.wait_log(3)
    assert [(one["method"], one["reason"], one["user"]) for one in records] == [
        (method, "ok", "user") for method in ("CONNECT", "GET", "GET")]
    assert {one["intercepted"] for one in records} == {True}


def test_streams_inside(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    peer = Peer(enter(proxy, reach(proxy), origin.port, context=carrier("h2")).sock)
    peer.flush()
    streams = [peer.get(f"https://a.example/{n}") for n in range(20)]
    peer.wait(*streams)
    assert [peer.answers[one].body for one in streams] == [b"ok"] * 20


def test_who_takes_slowly_what_the_kernel_holds_is_not_silent(
        start, make_origin, dial) -> None:
    """The kernel has it for the connection behind the bridge: the response was cut,
    while its client took some of that all the time."""
    proxy = start(more='idle_timeout = "500ms"\n')
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BIG)
    origin = make_origin(over_tls(answer(head + BIG)))
    client = dial(proxy, receive_buffer=4096)
    client.sock = TlsSocket(client.sock, carrier("http/1.1"))
    client = enter(proxy, client, origin.port)
    send(client, "GET", "/")
    client.read_head()
    while len(client.pending) < len(BIG) and client.fill():
        time.sleep(0.012)  # the pace is under test: some 1 MiB a second
    assert client.take(len(client.pending)) == BIG
    proxy.wait_log(2, reason="ok")


def test_bodies_both_ways(start, make_origin, reach) -> None:
    def script(conn: Connection) -> None:
        while request := conn.read_request():
            digest = hashlib.sha256(request.body).hexdigest().encode()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
                      % (len(digest) + len(BIG)) + digest + BIG)

    proxy, origin = start(), make_origin(over_tls(script))
    client = enter(proxy, reach(proxy), origin.port)
    for _ in range(2):
        got = ask(client, "POST", "/", f"Content-Length: {len(BIG)}", body=BIG).body
        assert got == hashlib.sha256(BIG).hexdigest().encode() + BIG


def test_what_is_no_http_passes(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(over_tls(echo, alpn=()))
    client = enter(proxy, reach(proxy), origin.port)
    for data in (b"\x10\x0c\x00\x04MQTT\x04\x02", b"x" * 300_000):
        client.send(data)
        assert client.read_exact(len(data)) == data
    client.half_close()
    assert client.at_eof()


def test_the_end_of_the_inner_connection_is_the_outers(start, make_origin,
                                                       reach) -> None:
    proxy = start()
    origin = make_origin(over_tls(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")))
    client = enter(proxy, reach(proxy), origin.port)
    assert ask(client, "GET", "/", "Connection: close").body == b"ok"
    assert client.at_eof()


def test_a_client_that_goes_away(start, make_origin, reach) -> None:
    """In the middle of a body: nothing is left of bridge, session or origin."""
    proxy = start()
    origin = make_origin(over_tls(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + BIG)))
    client = enter(proxy, reach(proxy), origin.port)
    client.send(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert client.read_exact(100_000)
    client.reset()
    assert proxy.wait_log(2)[1]["reason"] in ("client_reset", "client_closed")


def test_a_stop_in_the_middle(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(over_tls(echo, alpn=()))
    client = enter(proxy, reach(proxy), origin.port)
    client.send(b"\x10\x0c\x00\x04MQTT\x04\x02")
    assert client.read_exact(10)
    proxy.stop()
    assert proxy.wait_log(2)[1]["reason"] == "stopped"
    client.reset()


def test_a_refusal_inside(start, make_origin, reach) -> None:
    proxy = start(f'[[rules]]\naction = "allow"\nmethods = ["CONNECT"]\n{HERE}'
                  'tls = "intercept"\n'
                  f'[[rules]]\naction = "allow"\npaths = ["/api/**"]\n{HERE}')
    origin = make_origin(over_tls(okay))
    client = enter(proxy, reach(proxy), origin.port)
    assert ask(client, path="/api/1").status == 200
    assert ask(client, path="/admin").status == 403


def test_a_parent_over_tls(start, make_origin, reach) -> None:
    """The origin's TLS lies inside the parent's."""
    def script(conn: Connection) -> None:
        assert conn.read_request().method == "CONNECT"
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        over_tls(okay)(conn)

    way = make_origin(over_tls(script, certificate("IP:127.0.0.1")))
    proxy = start(
        '[[rules]]\naction = "allow"\nhosts = ["a.example"]\ntls = "intercept"\n',
        'route = "corp"\n' + parent(way, "https", resolve="parent",
                                    ca=str(origins().own.certificate)))
    client = enter(proxy, reach(proxy), 4711)
    assert [ask(client).body for _ in range(3)] == [b"ok"] * 3
    assert {one["parent"] for one in proxy.wait_log(4)} == {"corp"}


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
def test_a_certificate_says_who_it_is_after_a_reload_too(
        start_policy, make_origin, dial, protocol) -> None:
    """The name is in no table of users, and the certificate not in the TLS inside."""
    clients = Authority("clients")
    proxy = start_policy(ALL, config(table(
        localhost(), client_ca=f'"{clients.own.certificate}"',
        client_certificate='"required"')))
    origin = make_origin(over_tls(okay))
    client = dial(proxy)
    client.sock = TlsSocket(
        client.sock, client_context(clients.sign(subject="/CN=alice")))
    client.connect(f"a.example:{origin.port}", auth=None)
    shake(client, context=carrier(protocol))
    peer = Peer(client.sock) if protocol == "h2" else None
    for number in range(2):
        if peer is None:
            assert ask(client, path=f"/{number}").status == 200
        else:
            stream = peer.get(f"https://a.example/{number}")
            peer.wait(stream)
            assert peer.answers[stream].status == 200
        proxy.hup()
    assert [line["user"] for line in proxy.wait_log(3)] == ["alice"] * 3
