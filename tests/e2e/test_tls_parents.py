"""`https://` parents: TLS with them, and each of its failures (R43 to R48)."""

import re
import ssl
from collections.abc import Callable

import pytest

from tests.support.certificates import (
    Authority,
    Made,
    authority,
)
from tests.support.handovers import RENEW
from tests.support.origin import Connection, Script, answer, echo, stall
from tests.support.parent_groups import group, used
from tests.support.parents import BAD, BASIC, ESTABLISHED, http, parent, say
from tests.support.tls_parents import ca, over_tls, server_context
from tests.support.wait import wait_until
from tests.wire.twin_proxy import read_proxy_header

pytestmark = pytest.mark.any_loop


@pytest.fixture
def through(start_proxy, make_origin):
    """A proxy with this parent as its only way."""
    def start(script: Script, config: str = "", **more: object):
        way = make_origin(script)
        proxy = start_proxy(config=f'route = "corp"\n{config}\n' + parent(
            way, "https", **{"ca": ca(), **more}))
        return proxy, way
    return start


# Traffic through the parent


def test_a_tunnel_and_plain_requests_go_through_the_parent(through, dial):
    proxy, way = through(over_tls(http))
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    client.close()
    plain = dial(proxy)
    for _ in range(2):
        assert plain.get("http://127.0.0.1:4711/a").body == b"ok"
    assert [one.target for one in way.requests] == [
        "127.0.0.1:4711", "127.0.0.1:4711", "/a", "/a"]
    assert len(way.connections) == 2, "the plain requests shared one"
    lines = proxy.wait_log(3)
    assert {(one["parent"], one["reason"], one["path"]) for one in lines
            } == {("corp", "ok", "copy")}
    pooled = next(one for one in lines if one["connect_ms"] is None)
    for one in lines:
        assert ("origin_tls_ms" in one) == (one is not pooled)


def test_a_request_in_absolute_form_goes_over_tls_with_credentials(
        through, dial, tmp_path):
    file = tmp_path / "credentials"
    file.write_text("me:secret\n")
    proxy, way = through(over_tls(http), resolve="parent", plain="absolute",
                         credentials_file=str(file))
    assert dial(proxy).get("http://a.test:4711/a").body == b"ok"
    (request,) = way.requests
    assert request.target == "http://a.test:4711/a"
    assert request.all("proxy-authorization") == [f"Basic {BASIC}"]


def test_bytes_behind_the_200_belong_to_the_tunnel(through, dial):
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(ESTABLISHED + b"SSH-2.0-x\r\n")
        echo(conn)
    proxy, _ = through(over_tls(script))
    client = dial(proxy).tunnel("127.0.0.1:22")
    assert client.read_exact(11) == b"SSH-2.0-x\r\n"
    client.send(b"more")
    assert client.read_exact(4) == b"more"


def test_bulk_is_copied_both_ways_and_each_end_is_passed_on(through, dial):
    size = 4 << 20

    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(ESTABLISHED, bytes(size))
        conn.read_exact(size)
        conn.half_close()
        conn.stall()
    proxy, _ = through(over_tls(script))
    client = dial(proxy).tunnel("127.0.0.1:4711")
    assert len(client.read_exact(size)) == size
    client.send(bytes(size))
    assert client.read_rest() == b""
    client.close()
    (record,) = proxy.wait_log(1)
    assert (record["path"], record["reason"]) == ("copy", "ok")
    assert (record["bytes_up"], record["bytes_down"]) == (size, size)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_the_name_is_expected_and_sent(through, dial, name):
    seen = []
    context = server_context()
    context.sni_callback = lambda _tls, given, _context: seen.append(given)
    proxy, _ = through(over_tls(http, context), server_name=name)
    dial(proxy).tunnel("127.0.0.1:4711").close()
    assert seen == [None if name == "127.0.0.1" else name], "RFC 6066 section 3"


def test_our_certificate_is_shown_to_a_parent_that_wants_one(through, dial):
    made = authority().sign(subject="/CN=the proxy")
    seen = []

    def script(conn: Connection) -> None:
        seen.append(dict(pair for one in conn.sock.tls.getpeercert()["subject"]
                         for pair in one))
        http(conn)
    proxy, _ = through(over_tls(script, server_context(clients=authority())),
                       certificate=str(made.certificate),
                       certificate_key=str(made.key))
    dial(proxy).tunnel("127.0.0.1:4711").close()
    assert seen == [{"commonName": "the proxy"}]


def test_the_proxy_header_comes_before_tls(through, dial):
    heard = []

    def script(conn: Connection) -> None:
        data = b""
        while (named := read_proxy_header(data)) is None:
            data += conn.read_exact(1)
        heard.append((named.address, named.port))
        over_tls(http)(conn)
    proxy, _ = through(script, proxy_protocol="v1")
    client = dial(proxy).tunnel("127.0.0.1:4711")
    assert heard == [(b"\x7f\0\0\x01", client.sock.getsockname()[1])]


# Reasons of failures


def sign(days: int = 30, name: str = "IP:127.0.0.1", by: Authority | None = None,
         ) -> Callable[[], Made]:
    return lambda: (by or authority()).sign(name, days=days)


def refuse_clients() -> ssl.SSLContext:
    return server_context(clients=authority())


def only_tls_11() -> ssl.SSLContext:
    context = server_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def over_12() -> ssl.SSLContext:
    context = refuse_clients()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def end_in_the_handshake(conn: Connection) -> None:
    conn.read_exact(50)


def stall_in_the_handshake(conn: Connection) -> None:
    conn.read_exact(50)
    conn.stall()


def without_tls(conn: Connection) -> None:
    conn.read_exact(50)
    conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
    conn.stall()


FAILURES = {
    "expired": (lambda: over_tls(http, server_context(sign(days=-1)())),
                "parent_certificate", 502),
    "another name": (lambda: over_tls(http, server_context(sign(name="DNS:a.test")())),
                     "parent_certificate", 502),
    "another authority": (
        lambda: over_tls(http, server_context(sign(by=Authority("other"))())),
        "parent_certificate", 502),
    "no client certificate": (lambda: over_tls(http, refuse_clients()),
                              "parent_handshake", 502),
    "no client certificate, TLS 1.2": (lambda: over_tls(http, over_12()),
                                       "parent_handshake", 502),
    "TLS 1.1": (lambda: over_tls(http, only_tls_11()), "parent_handshake", 502),
    "no TLS": (lambda: without_tls, "parent_handshake", 502),
    "an end": (lambda: end_in_the_handshake, "parent_closed", 502),
    "a stall": (lambda: stall_in_the_handshake, "parent_timeout", 504),
    "a stall behind it": (lambda: over_tls(stall), "parent_timeout", 504),
    "a 407": (lambda: over_tls(say(BAD.format(407).encode())), "parent_auth", 502),
    "garbage": (lambda: over_tls(say(b"\x16\x03\x01\x02\0")), "bad_parent", 502),
    "an end in the head": (
        lambda: over_tls(say(b"HTTP/1.1 200 OK\r\n", True)), "parent_closed", 502)}
# The parent has shown a good certificate, and may get our message
BEHIND = ("no client certificate", "a stall behind it", "a 407", "garbage",
          "an end in the head")


@pytest.mark.parametrize("case", FAILURES)
def test_each_failure_of_tls_is_a_reason_and_nothing_goes_directly(
        through, make_origin, dial, tmp_path, case):
    make, reason, status = FAILURES[case]
    file = tmp_path / "credentials"
    file.write_text("me:secret\n")
    proxy, way = through(make(), 'parent_timeout = "500ms"', resolve="parent",
                         plain="absolute", credentials_file=str(file))
    origin = make_origin()
    reply = dial(proxy).connect(origin.authority, early=b"early")
    assert reply.status == status
    assert f'details="{reason}"' in reply.get("proxy-status")
    if case in BEHIND:
        (record,) = proxy.wait_log(1)
    else:
        assert dial(proxy).get(origin.url()).status == status
        _, record = proxy.wait_log(2)
        assert b" HTTP/1.1" not in way.received, (
            "neither a request nor credentials, with or without TLS (R45, R48)")
    assert (record["reason"], record["parent"]) == (reason, "corp")
    assert origin.connections == [], "R44"
    assert b"early" not in way.received, "R45"


def test_the_error_log_says_why_a_certificate_is_not_accepted(through, dial):
    proxy, _ = through(over_tls(http, server_context(sign(days=-1)())))
    assert dial(proxy).connect("127.0.0.1:4711").status == 502
    wait_until(lambda: "parent corp: its certificate is not accepted: certificate has "
               "expired" in proxy.stderr(), proxy.stderr)
    assert "expired" not in "".join(proxy.lines())


def test_another_parent_is_taken_if_a_certificate_is_not_accepted(
        start_proxy, make_origin, dial):
    bad = make_origin(over_tls(http, server_context(sign(days=-1)())))
    good = make_origin(over_tls(http))
    proxy = start_proxy(config='route = "corp"\n' + parent(bad, "https", "a", ca=ca())
                        + parent(good, "https", "b", ca=ca()) + group("a", "b"))
    assert used(proxy, dial, 2) == ["b", "b"]
    assert bad.requests == []


# Chains


def test_a_chain_through_tls(start_proxy, make_origin, dial):
    """TLS to the first; inside it CONNECT to the second."""
    def both(conn: Connection) -> None:
        assert conn.read_request().target == "127.0.0.9:3128"
        conn.send(ESTABLISHED)
        http(conn)
    way = make_origin(over_tls(both))
    proxy = start_proxy(config='route = "last"\n'
                        + parent(way, "https", "first", ca=ca())
                        + '[parents.last]\nurl = "http://127.0.0.9:3128"\n'
                          'via = "first"\n')
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    assert [one.target for one in way.requests] == ["127.0.0.9:3128", "127.0.0.1:4711"]


def test_tls_inside_the_tunnel_of_another_parent(start_proxy, make_origin, dial):
    """CONNECT to the first; through it TLS to the second, and CONNECT inside that."""
    def both(conn: Connection) -> None:
        conn.read_request()
        conn.send(ESTABLISHED)
        over_tls(http)(conn)
    way = make_origin(both)
    proxy = start_proxy(config='route = "last"\n' + parent(way, name="first")
                        + '[parents.last]\nurl = "https://127.0.0.1:9"\n'
                          f'via = "first"\nca = "{ca()}"\n')
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    assert [one.target for one in way.requests] == ["127.0.0.1:9", "127.0.0.1:4711"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_in_absolute_form_goes_through_the_parents_before(
        start_proxy, make_origin, dial, tmp_path, scheme):
    """It went to the first one, with the credentials of the last."""
    file = tmp_path / "credentials"
    file.write_text("me:secret\n")

    def both(conn: Connection) -> None:
        conn.read_request()
        conn.send(ESTABLISHED)
        last = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        (over_tls(last) if scheme == "https" else last)(conn)
    way = make_origin(both)
    proxy = start_proxy(
        config='route = "last"\n' + parent(way, name="first")
        + f'[parents.last]\nurl = "{scheme}://127.0.0.1:9"\nvia = "first"\n'
          f'resolve = "parent"\nplain = "absolute"\ncredentials_file = "{file}"\n'
        + (f'ca = "{ca()}"\n' if scheme == "https" else ""))
    assert dial(proxy).get("http://a.test/b").body == b"ok"
    connect, request = way.requests
    assert (connect.target, connect.all("proxy-authorization")) == ("127.0.0.1:9", [])
    assert request.target == "http://a.test/b"
    assert request.all("proxy-authorization") == [f"Basic {BASIC}"]


def test_a_proxy_header_stands_before_a_request_in_absolute_form(
        start_proxy, make_origin, dial):
    """There was no header."""
    heard = []

    def script(conn: Connection) -> None:
        data = b""
        while (named := read_proxy_header(data)) is None:
            data += conn.read_exact(1)
        heard.append(named.port)
        http(conn)
    proxy = start_proxy(config='route = "corp"\n' + parent(
        make_origin(script), resolve="parent", plain="absolute", proxy_protocol="v1"))
    client = dial(proxy)
    assert client.get("http://a.test/b").body == b"ok"
    assert heard == [client.sock.getsockname()[1]]


# Pool, reload, hand-over


def test_a_connection_belongs_to_the_certificate_that_it_was_made_with(
        through, dial, tmp_path):
    made = [authority().sign(subject=f"/CN={name}") for name in ("one", "two")]
    pem = tmp_path / "own.pem"

    def write(one: Made) -> None:
        pem.write_bytes(b"".join(one.pem))
        pem.chmod(0o600)
    write(made[0])
    names = []

    def script(conn: Connection) -> None:
        names.append(conn.sock.tls.getpeercert()["subject"][0][0][1])
        http(conn)
    proxy, _ = through(over_tls(script, server_context(clients=authority())),
                       certificate=str(pem))
    client = dial(proxy)
    for n in range(4):
        if n == 2:
            write(made[1])
        if n:
            assert "workers replaced" not in proxy.hup()
        assert client.get("http://127.0.0.1:4711/a").status == 200
    assert names == ["one", "two"], "R46"


def test_a_tunnel_stays_in_its_worker_and_drains(start_proxy, make_origin, dial):
    way = make_origin(over_tls(http))
    config = 'route = "corp"\n' + parent(way, "https", ca=ca())
    proxy = start_proxy(config=config)
    client = dial(proxy).tunnel("127.0.0.1:4711")
    before = proxy.worker.pid
    proxy.reload(RENEW.format(9999) + config)
    wait_until(lambda: len(proxy.workers()) == 2, "a worker drains beside the new one")
    client.send(b"still")
    assert client.read_exact(5) == b"still"
    client.close()
    wait_until(lambda: [one.pid for one in proxy.workers()] != [before]
               and len(proxy.workers()) == 1, "the worker has drained")
    assert proxy.wait_log(1)[0]["reason"] == "ok"


def test_a_parents_key_that_others_may_read_is_refused(
        start_proxy, make_origin, tmp_path):
    made = authority().sign()
    key = tmp_path / "key.pem"
    key.write_bytes(made.key.read_bytes())
    key.chmod(0o644)
    proxy = start_proxy(config="")
    line = proxy.reload('route = "corp"\n' + parent(
        make_origin(http), "https", certificate=str(made.certificate),
        certificate_key=str(key)))
    assert re.search("reload refused.*private key.*chmod 600", line), "R49"


def test_sessions_are_resumed_until_a_reload_brings_another_identity(
        start_proxy, make_origin, dial):
    """R46, R48: a resumed handshake verifies nothing."""
    resumed = []

    def script(conn: Connection) -> None:
        resumed.append(conn.sock.tls.session_reused)
        http(conn)
    way = make_origin(over_tls(script))

    def config(name: str) -> str:
        return 'route = "corp"\n' + parent(
            way, "https", ca=ca(), server_name=name)
    proxy = start_proxy(config=config("localhost"))
    for name in ("localhost", "127.0.0.1"):
        if name != "localhost":
            assert "workers replaced" not in proxy.reload(config(name))
        for _ in range(3):
            dial(proxy).tunnel("127.0.0.1:4711").close()
    assert resumed == [False, True, True] * 2
