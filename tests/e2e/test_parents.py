"""Ways out through parents: requests to the parent, its failures (R3, R43 to R46)."""

import socket

import pytest

from tests.support.certificates import (
    Authority,
    TlsSocket,
    client_context,
    localhost,
)
from tests.support.client import CREDENTIALS, Client, build_request
from tests.support.origin import Connection, answer, echo, stall
from tests.support.parents import (
    BAD,
    BASIC,
    ESTABLISHED,
    go_on,
    http,
    parent,
    say,
    socks,
    socks4,
)
from tests.support.tls_listener import table
from tests.wire.twin_proxy import SIGNATURE, read_proxy_header

VIA = b"1.1 test-proxy"
NAME = "a.test"
OVERRIDE = f'dns_overrides = ["{NAME}=127.0.0.1"]\n'


@pytest.fixture
def through(start_proxy, make_origin, tmp_path):
    """A proxy with this parent as its only way."""
    def start(script, scheme: str = "http", config: str = "", **more: object):
        way = make_origin(script)
        if "credentials" in more:
            file = tmp_path / "credentials"
            file.write_text(f"{more.pop('credentials')}\n")
            more["credentials_file"] = str(file)
        proxy = start_proxy(config=f'route = "corp"\n{config}\n'
                            + parent(way, scheme, **more))
        return proxy, way
    return start


@pytest.fixture
def refused_port():
    """A port on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


# Bytes to the parent, and when they go up


@pytest.mark.any_loop
@pytest.mark.parametrize(("scheme", "script"), [
    ("http", http), ("socks5", socks()), ("socks4a", socks4)])
def test_a_tunnel_and_a_plain_request_go_through_the_parent(
        through, dial, scheme, script):
    proxy, way = through(script, scheme)
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    client.close()
    assert dial(proxy).get("http://127.0.0.1:4711/a").body == b"ok"
    tunnel, plain = proxy.wait_log(2)
    assert len(way.connections) == 2
    for record in (tunnel, plain):
        assert (record["parent"], record["peer"]) == ("corp", "127.0.0.1")
        assert record["reason"] == "ok"


@pytest.mark.any_loop
def test_the_parent_gets_the_checked_address_the_origin_the_name(through, dial):
    proxy, way = through(http, config=OVERRIDE)
    assert dial(proxy).get(f"http://{NAME}:4711/a?b").status == 200
    connect, plain = way.requests
    assert (connect.method, connect.target) == ("CONNECT", "127.0.0.1:4711")
    assert connect.all("via") == [VIA.decode()]
    assert not connect.all("proxy-authorization")
    assert (plain.target, plain.all("host")) == ("/a?b", [f"{NAME}:4711"])


@pytest.mark.any_loop
@pytest.mark.parametrize(("scheme", "script", "sent"), [
    ("http", http, None), ("socks5", socks(), b"\x05\x01\0\x03\x06a.test\x12\x67"),
    ("socks4a", socks4, b"\x04\x01\x12\x67\0\0\0\x01\0a.test\0")])
def test_a_parent_that_resolves_gets_the_name(through, dial, scheme, script, sent):
    proxy, way = through(script, scheme, resolve="parent")
    dial(proxy).tunnel(f"{NAME}:4711").close()
    if sent is None:
        assert way.requests[0].target == f"{NAME}:4711"
    else:
        assert (way.heard[-1] if scheme == "socks5" else way.heard) == sent
    (record,) = proxy.wait_log(1)
    assert record["peer"] is None and record["dns_ms"] is None


@pytest.mark.any_loop
def test_a_plain_request_goes_itself_if_the_parent_is_configured_so(through, dial):
    proxy, way = through(http, resolve="parent", plain="absolute",
                         credentials="me:secret")
    client = dial(proxy)
    for _ in range(2):
        assert client.get(f"http://{NAME}:4711/a").body == b"ok"
    client.tunnel(f"{NAME}:4711").close()
    first, second, tunnel = way.requests
    assert first.target == second.target == f"http://{NAME}:4711/a"
    assert first.all("proxy-authorization") == [f"Basic {BASIC}"]
    assert first.all("host") == [f"{NAME}:4711"]
    assert first.all("via") == [VIA.decode()]
    assert tunnel.method == "CONNECT"
    assert len(way.connections) == 2, "the plain requests shared one (R46)"
    assert proxy.wait_log(3)[0]["bytes_up"] < len(first.raw)


@pytest.mark.any_loop
def test_credentials_go_to_the_parent_and_no_further(through, dial):
    proxy, way = through(http, credentials="me:secret")
    client = dial(proxy)
    reply = client.get("http://127.0.0.1:4711/a")
    connect, plain = way.requests
    assert connect.all("proxy-authorization") == [f"Basic {BASIC}"]
    assert not plain.all("proxy-authorization")
    assert BASIC.encode() not in reply.raw and b"secret" not in reply.raw
    assert "secret" not in proxy.stderr() + "".join(proxy.lines())


@pytest.mark.any_loop
def test_a_login_is_offered_and_given_if_the_parent_wants_it(through, dial):
    proxy, way = through(socks(method=2), "socks5", credentials="me:secret")
    dial(proxy).tunnel("127.0.0.1:4711").close()
    assert way.heard[:2] == [b"\x05\x02\0\x02", b"\x01\x02me\x06secret"]


@pytest.mark.any_loop
def test_the_clients_credentials_reach_a_parent_only_if_configured(through, dial):
    proxy, way = through(http, pass_credentials=True)
    dial(proxy).tunnel("127.0.0.1:4711").close()
    assert way.requests[0].all("proxy-authorization") == [CREDENTIALS]


@pytest.mark.any_loop
def test_a_connection_made_with_a_clients_credentials_is_no_other_requests(
        through, dial):
    """The parent has let this client in, and may not let the next one in (R46)."""
    proxy, way = through(http, pass_credentials=True)
    client = dial(proxy)
    for _ in range(2):
        assert client.get("http://127.0.0.1:4711/a").status == 200
    assert [one.method for one in way.requests] == ["CONNECT", "GET"] * 2


@pytest.mark.any_loop
@pytest.mark.parametrize(("scheme", "connections"), [("Negotiate", 2), ("Basic", 1)])
def test_a_connection_that_a_client_s_scheme_authenticates_is_no_other_s(
        start_proxy, make_origin, dial, scheme, connections):
    """NTLM and Negotiate authenticate the connection (R23), to a parent too."""
    clients, way = Authority("clients"), make_origin(http)
    proxy = start_proxy(config=f'route = "corp"\n{OVERRIDE}' + parent(
        way, pass_credentials=True, resolve="parent", plain="absolute") + table(
        localhost(), client_ca=f'"{clients.own.certificate}"',
        client_certificate='"required"'))
    for name, auth in ("alice", f"{scheme} YWJj"), ("bob", None):
        client = dial(proxy)
        client.sock = TlsSocket(
            client.sock, client_context(clients.sign(subject=f"/CN={name}")))
        assert client.get(f"http://{NAME}:4711/a", auth=auth).status == 200
    assert len(way.connections) == connections
    assert way.requests[-1].all("proxy-authorization") == []


@pytest.mark.any_loop
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_proxy_header_names_the_client_once_a_connection(through, dial, version):
    def script(conn: Connection) -> None:
        data = b""
        while (named := read_proxy_header(data)) is None:
            data += conn.read_exact(1)
        conn.origin.heard.append((named.address, named.port))
        http(conn)
    proxy, way = through(script, proxy_protocol=version)
    way.heard = []
    clients = [dial(proxy), dial(proxy)]
    for client in (*clients, clients[0]):
        assert client.get("http://127.0.0.1:4711/a").status == 200
    ports = [client.sock.getsockname()[1] for client in (*clients, clients[0])]
    assert way.heard == [(b"\x7f\0\0\x01", port) for port in ports]    # never pooled


@pytest.mark.any_loop
@pytest.mark.parametrize(("version", "header"), [
    ("v1", b"PROXY UNKNOWN\r\n"), ("v2", SIGNATURE + b"\x20\0\0\0")])
def test_a_proxy_header_names_no_client_of_a_unix_socket(
        start_proxy, make_origin, directory, version, header):
    """R50: it has no network address."""
    way = make_origin(lambda conn: (conn.read_exact(len(header)), http(conn)))
    path = str(directory("sockets") / "proxy")
    start_proxy(config='route = "corp"\nlisten = ["127.0.0.1:0"]\n[[listeners]]\n'
                f'address = "unix:{path}"\n' + parent(way, proxy_protocol=version))
    with Client(0, path) as client:
        client.tunnel("127.0.0.1:4711")
    assert way.received.startswith(header + b"CONNECT ")


@pytest.mark.any_loop
def test_a_proxy_header_comes_before_a_request_in_absolute_form(through, dial):
    def script(conn: Connection) -> None:
        data = b""
        while (named := read_proxy_header(data)) is None:
            data += conn.read_exact(1)
        conn.origin.heard.append(named.port)
        http(conn)
    proxy, way = through(script, proxy_protocol="v1", resolve="parent",
                         plain="absolute")
    way.heard = []
    clients = [dial(proxy), dial(proxy)]
    for client in clients:
        assert client.get("http://a.test:4711/a").status == 200
    assert way.heard == [client.sock.getsockname()[1] for client in clients]


@pytest.mark.any_loop
def test_nothing_goes_up_before_the_parents_whole_head(through, dial):
    def script(conn: Connection) -> None:
        conn.read_request()
        for octet in ESTABLISHED[:-1]:
            conn.send(bytes((octet,)))
            assert conn.is_silent(0.002), "R3"
        conn.send(ESTABLISHED[-1:])
        go_on(conn)
    proxy, _ = through(script)
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"


@pytest.mark.any_loop
def test_bytes_behind_the_parents_200_belong_to_the_tunnel(through, dial):
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(ESTABLISHED + b"SSH-2.0-x\r\n")
        echo(conn)
    proxy, _ = through(script)
    client = dial(proxy).tunnel("127.0.0.1:22")
    assert client.read_exact(11) == b"SSH-2.0-x\r\n"
    client.send(b"more")
    assert client.read_exact(4) == b"more"


@pytest.mark.any_loop
def test_bulk_is_spliced_through_a_parent(through, dial):
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(ESTABLISHED, bytes(8 << 20))
    proxy, _ = through(script)
    client = dial(proxy).tunnel("127.0.0.1:4711")
    assert len(client.read_exact(8 << 20)) == 8 << 20
    client.close()
    assert proxy.wait_log(1)[0]["path"] == "splice"


# The reason and the status of a parent's failure


FAILURES = {
    "a 401": (say(BAD.format(401).encode()), "parent_auth", 502),
    "a 407": (say(BAD.format(407).encode()), "parent_auth", 502),
    "a 403": (say(BAD.format(403).encode()), "parent_refused", 502),
    "a 502": (say(BAD.format(502).encode()), "parent_refused", 502),
    "a 302": (say(BAD.format(302).encode()), "parent_refused", 502),
    "a body without a length": (
        say(b"HTTP/1.0 503 x\r\n\r\nbody", True), "parent_refused", 502),
    "garbage": (say(b"\x16\x03\x01\x02\0"), "bad_parent", 502),
    "a bare carriage return": (
        say(b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n"), "bad_parent", 502),
    "a 101": (say(b"HTTP/1.1 101 x\r\n\r\n"), "bad_parent", 502),
    "an endless head": (
        say(b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 70000), "bad_parent", 502),
    "an end at once": (say(b"", True), "parent_closed", 502),
    "an end in the head": (say(b"HTTP/1.1 200 OK\r\n", True), "parent_closed", 502),
    "a stall": (stall, "parent_timeout", 504),
    "a stall in the head": (say(b"HTTP/1.1 200 OK\r\n"), "parent_timeout", 504)}


@pytest.mark.any_loop
@pytest.mark.parametrize("case", FAILURES)
def test_each_failure_of_a_parent_is_a_reason_and_nothing_goes_directly(
        through, make_origin, dial, case):
    script, reason, status = FAILURES[case]
    proxy, way = through(script, config='parent_timeout = "300ms"')
    origin = make_origin()
    client = dial(proxy)
    reply = client.connect(origin.authority, early=b"early")
    assert (reply.status, reply.all("connection")) == (status, ["close"])
    assert f'details="{reason}"' in reply.get("proxy-status")
    assert b"body" not in reply.body
    assert dial(proxy).get(origin.url()).status == status
    for record in proxy.wait_log(2):
        assert (record["reason"], record["parent"]) == (reason, "corp")
    assert origin.connections == [], "R44"
    assert all(b"early" not in one.received for one in way.connections), "R45"


SOCKS_FAILURES = {
    "no method": (lambda conn: conn.send(b"\x05\xff"), "parent_auth"),
    "a login that was not offered": (lambda conn: conn.send(b"\x05\x02"), "bad_parent"),
    "HTTP": (lambda conn: conn.send(b"HTTP/1.1 400 x\r\n\r\n"), "bad_parent"),
    "a refusal": (socks(b"\x05\x05\0\x01\0\0\0\0\0\0"), "parent_refused"),
    "an end": (lambda conn: None, "parent_closed")}


@pytest.mark.any_loop
@pytest.mark.parametrize("case", SOCKS_FAILURES)
def test_each_failure_of_a_socks_parent_is_a_reason(through, dial, case):
    script, reason = SOCKS_FAILURES[case]

    def and_wait(conn: Connection) -> None:
        script(conn)
        if case != "an end":
            conn.stall()
    proxy, _ = through(and_wait, "socks5")
    assert dial(proxy).connect("127.0.0.1:4711").status == 502
    assert proxy.wait_log(1)[0]["reason"] == reason


@pytest.mark.any_loop
def test_a_login_that_the_parent_refuses_is_a_reason(through, dial):
    def script(conn: Connection) -> None:
        conn.read_exact(4)
        conn.send(b"\x05\x02")
        conn.read_exact(11)
        conn.send(b"\x01\x01")
        conn.stall()
    proxy, _ = through(script, "socks5", credentials="me:secret")
    assert dial(proxy).connect("127.0.0.1:4711").status == 502
    assert proxy.wait_log(1)[0]["reason"] == "parent_auth"


@pytest.mark.any_loop
def test_version_4_has_no_way_to_an_ipv6_address(through, dial):
    proxy, _ = through(socks4, "socks4a")
    assert dial(proxy).connect("[::1]:4711").status == 502
    assert proxy.wait_log(1)[0]["reason"] == "parent_refused"


@pytest.mark.any_loop
def test_a_parent_that_is_down_refuses_at_once_after_three_failures(
        start_proxy, refused_port, make_origin, dial):
    proxy = start_proxy(config=f'route = "corp"\n[parents.corp]\n'
                        f'url = "http://127.0.0.1:{refused_port}"\n')
    origin = make_origin()
    for _ in range(4):
        reply = dial(proxy).connect(origin.authority)
        assert reply.status == 503 and int(reply.get("retry-after")) <= 2
    records = proxy.wait_log(4, reason="parent_unreachable")
    assert [one["connect_ms"] is None for one in records] == [False] * 3 + [True]
    assert origin.connections == []


@pytest.mark.any_loop
def test_a_client_that_leaves_ends_the_dialogue(through, dial):
    proxy, way = through(stall)
    client = dial(proxy)
    client.send(build_request("CONNECT", "127.0.0.1:4711", host="127.0.0.1:4711"))
    way.wait_connections(1)
    client.reset()
    assert proxy.wait_log(1)[0]["reason"] == "client_reset"


@pytest.mark.any_loop
def test_a_407_for_a_plain_request_is_not_passed_to_the_client(through, dial):
    proxy, _ = through(answer(BAD.format(407).encode()), resolve="parent",
                       plain="absolute")
    assert dial(proxy).get("http://127.0.0.1:4711/a").status == 502
    assert proxy.wait_log(1)[0]["reason"] == "parent_auth"
