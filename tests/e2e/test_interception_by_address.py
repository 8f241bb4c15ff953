"""A CONNECT for an address, and a name inside: the rules judge both (R77)."""

import ssl

import pytest

from tests.support.captures import wait_rows
from tests.support.certificates import client_context
from tests.support.http2 import Peer
from tests.support.inside import (
    ALL,
    HERE,
    ask,
    certificate,
    config,
    okay,
    over_tls,
    shake,
)
from tests.support.origin import Connection
from tests.support.ways import build_hello

pytestmark = pytest.mark.any_loop

DENIED = ('[[rules]]\nname = "named"\naction = "deny"\nhosts = ["b.example"]\n'
          'paths = ["/admin/**"]\n'
          '[[rules]]\nname = "never"\naction = "deny"\nhosts = ["*.secret.example"]\n')
TUNNELS = (f'[[rules]]\naction = "allow"\nmethods = ["CONNECT"]\n{HERE}'
           'tls = "intercept"\n')
NAMES = ("a.example", "b.example", "c.example", "x.secret.example")
MADE = certificate(*(f"DNS:{name}" for name in NAMES), "IP:127.0.0.1")
SHORT = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def start(start_policy):
    def make(policy: str = DENIED + ALL, more: str = "", **kinds):
        return start_policy(policy, config(more), **kinds)
    return make


@pytest.fixture
def origin(make_origin):
    return make_origin(over_tls(okay, MADE))


@pytest.fixture
def enter(dial):
    def connect(proxy, port: int, name: str, **more):
        return shake(dial(proxy).tunnel(f"127.0.0.1:{port}"), name, **more)
    return connect


@pytest.fixture
def reach(enter):
    """A client of HTTP/2."""
    def connect(proxy, port: int, name: str) -> Peer:
        context = client_context()
        context.set_alpn_protocols(("h2",))
        peer = Peer(enter(proxy, port, name, context=context).sock)
        peer.flush()
        return peer
    return connect


def test_a_denied_server_name_is_refused(start, origin, enter) -> None:
    proxy = start()
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        enter(proxy, origin.port, "x.secret.example")
    record = proxy.wait_reason("sni_denied")
    assert (record["host"], record["sni"], record["rule"]) == (
        "127.0.0.1", "x.secret.example", "never")
    assert not origin.received


def test_paths_are_the_names(start, origin, enter) -> None:
    """Whether Host is the name or the address; and each request is judged by itself."""
    proxy = start()
    client = enter(proxy, origin.port, "b.example")
    for host in ("b.example", f"127.0.0.1:{origin.port}", "B.example"):
        for path, status in ("/x", 200), ("/admin/x", 403):
            assert ask(client, path=path, host=host).status == status
    other = enter(proxy, origin.port, "a.example")
    assert ask(other, path="/admin/x").status == 200
    assert [one.target for one in origin.requests] == ["/x"] * 3 + ["/admin/x"]
    records = proxy.wait_log(3, reason="path_denied")
    assert [(one["host"], one["rule"]) for one in records] == [
        ("b.example", "named")] * 3


def test_paths_are_the_names_in_http2(start, origin, reach) -> None:
    pytest.importorskip("cutthrough.http2.transport")
    proxy = start()
    peer = reach(proxy, origin.port, "b.example")
    for host in ("b.example", f"127.0.0.1:{origin.port}"):
        for path, status in ("/x", 200), ("/admin/x", 403), ("/y", 200):
            assert peer.wait(peer.get(f"https://{host}{path}")).status == status
    for host in ("a.example", "x.secret.example", "127.0.0.2"):
        assert peer.wait(peer.get(f"https://{host}/")).status == 421
    assert [one.target for one in origin.requests] == ["/x", "/y"] * 2


@pytest.mark.parametrize("host", [
    "a.example", "x.secret.example", "127.0.0.2", "[::ffff:127.0.0.1]", "b.example:1"])
def test_a_name_that_the_connect_does_not_carry_is_misdirected(
        start, origin, enter, host) -> None:
    proxy = start()
    client = enter(proxy, origin.port, "b.example")
    assert ask(client, host=host).status == 421
    assert client.at_eof()
    assert not origin.requests
    proxy.wait_reason("misdirected")


def test_without_a_server_name_no_name_is_admitted(start, origin, dial) -> None:
    proxy = start()
    context = client_context()
    context.check_hostname = False
    client = shake(dial(proxy).tunnel(f"127.0.0.1:{origin.port}"), None, context)
    assert ask(client, host=f"127.0.0.1:{origin.port}").status == 200
    assert ask(client, host="b.example").status == 421
    assert proxy.wait_reason("ok", method="GET")["host"] == "127.0.0.1"


def test_a_server_name_that_is_another_address_is_refused(start, origin, dial) -> None:
    proxy = start()
    client = dial(proxy).tunnel(f"127.0.0.1:{origin.port}")
    client.send(build_hello("some.test").replace(b"some.test", b"127.0.0.2"))
    assert client.read_rest()[-2:] == b"\2\x31"       # access_denied
    assert proxy.wait_reason("sni_denied")["sni"] == "127.0.0.2"
    assert not origin.received


def test_a_rule_for_the_name_admits_it(start, origin, enter) -> None:
    proxy = start(TUNNELS + '[[rules]]\naction = "allow"\nhosts = ["a.example"]\n')
    assert ask(enter(proxy, origin.port, "a.example")).status == 200
    other = enter(proxy, origin.port, "b.example")
    assert ask(other, host="b.example").status == 403
    assert ask(other, host=f"127.0.0.1:{origin.port}").status == 403


def test_a_rule_for_the_address_admits_a_name(start, origin, enter) -> None:
    proxy = start('[[rules]]\naction = "allow"\nhosts = ["127.0.0.1"]\n'
                  'tls = "intercept"\n')
    assert ask(enter(proxy, origin.port, "a.example")).status == 200


def test_a_rule_for_the_name_does_not_close_the_floor(start_policy, origin, enter):
    """R27: the CONNECT's rule has opened it for this address."""
    proxy = start_policy('[[rules]]\naction = "allow"\nhosts = ["a.example"]\n' + ALL,
                         config() + 'address_floor = "on"\n')
    assert ask(enter(proxy, origin.port, "a.example")).status == 200


def test_a_rule_for_the_name_may_refuse_its_tls(start, origin, enter) -> None:
    proxy = start('[[rules]]\naction = "allow"\nhosts = ["b.example"]\n'
                  'tls = "refuse"\n' + ALL)
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        enter(proxy, origin.port, "b.example")
    proxy.wait_reason("tls_refused")
    assert ask(enter(proxy, origin.port, "a.example")).status == 200


def test_a_rule_for_the_name_does_not_let_its_tls_pass(start, origin, enter) -> None:
    """The name is only proven by the handshake that this rule would leave out."""
    proxy = start('[[rules]]\naction = "allow"\nhosts = ["a.example"]\n'
                  'tls = "pass"\n' + ALL)
    assert ask(enter(proxy, origin.port, "a.example")).status == 200
    assert proxy.wait_reason("ok", method="GET")["intercepted"] is True


def test_every_dial_goes_to_the_connects_address(start_policy, make_origin, enter):
    """Whatever the name resolves to; and no other connection is shared."""
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(SHORT)

    origin = make_origin(over_tls(script, MADE))
    proxy = start_policy(DENIED + ALL, config().replace("b.example=127.0.0.1",
                                                        "c.example=127.0.0.9"))
    client = enter(proxy, origin.port, "c.example")
    assert [ask(client, host="c.example").body for _ in range(3)] == [b"ok"] * 3
    assert len(origin.connections) == 3
    records = proxy.wait_log(3, method="GET")
    assert {(one["host"], one["peer"]) for one in records} == {
        ("c.example", "127.0.0.1")}


def test_a_kept_connection_is_the_addresss(start, origin, enter, dial) -> None:
    """The CONNECT by name makes its own."""
    proxy = start()
    client = enter(proxy, origin.port, "a.example")
    assert ask(client).body == ask(client).body == b"ok"
    assert len(origin.connections) == 1
    second = enter(proxy, origin.port, "a.example")
    named = shake(dial(proxy).tunnel(f"a.example:{origin.port}"))
    assert ask(named).body == ask(second).body == b"ok"
    assert len(origin.connections) == 3


def test_log_and_capture_have_the_name_and_the_address(
        start, origin, enter, tmp_path) -> None:
    database = tmp_path / "flows.db"
    proxy = start(DENIED + ALL + 'capture = "full"\n',
                  f'capture_file = "{database}"\n')
    client = enter(proxy, origin.port, "a.example")
    assert ask(client, host=f"127.0.0.1:{origin.port}").status == 200
    record = proxy.wait_reason("ok", method="GET")
    assert (record["host"], record["sni"], record["url"]) == (
        "a.example", "a.example", f"https://a.example:{origin.port}/")
    assert record["peer"] == "127.0.0.1"
    row = next(one for one in wait_rows(database, 2) if one["method"] == "GET")
    assert (row["host"], row["sni"]) == ("a.example", "a.example")


def test_a_reload_judges_the_name(start, origin, enter) -> None:
    """The next request in the same connection is refused."""
    proxy = start()
    client = enter(proxy, origin.port, "a.example")
    assert ask(client).status == 200
    policy = proxy.policy
    policy.write_text('[[rules]]\naction = "deny"\nhosts = ["a.example"]\n'
                      'methods = ["CONNECT"]\n' + policy.read_text())
    assert "refused" not in proxy.hup()
    assert ask(client).status == 403


def test_the_hook_is_asked_about_the_name(start, origin, enter) -> None:
    proxy = start(hook="""
        from cutthrough import Decision

        async def decide(request):
            return Decision(request.host != "b.example", ttl=0)
        """)
    assert ask(enter(proxy, origin.port, "a.example")).status == 200
    client = enter(proxy, origin.port, "b.example")
    for host in "b.example", f"127.0.0.1:{origin.port}":
        assert ask(client, host=host).status == 403
    assert len(origin.requests) == 1


def test_bytes_that_are_no_http_are_the_names(start, make_origin, enter) -> None:
    def script(conn: Connection) -> None:
        conn.send(conn.read_exact(4))

    proxy = start(f'[[rules]]\naction = "deny"\nhosts = ["b.example"]\nports = [1]\n'
                  f'{ALL}')
    origin = make_origin(over_tls(script, MADE, alpn=()))
    client = enter(proxy, origin.port, "b.example")
    client.send(b"\0\1\2\3")
    assert client.read_exact(4) == b"\0\1\2\3"
    client.close()
    assert proxy.wait_reason("ok", method="TUNNEL")["host"] == "b.example"


