"""The first bytes inside a tunnel: read, logged, and left in their place (R53)."""

import contextlib
import json
import re
import subprocess
import threading

import pytest

from cutthrough.tools.console import show
from tests.support.admin import TOKEN, TOLD, Operator
from tests.support.client import AUTH, PASSWORD, USER
from tests.support.handovers import renew
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.successors import end_family
from tests.support.wait import wait_until
from tests.wire.first_bytes import CLIENTS
from tests.wire.record_hellos import HERE
from tests.wire.twin_hello import (
    VERSIONS_13,
    build_body,
    build_hello,
    build_message,
    build_records,
    named,
    offering,
)

pytestmark = pytest.mark.any_loop

PEEK = ("--peek-tunnels",)
HELLO = build_hello(named(b"Example.com"), offering(b"h2", b"http/1.1"), VERSIONS_13,
                    (0xFE0D, b"\0"), (21, bytes(1500)))
VALUES = json.loads((HERE / "values.json").read_text())["hellos"]
OPENED = {"tunnel_protocol": "tls", "sni": "example.com", "alpn": "h2,http/1.1",
          "tls_version": "1.3", "ech": True}
FIELDS = {*OPENED, "ja4", "ja3"}


@pytest.fixture
def peeking(keep_proxy):
    return lambda *flags: keep_proxy(*PEEK, *flags)


def fields_of(record: dict) -> dict:
    return {name: value for name, value in record.items() if name in FIELDS}


def test_a_hello_is_logged_and_reaches_the_origin_whole(peeking, make_origin, dial):
    proxy, origin = peeking(), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    client.send(HELLO)
    assert client.read_exact(len(HELLO)) == HELLO
    client.half_close()
    assert client.at_eof()
    record = proxy.wait_reason("ok")
    shown = fields_of(record)
    assert re.fullmatch("t13d0105h2_[0-9a-f]{12}_[0-9a-f]{12}", shown.pop("ja4"))
    assert re.fullmatch("[0-9a-f]{32}", shown.pop("ja3"))
    assert shown == OPENED
    assert record["bytes_up"] == record["bytes_down"] == len(HELLO)


def test_without_the_option_nothing_is_looked_at(start_proxy, make_origin, dial):
    proxy, origin = start_proxy(), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    client.send(HELLO)
    assert client.read_exact(len(HELLO)) == HELLO
    client.half_close()
    assert client.at_eof()
    assert not fields_of(proxy.wait_reason("ok"))


@pytest.mark.parametrize("name", ["chromium", "firefox", "go", "java"])
def test_the_log_has_tshark_s_fingerprint(peeking, make_origin, dial, name):
    proxy, origin = peeking(), make_origin(echo)
    data = (HERE / f"{name}.bin").read_bytes()
    client = dial(proxy).tunnel(origin.authority)
    client.send(data)
    assert client.read_exact(len(data)) == data
    client.half_close()
    record = proxy.wait_reason("ok")
    assert record["ja3"] == VALUES[name]["ja3"]
    if name != "chromium":                  # see test_recorded_hellos
        assert record["ja4"] == VALUES[name]["ja4"]


def test_a_hello_in_pieces_is_held_up_until_it_is_whole(peeking, make_origin, dial):
    """Split anywhere, in one record or several, before the 200 and after it."""
    proxy = peeking()
    received: list[bytes] = []

    def keep(conn):
        conn.fill()
        received.append(conn.pending)
        with contextlib.suppress(OSError):
            echo(conn)

    origin = make_origin(keep)
    in_records = build_records(HELLO[5:], 1, 2, 700)
    cuts = [(1,), (5,), (6,), (700,), (1460,), (1, 5, 9, 44, 45, 46, 600)]
    for data in (HELLO, in_records):
        for cut in (*cuts, (len(data) - 1,)):
            received.clear()
            client = dial(proxy).tunnel(origin.authority)
            for start, end in zip((0, *cut), (*cut, len(data)), strict=True):
                assert not received, "a part went up"
                client.send(data[start:end])
            wait_until(lambda: received, "the hello has come")
            client.close()
    records = proxy.wait_log(2 * (len(cuts) + 1))
    assert {fields_of(one)["sni"] for one in records} == {"example.com"}
    assert len({fields_of(one)["ja4"] for one in records}) == 1


def test_early_bytes_count(peeking, make_origin, dial):
    """Behind the CONNECT, all of the hello or a part (R2)."""
    proxy, origin = peeking(), make_origin(echo)
    head = f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode()
    for early in (0, 1, 7, 900, len(HELLO) - 1, len(HELLO)):
        client = dial(proxy)
        client.send(head + HELLO[:early])
        assert client.read_response("CONNECT").status == 200
        client.send(HELLO[early:])
        assert client.read_exact(len(HELLO)) == HELLO, early
        client.half_close()
        assert client.at_eof()
    for record in proxy.wait_log(6):
        assert record["sni"] == "example.com"
        assert record["bytes_up"] == len(HELLO)


@pytest.mark.parametrize("data", [
    data for data, word in CLIENTS.items() if word != "tls"])
def test_other_protocols_are_guessed(peeking, make_origin, dial, data):
    proxy, origin = peeking(), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    client.send(data)
    client.half_close()
    assert client.read_exact(len(data)) == data
    assert client.at_eof()
    record = proxy.wait_reason("ok")
    assert fields_of(record) == {"tunnel_protocol": CLIENTS[data]}


@pytest.mark.parametrize(("greeting", "word"), [
    (b"SSH-2.0-OpenSSH\r\n", "ssh"), (b"220 mx ESMTP\r\n", "smtp"),
    (b"ready\n", "unknown")])
def test_an_origin_that_speaks_first_is_not_held_up(
        peeking, make_origin, dial, greeting, word):
    def greet(conn):
        conn.send(greeting)
        echo(conn)

    proxy, origin = peeking(), make_origin(greet)
    client = dial(proxy).tunnel(origin.authority)
    assert client.read_exact(len(greeting)) == greeting
    client.send(b"hello")
    assert client.read_exact(5) == b"hello"
    client.half_close()
    assert client.at_eof()
    assert fields_of(proxy.wait_reason("ok")) == {"tunnel_protocol": word}


def test_a_silent_tunnel_and_half_a_hello_go_on_after_the_deadline(
        peeking, make_origin, dial):
    proxy, origin = peeking("--head-timeout", "500ms"), make_origin(echo)
    silent, half = (dial(proxy).tunnel(origin.authority) for _ in range(2))
    half.send(HELLO[:100])
    assert half.read_exact(100) == HELLO[:100]
    silent.send(b"late")
    assert silent.read_exact(4) == b"late"
    for client in (silent, half):
        client.half_close()
        assert client.at_eof()
    words = {fields_of(one)["tunnel_protocol"] for one in proxy.wait_log(2)}
    assert words == {"silent", "unknown"}


def test_either_side_may_end_without_a_byte(peeking, make_origin, dial):
    def leave(conn):
        conn.close()

    proxy = peeking()
    client = dial(proxy).tunnel(make_origin(echo).authority)
    client.half_close()
    assert client.at_eof()
    assert fields_of(proxy.wait_reason("ok")) == {"tunnel_protocol": "silent"}
    client = dial(proxy).tunnel(make_origin(leave).authority)
    assert client.at_eof()
    client.close()
    assert len(proxy.wait_log(2)) == 2


def test_a_client_that_resets_is_logged(peeking, make_origin, dial):
    proxy, origin = peeking(), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    client.send(HELLO[:50])
    client.reset()
    assert proxy.wait_reason("client_reset")["kind"] == "tunnel"


def test_a_reset_by_the_origin_is_one(peeking, make_origin, dial):
    """The kernel reports it once, also to a look."""
    go = threading.Event()

    def reset(conn):
        go.wait(30)
        conn.reset()

    proxy = peeking()
    client = dial(proxy).tunnel(make_origin(reset).authority)
    go.set()
    with pytest.raises(ConnectionResetError):
        client.sock.recv(1)
    assert proxy.wait_reason("origin_reset")["kind"] == "tunnel"


def test_a_rule_that_cuts_does_so_while_nothing_has_come(
        start_policy, make_origin, dial):
    proxy = start_policy('default = "allow"\ncut = true\n',
                         'address_floor = "off"\nconnect_ports = "any"\n'
                         'peek_tunnels = true\n')
    client = dial(proxy).tunnel(make_origin(echo).authority)
    proxy.policy.write_text('default = "deny"\ncut = true\n')
    proxy.hup()
    assert proxy.wait_reason("destination_denied", kind="tunnel")
    client.close()


def test_a_format_with_a_code_asks_for_it(start_proxy, make_origin, dial):
    proxy = start_proxy("--access-log-format",
                        "%ct::tunnel_protocol %ct::sni %ct::alpn %ct::tls_version "
                        "%ct::ja4 %ct::ja3 %ct::ech")
    client = dial(proxy).tunnel(make_origin(echo).authority)
    client.send(HELLO)
    assert client.read_exact(len(HELLO)) == HELLO
    client.half_close()
    assert client.at_eof()
    wait_until(proxy.log_path.read_text, "a line")
    assert re.fullmatch(
        r"tls example\.com h2,http/1\.1 1\.3 t13d0105h2_\w{12}_\w{12} \w{32} ech\n",
        proxy.log_path.read_text())


@pytest.mark.parametrize(("flags", "made"), [
    (("--access-log-format", "%ct::sni"), set()),
    (("--access-log-format", "%ct::sni %ct::ja4"), {"ja4"}),
    (("--access-log-format", "%ct::sni %ct::ja3"), {"ja3"}),
    (("--access-log-format", "squid", *PEEK), {"ja4"}), (PEEK, {"ja4", "ja3"})])
def test_a_fingerprint_is_made_if_something_wants_it(
        start_proxy, make_origin, dial, flags, made):
    proxy = start_proxy("--admin", "127.0.0.1:0", *flags)
    operator = Operator(int(wait_until(lambda: TOLD.findall(proxy.stderr()), "it")[-1]))
    client = dial(proxy).tunnel(make_origin(echo).authority)
    client.send(HELLO)
    assert client.read_exact(len(HELLO)) == HELLO
    (one,) = operator.connections()
    assert one["sni"] == "example.com"
    assert {"ja4", "ja3"} & set(one) == made


def test_live_page_metrics_and_hand_over_have_the_fields(
        loop_name, directory, opened, make_origin):
    text = f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\npeek_tunnels = true\n'
    proxy = opened.enter_context(Proxy(directory("proxy"), loop=loop_name, config=text))
    opened.callback(end_family, str(proxy._config))
    operator = Operator(int(wait_until(lambda: TOLD.findall(proxy.stderr()), "it")[-1]))
    client = proxy.client().tunnel(make_origin(echo).authority)
    client.send(HELLO)
    assert client.read_exact(len(HELLO)) == HELLO

    def shown() -> dict:
        (one,) = operator.connections()
        return fields_of(one)

    before = shown()
    assert before["sni"] == "example.com"
    head, line = show(operator.connections())
    assert head.endswith("inside") and line.endswith("  tls example.com")
    renew(proxy, 1000, text)
    assert shown() == before
    metrics = operator.metrics()
    assert metrics['tunnel_protocols_total{protocol="tls"}'] == 1
    client.half_close()
    assert client.at_eof()
    assert fields_of(proxy.wait_reason("ok")) == before


def test_curl_s_handshake_goes_through(peeking, make_origin):
    proxy, origin = peeking(), make_origin(echo)     # which answers with the hello
    result = subprocess.run(
        ["curl", "-sk", "-x", proxy.url, "-U", f"{USER}:{PASSWORD}",
         f"https://{origin.authority}/"], capture_output=True, check=False)
    assert result.returncode == 35, "it met its own hello"
    record = proxy.wait_log(1)[0]
    assert (record["tunnel_protocol"], record["ja4"][:4]) == ("tls", "t13i")


def test_a_longest_hello_needs_no_room(peeking, make_origin, dial):
    """16 KiB wait in the kernel; nothing is buffered here."""
    message = build_message(build_body(named(b"a.example"), (21, bytes(16000))))
    data = build_records(message)
    proxy, origin = peeking(), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    threading.Thread(target=client.send, args=(data + bytes(100000),)).start()
    assert client.read_exact(len(data)) == data
    client.reset()
    assert proxy.wait_log(1)[0]["sni"] == "a.example"
