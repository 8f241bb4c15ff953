"""HTTP, SOCKS and TLS on one port: the first byte of each connection decides."""

import asyncio
import socket
import ssl

import pytest

import cutthrough
from tests.support.certificates import TlsSocket, client_context, localhost
from tests.support.client import PASSWORD, USER, Client
from tests.support.handovers import RENEW, handed
from tests.support.handovers import start as start
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.socks import (
    BY_PASSWORD,
    GRANTED,
    NONE,
    SocksClient,
    command,
    command4,
    greet,
    login,
)
from tests.support.stream import Stream
from tests.support.successors import end, successor_of
from tests.support.tls_listener import call as call
from tests.support.tls_listener import serve as serve
from tests.support.tls_listener import table
from tests.support.wait import wait_until
from tests.wire.twin_proxy import build_line

pytestmark = pytest.mark.any_loop

EVERY = '["http", "socks5", "socks4", "tls"]'
HANDSHAKE = 22                              # RFC 8446 section 5.1
HEADER = build_line("192.0.2.7")


def one_port(**more: str) -> str:
    return table(localhost(), **{"protocols": EVERY, "auth": '"none"', **more})


class Cut:
    """A socket that sends its n-th byte, counted from the first, in another segment."""

    def __init__(self, sock: socket.socket, at: int, prefix: bytes = b"") -> None:
        self._sock, self._at, self._prefix = sock, at, prefix
        self.sent = 0

    def sendall(self, data: bytes) -> None:
        data, self._prefix = self._prefix + data, b""
        cut = min(max(self._at - self.sent, 0), len(data))
        for part in (data[:cut], data[cut:]):
            if part:
                self._sock.sendall(part)
        self.sent += len(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


@pytest.fixture
def reach(opened, call):
    """A client, over TLS or not."""
    def connect(proxy: Proxy, secure: bool = True, at: int = 0, prefix: bytes = b"",
                context: ssl.SSLContext | None = None) -> SocksClient:
        client = SocksClient.__new__(SocksClient)
        sock = call(proxy)
        Stream.__init__(client, sock)
        cut = Cut(sock, at, prefix)
        client.sock = TlsSocket(cut, context) if secure else cut
        client.cut = cut
        opened.callback(client.close)
        return client
    return connect


@pytest.mark.parametrize("secure", [False, True])
def test_all_of_them(serve, reach, make_origin, secure):
    proxy, origin, echoing = serve(one_port()), make_origin(), make_origin(echo)
    client = reach(proxy, secure)
    for auth in ({"auth": None}, {}):
        assert client.get(origin.url(), **auth).status == 200
    assert client.tunnel(echoing.authority, b"a").read_exact(1) == b"a"
    fifth = reach(proxy, secure)
    assert fifth.method(NONE) == NONE
    assert fifth.request(echoing.authority, early=b"b") == GRANTED
    assert fifth.read_exact(1) == b"b"
    known = reach(proxy, secure).socks_tunnel(echoing.authority, b"c")
    assert known.read_exact(1) == b"c"
    fourth = reach(proxy, secure)
    assert fourth.request4(echoing.authority, early=b"d") == 90
    assert fourth.read_exact(1) == b"d"
    for one in (client, fifth, known, fourth):
        one.close()
    methods = [one["method"] for one in proxy.wait_log(6, reason="ok")]
    assert sorted(methods) == ["CONNECT", "GET", "GET", "SOCKS4", "SOCKS5", "SOCKS5"]


def test_a_handshake_is_read_however_it_is_cut(serve, reach, make_origin):
    """The hello, the client's other records, and SOCKS inside them."""
    proxy, origin = serve(one_port()), make_origin(echo)
    context = client_context()
    whole = greet(BY_PASSWORD) + login() + command(origin.authority) + b"early"
    first = reach(proxy, context=context)
    shaken = first.cut.sent
    first.send(whole)
    end = first.cut.sent
    for at in range(1, end + 1):
        client = first if at == 1 else reach(proxy, at=at, context=context)
        if at > 1:
            client.send(whole)
        assert client.read_pair(5) == BY_PASSWORD
        assert client.read_pair(1) == GRANTED
        assert client.read_reply()[0] == GRANTED, (at, shaken, end)
        assert client.read_exact(5) == b"early"
        client.close()
    assert {one["reason"] for one in proxy.wait_log(end)} == {"ok"}


@pytest.mark.parametrize("secure", [False, True])
def test_behind_the_header_of_a_load_balancer(serve, reach, make_origin, secure):
    """In one segment with later bytes, cut behind its first byte, and byte by byte."""
    proxy = serve(one_port(proxy_protocol="true", auth_none_from='["192.0.2.0/24"]'),
                  config='proxy_protocol_from = ["127.0.0.1"]\n'
                         'address_floor = "off"\nconnect_ports = "any"\n')
    origin = make_origin(echo)
    cuts = (0, *range(len(HEADER) - 2, len(HEADER) + 3))
    for at in cuts:
        client = reach(proxy, secure, at=at, prefix=HEADER)
        client.send(command4(origin.authority) + b"early")
        assert client.read_exact(8)[:2] == b"\0\x5a", at
        assert client.read_exact(5) == b"early"
        client.close()
    records = proxy.wait_log(len(cuts), reason="ok")
    assert {one["client"] for one in records} == {"192.0.2.7"}


def test_tunnels_in_plain_text_move_and_those_over_tls_drain(
        start, reach, make_origin):
    """At a reload that replaces workers, and at an upgrade; no client notices which."""
    proxy, origin = start(one_port()), make_origin(echo)
    both = (True, False)
    tunnels = [reach(proxy, secure).tunnel(origin.authority) for secure in both]
    tunnels += [reach(proxy, secure).socks_tunnel(origin.authority) for secure in both]
    resting = reach(proxy)
    assert resting.get(make_origin().url()).status == 200
    proxy.reload(RENEW.format(9999) + one_port())
    wait_until(lambda: handed(proxy), proxy.stderr)
    assert handed(proxy) == [(2, 0)]        # the others cannot move
    assert not resting.fill()               # a close_notify; a FIN alone would raise
    for word in (b"here", b"there"):
        for tunnel in tunnels:
            tunnel.send(word)
            assert tunnel.read_exact(len(word)) == word
        if word == b"here":
            successor = successor_of(proxy)
    for tunnel in tunnels:
        tunnel.close()
    methods = [one["method"] for one in proxy.wait_log(5, reason="ok")]
    assert sorted(methods) == ["CONNECT", "CONNECT", "GET", "SOCKS5", "SOCKS5"]
    assert len(origin.connections) == 4
    end(successor)


def test_what_a_port_does_not_serve_is_refused_inside_tls_too(serve, reach):
    proxy = serve(one_port(protocols='["socks5", "tls"]'))
    for secure in (False, True):
        client = reach(proxy, secure)
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert client.at_eof()
        assert client.received == b""
        proxy.wait_reason("bad_socks")
    again = reach(proxy)
    again.send(bytes((HANDSHAKE, 3, 1)))        # TLS is not inside TLS
    assert again.at_eof()
    assert reach(proxy).method(NONE) == NONE


def test_without_tls_among_them_certificates_leave_nothing_in_plain(serve, reach, call):
    proxy = serve(one_port(protocols='["http", "socks5", "socks4"]'))
    for data in (b"GET / HTTP/1.1\r\n\r\n", greet(NONE), command4("127.0.0.1:1")):
        sock = call(proxy)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = sock.recv(1000)
        assert not answer or answer[0] == 21    # an alert
    assert reach(proxy).method(NONE) == NONE


def test_half_a_hello_has_a_deadline_and_no_answer(serve, call):
    proxy = serve(one_port(), config='head_timeout = "500ms"\n')
    begun, silent, plain = call(proxy), call(proxy), call(proxy)
    begun.sendall(bytes((HANDSHAKE,)))
    plain.sendall(b"G")
    assert begun.recv(100) == b""
    assert silent.recv(100) == b""
    assert b" 408 " in plain.recv(1000)
    proxy.wait_reason("tls_timeout")
    assert len(proxy.wait_log(2)) == 2          # the silent one began no request


def test_garbage_in_a_record_of_tls(serve, call):
    proxy = serve(one_port())
    sock = call(proxy)
    sock.sendall(bytes((HANDSHAKE,)) * 100)
    sock.shutdown(socket.SHUT_WR)
    answer = sock.recv(1000)
    assert not answer or answer[0] == 21
    proxy.wait_reason("tls_failed")


def test_who_is_turned_away_before_tls_gets_no_plain_text(
        serve, reach, call, make_origin):
    """R47: the header names a client that is over its limit."""
    proxy = serve(table(localhost(), proxy_protocol="true"),
                  config='proxy_protocol_from = ["127.0.0.1"]\n'
                         'address_floor = "off"\nconnect_ports = "any"\n'
                         'max_connections_per_client = 1\n')
    held = reach(proxy, prefix=HEADER).tunnel(make_origin(echo).authority)
    second = call(proxy)
    second.sendall(HEADER)
    assert second.recv(1000) == b""
    assert proxy.wait_reason("client_limit")["status"] == 0
    held.send(b"still here")
    assert held.read_exact(10) == b"still here"


async def test_at_the_bound_of_handshakes_an_older_one_goes(make_origin):
    """Its first bytes were read before it was known to be TLS."""
    from cutthrough.net.tls import transport as tls

    made, most = localhost(), 4
    options = {"address": "127.0.0.1:0", "protocols": ["http", "tls"],
               "certificates": [str(made.certificate)],
               "certificate_keys": [str(made.key)]}
    tls.set_most_handshakes(most)
    try:
        async with cutthrough.serve(user=USER, password=PASSWORD,
                                    listeners=[options]) as proxy:
            held = [socket.create_connection(("127.0.0.1", proxy.port))
                    for _ in range(2 * most)]
            for sock in held:
                sock.sendall(bytes((HANDSHAKE, 3, 1)))
            answer = await asyncio.to_thread(secure_get, proxy.port,
                                             make_origin().url())
            assert answer == 200
            for sock in held:
                sock.close()
    finally:
        tls.set_most_handshakes(1024)


def secure_get(port: int, url: str) -> int:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        client = Client.__new__(Client)
        Stream.__init__(client, sock)
        client.sock = TlsSocket(sock)
        return client.get(url).status
