"""Messages and tunnels cut short: all that had come is delivered (R17, R18, R36)."""

import contextlib
import socket
import threading

import pytest

from tests.support.admin import administered
from tests.support.client import build_request
from tests.support.origin import Connection
from tests.support.sockets import attempts, unsent
from tests.support.stream import TIMEOUT
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

SIZE = 2_000_000  # the kernel takes it for a client that does not read
DATA = bytes(n % 251 for n in range(SIZE))
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"


def wait_taken(conn: Connection) -> None:
    """Until the proxy's kernel has everything: a reset would take the rest away."""
    port = conn.sock.getsockname()[1]
    wait_until(lambda: unsent(port) == 0, "all of it at the proxy")


def end(conn: Connection, how: str) -> None:
    if how == "RST":
        wait_taken(conn)
        conn.reset()
    else:
        conn.close()


def read_to_the_end(stream) -> str:
    """How it ends: FIN or RST. The bytes are in `pending`."""
    try:
        while stream.fill():
            pass
    except ConnectionResetError:
        return "RST"
    return "FIN"


def contents_of(chunks: bytes) -> bytes:
    """Of chunks whose last one is missing."""
    data = b""
    while chunks:
        size, _, chunks = chunks.removeprefix(b"\r\n").partition(b"\r\n")
        data += chunks[:int(size, 16)]
        chunks = chunks[int(size, 16):]
        assert int(size, 16)
    return data


def chunks_of(data: bytes) -> bytes:
    pieces = [data[at : at + 50_000] for at in range(0, len(data), 50_000)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


@pytest.mark.parametrize(
    ("head", "body", "version", "how", "seen"),
    [
        (LENGTH, DATA, "HTTP/1.1", "FIN", "FIN"),
        (LENGTH, DATA, "HTTP/1.1", "RST", "FIN"),
        (LENGTH, DATA, "HTTP/1.0", "RST", "FIN"),
        (CHUNKS, chunks_of(DATA), "HTTP/1.1", "FIN", "FIN"),
        (CHUNKS, chunks_of(DATA), "HTTP/1.1", "RST", "FIN"),
        (CHUNKS, chunks_of(DATA) + b"7\r\nhal", "HTTP/1.1", "FIN", "FIN"),
        # A FIN behind a body that was decoded, or ends by the close, would look whole
        (CHUNKS, chunks_of(DATA), "HTTP/1.0", "FIN", "RST"),
        (CHUNKS, chunks_of(DATA), "HTTP/1.0", "RST", "RST"),
        # In chunks of ours, of which the last one is missing
        (CLOSE, DATA, "HTTP/1.1", "RST", "FIN"),
        (CLOSE, DATA, "HTTP/1.0", "RST", "RST"),
    ],
)
def test_a_client_that_pauses_gets_all_that_came_of_a_cut_response(
    proxy, make_origin, dial, head, body, version, how, seen
):
    """The reset took the bytes not yet read: 24 463 of 2 000 000 bytes came."""

    def script(conn):
        conn.read_request()
        conn.send(head + body)
        end(conn, how)
        ended.set()

    ended = threading.Event()
    client = dial(receive_buffer=4096)
    url = make_origin(script).url()
    client.send(build_request("GET", url, version=version))
    assert ended.wait(TIMEOUT)
    if seen == "FIN":
        proxy.wait_log(1)
    assert read_to_the_end(client) == seen
    got = bytes(client.received).partition(b"\r\n\r\n")[2]
    if head == CLOSE and version == "HTTP/1.1":
        got = contents_of(got)
    assert got == (DATA if head == CHUNKS and version == "HTTP/1.0" else body)
    reason = "origin_reset" if how == "RST" else "response_truncated"
    assert proxy.wait_reason(reason)["bytes_down"] == len(client.received)


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_what_stands_before_a_bad_chunk_arrives(proxy, make_origin, dial, version):
    """R18: all that had been read together with the fault was dropped."""
    go = threading.Event()

    def script(conn):
        conn.read_request()
        conn.send(CHUNKS)
        go.wait(TIMEOUT)
        conn.send(b"5\r\nhello\r\n6\r\n world\r\nZ\r\n")
        conn.stall()

    client = dial()
    client.send(build_request("GET", make_origin(script).url(), version=version))
    client.read_head()
    go.set()
    how = read_to_the_end(client)
    if version == "HTTP/1.0":
        assert (how, client.pending) == ("RST", b"hello world")
    else:
        assert (how, client.pending) == ("FIN", b"5\r\nhello\r\n6\r\n world\r\n")
    proxy.wait_reason("bad_response_framing")


@pytest.mark.parametrize("size", [SIZE, 30 * SIZE])
@pytest.mark.parametrize("side", ["origin", "client"])
def test_a_tunnels_reset_comes_after_what_came_before_it(
    proxy, make_origin, dial, side, size
):
    """R36: it was passed on at once, past bytes that the other side had not taken. If
    the kernel does not take bytes, they wait in a pipe, and in the reset socket."""
    data = DATA * (size // SIZE)
    go = threading.Event()

    def speak(stream):
        stream.send(data)
        end(stream, "RST")

    def script(conn):
        if side == "origin":
            speak(conn)
        else:
            assert go.wait(TIMEOUT)
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            heard.append(read_to_the_end(conn))

    heard: list[str] = []
    origin = make_origin(script)
    client = dial(receive_buffer=4096 if side == "origin" else 0)
    client.tunnel(origin.authority)
    if side == "origin":
        heard.append(read_to_the_end(client))
        listener = client
    else:
        speaker = threading.Thread(target=speak, args=(client,))
        speaker.start()
        if size == SIZE:
            speaker.join()
        go.set()
        speaker.join()
        wait_until(lambda: heard, "the end at the origin")
        listener = origin.connections[0]
    assert (heard, bytes(listener.pending) == data) == (["RST"], True)
    record = proxy.wait_reason(f"{side}_reset")
    assert record["bytes_down" if side == "origin" else "bytes_up"] == size


def test_an_upload_arrives_though_its_client_reset_and_nobody_reads_the_answer(
    proxy, make_origin, dial
):
    """An origin that answers while it reads waits for a reader of its answer."""
    held = threading.Event()

    def echo(conn):
        held.wait(TIMEOUT)
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with contextlib.suppress(ConnectionResetError):
            while conn.fill():
                conn.send(bytes(len(conn.pending) // 4))
                conn.pending.clear()
        read_to_the_end(conn)  # a send met the reset, the bytes are here

    origin = make_origin(echo)
    client = dial().tunnel(origin.authority)
    client.send(DATA)
    end(client, "RST")
    held.set()
    proxy.wait_reason("client_reset")
    assert bytes(origin.connections[0].received) == DATA


@pytest.mark.parametrize("kind", ["length", "close", "tunnel"])
def test_what_was_read_in_a_lifetime_is_delivered_after_it(
    opened, directory, loop_name, make_origin, dial, kind
):
    """The bytes in the proxy's own block and pipe too; not one more is read."""
    proxy, operator = administered(opened, directory("old"), loop_name,
                                   'lifetime = "700ms"')
    head = {"length": LENGTH.replace(b"9", b"90"), "close": CLOSE, "tunnel": b""}[kind]

    def pour(conn):
        if kind != "tunnel":
            conn.read_request()
        conn.send(head)
        with contextlib.suppress(OSError):
            for _ in range(40):
                conn.send(DATA)

    client = dial(proxy, receive_buffer=4096)
    origin = make_origin(pour)
    if kind == "tunnel":
        client.tunnel(origin.authority)
    else:
        client.send(build_request("GET", origin.url(), "Connection: close"))
    wait_until(lambda: operator.connections("state=deliver"), "the lifetime over")
    assert read_to_the_end(client) == ("FIN" if kind == "length" else "RST")
    got = bytes(client.pending)
    if kind != "tunnel":
        got = got.partition(b"\r\n\r\n")[2]
    assert SIZE < len(got) < 40 * SIZE
    assert (DATA * (len(got) // SIZE + 1)).startswith(got)
    assert proxy.wait_reason("lifetime")["bytes_down"] == len(client.pending)


@pytest.mark.parametrize("end_of_all", ["stop", "cut"])
def test_nobody_who_ends_it_now_waits_for_a_delivery(
    opened, directory, loop_name, make_origin, dial, end_of_all
):
    def script(conn):
        conn.send(DATA)
        end(conn, "RST")

    proxy, operator = administered(opened, directory("now"), loop_name,
                                   'drain_timeout = "100ms"')
    client = dial(proxy, receive_buffer=4096)
    client.tunnel(make_origin(script).authority)
    wait_until(lambda: operator.connections("state=deliver"), "the reset met")
    assert operator.connections("kind=tunnel")[0]["bytes_down"] == SIZE
    if end_of_all == "stop":
        proxy.stop()
    else:
        assert operator.cut("state=deliver") == 1
    assert read_to_the_end(client) == "RST"
    assert len(client.pending) < SIZE
    assert proxy.wait_log(1)[0]["reason"] == "origin_reset"


def test_a_delivery_ends_where_its_reader_does(
    opened, directory, loop_name, make_origin, dial
):
    def script(conn):
        conn.send(DATA)
        end(conn, "RST")

    proxy, operator = administered(opened, directory("ends"), loop_name)
    client = dial(proxy, receive_buffer=4096)
    client.tunnel(make_origin(script).authority)
    wait_until(lambda: operator.connections("state=deliver"), "the reset met")
    client.read_exact(100_000)
    client.reset()
    wait_until(lambda: not operator.connections("state=deliver"), "its end")
    proxy.wait_reason("origin_reset")


@pytest.mark.parametrize("by", ["client_reset", "lifetime"])
def test_a_tunnel_ends_whose_origin_takes_nothing_any_more(
        directory, opened, loop_name, make_origin, dial, by):
    """R97: the origin has sent more than the client reads, and closed: what the client
    sends is thrown away. If the tunnel was cut then, its worker died."""
    def script(conn: Connection) -> None:
        conn.fill()
        conn.send(DATA)

    proxy, operator = administered(
        opened, directory("old"), loop_name,
        'lifetime = "3s"\n' if by == "lifetime" else "")
    worker, origin = proxy.worker.pid, make_origin(script)
    client = dial(proxy, receive_buffer=4096).tunnel(origin.authority)

    def is_lost() -> bool:
        with contextlib.suppress(OSError):
            client.send(b"?")
        return "ESTABLISHED" not in attempts(proxy, origin.port) and (
            "CLOSE_WAIT" not in attempts(proxy, origin.port))

    client.send(b"begin")
    # What the origin had not read at its close would make that a reset, and no end
    wait_until(lambda: [row["state"] for row in operator.connections()] == [
        "half_closed"], "the origin's end")
    wait_until(is_lost, "the origin's reset")
    with contextlib.suppress(OSError):
        client.send(b"and what it answers is EPIPE")
    if by == "client_reset":
        client.reset()
    else:
        wait_until(lambda: [row["state"] for row in operator.connections()] == [
            "deliver"], "it is cut")
        read_to_the_end(client)
    proxy.wait_reason(by)
    assert proxy.worker.pid == worker
