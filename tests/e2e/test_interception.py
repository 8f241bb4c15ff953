"""Interception by rule: HTTP/1.1 inside a tunnel, as requests (R54, R56)."""

import hashlib
import ssl

import pytest

from tests.support.inside import (
    ALL,
    HERE,
    OK,
    ask,
    config,
    enter,
    okay,
    over_tls,
    shake,
)
from tests.support.origin import Connection, answer, echo
from tests.support.wait import wait_until

PATHS = (f'[[rules]]\nname = "outer"\naction = "allow"\nmethods = ["CONNECT"]\n{HERE}'
         'tls = "intercept"\n'
         f'[[rules]]\nname = "api"\naction = "allow"\n{HERE}paths = ["/api/**"]\n')


@pytest.fixture
def start(keep_policy):
    return lambda policy=ALL, more="": keep_policy(policy, config(more))


def test_requests_inside_are_requests(start, make_origin, dial) -> None:
    """R54: each has its line, marked `intercepted`."""
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    for path in ("/one?q=1", "/two"):
        assert ask(client, path=path).body == b"ok"
    assert [one.target for one in origin.requests] == ["/one?q=1", "/two"]
    assert len(origin.connections) == 1, "the connection to the origin is kept"
    assert origin.requests[0].all("host") == [f"a.example:{origin.port}"]
    records = proxy.wait_log(3)
    assert [one["method"] for one in records] == ["CONNECT", "GET", "GET"]
    assert [one["url"] for one in records[1:]] == [
        f"https://a.example:{origin.port}/one?q=1", f"https://a.example:{origin.port}/two"]
    for one in records:
        assert (one["intercepted"], one["reason"], one["rule"], one["user"]) == (
            True, "ok", "inside", "user")
        assert (one["sni"], one["tls_version"]) == ("a.example", "1.3")
    assert {one["kind"] for one in records} == {"request"}
    assert records[1]["client_tls_version"] == "1.3"


def test_the_certificate_is_ours_and_has_one_name(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    shown = client.sock.tls.getpeercert()
    assert shown["subjectAltName"] == (("DNS", "a.example"),)
    assert client.sock.tls.version() == "TLSv1.3"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls(start, make_origin, dial, version) -> None:
    from tests.support.certificates import client_context

    context = client_context()
    context.minimum_version = context.maximum_version = version
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port, context=context)
    assert ask(client).body == b"ok"


def test_paths_count_inside(start, make_origin, dial) -> None:
    """R56: one connection, allowed and refused requests."""
    proxy, origin = start(PATHS), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    for path, status in (("/api/a", 200), ("/admin", 403), ("/api/../admin", 403),
                         ("/api/b", 200), ("/api/%2e%2e/admin", 403)):
        assert ask(client, path=path).status == status, path
    assert [one.target for one in origin.requests] == ["/api/a", "/api/b"]
    records = proxy.wait_log(6)
    assert [one["reason"] for one in records] == [
        "ok", "ok", "path_denied", "path_denied", "ok", "path_denied"]
    assert [one["rule"] for one in records[:3]] == ["outer", "api", "default"]


@pytest.mark.parametrize(("target", "host"), [
    ("/", "b.example"), ("/", "a.example:1"), ("/", "127.0.0.1"),
    ("http://a.example/", "a.example"), ("/", "a.example.b.example")])
def test_another_host_is_misdirected(start, make_origin, dial, target, host) -> None:
    """R56"""
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, path=target, host=host).status == 421
    assert client.at_eof()
    assert not origin.requests
    assert proxy.wait_reason("misdirected")["intercepted"] is True


def test_a_connect_inside_is_misdirected(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert client.read_response("CONNECT").status == 421
    proxy.wait_reason("misdirected")


def test_the_host_may_have_the_port(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, host=f"A.Example.:{origin.port}").status == 200


def test_http_1_0_without_host(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert client.read_response("GET").body == b"ok"
    assert origin.requests[0].all("host") == [f"a.example:{origin.port}"]


def test_bodies_go_both_ways_whole(start, make_origin, dial) -> None:
    size = 3 << 20
    up, down = b"u" * size, b"d" * size

    def script(conn: Connection) -> None:
        while True:
            request = conn.read_request()
            digest = hashlib.sha256(request.body).hexdigest().encode()
            conn.send(b"HTTP/1.1 200 OK\r\nX-Digest: " + digest +
                      b"\r\nContent-Length: %d\r\n\r\n" % size, down)

    proxy, origin = start(), make_origin(over_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    for fields, body in (
            ((f"Content-Length: {size}",), up),
            (("Transfer-Encoding: chunked",),
             b"%x\r\n%b\r\n0\r\n\r\n" % (size, up))):
        reply = ask(client, "POST", "/api", *fields, body=body)
        assert reply.all("x-digest") == [hashlib.sha256(up).hexdigest()]
        assert reply.body == down


def test_requests_that_come_byte_by_byte(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    for octet in b"GET /split HTTP/1.1\r\nHost: a.example\r\n\r\n":
        client.send(bytes([octet]))
    assert client.read_response("GET").body == b"ok"


def test_two_requests_in_one_record(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(b"GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n"
                b"GET /2 HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert [client.read_response("GET").body for _ in range(2)] == [b"ok", b"ok"]
    assert [one.target for one in origin.requests] == ["/1", "/2"]


def test_a_websocket_becomes_a_tunnel_inside(start, make_origin, dial) -> None:
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                  b"Upgrade: websocket\r\n\r\n")
        echo(conn)

    proxy, origin = start(), make_origin(over_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    reply = ask(client, "GET", "/ws", "Connection: Upgrade", "Upgrade: websocket")
    assert reply.status == 101
    for size in (5, 70000):
        client.send(b"x" * size)
        assert client.read_exact(size) == b"x" * size
    client.half_close()
    assert client.at_eof()
    record = proxy.wait_reason("ok", kind="tunnel")
    assert (record["upgrade"], record["intercepted"]) == (True, True)


def test_an_early_hello_behind_the_connect(start, make_origin, dial) -> None:
    """The ClientHello in the CONNECT's own segment."""
    from tests.support.certificates import client_context

    proxy, origin = start(), make_origin(over_tls(okay))
    client = dial(proxy)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="a.example")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    client.tunnel(f"a.example:{origin.port}", early=outgoing.read())
    while True:
        incoming.write(client.read_exact(len(client.pending)) if client.pending
                       else client.sock.recv(65536))
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            pass
    tls.write(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
    client.sock.sendall(outgoing.read())
    incoming.write(client.sock.recv(65536))
    assert tls.read(65536).endswith(b"ok")


def test_plain_http_in_a_tunnel_passes(start, make_origin, dial) -> None:
    """`tls` is about TLS alone."""
    proxy, origin = start(), make_origin(echo)
    client = dial(proxy).tunnel(f"a.example:{origin.port}")
    client.send(b"GET / HTTP/1.1\r\n\r\n")
    assert client.read_exact(18) == b"GET / HTTP/1.1\r\n\r\n"
    client.close()
    assert "intercepted" not in proxy.wait_reason("ok")


def test_tls_is_refused_by_rule(start, make_origin, dial) -> None:
    proxy = start(ALL.replace("intercept", "refuse"))
    origin = make_origin(over_tls(okay))
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        enter(proxy, dial(proxy), origin.port)
    assert proxy.wait_reason("tls_refused")["rule"] == "inside"
    assert not origin.received


def test_a_rule_that_passes_above_one_that_intercepts(start, make_origin, dial) -> None:
    """A client then meets the origin's own certificate, which it does not trust."""
    proxy = start('[[rules]]\naction = "allow"\nhosts = ["a.example"]\n'
                  f'{HERE}tls = "pass"\n' + ALL)
    origin = make_origin(over_tls(okay))
    with pytest.raises(ssl.SSLCertVerificationError):
        enter(proxy, dial(proxy), origin.port)
    assert ask(enter(proxy, dial(proxy), origin.port, "127.0.0.1"),
               host="127.0.0.1").body == b"ok"


def test_the_origins_connection_is_dialled_again(start, make_origin, dial) -> None:
    proxy = start()
    last = OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    origin = make_origin(over_tls(answer(last)))
    client = enter(proxy, dial(proxy), origin.port)
    for _ in range(3):
        assert ask(client).body == b"ok"
    assert len(origin.connections) == 3


def test_an_origin_that_closes_while_it_waits(start, make_origin, dial) -> None:
    """The connection of the handshake has ended before the first request."""
    count = []

    def script(conn: Connection) -> None:
        count.append(conn)
        if len(count) > 1:
            okay(conn)

    proxy, origin = start(), make_origin(over_tls(script))
    before = proxy.sockets()
    client = enter(proxy, dial(proxy), origin.port)
    wait_until(lambda: count and proxy.sockets() == before + 1, "its end")
    assert ask(client, "POST", "/", "Content-Length: 1", body=b"x").body == b"ok"
    assert len(origin.connections) == 2


def test_two_clients_share_pooled_connections(start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    first = enter(proxy, dial(proxy), origin.port)
    assert ask(first).body == b"ok"
    second = enter(proxy, dial(proxy), origin.port)
    assert ask(second).body == ask(second).body == b"ok"
    assert ask(first).body == b"ok"
    assert len(origin.connections) == 2


def test_an_address_with_a_server_name(start, make_origin, dial) -> None:
    """The origin has to prove the name; Host may be the name or the address."""
    proxy, origin = start(), make_origin(over_tls(okay))
    client = shake(dial(proxy).tunnel(f"127.0.0.1:{origin.port}"), "a.example")
    for host in ("a.example", f"127.0.0.1:{origin.port}"):
        assert ask(client, host=host).status == 200
    assert [one.all("host") for one in origin.requests] == [
        [f"a.example:{origin.port}"], [f"127.0.0.1:{origin.port}"]]
    assert ask(client, host="b.example").status == 421


def test_another_server_name_than_the_connects_is_refused(
        start, make_origin, dial) -> None:
    proxy, origin = start(), make_origin(over_tls(okay))
    client = dial(proxy).tunnel(f"a.example:{origin.port}")
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        shake(client, "b.example")
    assert proxy.wait_reason("sni_denied")["sni"] == "b.example"
    assert not origin.received
