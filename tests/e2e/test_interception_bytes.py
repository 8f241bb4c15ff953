"""If data inside an intercepted connection is no HTTP, it passes as bytes."""

import contextlib
import errno
import os
import socket
import ssl

import pytest

from tests.support.certificates import client_context
from tests.support.inside import (
    ALL,
    HERE,
    ask,
    config,
    enter,
    okay,
    over_tls,
)
from tests.support.origin import Connection, echo
from tests.support.stream import Closed
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

MQTT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"


@pytest.fixture
def start(keep_policy):
    return lambda policy=ALL, more="": keep_policy(policy, config(more))


def ends_bare(n: int, part: bytes = b""):
    """An origin that reads MQTT and sends n bytes, and ends its stream without
    close_notify; behind a part of a record, perhaps."""
    def script(conn: Connection) -> None:
        conn.read_exact(len(MQTT))
        conn.send(b"x" * n)
        fd = os.dup(conn.sock.fileno())
        with socket.socket(fileno=fd) as raw:
            raw.sendall(part)
            raw.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while raw.recv(65536):
                    pass
    return script


def silent_tls(script):
    """An origin that knows of no ALPN, as most that speak no HTTP."""
    return over_tls(script, alpn=())


def greeting(text: bytes):
    def script(conn: Connection) -> None:
        conn.send(text)
        echo(conn)
    return script


@pytest.mark.parametrize(("first", "protocol"), [
    (MQTT, "unknown"), (b"EHLO a.example\r\n", "smtp"), (b"PING\r\n", "unknown"),
    (b"<?xml version='1.0'?><stream:stream>", "xmpp")])
def test_other_bytes_pass(start, make_origin, dial, first, protocol):
    proxy, origin = start(), make_origin(silent_tls(echo))
    client = enter(proxy, dial(proxy), origin.port)
    for data in (first, b"x" * 100_000, b"\0"):
        client.send(data)
        assert client.read_exact(len(data)) == data
    assert len(origin.connections) == 1
    client.half_close()
    assert client.at_eof()
    connect, tunnel = proxy.wait_log(2)
    assert (connect["method"], connect["reason"]) == ("CONNECT", "ok")
    assert (tunnel["kind"], tunnel["reason"], tunnel["rule"], tunnel["user"]) == (
        "tunnel", "ok", "inside", "user")
    assert (tunnel["intercepted"], tunnel["tunnel_protocol"], tunnel["sni"]) == (
        True, protocol, "a.example")
    assert tunnel["host"] == "a.example"
    assert tunnel["bytes_up"] == len(first) + 100_001


def test_bytes_come_one_by_one(start, make_origin, dial):
    proxy, origin = start(), make_origin(silent_tls(echo))
    client = enter(proxy, dial(proxy), origin.port)
    for octet in b"HELO you\r\n":
        client.send(bytes([octet]))
    assert client.read_exact(10) == b"HELO you\r\n"


@pytest.mark.parametrize(("text", "protocol"), [
    (b"220 mail.example ESMTP\r\n", "smtp"), (b"* OK IMAP4rev1 ready\r\n", "imap"),
    (b"hello\n", "unknown")])
def test_a_server_that_speaks_first(start, make_origin, dial, text, protocol):
    proxy, origin = start(), make_origin(silent_tls(greeting(text)))
    client = enter(proxy, dial(proxy), origin.port)
    assert client.read_exact(len(text)) == text
    client.send(b"GET / HTTP/1.1\r\n\r\n")          # bytes as others are
    assert client.read_exact(18) == b"GET / HTTP/1.1\r\n\r\n"
    client.close()
    record = proxy.wait_reason("ok", kind="tunnel")
    assert record["tunnel_protocol"] == protocol


def test_a_server_that_greets_and_closes(start, make_origin, dial):
    def script(conn: Connection) -> None:
        conn.send(b"421 too busy\r\n")

    proxy, origin = start(), make_origin(silent_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    assert client.read_exact(14) == b"421 too busy\r\n"
    assert client.at_eof()
    assert len(origin.connections) == 1


def test_an_origin_that_closed_is_dialled_again(start, make_origin, dial):
    count = []

    def script(conn: Connection) -> None:
        count.append(conn)
        if len(count) > 1:
            echo(conn)

    proxy, origin = start(), make_origin(silent_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    wait_until(lambda: len(count) == 1, "the first connection")
    client.send(MQTT)
    assert client.read_exact(len(MQTT)) == MQTT
    assert len(origin.connections) == 2


def test_a_client_without_alpn_may_speak_http(start, make_origin, dial):
    proxy, origin = start(), make_origin(silent_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    for path in ("/a", "/b"):
        assert ask(client, path=path).body == b"ok"
    assert [line["method"] for line in proxy.wait_log(3)] == ["CONNECT", "GET", "GET"]


@pytest.mark.parametrize("head", [
    b"get /admin http/1.1\r\n\r\n", b"GET /admin\r\n", b" GET /admin HTTP/1.1\r\n\r\n",
    b"EHLO /admin HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_what_an_origin_might_read_as_a_request_is_one(start, make_origin, dial, head):
    """R56: no path passes because its request is written badly."""
    paths = (f'[[rules]]\naction = "allow"\nmethods = ["CONNECT"]\n{HERE}'
             'tls = "intercept"\n'
             f'[[rules]]\naction = "allow"\n{HERE}paths = ["/api/**"]\n')
    proxy, origin = start(paths), make_origin(silent_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(head)
    assert client.read_response("GET").status in (400, 403, 421)
    assert not origin.requests


def test_a_client_that_agreed_on_http_speaks_http(start, make_origin, dial):
    context = client_context()
    context.set_alpn_protocols(["http/1.1"])
    proxy, origin = start(), make_origin(over_tls(echo))
    client = enter(proxy, dial(proxy), origin.port, context=context)
    client.send(MQTT + b"\r\n\r\n")
    assert client.read_response("GET").status == 400
    proxy.wait_reason("bad_request")


def test_a_rule_that_lets_http_alone_pass(start, make_origin, dial):
    policy = ALL.replace('"intercept"', '"intercept_http"')
    proxy, origin = start(policy), make_origin(silent_tls(greeting(b"hello\n")))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(MQTT + b"\r\n\r\n")
    assert client.read_response("GET").status == 400
    assert client.at_eof()
    assert proxy.wait_reason("bad_request")["intercepted"] is True


def test_a_rule_that_lets_http_alone_pass_intercepts_http(start, make_origin, dial):
    policy = ALL.replace('"intercept"', '"intercept_http"')
    proxy, origin = start(policy), make_origin(over_tls(okay))
    assert ask(enter(proxy, dial(proxy), origin.port)).body == b"ok"


@pytest.mark.parametrize("alpn", [["imap"], ["mqtt", "x-own"]])
def test_another_alpn(start, make_origin, dial, alpn):
    context = client_context()
    context.set_alpn_protocols(alpn)
    proxy, origin = start(), make_origin(silent_tls(echo))
    client = enter(proxy, dial(proxy), origin.port, context=context)
    client.send(MQTT)
    assert client.read_exact(len(MQTT)) == MQTT
    client.close()
    assert proxy.wait_reason("ok", kind="tunnel")["alpn"] == ",".join(alpn)


def test_a_reload_that_refuses_it_ends_it(start, make_origin, dial):
    """Judged by the newer rules as other tunnels are."""
    proxy, origin = start(ALL + "cut = true\n"), make_origin(silent_tls(echo))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(MQTT)
    assert client.read_exact(len(MQTT)) == MQTT
    proxy.policy.write_text('[[rules]]\naction = "deny"\ncut = true\n')
    proxy.hup()
    with pytest.raises((ConnectionResetError, ssl.SSLError)):
        client.read_exact(1)
    proxy.wait_reason("destination_denied", kind="tunnel")


HOOK = """
    import asyncio, pathlib
    from cutthrough import Decision

    asked = 0

    async def decide(request):
        global asked
        asked += 1
        while asked == 2 and not pathlib.Path("{go}").exists():
            pathlib.Path("{inside}").touch()
            await asyncio.sleep(0.01)       # between two looks at a file
        return Decision(True)
"""


@pytest.mark.parametrize("rules", [ALL, ALL + "cut = true\n"])
def test_it_waits_for_the_hook(start_policy, make_origin, dial, tmp_path, rules):
    """Its origin is connected, so it became a tunnel while it waited: `DECIDE cannot
    become TUNNEL`. If a reload came meanwhile, its rules judged it by the address of a
    connection that it did not have."""
    inside, go = tmp_path / "inside", tmp_path / "go"
    proxy = start_policy(rules, config(), hook=HOOK.format(inside=inside, go=go))
    client = enter(proxy, dial(proxy), make_origin(silent_tls(echo)).port)
    client.send(MQTT)
    wait_until(inside.exists, "the second question")
    proxy.policy.write_text("limits.x.tunnels = 9\n" + rules)
    assert "refused" not in proxy.hup()
    go.touch()
    assert client.read_exact(len(MQTT)) == MQTT


def test_it_waits_for_its_rate(start_policy, make_origin, dial):
    """As behind the hook: `HELD cannot become TUNNEL`."""
    proxy = start_policy(
        "[limits.default]\nrequests_per_second = 20\nburst = 1\nqueue = 5\n"
        + ALL.replace(HERE, 'hosts = ["a.example"]\n'),
        config('address_floor = "off"\n'))
    client = enter(proxy, dial(proxy), make_origin(silent_tls(echo)).port)
    client.send(MQTT)
    assert client.read_exact(len(MQTT)) == MQTT


def test_limits_count_it(start, make_origin, dial):
    limited = "[limits.default]\ntunnels = 1\n" + ALL
    proxy, origin = start(limited), make_origin(silent_tls(echo))
    first, second = (enter(proxy, dial(proxy), origin.port) for _ in range(2))
    first.send(MQTT)
    assert first.read_exact(len(MQTT)) == MQTT
    second.send(MQTT)
    assert second.at_eof()
    assert proxy.wait_reason("user_limit")["method"] == "TUNNEL"


# --- an origin's end without close_notify


@pytest.mark.parametrize("records", ["own", "libssl", "kernel"])
@pytest.mark.parametrize("n", [1, 3 << 20])
def test_an_end_without_close_notify_is_passed_on_as_one(
        start, make_origin, dial, records, n):
    """The client judges by itself if the stream is whole, as in a tunnel that is not
    opened."""
    proxy = start(more=f'tls_records = "{records}"\n')
    origin = make_origin(silent_tls(ends_bare(n)))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(MQTT)
    assert client.read_exact(n) == b"x" * n
    with pytest.raises(ConnectionResetError, match="a FIN without close_notify"):
        client.fill()
    assert [line["reason"] for line in proxy.wait_log(2)] == ["ok", "ok"]


@pytest.mark.parametrize("records", ["own", "libssl", "kernel"])
def test_an_end_within_a_record_is_a_reset(start, make_origin, dial, records):
    proxy = start(more=f'tls_records = "{records}"\n')
    origin = make_origin(silent_tls(ends_bare(5, b"\x17\x03\x03\x00\x40x")))
    client = enter(proxy, dial(proxy), origin.port)
    client.send(MQTT)
    assert client.read_exact(5) == b"xxxxx"
    with pytest.raises(ConnectionResetError) as caught:
        client.fill()
    assert caught.value.errno == errno.ECONNRESET
    proxy.wait_reason("origin_reset")


def test_a_client_that_takes_nothing_is_no_end(start, make_origin, dial):
    """The origin has ended; its bytes have not arrived."""
    proxy = start(more="min_rate = 1000000\nhalf_closed_timeout = '1s'\n")
    origin = make_origin(silent_tls(ends_bare(400_000)))
    client = enter(proxy, dial(proxy, receive_buffer=4096), origin.port)
    client.send(MQTT)
    proxy.wait_reason("write_timeout")


def test_a_response_until_the_close_is_cut_by_such_an_end(start, make_origin, dial):
    def script(conn: Connection) -> None:
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        ends_bare(5)(conn)

    proxy, origin = start(), make_origin(over_tls(script))
    client = enter(proxy, dial(proxy), origin.port)
    with pytest.raises(Closed):             # without the last chunk
        ask(client)
    proxy.wait_reason("origin_reset")
