"""Interception by every way in and out, for each user, through reloads (R41, R54)."""

import ssl
import subprocess

import pytest

from tests.support.certificates import authority
from tests.support.client import CREDENTIALS, build_request
from tests.support.inside import (
    ALL,
    HERE,
    ask,
    config,
    enter,
    okay,
    over_tls,
    send,
    shake,
)
from tests.support.origin import Connection, answer
from tests.support.parents import parent
from tests.support.socks import SocksClient
from tests.support.socks import call as call
from tests.support.stream import Message
from tests.support.users import BOB, USERS

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy):
    def make(policy: str = ALL, more: str = "", **kinds):
        return start_policy(policy, config(more), **kinds)
    return make


def test_curl(start, make_origin, tmp_path):
    proxy, origin = start(), make_origin(over_tls(okay))
    for path in ("/a", "/b"):
        done = subprocess.run(
            ["curl", "-sS", "--noproxy", "", "-x", proxy.url, "--cacert",
             authority().own.certificate, f"https://a.example:{origin.port}{path}",
             f"https://a.example:{origin.port}{path}2"],
            capture_output=True, text=True, timeout=30)
        assert (done.stdout, done.stderr) == ("okok", "")
    assert [one.target for one in origin.requests] == ["/a", "/a2", "/b", "/b2"]


def test_curl_without_our_authority(start, make_origin):
    proxy, origin = start(), make_origin(over_tls(okay))
    done = subprocess.run(
        ["curl", "-sS", "--noproxy", "", "-x", proxy.url,
         f"https://a.example:{origin.port}/"], capture_output=True, text=True,
        timeout=30)
    assert done.returncode == 60, done.stderr
    assert not origin.requests


def test_socks(start, make_origin, opened):
    proxy = start(more='[[listeners]]\naddress = "127.0.0.1:0"\n'
                       'protocols = ["http", "socks5"]\n')
    origin = make_origin(over_tls(okay))
    client = opened.enter_context(SocksClient(proxy.ports[0]))
    client = shake(client.socks_tunnel(f"a.example:{origin.port}"))
    assert [ask(client, path=path).body for path in ("/1", "/2")] == [b"ok", b"ok"]
    records = proxy.wait_log(3)
    assert [(one["method"], one["user"]) for one in records] == [
        ("SOCKS5", "user"), ("GET", "user"), ("GET", "user")]


def test_credentials_inside_are_the_origins(start, make_origin, dial):
    """Proxy-Authorization inside has no reader: dropped; Authorization goes up."""
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "GET", "/", f"Proxy-Authorization: {CREDENTIALS}x",
               "Authorization: Bearer x").status == 200
    (request,) = origin.requests
    assert request.all("authorization") == ["Bearer x"]
    assert not request.all("proxy-authorization")
    assert proxy.wait_log(2)[1]["user"] == "user"


def test_rules_of_users_hold_inside(start, make_origin, dial):
    proxy = start('[[rules]]\nname = "outer"\naction = "allow"\nmethods = ["CONNECT"]\n'
                  f'{HERE}tls = "intercept"\n'
                  f'[[rules]]\naction = "allow"\nusers = ["ann"]\n{HERE}')
    origin = make_origin(over_tls(okay))
    assert ask(enter(proxy, dial(proxy), origin.port)).status == 403
    assert proxy.wait_reason("destination_denied")["user"] == "user"


def test_limits_count_each_request_inside(start, make_origin, dial):
    proxy = start(ALL + '[limits.default]\nrequests_per_second = 0.01\nburst = 3\n'
                        'tunnels = 1\n')
    origin = make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert [ask(client).status for _ in range(3)] == [200, 200, 429]
    assert proxy.wait_reason("rate_limited")["method"] == "GET"


def test_an_intercepted_tunnel_is_no_tunnel_of_the_limits(start, make_origin, dial):
    proxy = start(ALL + '[limits.default]\ntunnels = 1\n')
    origin = make_origin(over_tls(okay))
    clients = [enter(proxy, dial(proxy), origin.port) for _ in range(3)]
    assert [ask(client).status for client in clients] == [200, 200, 200]


def test_the_hook_decides_about_each_request_inside(start, make_origin, dial):
    proxy = start(hook="""
        from cutthrough import Decision

        async def decide(request):
            return Decision(request.method == "CONNECT", ttl=0)
        """)
    origin = make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).status == 403
    assert not origin.requests


def test_max_body_holds_inside(start, make_origin, dial):
    proxy, origin = start(more="max_body = 10\n"), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "POST", "/", "Content-Length: 11", body=b"x" * 11).status == 413
    proxy.wait_reason("body_too_large")


# --- reloads


def test_a_reload_is_in_force_from_the_next_request_on(start, make_origin, dial):
    proxy, origin = start(), make_origin(over_tls(okay))
    before = proxy.policy.read_text()

    def put(rule: str) -> None:
        proxy.policy.write_text(rule + before)
        assert "generation" in proxy.hup()

    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).status == 200
    put('[[rules]]\naction = "deny"\npaths = ["/x"]\n')
    assert [ask(client, path=path).status for path in ("/x", "/y")] == [403, 200]
    put('[[rules]]\nname = "closed"\naction = "deny"\nmethods = ["CONNECT"]\n')
    assert ask(client, path="/y").status == 403, "the CONNECT is judged again"
    assert proxy.wait_reason("destination_denied")["url"].endswith("/y")
    put("")
    assert ask(client, path="/y").status == 200


def test_a_reload_without_interception_leaves_open_connections(
        start, make_origin, dial):
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    proxy.policy.write_text(proxy.policy.read_text().replace('"intercept"', '"pass"'))
    assert "generation" in proxy.hup()
    assert ask(client).status == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        enter(proxy, dial(proxy), origin.port)


def test_a_user_who_is_gone_gets_nothing_more(start, make_origin, dial):
    """No 407: inside it would look like the origin's."""
    proxy = start(USERS + ALL)
    origin = make_origin(over_tls(okay))
    client = dial(proxy)
    client.send(build_request("CONNECT", f"a.example:{origin.port}", auth=BOB,
                              host="a.example"))
    assert client.read_response("CONNECT").status == 200
    shake(client)
    assert ask(client).status == 200
    proxy.policy.write_text(proxy.policy.read_text().replace(USERS, ""))
    assert "generation" in proxy.hup()
    send(client, "GET", "/")
    assert client.at_eof()
    proxy.wait_reason("auth_failed")


# --- ways out


def connecting(conn: Connection) -> None:
    """A parent with tunnels that lead to itself, over TLS."""
    request: Message = conn.read_request()
    assert request.method == "CONNECT"
    conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
    over_tls(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close"
                    b"\r\n\r\nok"))(conn)


@pytest.mark.parametrize("plain", ["connect", "absolute"])
def test_a_parent_is_asked_for_tunnels(start, make_origin, dial, plain):
    """Requests inside never go to it in absolute form."""
    way = make_origin(connecting)
    proxy = start(
        '[[rules]]\naction = "allow"\nhosts = ["a.example"]\ntls = "intercept"\n',
        'route = "corp"\n' + parent(way, "http", plain=plain, resolve="parent"))
    client = enter(proxy, dial(proxy), 4711)
    for _ in range(2):
        assert ask(client).body == b"ok"
    assert [one.method for one in way.requests] == ["CONNECT", "GET", "CONNECT", "GET"]
    assert {one["parent"] for one in proxy.wait_log(3)} == {"corp"}


def test_the_way_is_the_connects(start, make_origin, dial):
    """The rules inside name no route, and the option names another route."""
    way, never = make_origin(connecting), make_origin(okay)
    proxy = start(
        '[[rules]]\naction = "allow"\nmethods = ["CONNECT"]\nroute = "corp"\n'
        f'{HERE}tls = "intercept"\n[[rules]]\naction = "allow"\n{HERE}',
        'route = "other"\n' + parent(way, "http", "corp")
        + parent(never, "http", "other"))
    client = enter(proxy, dial(proxy), 4711)
    assert [ask(client).body for _ in range(3)] == [b"ok"] * 3
    assert not never.connections


def test_a_reload_s_way_is_that_of_the_first_request_inside_too(
        start, make_origin, dial):
    """The connection that the handshakes had made went another way: the request took
    it, and left it to the requests of the new one (R46)."""
    def way_out(conn: Connection) -> None:
        assert conn.read_request().method == "CONNECT"
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        over_tls(okay)(conn)

    origin, corp = make_origin(over_tls(okay)), make_origin(way_out)
    proxy = start(more=parent(corp))
    client = enter(proxy, dial(proxy), origin.port)
    client.sock.shake()
    proxy.wait_log(1)
    proxy.policy.write_text(ALL + 'route = "corp"\n')
    proxy.hup()
    for path in ("/1", "/2"):
        assert ask(client, path=path).body == b"ok"
    assert not origin.requests
    assert [request.method for request in corp.requests] == ["CONNECT", "GET", "GET"]
    assert [line["parent"] for line in proxy.wait_log(3)[1:]] == ["corp"] * 2
