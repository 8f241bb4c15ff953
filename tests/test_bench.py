"""The instruments measure correctly: the relay loses nothing, the load generator
believes nothing. Both against each other on a real nginx, and against origins that lie.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from bench import measure, summary
from bench.children import BenchError, Site, free_port
from bench.origin import Origin, build_tool
from bench.running import Running, Target
from tests.bench.servers import (
    BODY,
    HEAD,
    Conversation,
    load,
    needs_compiler,
    needs_nginx,
    relay,
    serving,
)

pytestmark = needs_compiler


def dial(port: int) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port))
    peer.settimeout(20)
    return peer


def read_all(peer: socket.socket) -> bytes:
    pieces = []
    while piece := peer.recv(1 << 18):
        pieces.append(piece)
    return b"".join(pieces)


def answer_after_eof(peer: socket.socket) -> None:
    peer.sendall(read_all(peer)[::-1])


def echo(peer: socket.socket) -> None:
    while piece := peer.recv(100_000):
        peer.sendall(piece)


both_modes = pytest.mark.parametrize("mode", ["copy", "splice"])


@both_modes
def test_half_close_keeps_the_other_direction_open(mode: str) -> None:
    sent = os.urandom((5 << 20) + 17)
    with serving(answer_after_eof) as port, relay(mode, port) as through:
        with dial(through) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == sent[::-1]


@both_modes
def test_both_directions_at_once_lose_nothing(mode: str) -> None:
    sent = os.urandom((12 << 20) + 1)  # more than 16 turns of 64 KiB: others get theirs
    with serving(echo) as port, relay(mode, port) as through, dial(through) as client:

        def send() -> None:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        received = read_all(client)
        sender.join()
    assert received == sent


@both_modes
def test_a_reader_that_rests_stops_the_sender(mode: str) -> None:
    may_read = threading.Event()

    def rest_then_answer(peer: socket.socket) -> None:
        may_read.wait(20)
        answer_after_eof(peer)

    block = os.urandom(1 << 20)
    sent = 0
    with serving(rest_then_answer) as port, relay(mode, port) as through:
        with dial(through) as client:
            try:
                client.setblocking(False)
                while select.select([], [client], [], 0.3)[1]:
                    sent += client.send(block[sent % len(block) :])
                    assert sent < 64 << 20, "the relay holds without bound"
                client.settimeout(20)
            finally:
                may_read.set()
            client.shutdown(socket.SHUT_WR)
            whole = block * (sent // len(block) + 1)
            assert read_all(client) == whole[:sent][::-1]


@both_modes
def test_a_refused_target_ends_the_connection(mode: str) -> None:
    with relay(mode, free_port()) as through, dial(through) as client:
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


# ---- the load generator against nginx ----


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with Origin() as running:
        yield running


@needs_nginx
@both_modes
@pytest.mark.parametrize("load_mode", ["connect-setup", "ping", "bulk", "plain-new"])
def test_what_load_counts_the_origin_has_counted(
    origin: Origin, mode: str, load_mode: str
) -> None:
    path = "/1m" if load_mode == "bulk" else "/index.html"
    length = origin.lengths[path]
    with relay(mode, origin.port) as through:
        status, said = load(
            through,
            load_mode,
            *("--blind", "--conns", "7", "--seconds", "0.2"),
            *("--path", path, "--length", str(length)),
        )
    assert (status, said["errors"]) == (0, "0")
    assert int(said["requests"]) == origin.count_requests(int(said["requests"]), path)
    assert int(said["bytes"]) == int(said["requests"]) * length


@needs_nginx
def test_as_many_requests_are_sent_as_were_asked_for(origin: Origin) -> None:
    status, said = load(origin.port, "ping", "--blind", "--conns=9", "--requests=100")
    assert (status, said["requests"]) == (0, "100")
    assert origin.count_requests(100, "/index.html") == 100


@needs_nginx
def test_an_idle_tunnel_that_ends_is_an_error(origin: Origin) -> None:
    command = [build_tool("load"), "idle", "--blind", "--conns", "300"]
    with relay("copy", origin.port) as through:
        client = subprocess.Popen(
            [*command, "--port", str(through)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout
        assert client.stdout.readline() == "READY tunnels=300 errors=0\n"
    said, _ = client.communicate(timeout=20)  # the relay is gone, stdin ends
    assert client.returncode == 1
    assert "first_error=tunnel_ended:" in said
    assert origin.count_requests(300, "/index.html") == 300


@needs_nginx
def test_what_the_origin_refused_is_not_counted(origin: Origin) -> None:
    load(origin.port, "ping", "--blind", "--requests", "1", "--path", "/missing")
    with pytest.raises(BenchError, match="404"):
        origin.count_requests(1, "/index.html")


# ---- the load generator against origins that lie ----


@pytest.mark.parametrize(
    ("mode", "reply", "error"),
    [
        (
            "ping",
            b"HTTP/1.1 502 Bad\r\nContent-Length: 10\r\n\r\n" + BODY,
            "status:502",
        ),
        (
            "ping",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + BODY[1:],
            "length:9",
        ),
        ("ping", b"HTTP/1.1 200 OK\r\n\r\n" + BODY, "content_length:-1"),
        ("ping", HEAD + BODY[:4], "short_body:6_missing"),
        ("ping", HEAD + BODY + b"!", "surplus:1"),
        ("ping", HEAD[:20], "eof_before_response"),
        ("ping", b"", "eof_before_response"),
        ("ping", b"SSH-2.0-server\r\n\r\n", "status:-1"),
        ("plain-new", HEAD + BODY + b"!", "surplus"),
        ("connect-setup", HEAD + BODY[:9], "short_body:1_missing"),
    ],
)
def test_a_lying_origin_is_an_error(mode: str, reply: bytes, error: str) -> None:
    def lie(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(reply)

    with serving(lie) as port:
        status, said = load(port, mode, "--blind", "--length=10", "--requests=1")
    assert status == 1
    assert int(said["errors"]) > 0
    assert error in said["first_error"]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", "connect_status:407"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n", "surplus_after_connect:17"),
        (b"HTTP/1.1 200 OK\r\n", "eof_before_connect_reply"),
    ],
)
def test_a_tunnel_that_is_not_one_is_an_error(reply: bytes, error: str) -> None:
    heads: list[bytes] = []

    def refuse(peer: socket.socket) -> None:
        heads.append(peer.recv(4096))
        peer.sendall(reply)

    with serving(refuse) as port:
        status, said = load(port, "ping", "--user=Aladdin:open sesame", "--requests=1")
    assert status == 1
    assert said["first_error"] == error
    # The example of RFC 7617 section 2.
    assert b"Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n" in heads[0]


@pytest.mark.parametrize(
    ("replies", "error"),
    [
        ([b"\5\xff"], "socks_reply:2_bytes_-1"),
        ([b"\5\0", b"\5\2\0\1" + bytes(6)], "socks_reply:10_bytes_2"),
        ([b"\5\0", b"\5\0\0\1" + bytes(6) + HEAD], "socks_reply:49_bytes_0"),
    ],
)
def test_a_refusal_of_socks_is_an_error(replies: list[bytes], error: str) -> None:
    heard: list[bytes] = []

    def refuse(peer: socket.socket) -> None:
        for reply in replies:
            heard.append(peer.recv(4096))
            peer.sendall(reply)

    with serving(refuse) as port:
        status, said = load(
            port, "socks-setup", "--target=192.0.2.1:443", "--requests=1"
        )
    assert (status, said["first_error"]) == (1, error)
    asked = bytes([5, 1, 0, 1, 192, 0, 2, 1, 1, 187])
    assert heard == [bytes([5, 1, 0]), asked][: len(heard)]


# ---- the harness ----


@needs_nginx
def test_the_relay_that_plays_socks_is_measured(origin: Origin) -> None:
    row = measure.run_once("socks-setup", "relay-socks", origin, 0.3)
    assert "failed" not in row, row
    assert row["requests"] == row["origin_requests"]


@needs_nginx
def test_one_run_counts_costs_and_leaves_nothing(origin: Origin) -> None:
    row = measure.run_once("connect-setup", "relay", origin, 1)
    assert "failed" not in row
    assert row["requests"] == row["origin_requests"]
    assert 1 < float(str(row["cpu_us_per_request"])) < 1000


def test_what_had_to_be_killed_has_not_ended() -> None:
    """Squid's "20 s to end" were the harness's patience."""
    deaf = (
        "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True);"
        "signal.pause()"
    )
    running = Running([sys.executable, "-c", deaf], Target(Site(), "127.0.0.1:1"))
    running.start(piped=True)
    assert running.process and running.process.stdout
    running.process.stdout.readline()
    with pytest.raises(BenchError, match=r"did not end in 0\.3 s"):
        running.stop(0.3)
    assert running.process.poll() is not None


@needs_nginx
def test_a_run_whose_counts_differ_is_void(
    origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measure.run_load

    def one_too_many(*arguments: object) -> object:
        counted, command = run(*arguments)  # type: ignore[arg-type]
        counted.requests += 1
        return counted, command

    monkeypatch.setattr(measure, "run_load", one_too_many)
    row = measure.run_once("ping-c1", "relay", origin, 1)
    assert "origin" in str(row["failed"])


def test_a_void_run_is_never_read_as_speed() -> None:
    good: measure.Row = {"scenario": "bulk", "proxy": "relay-splice"}
    good |= {"throughput_rps": 50.0, "repetition": 1}
    rows: list[measure.Row] = [
        {**good, "cpu_us_per_request": 100.0},
        {**good, "proxy": "squid", "throughput_rps": 1e6, "cpu_us_per_request": 1.0},
        {"scenario": "bulk", "proxy": "squid", "failed": "1 errors"},
        {**good, "proxy": "cutthrough", "cpu_us_per_request": 150.0},
    ]
    relay_row, squid, cutthrough = summary.summarise(rows)
    assert squid == {
        "scenario": "bulk", "proxy": "squid", "runs": 2, "failed": 1,
        "reason": "1 errors",
    }  # fmt: skip
    assert "cpu_ratio" not in relay_row
    assert (cutthrough["cpu_ratio"], cutthrough["yardstick"]) == (1.5, "relay-splice")


def read_and_refuse(peer: socket.socket) -> None:
    peer.recv(1)
    peer.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("conversation", "status", "told"),
    [
        (read_and_refuse, 0, "ended_408=3 slow_errors=0 slow_first_error=none"),
        (lambda peer: peer.recv(1), 1, "slow_errors=3 slow_first_error=no_reply"),
        (lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n"), 1, "another_reply"),
        (lambda peer: peer.recv(1) and peer.recv(9), 1, "first_error="),
    ],
)
def test_slow_clients_believe_only_a_408(
    conversation: Conversation, status: int, told: str
) -> None:
    tool = build_tool("slow")
    with serving(conversation) as port:
        command = [tool, "--port", str(port), "--conns", "3", "--seconds", "3"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == status and told in done.stdout, done.stdout
