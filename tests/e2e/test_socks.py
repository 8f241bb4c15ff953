"""SOCKS 5, 4 and 4a in: the same decisions as CONNECT, in other words (R41, R51)."""

import subprocess
import textwrap
from urllib.parse import quote

import bcrypt
import pytest

from tests.support.admin import TOKEN, TOLD, Operator
from tests.support.client import PASSWORD, USER
from tests.support.handovers import RENEW
from tests.support.handovers import start as start
from tests.support.network import OWN_IPV4
from tests.support.origin import echo
from tests.support.proxy import clean_environment
from tests.support.socks import (
    ALL,
    BY_PASSWORD,
    GRANTED,
    NONE,
    NOT_ALLOWED,
    OPEN,
    REFUSED,
    SOCKS5,
    SocksClient,
    command,
    command4,
    greet,
    login,
)
from tests.support.socks import call as call
from tests.support.successors import end, successor_of
from tests.support.wait import wait_until
from tests.wire.twin_proxy import build_binary

# A tunnel


def test_a_tunnel_by_socks5_is_one_as_by_connect(start, make_origin, call):
    proxy, origin = start(SOCKS5), make_origin(echo)
    client = call(proxy)
    assert client.log_in() == GRANTED
    client.send(command(origin.authority))
    assert client.read_reply() == (GRANTED, "0.0.0.0", 0)
    client.send(b"there and back")
    assert client.read_exact(14) == b"there and back"
    client.half_close()
    assert client.at_eof()
    (record,) = proxy.wait_log(1)
    assert record["method"] == "SOCKS5" and record["kind"] == "tunnel"
    assert (record["status"], record["reason"], record["user"]) == (200, "ok", USER)
    assert (record["host"], record["port"]) == ("127.0.0.1", origin.port)
    assert record["url"] == origin.authority
    assert (record["bytes_up"], record["bytes_down"]) == (14, 14)
    assert min(record[f"{name}_ms"] for name in ("head", "auth", "connect")) > 0


@pytest.mark.any_loop
def test_names_are_resolved_here(start, make_origin, call):
    proxy, origin = start(SOCKS5 + OPEN), make_origin(echo)
    name = f"LocalHost.:{origin.port}"
    assert call(proxy).socks_tunnel(name, b"a").read_exact(1) == b"a"
    client = call(proxy, 1)
    assert client.request4(name, early=b"b") == 90
    assert client.read_exact(1) == b"b"
    six = make_origin(echo, host="::1")
    assert call(proxy).socks_tunnel(six.authority, b"c").read_exact(1) == b"c"
    assert len(origin.connections) == 2 and len(six.connections) == 1


@pytest.mark.any_loop
def test_a_handshake_is_read_however_it_is_cut(start, make_origin, call):
    """Greeting, credentials, request and the tunnel's first bytes, sent ahead."""
    proxy, origin = start(SOCKS5 + OPEN), make_origin(echo)
    whole = greet(NONE, BY_PASSWORD) + login() + command(f"localhost:{origin.port}")
    cuts = [(), *((n,) for n in range(1, len(whole) + 3)), tuple(range(1, len(whole)))]
    for cut in cuts:
        with SocksClient(proxy.ports[0]) as client:
            for first, last in zip((0, *cut), (*cut, None), strict=True):
                client.send((whole + b"early")[first:last])
            assert client.read_pair(5) == BY_PASSWORD
            assert client.read_pair(1) == GRANTED
            assert client.read_reply()[0] == GRANTED, cut
            assert client.read_exact(5) == b"early"
    whole = command4(f"localhost:{origin.port}")
    for cut in range(len(whole) + 2):
        with SocksClient(proxy.ports[1]) as client:
            client.send((whole + b"early")[:cut], (whole + b"early")[cut:])
            assert client.read_exact(8)[:2] == b"\0\x5a", cut
            assert client.read_exact(5) == b"early"
    assert {one["reason"] for one in proxy.wait_log(len(cuts) + len(whole) + 2)} == {
        "ok"}


@pytest.mark.any_loop
def test_what_is_sent_ahead_reaches_no_origin_that_is_refused(
        start_policy, make_origin, call):
    origin = make_origin(echo)
    proxy = start_policy('default = "deny"\n', SOCKS5)
    client = call(proxy)
    client.send(greet(BY_PASSWORD) + login() + command(origin.authority) + b"early")
    assert (client.read_pair(5), client.read_pair(1)) == (BY_PASSWORD, GRANTED)
    assert client.read_reply()[0] == NOT_ALLOWED
    assert client.at_eof()
    assert not origin.connections


# Authentication


@pytest.mark.any_loop
def test_a_wrong_password_is_refused_in_the_words_of_rfc_1929(start, call):
    proxy = start(SOCKS5)
    for name, secret in ((USER, "guess"), ("nobody", PASSWORD), (USER, ""),
                         ("", PASSWORD), ("user:pass", "word"), (USER, "x" * 255)):
        client = call(proxy)
        assert client.log_in(name, secret) != GRANTED
        assert client.at_eof()
    records = proxy.wait_log(6)
    assert {one["reason"] for one in records} == {"auth_failed"}
    assert {one["user"] for one in records} == {None}
    assert {one["method"] for one in records} == {"SOCKS5"}
    assert {one.get("tried_user") for one in records} >= {USER, "nobody", "user:pass"}
    assert PASSWORD not in proxy.log_path.read_text()


@pytest.mark.any_loop
@pytest.mark.parametrize("methods", [(), (NONE,), (1,), (NONE, 1), (3, 128, 255),
                                     (1,) * 255])
def test_without_a_password_there_is_no_method(start, call, methods):
    proxy = start(SOCKS5)
    client = call(proxy)
    assert client.method(*methods) == REFUSED
    assert client.at_eof()
    assert proxy.wait_log(1)[0]["reason"] == "auth_required"


@pytest.fixture
def users_file(tmp_path):
    path = tmp_path / "users"
    path.write_text("".join(
        f"{name}:{bcrypt.hashpw(b'one', bcrypt.gensalt(cost)).decode()}\n"
        for name, cost in (("ann", 4), ("slow", 12))))
    return f'users_file = "{path}"\nauth_timeout = "100s"\n'   # beside other work


@pytest.mark.any_loop
def test_a_password_with_a_hash_is_verified_beside_the_loop(
        start, users_file, make_origin, call):
    proxy, origin = start(users_file + SOCKS5), make_origin(echo)
    slow = call(proxy)
    slow.send(greet(BY_PASSWORD) + login("slow", "one") + command(origin.authority)
              + b"early")
    quick = call(proxy)
    assert quick.log_in("ann", "one") == GRANTED
    assert quick.request(origin.authority) == GRANTED
    assert (slow.read_pair(5), slow.read_pair(1)) == (BY_PASSWORD, GRANTED)
    assert slow.read_reply()[0] == GRANTED
    assert slow.read_exact(5) == b"early"
    assert call(proxy).log_in("ann", "two") != GRANTED
    (record,) = proxy.wait_log(1)
    assert (record["reason"], record["tried_user"]) == ("auth_failed", "ann")
    slow.close()
    assert proxy.wait_log(1, user="slow")[0]["auth_ms"] > 10, "it waited for its hash"


@pytest.mark.any_loop
def test_a_client_that_sends_no_request_makes_room(start, users_file, call):
    """R32: also after its password was verified beside the loop."""
    proxy = start("max_connections = 2\n" + users_file + SOCKS5)
    waiting = []
    for _ in range(2):
        waiting.append(call(proxy))
        waiting[-1].send(greet(BY_PASSWORD) + login("ann", "one"))
        assert (waiting[-1].read_pair(5), waiting[-1].read_pair(1)) == (2, GRANTED)
    assert call(proxy).log_in("ann", "one") == GRANTED
    assert waiting[0].read_reply()[0] != GRANTED and waiting[0].at_eof()


@pytest.mark.any_loop
def test_guesses_are_slowed_down(start, users_file, call):
    """R22: the back-off and the tarpit of HTTP."""
    proxy = start(users_file + SOCKS5 + OPEN.replace("socks4", "http"))
    for n in range(30):
        client = call(proxy, n % 2, source=OWN_IPV4)        # loopback never waits
        client.send(greet(BY_PASSWORD) + login("ann", f"guess {n}"))
    assert {one["reason"] for one in proxy.wait_log(30)} == {
        "auth_failed", "auth_throttled"}


@pytest.mark.any_loop
def test_a_client_that_ends_while_its_password_is_verified_leaves_nothing(
        start, users_file, call):
    proxy = start(users_file + SOCKS5)
    for end_it in (SocksClient.close, SocksClient.reset):
        client = call(proxy)
        client.send(greet(BY_PASSWORD) + login("slow", "one"))
        wait_until(lambda: proxy.helpers(proxy.worker.pid), "a helper")
        end_it(client)
    assert call(proxy).log_in("ann", "one") == GRANTED


# Without credentials


@pytest.mark.any_loop
def test_a_listener_may_serve_clients_without_credentials(start, make_origin, call):
    proxy, origin = start(OPEN + SOCKS5), make_origin(echo)
    client = call(proxy)
    assert client.method(NONE, BY_PASSWORD) == NONE, "Java offers both"
    assert client.request(origin.authority, early=b"a") == GRANTED
    assert client.read_exact(1) == b"a"
    known = call(proxy)
    assert known.socks_tunnel(origin.authority, b"b").read_exact(1) == b"b"
    fourth = call(proxy)
    assert fourth.request4(origin.authority, early=b"c", user=USER.encode()) == 90
    assert fourth.read_exact(1) == b"c"
    assert call(proxy).log_in(USER, "guess") != GRANTED
    for one in client, known, fourth:
        one.close()
    records = proxy.wait_log(4)
    assert {(one["method"], one["user"], one["reason"]) for one in records} == {
        ("SOCKS4", None, "ok"), ("SOCKS5", None, "auth_failed"),
        ("SOCKS5", None, "ok"), ("SOCKS5", USER, "ok")}


@pytest.mark.any_loop
def test_only_listed_networks_need_no_credentials(start, make_origin, call):
    proxy = start(OPEN + 'auth_none_from = ["127.0.0.2", "192.0.2.0/24"]\n')
    origin = make_origin(echo)
    client = call(proxy, source="127.0.0.2")
    assert client.method(NONE) == NONE
    assert client.request(origin.authority) == GRANTED
    assert call(proxy).method(NONE) == REFUSED
    assert call(proxy).request4(origin.authority) == 91
    assert call(proxy).socks_tunnel(origin.authority)
    assert [one["reason"] for one in proxy.wait_log(2)] == ["auth_required"] * 2


@pytest.mark.any_loop
def test_a_rule_for_users_does_not_match_a_client_without_credentials(
        start_policy, make_origin, call):
    origin, other = make_origin(echo), make_origin(echo, host="127.0.0.2")
    proxy = start_policy(f"""
        default = "deny"
        [[rules]]
        name = "users"
        users = ["{USER}"]
        addresses = ["127.0.0.1"]
        action = "allow"
        [[rules]]
        name = "everybody"
        addresses = ["127.0.0.2"]
        action = "allow"
        """, OPEN + ALL)
    for listener in (0, 1):
        client = call(proxy, listener)
        assert client.method(NONE) == NONE
        assert client.request(origin.authority) == NOT_ALLOWED
        client = call(proxy, listener)
        assert client.method(NONE) == NONE
        assert client.request(other.authority) == GRANTED
        assert call(proxy, listener).request4(origin.authority) == 91
        assert call(proxy, listener).request4(other.authority) == 90
        assert call(proxy, listener).socks_tunnel(origin.authority)
    assert call(proxy, 1).connect(origin.authority, auth=None).status == 403
    assert call(proxy, 1).connect(other.authority, auth=None).status == 200
    assert call(proxy, 1).connect(origin.authority).status == 200


# One port


@pytest.mark.any_loop
def test_one_port_serves_http_and_socks(start, make_origin, call):
    proxy, origin, echoing = start(ALL), make_origin(), make_origin(echo)
    for auth in (None, "user"):
        client = call(proxy)
        more = {"auth": None} if auth is None else {}
        assert client.get(origin.url(), **more).status == 200
        assert client.get(origin.url(), **more).status == 200
        assert client.connect(echoing.authority, b"a", **more).status == 200
        assert client.read_exact(1) == b"a"
    client = call(proxy)
    client.send(b"G")
    client.send(b"ET ")
    client.send(f"{origin.url()} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert client.read_response().status == 200
    assert call(proxy).socks_tunnel(echoing.authority, b"b").read_exact(1) == b"b"
    assert call(proxy).request4(echoing.authority) == 90


@pytest.mark.any_loop
@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\0"])
def test_a_port_for_socks_alone_answers_nothing_else(start, call, first):
    proxy = start(SOCKS5)
    client = call(proxy)
    client.send(first)
    assert client.at_eof()
    assert proxy.wait_log(1)[0]["reason"] == "bad_socks"
    client = call(proxy)
    client.send(command4("127.0.0.1:1"))
    assert client.read_exact(2) == b"\0\x5b"
    assert proxy.wait_log(2)[1]["reason"] == "bad_socks"


@pytest.mark.any_loop
def test_a_load_balancer_names_the_client_before_socks(start, make_origin, call):
    proxy = start(
        'proxy_protocol_from = "127.0.0.0/8"\naddress_floor = "off"\n'
        'connect_ports = "any"\n' + OPEN + 'proxy_protocol = true\n'
        'auth_none_from = ["203.0.113.9"]\n')
    origin = make_origin(echo)
    header = build_binary("203.0.113.9")
    for pieces in ([header + greet(NONE)], [header, greet(NONE)]):
        client = call(proxy)
        client.send(*pieces)
        assert client.read_pair(5) == NONE
        assert client.request(origin.authority) == GRANTED
        client.close()
    stranger = call(proxy)
    stranger.send(build_binary("198.51.100.7") + greet(NONE))
    assert stranger.read_pair(5) == REFUSED
    clients = [one["client"] for one in proxy.wait_log(3)]
    assert clients.count("203.0.113.9") == 2 and "198.51.100.7" in clients


# Hook, reload, hand-over, operators


@pytest.mark.any_loop
def test_a_hook_sees_a_connect(start_policy, make_origin, call):
    origin, other = make_origin(echo), make_origin(echo, host="127.0.0.2")
    proxy = start_policy('default = "allow"\n[[rules]]\naddresses = ["127.0.0.0/8"]\n'
                         'action = "allow"\n', OPEN + SOCKS5, hook=textwrap.dedent("""
        import cutthrough

        async def decide(request):
            print(request.method, repr(request.user), flush=True)
            return cutthrough.Decision(request.host == "127.0.0.1", "by the table")
        """))
    client = call(proxy)
    assert client.method(NONE) == NONE
    assert client.request(origin.authority) == GRANTED
    assert call(proxy, 1).socks_tunnel(origin.authority)
    assert call(proxy).request4(other.authority) == 91
    asked = (proxy.log_path.parent / "stdout").read_text().splitlines()
    assert asked == ["CONNECT ''", f"CONNECT '{USER}'", "CONNECT ''"]


@pytest.mark.any_loop
def test_a_tunnel_by_socks_moves_to_the_next_worker(start, make_origin, call):
    proxy, origin = start(SOCKS5 + OPEN), make_origin(echo)
    clients = [call(proxy).socks_tunnel(origin.authority), call(proxy, 1)]
    assert clients[1].request4(origin.authority) == 90
    proxy.reload(RENEW.format(9999) + SOCKS5 + OPEN)
    for client in clients:
        client.send(b"still there")
        assert client.read_exact(11) == b"still there"
    successor = successor_of(proxy)
    for client in clients:
        client.send(b"again")
        assert client.read_exact(5) == b"again"
        client.close()
    records = proxy.wait_log(2)
    assert sorted((one["method"], one["user"] or "") for one in records) == [
        ("SOCKS4", ""), ("SOCKS5", USER)]
    assert {one["reason"] for one in records} == {"ok"}
    end(successor)


@pytest.mark.any_loop
def test_operators_see_the_method(start, make_origin, call):
    proxy = start(f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'
                  'flight_recorder = 1000\n' + SOCKS5)
    origin = make_origin(echo)
    client = call(proxy).socks_tunnel(origin.authority)
    operator = Operator(int(TOLD.search(proxy.stderr())[1]))
    (one,) = operator.connections()
    assert (one["method"], one["state"], one["user"]) == ("SOCKS5", "tunnel", USER)
    client.close()
    proxy.wait_log(1)


# Clients that people use


def run(*command: str, sent: bytes = b"") -> bytes:
    """Runs a program that scripts/bootstrap.sh installs; returns its output."""
    done = subprocess.run(command, env=clean_environment(), input=sent, timeout=60,
                          capture_output=True)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


@pytest.mark.any_loop
@pytest.mark.parametrize(("flag", "listener", "host", "method"), [
    ("--socks5", 0, "127.0.0.1", "SOCKS5"),
    ("--socks5-hostname", 0, "localhost", "SOCKS5"),
    ("--socks5-hostname", 1, "localhost", "SOCKS5"),
    ("--socks4", 1, "127.0.0.1", "SOCKS4"), ("--socks4a", 1, "localhost", "SOCKS4")])
def test_curl(start, make_origin, flag, listener, host, method):
    proxy, origin = start(SOCKS5 + ALL), make_origin()
    # curl sends a user id by version 4, and no password
    user = f"{USER}:{quote(PASSWORD)}@" if listener == 0 else ""
    page = run("curl", "-sS", flag, f"{user}127.0.0.1:{proxy.ports[listener]}",
               f"http://{host}:{origin.port}/")
    assert page == b"ok"
    (record,) = proxy.wait_log(1)
    assert (record["method"], record["host"]) == (method, host)
    assert record["user"] == (USER if user else None)


@pytest.mark.any_loop
@pytest.mark.parametrize("version", ["5", "4", "connect"])
def test_netcat(start, make_origin, version):
    """ssh's ProxyCommand runs netcat; netcat has no passwords."""
    proxy, origin = start(ALL), make_origin(echo)
    heard = run("nc", "-N", "-X", version, "-x", f"127.0.0.1:{proxy.port}", "127.0.0.1",
                str(origin.port), sent=b"SSH-2.0-test\r\n")
    assert heard == b"SSH-2.0-test\r\n"
    methods = {"5": "SOCKS5", "4": "SOCKS4", "connect": "CONNECT"}
    assert proxy.wait_log(1)[0]["method"] == methods[version]
