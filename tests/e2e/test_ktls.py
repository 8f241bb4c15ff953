"""TLS in bulk, sealed and opened by the kernel (kTLS); `make ktls` has such a kernel.

The client has its keys from the key log, and forges records behind libssl's.
"""

import hashlib
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutthrough.net.tls.kernel_check import why_no_kernel_tls
from tests.net.twin_records import ALERT, DATA, HANDSHAKE
from tests.support.certificates import authority, client_context, localhost
from tests.support.client import Client, build_request
from tests.support.forger import Forger, counted
from tests.support.origin import Connection, answer, answer_and_close, echo
from tests.support.proxy import Proxy
from tests.support.stream import Stream
from tests.support.tls_listener import table
from tests.support.wait import wait_until

MIB = 1 << 20
#: Makes both directions bulk
BULK = 3 * MIB // 2
PATIENCE = 120

REASON = why_no_kernel_tls()
pytestmark = pytest.mark.any_loop
in_kernel = pytest.mark.skipif(bool(REASON), reason=REASON)

SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
          "TLS_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256",
          "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305")
KEY_UPDATE, CLIENT_HELLO = b"\x18\0\0\1\0", b"\1\0\0\0"
WARNING, FATAL = 1, 2
CLOSE_NOTIFY, USER_CANCELED, HANDSHAKE_FAILURE = 0, 90, 40


@pytest.fixture
def serve(loop_name, directory, opened):
    def start(config: str = "", records: str = "kernel", **more: str) -> Proxy:
        return opened.enter_context(
            Proxy(directory("ktls"), loop=loop_name,
                  config=f'tls_records = "{records}"\n{config}'
                  + table(localhost(), **more)))
    return start


@pytest.fixture
def reach(opened):
    def connect(proxy: Proxy, context: ssl.SSLContext | None = None,
                receive_buffer: int = 0) -> Client:
        client = Client.__new__(Client)
        sock = opened.enter_context(socket.socket())
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect(("127.0.0.1", proxy.port))
        Stream.__init__(client, sock, PATIENCE)
        client.sock = Forger(sock, context)
        opened.callback(client.close)
        return client
    return connect


def pieces() -> Iterator[bytes]:
    piece = os.urandom(MIB // 4)
    for n in range(BULK // len(piece)):
        yield bytes([n]) + piece[1:]


def exchange(tunnel: Client) -> None:
    """Sends bulk to an echo, and reads it."""
    sent, got = hashlib.sha256(), hashlib.sha256()

    def send() -> None:
        for piece in pieces():
            sent.update(piece)
            tunnel.send(piece)

    sender = threading.Thread(target=send)
    sender.start()
    for _ in range(BULK // 65536):
        got.update(tunnel.read_exact(65536))
    sender.join()
    assert got.digest() == sent.digest()


@pytest.fixture(scope="module")
def proxies(tmp_path_factory):
    """By suite; an emulated processor takes ten seconds to start one."""
    started: dict[str, Proxy] = {}
    yield started, lambda: tmp_path_factory.mktemp("ktls")
    for proxy in started.values():
        proxy.stop()


@pytest.fixture
def bulk(proxies, loop_name, reach, make_origin, tmp_path):
    """A tunnel to an echo, with both directions in the kernel, and the key log."""
    def start(suite: str = SUITES[0]) -> tuple[Proxy, Client, Path]:
        started, directory = proxies
        if suite not in started:
            started[suite] = Proxy(
                directory(), loop=loop_name, config='tls_records = "kernel"\n'
                + table(localhost(), ciphers=f'"{suite}"'))
        proxy, log = started[suite], tmp_path / "keys"
        proxy.mark()
        context = client_context()
        context.keylog_filename = str(log)
        if not suite.startswith("TLS_"):
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        received, sent = counted("TlsRxSw"), counted("TlsTxSw")
        tunnel = reach(proxy, context).tunnel(make_origin(echo).authority)
        exchange(tunnel)
        assert counted("TlsRxSw") == received + 1
        assert counted("TlsTxSw") == sent + 1
        tunnels.append(tunnel)
        return proxy, tunnel, log
    tunnels: list[Client] = []
    yield start
    for one in tunnels:
        one.close()
    wait_until(lambda: counted("TlsCurrTxSw") == counted("TlsCurrRxSw") == 0,
               "the kernel has no keys any more")


# Bytes


@in_kernel
@pytest.mark.parametrize("suite", SUITES)
def test_a_bulk_tunnel_is_spliced_both_ways(bulk, suite):
    bad = counted("TlsDecryptError")
    proxy, tunnel, _ = bulk(suite)
    assert tunnel.sock.tls.cipher()[0] == suite
    for n in range(1, 200):             # the numbers go on with any reader or sender
        tunnel.send(bytes(n))
        assert tunnel.read_exact(n) == bytes(n)
    exchange(tunnel)
    tunnel.half_close()
    assert tunnel.at_eof()
    record = proxy.wait_reason("ok")
    assert record["path"] == "splice"
    assert record["bytes_up"] == record["bytes_down"] == 2 * BULK + 199 * 200 // 2
    assert counted("TlsDecryptError") == bad


@in_kernel
def test_records_of_all_sizes_go_on_in_the_kernel(bulk):
    """Parts of a record on our side at the hand-off are not lost."""
    _, tunnel, _ = bulk()
    for n in (1, 2, 1300, 4096, 16000, 16383, 16384):
        data = os.urandom(n)
        for _ in range(70000 // n % 50 + 9):
            tunnel.sock.send(data)
            assert tunnel.read_exact(n) == data


@in_kernel
def test_without_bulk_the_kernel_gets_no_keys(serve, reach, make_origin):
    sent = counted("TlsTxSw")
    proxy = serve()
    tunnel = reach(proxy).tunnel(make_origin(echo).authority)
    for _ in range(100):
        tunnel.send(b"x" * 1000)
        assert tunnel.read_exact(1000) == b"x" * 1000
    tunnel.close()
    assert proxy.wait_reason("ok")["path"] == "copy"
    assert counted("TlsTxSw") == sent


@pytest.mark.parametrize("records", ["own", "kernel"])
def test_bulk_is_copied_if_it_is_not_the_kernels(serve, reach, make_origin, records):
    if records == "kernel" and not REASON:
        pytest.skip("this kernel has kTLS")
    proxy = serve(records=records)
    instead = 'tls_records = "kernel" is as "own": '
    if records == "kernel":
        wait_until(lambda: instead in proxy.stderr(), proxy.stderr)
    else:
        assert instead not in proxy.stderr()
    tunnel = reach(proxy).tunnel(make_origin(echo).authority)
    exchange(tunnel)
    tunnel.half_close()
    assert tunnel.at_eof()
    assert proxy.wait_reason("ok")["path"] == "copy"


@in_kernel
def test_responses_go_on_over_one_connection(serve, reach, make_origin):
    body = os.urandom(BULK)
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BULK + body,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsmall"))
    proxy, sent = serve(), counted("TlsTxSw")
    client = reach(proxy)
    assert client.get(origin.url()).body == body
    assert client.get(origin.url()).body == b"small"
    assert client.get(origin.url()).body == b"small"
    assert counted("TlsTxSw") == sent + 1
    assert [one["path"] for one in proxy.wait_log(3)] == ["splice", "copy", "copy"]


@in_kernel
@pytest.mark.parametrize("how", ["tunnel", "until close", "length"])
def test_a_slow_client_gets_all_bytes_and_the_end(serve, reach, make_origin, how):
    """The kernel drops records that wait for room if the socket is shut before."""
    body = os.urandom(BULK + 12345)
    head = {"tunnel": b"", "until close": b"HTTP/1.1 200 OK\r\n\r\n",
            "length": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d"
                      b"\r\n\r\n" % len(body)}[how]

    def pour(conn: Connection) -> None:
        conn.send(body)

    origin = make_origin(pour if how == "tunnel" else answer_and_close(head, body))
    proxy, sent = serve(), counted("TlsTxSw")
    client = reach(proxy, receive_buffer=8192)
    if how == "tunnel":
        client.tunnel(origin.authority)
    else:
        client.send(build_request("GET", origin.url(), "Connection: close"))
        assert client.read_head().status == 200
    got = hashlib.sha256(client.take(len(client.pending)))
    for n in range(1 << 30):
        data = client.sock.recv(16384)
        if not data:
            break                       # a close_notify: a FIN alone raises
        got.update(data)
        if n < 300:
            time.sleep(0.003)           # a slow reader: its pace is the case
    assert got.digest() == hashlib.sha256(body).digest()
    assert counted("TlsTxSw") == sent + 1
    client.close()
    assert proxy.wait_reason("ok")["path"] == "splice"


@in_kernel
def test_bulk_from_and_to_a_parent(serve, start_proxy, dial, make_origin):
    """Our side is the client; the parent's tickets have come before."""
    parent = serve()
    received, sent = counted("TlsRxSw"), counted("TlsTxSw")
    proxy = start_proxy(config=(
        'tls_records = "kernel"\nroute = "corp"\n[parents.corp]\n'
        f'url = "https://127.0.0.1:{parent.port}"\npass_credentials = true\n'
        f'ca = "{authority().own.certificate}"\n'))
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    exchange(tunnel)
    assert (counted("TlsRxSw"), counted("TlsTxSw")) == (received + 2, sent + 2)
    tunnel.half_close()
    assert tunnel.at_eof()
    assert proxy.wait_reason("ok")["path"] == "splice"
    assert parent.wait_reason("ok")["path"] == "splice"


# Ends


@in_kernel
def test_a_half_close_leaves_the_other_direction(serve, reach, make_origin):
    """The client's close_notify, without FIN; then bulk and the origin's end."""
    seen = []

    def script(conn: Connection) -> None:
        seen.append(len(conn.read_rest()))
        conn.send(bytes(BULK))

    proxy = serve()
    tunnel = reach(proxy).tunnel(make_origin(script).authority)
    for piece in pieces():
        tunnel.send(piece)
    tunnel.sock._end()                  # without FIN
    assert tunnel.read_rest() == bytes(BULK)
    assert seen == [BULK]
    record = proxy.wait_reason("ok")
    assert (record["path"], record["bytes_up"]) == ("splice", BULK)


@in_kernel
def test_an_origin_that_ends_first_still_gets_bytes(serve, reach, make_origin):
    seen = []

    def script(conn: Connection) -> None:
        conn.send(bytes(BULK))
        conn.half_close()
        seen.append(len(conn.read_rest()))

    proxy = serve()
    tunnel = reach(proxy).tunnel(make_origin(script).authority)
    assert tunnel.read_rest() == bytes(BULK)
    for piece in pieces():
        tunnel.send(piece)
    tunnel.half_close()
    proxy.wait_reason("ok", path="splice")
    assert seen == [BULK]


@in_kernel
def test_a_fin_without_close_notify_is_an_end(bulk):
    proxy, tunnel, _ = bulk()
    tunnel.sock._sock.shutdown(socket.SHUT_WR)
    assert tunnel.at_eof()
    proxy.wait_reason("ok")


@in_kernel
@pytest.mark.parametrize("cut", [3, 5, 30, 15000])
def test_a_fin_in_a_record_is_a_cut(bulk, cut):
    proxy, tunnel, log = bulk()
    record = tunnel.sock.forge(DATA, bytes(16000), log)
    tunnel.sock.send_raw(record[:cut])
    tunnel.sock._sock.shutdown(socket.SHUT_WR)
    proxy.wait_reason("client_reset")


@in_kernel
def test_a_reset_is_a_reset(bulk):
    proxy, tunnel, _ = bulk()
    tunnel.reset()
    proxy.wait_reason("client_reset")


# Messages


def alert_of(tunnel: Client) -> str:
    """Returns the reason of the peer's fatal alert."""
    with pytest.raises(ssl.SSLError) as caught:
        tunnel.read_rest()
    return caught.value.reason


@in_kernel
@pytest.mark.parametrize(("kind", "data", "alert"), [
    (HANDSHAKE, KEY_UPDATE, "TLSV1_ALERT_INTERNAL_ERROR"),
    (HANDSHAKE, KEY_UPDATE[:4] + b"\1", "TLSV1_ALERT_INTERNAL_ERROR"),
    (HANDSHAKE, KEY_UPDATE[:4] + b"\2", "SSLV3_ALERT_ILLEGAL_PARAMETER"),
    (HANDSHAKE, CLIENT_HELLO, "SSLV3_ALERT_UNEXPECTED_MESSAGE"),
    (HANDSHAKE, b"", "SSLV3_ALERT_UNEXPECTED_MESSAGE"),
    (ALERT, b"", "SSLV3_ALERT_UNEXPECTED_MESSAGE"),      # R87
    (ALERT, b"\1", "TLSV1_ALERT_DECODE_ERROR"),
    (ALERT, bytes(200), "TLSV1_ALERT_DECODE_ERROR"),
    (20, b"\1", "SSLV3_ALERT_UNEXPECTED_MESSAGE"),
    (99, b"unknown", "SSLV3_ALERT_UNEXPECTED_MESSAGE")])
@pytest.mark.parametrize("behind", [False, True])
def test_a_message_that_ends_the_connection(bulk, kind, data, alert, behind):
    """`behind`: in one segment with bytes before it, which are delivered."""
    proxy, tunnel, log = bulk()
    before = tunnel.sock.forge(DATA, b"before", log) if behind else b""
    tunnel.sock.send_raw(before + tunnel.sock.forge(kind, data, log))
    assert alert_of(tunnel) == alert
    assert tunnel.take(len(tunnel.pending)) in ((b"before", b"") if behind else (b"",))
    up = proxy.wait_reason("client_reset")["bytes_up"]
    assert up == BULK + (len(b"before") if behind else 0)


@in_kernel
def test_messages_that_are_no_end_do_not_disturb(bulk):
    proxy, tunnel, log = bulk()
    for _ in range(20):
        tunnel.sock.send_raw(
            tunnel.sock.forge(DATA, b"a", log)
            + tunnel.sock.forge(ALERT, bytes((WARNING, USER_CANCELED)), log)
            + tunnel.sock.forge(DATA, b"", log)
            + tunnel.sock.forge(DATA, b"b", log))
        assert tunnel.read_exact(2) == b"ab"
    tunnel.sock.send_raw(tunnel.sock.forge(ALERT, bytes((WARNING, CLOSE_NOTIFY)), log))
    assert tunnel.at_eof()
    proxy.wait_reason("ok")


@in_kernel
def test_a_flood_of_messages_ends_the_connection(bulk):
    proxy, tunnel, log = bulk()
    tunnel.sock.send_raw(b"".join(
        tunnel.sock.forge(ALERT, bytes((WARNING, USER_CANCELED)), log)
        for _ in range(300)))
    assert alert_of(tunnel) == "SSLV3_ALERT_UNEXPECTED_MESSAGE"
    proxy.wait_reason("client_reset")


@in_kernel
def test_a_fatal_alert_ends_the_connection(bulk):
    proxy, tunnel, log = bulk()
    tunnel.sock.send_raw(
        tunnel.sock.forge(ALERT, bytes((FATAL, HANDSHAKE_FAILURE)), log))
    proxy.wait_reason("client_reset")


@in_kernel
@pytest.mark.parametrize(("change", "alert"), [
    (lambda r: r[:-1] + bytes([r[-1] ^ 1]), "SSLV3_ALERT_BAD_RECORD_MAC"),
    (lambda r: r[:20] + bytes([r[20] ^ 1]) + r[21:], "SSLV3_ALERT_BAD_RECORD_MAC"),
    (lambda r: r[:3] + b"\0\5" + bytes(5), "SSLV3_ALERT_BAD_RECORD_MAC"),
    (lambda r: r[:3] + b"\xff\xff" + r[5:] + bytes(100), "TLSV1_ALERT_RECORD_OVERFLOW"),
    (lambda r: b"GET / HTTP/1.1\r\n\r\n" + bytes(20000), None),
    (lambda r: r[:1] + b"\2" + r[2:], "SSLV3_ALERT_UNEXPECTED_MESSAGE")])
def test_a_bad_record_is_answered_and_ends_the_connection(bulk, change, alert):
    proxy, tunnel, log = bulk()
    good = tunnel.sock.forge(DATA, b"good", log)
    tunnel.sock.send_raw(good + change(tunnel.sock.forge(DATA, bytes(300), log)))
    found = alert_of(tunnel)
    assert alert in (None, found)
    record = proxy.wait_reason("client_reset")
    assert record["bytes_up"] in (BULK + 4, BULK)


@in_kernel
def test_a_reload_switches_it_off_for_connections_to_come(
        serve, reach, make_origin):
    proxy, origin = serve(), make_origin(echo)
    old = reach(proxy).tunnel(origin.authority)
    exchange(old)
    sent = counted("TlsTxSw")
    proxy.reload('tls_records = "own"\n' + table(localhost()))
    exchange(old)
    new = reach(proxy).tunnel(origin.authority)
    exchange(new)
    assert counted("TlsTxSw") == sent
    for tunnel, path in ((old, "splice"), (new, "copy")):
        tunnel.half_close()
        assert tunnel.at_eof()
        proxy.wait_reason("ok", path=path)


@in_kernel
def test_a_peer_with_small_fragments_keeps_our_records(serve, make_origin):
    """RFC 6066 section 4: the kernel's records have 16 KiB. Here by openssl(1)."""
    def pour(conn: Connection) -> None:
        conn.send(bytes(BULK))

    proxy, sent = serve(), counted("TlsTxSw")
    named = make_origin(pour).authority
    request = build_request("CONNECT", named, host=named)
    done = subprocess.run(
        ("openssl", "s_client", "-connect", f"127.0.0.1:{proxy.port}", "-quiet",
         "-maxfraglen", "1024", "-tls1_2", "-ign_eof"),
        input=request, capture_output=True, timeout=PATIENCE)
    assert done.stdout.endswith(bytes(BULK)), done.stderr
    assert counted("TlsTxSw") == sent
    assert proxy.wait_reason("ok")["path"] == "copy"
