"""Rules about the first bytes inside a tunnel: no byte goes up before the decision."""

import contextlib
import subprocess
import threading

import pytest

from tests.support.certificates import localhost
from tests.support.client import AUTH, PASSWORD, USER
from tests.support.inside import ALL, config
from tests.support.intercepting import SERVERS
from tests.support.origin import echo
from tests.support.socks import NONE, SocksClient
from tests.support.socks import call as call
from tests.support.socks_udp import Association
from tests.support.socks_udp import make_echo as make_echo
from tests.support.stream import Stream
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import table
from tests.support.transparent import WAYS as TRANSPARENT
from tests.support.transparent import scene as scene
from tests.support.wait import wait_until
from tests.wire.twin_hello import VERSIONS_13, build_hello, named, offering

pytestmark = pytest.mark.any_loop

NAMES = ('dns_overrides = ["a.example=127.0.0.1", "b.example=127.0.0.1"]\n'
         'connect_ports = "any"\n')
HERE = 'addresses = ["127.0.0.0/8"]\n'
ONLY_TLS = f'[[rules]]\nname = "tls"\naction = "allow"\n{HERE}protocol = ["tls"]\n'
MATCHING = f'[[rules]]\nname = "own name"\naction = "allow"\n{HERE}sni = "match"\n'
ALERT = b"\x15\x03\x03\0\2\2\x31"          # fatal, access_denied
BROKEN = ALERT[:-1] + b"\x32"                # decode_error


WAYS = ("connect", "socks5", "tls")
LISTENERS = ('[[listeners]]\naddress = "127.0.0.1:0"\nprotocols = ["http", "socks5"]\n')


def hello(name: bytes = b"a.example") -> bytes:
    return build_hello(named(name), offering(b"h2"), VERSIONS_13)


def options(config="", head_timeout="1s"):
    return f'{NAMES}head_timeout = "{head_timeout}"\n{config}'


@pytest.fixture
def start(start_policy):
    return lambda policy, *words, **more: start_policy(policy, options(*words, **more))


@pytest.fixture
def enter(keep_policy, opened, reach):
    """A tunnel by this way in, to this port of a.example, under this policy."""
    def come(way: str, policy: str, port: int):
        proxy = keep_policy(
            policy, options(table(localhost()) if way == "tls" else LISTENERS))
        authority = f"a.example:{port}"
        if way == "tls":
            return proxy, reach(proxy).tunnel(authority)
        if way == "connect":
            return proxy, opened.enter_context(proxy.client()).tunnel(authority)
        client = opened.enter_context(SocksClient(proxy.ports[0]))
        return proxy, client.socks_tunnel(authority)
    return come


def tunnel(proxy, dial, origin, host: str = "a.example"):
    return dial(proxy).tunnel(f"{host}:{origin.port}")


def assert_passes(client, data: bytes) -> None:
    client.send(data)
    assert client.read_exact(len(data)) == data
    client.half_close()
    assert client.at_eof()


def rest_of(client) -> bytes:
    """The bytes before the end, FIN or reset."""
    with contextlib.suppress(ConnectionResetError):
        while client.fill():
            pass
    return client.take(len(client.pending))


def test_a_tunnel_that_meets_the_conditions_passes(start, make_origin, dial):
    proxy, origin = start(ONLY_TLS + 'sni = "match"\n'), make_origin(echo)
    assert_passes(tunnel(proxy, dial, origin), hello())
    record = proxy.wait_reason("ok")
    assert (record["rule"], record["tunnel_protocol"]) == ("tls", "tls")
    assert record["sni"] == record["host"] == "a.example"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("policy", "data"), [
    (ONLY_TLS, hello()), (ONLY_TLS.replace('"tls"]', '"ssh"]'), b"SSH-2.0-x\r\n"),
    (ONLY_TLS.replace('"tls"]', '"http"]'), b"GET / HTTP/1.1\r\n\r\n"),
    (MATCHING, hello()), (MATCHING.replace("match", "any"), hello(b"b.example")),
    (MATCHING.replace("match", "allowed"), hello(b"b.example")),
    (ONLY_TLS + 'ja4 = ["t12d0103h2_*_*", "t13d0103h2_*_*"]\n', hello())])
def test_each_condition_lets_what_meets_it_pass(enter, make_origin, way, policy, data):
    """R41"""
    assert_passes(enter(way, policy, make_origin(echo).port)[1], data)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("policy", "data", "reason", "end"), [
    (ONLY_TLS, b"SSH-2.0-x\r\n", "protocol_denied", b""),
    (ONLY_TLS, b"GET / HTTP/1.1\r\n\r\n", "protocol_denied", b""),
    (ONLY_TLS, b"\x16\x03\x01\0\x05hello", "protocol_denied", BROKEN),
    (MATCHING, hello(b"b.example"), "sni_denied", ALERT),
    (MATCHING, build_hello(VERSIONS_13), "sni_denied", ALERT),
    (MATCHING, b"\1\1", "sni_denied", b""),
    (MATCHING.replace("match", "any"), build_hello(VERSIONS_13), "sni_denied", ALERT),
    (MATCHING.replace("match", "allowed") + 'hosts = ["a.example"]\n',
     hello(b"b.example"), "sni_denied", ALERT),
    (ONLY_TLS + 'ja4 = ["t12d0103h2_*_*"]\n', hello(), "ja4_denied", ALERT)])
def test_another_tunnel_ends_and_the_origin_gets_nothing(
        enter, make_origin, way, policy, data, reason, end):
    """R41. A client of TLS reads an alert and FIN, any other a reset. Behind a broken
    ClientHello it read a reset, too (tlsfuzzer)."""
    received = []

    def keep(conn):
        while conn.fill():
            received.append(conn.pending)

    proxy, client = enter(way, policy, make_origin(keep).port)
    client.send(data)
    assert rest_of(client) == end
    record = proxy.wait_reason(reason)
    assert (record["kind"], record["status"]) == ("tunnel", 200)
    assert (record["bytes_up"], record["bytes_down"]) == (0, 0)
    assert not received


@pytest.mark.parametrize("tls", ["refuse", "intercept", "intercept_http"])
@pytest.mark.parametrize("data", [
    b"\x16\x03\x01\x40\0\1\0\x50\0\3\3" + b"x" * 20000,      # larger than MOST_HELLO
    b"\x16\x03\x01\0\x05hello", b"\x80\x2e\1\3\3" + b"x" * 50])  # SSL 2's ClientHello
def test_tls_that_cannot_be_read_is_neither_opened_nor_passed(
        keep_policy, dial, make_origin, tls, data):
    """R53: a client with 75 names in ALPN reached each host unread, because servers of
    TLS read longer ClientHellos than this program, and other bytes than TLS pass."""
    received = []

    def keep(conn):
        while conn.fill():
            received.append(conn.pending)

    proxy = keep_policy(ALL.replace("intercept", tls), config())
    client = tunnel(proxy, dial, make_origin(keep))
    client.send(data)
    assert rest_of(client) == BROKEN
    assert proxy.wait_reason("protocol_denied")["tunnel_protocol"] == "unknown"
    assert not received


@pytest.mark.parametrize("tls", ["refuse", "intercept", "intercept_http"])
@pytest.mark.parametrize("data", [b"\x16\x02\x01", b"\x80\0\2\3", b"\x80\0\1\2"])
def test_what_is_not_tls_passes_a_rule_that_opens_or_refuses_it(
        keep_policy, dial, make_origin, tls, data):
    proxy = keep_policy(ALL.replace("intercept", tls), config())
    assert_passes(tunnel(proxy, dial, make_origin(echo)), data + b"x" * 60)


def test_early_bytes_wait_for_the_decision(start, make_origin, dial):
    """A client that sends its ClientHello behind the CONNECT gains nothing (R2)."""
    proxy, origin = start(MATCHING), make_origin(echo)
    client = dial(proxy)
    head = f"CONNECT a.example:{origin.port} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n"
    client.send(head.encode() + hello(b"b.example"))
    assert client.read_response("CONNECT").status == 200
    assert rest_of(client) == ALERT
    assert proxy.wait_reason("sni_denied")["bytes_up"] == 0
    client = dial(proxy)
    client.send(head.encode() + hello())
    assert client.read_response("CONNECT").status == 200
    assert client.read_exact(len(hello())) == hello()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", [b"", hello()[:60]])
def test_a_tunnel_without_a_whole_hello_ends_at_the_deadline(
        enter, make_origin, way, part):
    """R53: until then it is undecided."""
    proxy, client = enter(way, MATCHING, make_origin(echo).port)
    client.send(part)
    assert rest_of(client) == b""
    record = proxy.wait_reason("peek_timeout")
    assert (record["bytes_up"], record["kind"]) == (0, "tunnel")


def test_a_client_that_ends_after_half_a_hello_is_judged(start, make_origin, dial):
    proxy, origin = start(ONLY_TLS), make_origin(echo)
    client = tunnel(proxy, dial, origin)
    client.send(hello()[:-1])
    client.half_close()
    assert rest_of(client) == BROKEN
    assert proxy.wait_reason("protocol_denied")["bytes_up"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_an_origin_that_speaks_first_decides(enter, make_origin, way):
    """A server of SMTP waits for no client, and its client for it."""
    def greet(conn):
        conn.send(b"220 mx ESMTP\r\n")
        echo(conn)

    smtp = ONLY_TLS.replace('"tls"]', '"tls", "smtp"]')
    port = make_origin(greet).port
    _, client = enter(way, smtp, port)
    assert client.read_exact(14) == b"220 mx ESMTP\r\n"
    assert_passes(client, b"EHLO x\r\n")
    proxy, client = enter(way, ONLY_TLS, port)
    assert rest_of(client) == b""
    record = proxy.wait_reason("protocol_denied")
    assert record["total_ms"] < 1000, "it has waited for its client"
    assert (record["tunnel_protocol"], record["bytes_down"]) == ("smtp", 0)


def test_an_origin_that_leaves_first_ends_it(start, make_origin, dial):
    proxy = start(MATCHING)
    client = tunnel(proxy, dial, make_origin(lambda conn: conn.close()))
    assert client.at_eof()
    assert proxy.wait_reason("ok")["bytes_up"] == 0


def test_a_denied_fingerprint_is_refused_and_others_pass(start, make_origin, dial):
    policy = ('[lists]\nbad = ["t13d0102h2_*_*"]\n'
              '[[rules]]\naction = "deny"\nja4 = ["@bad"]\n'
              f'[[rules]]\naction = "allow"\n{HERE}')
    proxy, origin = start(policy), make_origin(echo)
    assert_passes(tunnel(proxy, dial, origin), hello())
    client = tunnel(proxy, dial, origin)
    client.send(build_hello(named(b"a.example"), offering(b"h2"), legacy=0x0304))
    assert rest_of(client) == ALERT
    assert proxy.wait_reason("ja4_denied")["ja4"].startswith("t13d0102h2_")
    assert_passes(tunnel(proxy, dial, origin), b"SSH-2.0-x\r\n")


def test_report_lets_it_pass_and_logs_it(start, make_origin, dial):
    policy = (f'[[rules]]\naction = "report"\n{HERE}protocol = ["ssh"]\n' + ONLY_TLS)
    proxy = start(policy, 'address_floor = "off"\n')
    assert_passes(tunnel(proxy, dial, make_origin(echo)), b"SSH-2.0-x\r\n")
    assert proxy.wait_reason("ok")["report"] is True


def test_another_rule_s_limits_apply_from_then_on(start, make_origin, dial):
    policy = ("[limits.one]\ntunnels = 1\n"
              f'[[rules]]\naction = "allow"\n{HERE}protocol = ["ssh"]\nlimits = "one"\n'
              + ONLY_TLS)
    proxy, origin = start(policy), make_origin(echo)
    first = tunnel(proxy, dial, origin)
    first.send(hello())
    assert first.read_exact(len(hello())) == hello()
    assert_passes(tunnel(proxy, dial, origin), hello())
    second, third = (tunnel(proxy, dial, origin) for _ in range(2))
    second.send(b"SSH-2.0-x\r\n")
    assert second.read_exact(11) == b"SSH-2.0-x\r\n"
    third.send(b"SSH-2.0-x\r\n")
    assert rest_of(third) == b""
    assert proxy.wait_reason("user_limit")["bytes_up"] == 0


def test_a_plain_request_meets_no_such_condition(start, make_origin, dial):
    proxy, origin = start(ONLY_TLS), make_origin()
    assert dial(proxy).get(f"http://a.example:{origin.port}/").status == 403


def test_other_tunnels_are_not_looked_at(start, make_origin, dial):
    policy = f'[[rules]]\naction = "allow"\nhosts = ["b.example"]\n{HERE}' + MATCHING
    proxy, origin = start(policy), make_origin(echo)
    assert_passes(tunnel(proxy, dial, origin, "b.example"), b"anything")
    assert "tunnel_protocol" not in proxy.wait_reason("ok")


@pytest.mark.parametrize("log_format", ["json", "%ct::reason %ct::sni"])
def test_a_reload_judges_by_the_bytes_that_are_remembered(
        start, make_origin, dial, log_format):
    """With a fingerprint that neither the earlier policy nor the log wanted."""
    origin = make_origin(echo)
    proxy = start(ONLY_TLS, f'access_log_format = "{log_format}"\n')
    client = tunnel(proxy, dial, origin)
    client.send(hello())
    assert client.read_exact(len(hello())) == hello()
    proxy.policy.write_text(
        '[[rules]]\naction = "deny"\ncut = true\nja4 = ["t13d0103h2_*_*"]\n' + ONLY_TLS)
    proxy.hup()
    assert rest_of(client) == b""
    if log_format == "json":
        assert proxy.wait_reason("destination_denied")["sni"] == "a.example"
    else:
        line = "destination_denied a.example\n"
        wait_until(lambda: proxy.log_path.read_text() == line, "a line")


def test_a_rule_that_refuses_tls_ends_the_tunnels_that_have_it(
        start, make_origin, dial):
    """Its `cut` ended none of them: the rule is one that allows."""
    policy = f'[[rules]]\naction = "allow"\n{HERE}'
    proxy, origin = start(policy, "peek_tunnels = true\n"), make_origin(echo)
    refused, other = tunnel(proxy, dial, origin), tunnel(proxy, dial, origin)
    for client, data in (refused, hello()), (other, b"no TLS"):
        client.send(data)
        assert client.read_exact(len(data)) == data
    proxy.policy.write_text(f'{policy}tls = "refuse"\ncut = true\n')
    proxy.hup()
    assert rest_of(refused) == b""
    assert_passes(other, b"more")


def test_a_reload_while_a_tunnel_waits_counts(start, make_origin, dial):
    proxy, origin = start(ONLY_TLS, head_timeout="20s"), make_origin(echo)
    client = tunnel(proxy, dial, origin)
    refused = tunnel(proxy, dial, origin)
    proxy.policy.write_text(
        '[[rules]]\naction = "deny"\ncut = true\nja4 = ["t12d0103h2_*_*"]\n' + ONLY_TLS)
    proxy.hup()
    refused.send(build_hello(named(b"a.example"), offering(b"h2"), (21, bytes(9))))
    assert rest_of(refused) == ALERT
    assert proxy.wait_reason("destination_denied")["bytes_up"] == 0
    assert_passes(client, hello())


def test_tunnels_and_reloads_at_once(start, make_origin, opened):
    """No tunnel is decided by half a policy."""
    proxy, origin = start(MATCHING), make_origin(echo)
    stop = threading.Event()
    failures = []

    def go(name: bytes) -> None:
        try:
            while not stop.is_set():
                with proxy.client() as client:
                    client.tunnel(f"a.example:{origin.port}").send(hello(name))
                    if name == b"a.example":
                        assert client.read_exact(len(hello(name))) == hello(name)
                    else:
                        assert rest_of(client) in (ALERT, hello(name)[:7])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=go, args=(name,))
               for name in (b"a.example", b"a.example", b"b.example")]
    for thread in threads:
        thread.start()
    for i in range(8):
        proxy.policy.write_text(MATCHING + f'# {i}\n' if i % 2 else
                                ONLY_TLS + 'sni = "match"\n')
        proxy.hup()
    try:
        proxy.wait_reason("sni_denied")         # lines are written in batches
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert not failures
    reasons = {one["reason"] for one in proxy.log()}
    assert reasons <= {"ok", "sni_denied", "client_reset"}


@pytest.mark.parametrize(("name", "said"), [
    ("b.example", "alert access denied"), ("a.example", "unexpected message")])
def test_openssl_reads_the_alert(start, make_origin, name, said):
    """The origin answers with its client's own hello, which is no ServerHello."""
    proxy, origin = start(MATCHING), make_origin(echo)
    result = subprocess.run(
        ["openssl", "s_client", "-proxy", f"127.0.0.1:{proxy.port}",
         "-proxy_user", USER, "-proxy_pass", f"pass:{PASSWORD}",
         "-connect", f"a.example:{origin.port}", "-servername", name],
        capture_output=True, input="", text=True, check=False, timeout=30)
    assert said in result.stderr
    if name == "b.example":
        record = proxy.wait_reason("sni_denied")
        assert (record["sni"], record["host"]) == ("b.example", "a.example")


def test_the_floor_is_opened_by_the_deciding_rule_only(start, make_origin, dial):
    policy = MATCHING + '[[rules]]\naction = "allow"\nhosts = ["a.example"]\n'
    proxy = start(policy, 'address_floor = "on"\n')
    client = tunnel(proxy, dial, make_origin(echo))
    client.send(hello(b"b.example"))
    assert rest_of(client) == ALERT
    assert proxy.wait_reason("address_denied")["bytes_up"] == 0


def test_a_datagram_has_no_first_bytes(start, call, make_echo, opened):
    """R51. No rule about them lets it pass."""
    echo_server = make_echo()
    listener = LISTENERS + 'udp = true\nauth = "none"\n'
    allowing = f'[[rules]]\naction = "allow"\n{HERE}'
    for policy, passes in ((ONLY_TLS, False), (allowing, True),
                           (ONLY_TLS.replace("allow", "deny") + allowing, True)):
        client = call(start(policy, listener))
        assert client.method(NONE) == NONE
        one = Association(client)
        opened.enter_context(one.sock)
        one.send(echo_server.authority, b"x")
        assert one.is_silent() is not passes


@pytest.mark.parametrize(("data", "reason"), [
    (hello(b"here.test"), "ok"), (hello(b"other.test"), "sni_denied"),
    (build_hello(VERSIONS_13), "ok"), (b"SSH-2.0-x\r\n", "protocol_denied")])
@pytest.mark.parametrize("how", TRANSPARENT)
def test_a_redirected_tunnel_is_judged_alike(scene, how, data, reason):
    """R41, R52. A name that does not lead to the destination is not the request's."""
    stage = scene(
        how, '[[rules]]\naction = "allow"\nprotocol = ["tls"]\nsni = "match"\n')
    stage.origin(echo, 4, 443)
    with Stream(stage.router.dial(SERVERS[4], 443)) as client:
        client.send(data)
        if reason == "ok":
            assert client.read_exact(len(data)) == data
            client.half_close()
            assert client.at_eof()
        else:
            assert rest_of(client) == (ALERT if data[0] == 22 else b"")
    assert stage.proxy.wait_reason(reason)["kind"] == "tunnel"
