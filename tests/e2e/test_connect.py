"""CONNECT: its destinations, its refusals, and the ends of a tunnel."""

import signal
import socket
import threading

import pytest

from tests.support.client import AUTH, CREDENTIALS
from tests.support.origin import echo
from tests.support.sockets import count_segments, unsent
from tests.support.wait import wait_until


@pytest.mark.parametrize(
    ("host", "listen"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("LocalHost", "127.0.0.1"),
        ("localhost.", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("localhost", "::1"),
    ],
)
def test_a_tunnel_reaches_its_host(proxy, make_origin, dial, host, listen):
    origin = make_origin(echo, listen)
    tunnel = dial().tunnel(f"{host}:{origin.port}")
    tunnel.send(b"there and back")
    assert tunnel.read_exact(14) == b"there and back"
    tunnel.half_close()
    assert tunnel.at_eof()
    record = proxy.wait_reason("ok")
    assert (record["method"], record["status"], record["port"]) == (
        "CONNECT",
        200,
        origin.port,
    )
    assert (record["bytes_up"], record["bytes_down"]) == (14, 14)


def test_the_reply_to_connect_has_no_body_and_no_length(proxy, make_origin, dial):
    reply = dial().connect(make_origin(echo).authority)
    assert reply.status == 200
    for name in ("Content-Length", "Transfer-Encoding", "Connection", "Proxy-Status"):
        assert reply.get(name) is None  # RFC 9110 section 9.3.6


def test_the_origin_may_speak_first(proxy, make_origin, dial):
    def greet(conn):
        conn.send(b"220 ready\r\n")
        conn.stall()

    assert (
        dial().tunnel(make_origin(greet).authority).read_exact(11) == b"220 ready\r\n"
    )


def test_early_bytes_are_delivered_only_to_a_tunnel(proxy, make_origin, dial):
    """Behind a CONNECT that is refused nothing is delivered or processed (R1, R2)."""
    origin = make_origin()
    early = f"GET {origin.url()} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode()
    client = dial()
    refused = client.connect(origin.authority, early, auth=None)
    assert (refused.status, refused.get("Connection")) == (407, "close")
    assert client.at_eof()
    assert len(proxy.wait_log(1)) == 1
    assert not origin.connections


def test_a_large_early_piece_arrives_whole(proxy, make_origin, dial):
    early = (
        bytes(range(256)) * 24
    )  # with the head less than the 16 KiB that a head may have
    tunnel = dial().tunnel(make_origin(echo).authority, early)
    assert tunnel.read_exact(len(early)) == early


@pytest.mark.parametrize("body", ["Content-Length: 3", "Transfer-Encoding: chunked"])
def test_connect_with_a_body_is_refused(proxy, make_origin, dial, body):
    """R2."""
    origin = make_origin()
    client = dial()
    reply = client.ask(
        "CONNECT", origin.authority, body, host=origin.authority, body=b"abc"
    )
    assert (reply.status, reply.get("Connection")) == (400, "close")
    assert client.at_eof()
    assert not origin.connections


def test_connect_with_an_empty_body_is_a_tunnel(proxy, make_origin, dial):
    origin = make_origin(echo)
    reply = dial().ask(
        "CONNECT", origin.authority, "Content-Length: 0", host=origin.authority
    )
    assert reply.status == 200


def test_the_clients_half_close_reaches_the_origin(proxy, make_origin, dial):
    """All that was sent arrives before the FIN; the other direction goes on (R36)."""
    size = 3 << 20

    def count(conn):
        got = conn.read_rest()
        conn.send(b"%d" % len(got))

    tunnel = dial().tunnel(make_origin(count).authority)
    tunnel.send(b"u" * size)
    tunnel.half_close()
    assert tunnel.read_rest() == b"%d" % size


def test_the_origins_half_close_reaches_the_client(proxy, make_origin, dial):
    size = 3 << 20
    got = []

    def pour(conn):
        conn.send(b"d" * size)
        conn.half_close()
        got.append(conn.read_rest())

    origin = make_origin(pour)
    tunnel = dial().tunnel(origin.authority)
    assert len(tunnel.read_rest()) == size
    tunnel.send(b"still open", b" upwards")
    tunnel.half_close()
    assert proxy.wait_reason("ok")["bytes_up"] == 18
    origin.close()
    assert got == [b"still open upwards"]


def test_a_slow_reader_gets_everything_after_both_fins(proxy, make_origin, dial):
    """Half-close must not cut bytes that are still buffered (R36)."""
    data = bytes(range(256)) * 8192  # 2 MiB: more than the sockets hold

    def pour(conn):
        conn.send(data)

    client = dial(receive_buffer=4096)
    client.tunnel(make_origin(pour).authority)
    client.half_close()
    assert client.read_rest() == data


def test_a_reset_by_the_origin_ends_the_tunnel(proxy, make_origin, dial):
    def reset(conn):
        conn.read_exact(1)
        conn.reset()

    tunnel = dial().tunnel(make_origin(reset).authority)
    tunnel.send(b"x")
    assert tunnel.at_eof()
    proxy.wait_reason("origin_reset")


def test_what_came_before_a_reset_arrives_before_it(proxy, make_origin, dial):
    """The send of an upload met the reset first, and the origin's bytes before it,
    perhaps the reason, were never read: without a proxy the client gets them. The
    worker is held up until all of them are there."""
    go, gone = threading.Event(), threading.Event()

    def script(conn):
        conn.send(b"ready")
        go.wait(30)
        conn.send(b"too large")
        conn.reset()
        gone.set()

    client = dial().tunnel(make_origin(script).authority)
    assert client.read_exact(5) == b"ready"
    proxy.worker.send_signal(signal.SIGSTOP)
    try:
        client.send(b"an upload")
        go.set()
        assert gone.wait(30)
    finally:
        proxy.worker.send_signal(signal.SIGCONT)
    assert client.read_exact(9) == b"too large"
    with pytest.raises(ConnectionResetError):
        client.read_rest()
    proxy.wait_reason("origin_reset")


def test_last_bytes_and_the_end_behind_them_are_one_segment(proxy, make_origin, dial):
    """If both are there when the worker looks: the client wakes up once."""
    go, gone = threading.Event(), threading.Event()

    def script(conn):
        conn.send(b"ready")
        go.wait(30)
        conn.send(b"the rest")
        conn.close()
        gone.set()

    client = dial().tunnel(make_origin(script).authority)
    assert client.read_exact(5) == b"ready"
    before = count_segments(client.sock)
    proxy.worker.send_signal(signal.SIGSTOP)
    try:
        go.set()
        assert gone.wait(30)
    finally:
        proxy.worker.send_signal(signal.SIGCONT)
    assert client.read_rest() == b"the rest"
    assert count_segments(client.sock) == before + 1


@pytest.mark.parametrize("end", ["passed on", "in one turn", "unread"])
def test_late_bytes_do_not_cost_what_came_before_the_end(
    proxy, make_origin, dial, end
):
    """RFC 9110 section 9.3.6: bytes from a side that closed are sent out first. If an
    origin has closed, it answers later bytes by a reset; passed on at once, that took
    from a slow client the bytes still on their way. `end`: how far the origin's has
    come when the late bytes do."""
    # The kernel holds 2.5 MiB for a client; more waits in a pipe, the end behind it
    data = bytes(range(256)) * 4096 * (3 if end == "unread" else 1)
    sent, go = threading.Event(), threading.Event()

    def pour(conn):
        conn.send(data)
        sent.set()
        go.wait(30)  # and closes

    def states() -> set[str]:
        return {one.status for one in proxy.worker.net_connections()}

    client, origin = dial(receive_buffer=4096), make_origin(pour)
    client.tunnel(origin.authority)
    client.read_exact(256)
    assert sent.wait(30)
    if end == "in one turn":            # a worker that is stopped takes nothing more
        wait_until(lambda: not unsent(origin.port), "all of it at the worker")
        proxy.worker.send_signal(signal.SIGSTOP)
    go.set()
    try:
        state = "FIN_WAIT1" if end == "passed on" else "CLOSE_WAIT"
        wait_until(lambda: state in states(), states)
        client.send(b"late")
        if end == "unread":
            wait_until(lambda: state not in states(), states)
            client.send(b"later")  # the send reports it
    finally:
        proxy.worker.send_signal(signal.SIGCONT)
    assert client.read_exact(len(data) - 256) == data[256:]
    assert client.at_eof()
    client.send(b"later still")
    client.close()
    assert proxy.wait_reason("origin_reset")["bytes_down"] == len(data)


def test_a_reset_by_the_client_ends_the_tunnel(proxy, make_origin, dial):
    origin = make_origin(echo)
    tunnel = dial().tunnel(origin.authority)
    tunnel.send(b"x")
    assert tunnel.read_exact(1) == b"x"
    tunnel.reset()
    proxy.wait_reason("client_reset")


@pytest.mark.parametrize(
    ("authority", "status", "label"),
    [
        ("127.0.0.1:1", 502, "connection_refused"),
        ("[::1]:1", 502, "connection_refused"),
        # Linux routes no TCP to a multicast address.
        pytest.param("224.0.0.1:80", 502, "unreachable",
                     marks=pytest.mark.dials_out),
        # A link-local address without an interface: EINVAL.
        ("[fe80::1]:80", 502, "unreachable"),
        ("localhost", 400, "bad_target"),
        ("localhost:", 400, "bad_target"),
        ("localhost:0", 400, "bad_target"),
        ("localhost:65536", 400, "bad_target"),
        ("localhost:99999999999999999999", 400, "bad_target"),
        ("localhost:+80", 400, "bad_target"),
        (":80", 400, "bad_target"),
        ("user@localhost:80", 400, "bad_target"),
        ("localhost:80/", 400, "bad_target"),
        ("http://localhost:80", 400, "bad_target"),
        ("2001:db8::1", 400, "bad_target"),
        ("[::1:80", 400, "bad_target"),
        ("[::g]:80", 400, "bad_target"),
        ("[127.0.0.1]:80", 400, "bad_target"),
        ("a,b:80", 400, "bad_target"),
        ("/path", 400, "bad_target"),
        ("*", 400, "bad_target"),
    ],
)
def test_a_refusal_says_why_and_closes(proxy, dial, authority, status, label):
    """R1, R16, R28: status, length, `Connection: close`, Proxy-Status, FIN."""
    client = dial()
    reply = client.ask("CONNECT", authority, host="localhost")
    record = proxy.wait_log(1)[0]
    assert (reply.status, record["reason"], record["status"]) == (status, label, status)
    assert reply.get("Connection") == "close"
    assert int(reply.get("Content-Length")) == len(reply.body)
    assert (reply.get("Proxy-Status") or "").startswith("cutthrough; error=")
    assert client.at_eof()


def test_a_refusal_does_not_reset_what_the_client_still_sends(proxy, dial):
    """Lingering close: the 407 is read even by a client that is still writing (R1)."""
    client = dial()
    client.send(
        b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n" + b"t" * 60_000
    )
    assert client.read_response("CONNECT").status == 407
    client.send(b"t" * 1000)
    client.half_close()
    assert client.read_rest() == b""


def test_a_client_that_leaves_before_the_answer_leaves_nothing(
    proxy, make_origin, dial
):
    origin = make_origin(echo)
    for _ in range(20):
        client = dial()
        client.send(
            f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n"
            f"Proxy-Authorization: {CREDENTIALS}\r\n\r\n".encode()
        )
        client.reset()
    assert dial().tunnel(origin.authority)


def test_a_tunnel_carries_tiny_writes_in_order(proxy, make_origin, dial):
    tunnel = dial().tunnel(make_origin(echo).authority)
    tunnel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    sent = bytearray()
    for n in range(1, 400):
        piece = bytes([n & 255]) * (n % 7 + 1)
        tunnel.send(piece)
        sent += piece
    assert tunnel.read_exact(len(sent)) == bytes(sent)
