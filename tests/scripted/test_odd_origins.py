"""Responses that the grammar has otherwise, and every peer passes.

They were a 502. A message read leniently goes on as the grammar has it, and is the last
message of its origin's connection (R18).
"""

import pytest

from tests.support.client import build_request
from tests.support.scripted import splits_of
from tests.support.scripted_peers import SLOW, keep_open
from tests.support.stream import chunked

HEAD = b"HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 2\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nX: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
ODD = {
    "bare LF": HEAD.replace(b"\r\n", b"\n") + b"ok",
    "one bare LF": HEAD.replace(b"1\r\n", b"1\n") + b"ok",
    "a bare LF for the blank line": HEAD[:-2] + b"\nok",
    "an empty line before the status line": b"\r\n" + HEAD + b"ok",
    "a bare LF before the status line": b"\n" + HEAD + b"ok",
    "white space behind a size": CHUNKED + b"2  \r\nok\r\n0\r\n\r\n",
    "white space behind the last size": CHUNKED + b"2\r\nok\r\n0 \r\n\r\n",
}


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", ODD)
def test_what_every_peer_passes_goes_on_as_the_grammar_has_it(
    proxy, make_origin, dial, name, step
):
    origin = make_origin(keep_open(ODD[name], step=step))
    client = dial()
    for _ in range(2):
        reply = client.get(origin.url())
        assert (reply.status, reply.get("X"), reply.body) == (200, "1", b"ok")
        assert (reply.get("Content-Length"), reply.get("Connection")) in (
            ("2", None), (None, None))
    lines = client.received.replace(b"\r\n", b"")
    assert b"\n" not in lines and b"\r" not in lines
    # The next request has a connection of its own, and the client keeps its one.
    assert len(origin.connections) == 2


def test_a_folded_field_becomes_one_line(proxy, make_origin, dial):
    raw = HEAD.replace(b"X: 1", b"X: 1;\r\n\t2\r\n 3\r\nY:\r\n 4") + b"ok"
    origin = make_origin(keep_open(raw))
    client = dial()
    for _ in range(2):
        reply = client.get(origin.url())
        assert (reply.get("X"), reply.get("Y")) == ("1;  \t2   3", "4")
        assert reply.body == b"ok"
    assert len(origin.connections) == 2


def test_a_fold_is_seen_wherever_the_head_is_cut(proxy, network, make_origin, dial):
    """R18: it was unfolded with the bytes at hand. If the head was not whole, the next
    reading found a line as the grammar has it, and the connection was kept."""
    raw = HEAD.replace(b"X: 1", b"X: 1;\r\n\t2\r\n 3\r\nY:\r\n 4") + b"ok"
    origin, client = make_origin(None), dial()
    for start, rest in splits_of(raw):
        client.send(build_request("GET", origin.url()))
        conn = origin.connections[-1]
        conn.read_request()
        conn.send(start)
        conn.send(rest)
        reply = client.read_response()
        assert (reply.get("X"), reply.body) == ("1;  \t2   3", b"ok")
        assert not conn.sock.peer.is_open, start


@pytest.mark.parametrize("coding", ["chunked", "gzip, chunked", "identity"])
@pytest.mark.parametrize("status", ["204 No", "304 Same"])
def test_a_coding_where_none_may_stand_is_dropped(
    proxy, make_origin, dial, status, coding
):
    """R17, R18: and the bytes of its body belong to no message."""
    raw = f"HTTP/1.1 {status}\r\nTransfer-Encoding: {coding}\r\nX: 1\r\n\r\n".encode()
    for body in (b"", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"):
        origin = make_origin(keep_open(raw + body))
        client = dial()
        for _ in range(2):
            reply = client.get(origin.url())
            assert (f"{reply.status}", reply.body) == (status[:3], b"")
            assert (reply.get("X"), reply.get("Transfer-Encoding")) == ("1", None)
        assert len(origin.connections) == 2


def test_equal_lengths_are_one(proxy, make_origin, dial):
    raw = HEAD.replace(b"X: 1", b"Content-Length: 02, 2") + b"ok"
    origin = make_origin(keep_open(raw, raw))
    client = dial()
    for _ in range(2):
        assert client.get(origin.url()).body == b"ok"
    assert client.received.count(b"Content-Length: 2\r\n") == 2
    assert client.received.count(b"ontent-") == 2
    assert len(origin.connections) == 1                 # the end of each is certain


@pytest.mark.parametrize("step", [1, 1000, 1 << 20])
def test_a_head_of_64_kib_and_a_thousand_fields_passes(proxy, make_origin, dial, step):
    """16 KiB and 100 fields were the most."""
    lines = b"".join(b"X-%d: %b\r\n" % (n, b"y" * 40) for n in range(1000))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n" + lines
    head += b"Z: " + b"z" * (65_536 - len(head) - 7) + b"\r\n\r\n"
    assert len(head) == 65_536
    body = bytes(range(100)) * 700
    origin = make_origin(keep_open(head + body, head + body, step=step * 50))
    client = dial()
    for _ in range(2):
        reply = client.get(origin.url())
        assert (reply.status, reply.get("X-999"), reply.body) == (200, "y" * 40, body)
    assert len(origin.connections) == 1


def test_a_slow_reader_gets_a_head_of_64_kib_of_bare_lines_whole(
    proxy, make_origin, dial
):
    """Written with CRLF it is longer than as read: it has to find room."""
    lines = b"".join(b"X-%d: %b\n" % (n, b"y" * 50) for n in range(1000))
    head = b"HTTP/1.1 200 OK\nContent-Length: 200000\n" + lines + b"\n"
    body = b"b" * 200_000
    origin = make_origin(None)
    client = dial(**SLOW)
    client.send(build_request("GET", origin.url()))
    conn = origin.connections[0]
    conn.read_request()
    conn.send(head)
    conn.send(body)
    reply = client.read_response()
    assert (reply.get("X-999"), reply.body) == ("y" * 50, body)


@pytest.mark.parametrize(("option", "length", "status"), [
    ("1KiB", 1024, 200), ("1KiB", 1025, 502), ("64KiB", 65_536, 200)])
def test_the_longest_head_of_a_response_can_be_set(
    start_proxy, make_origin, dial, option, length, status
):
    proxy = start_proxy("--max-response-head", option)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: "
    raw = head + b"x" * (length - len(head) - 4) + b"\r\n\r\n"
    assert dial(proxy).get(make_origin(keep_open(raw)).url()).status == status


@pytest.mark.parametrize("status", [999, 600, 799])
def test_a_status_of_no_class_goes_on_as_it_is(proxy, make_origin, dial, status):
    raw = f"HTTP/1.1 {status} Odd\r\nContent-Length: 2\r\n\r\nok".encode()
    origin = make_origin(keep_open(raw, raw))
    client = dial()
    for _ in range(2):
        reply = client.get(origin.url())
        assert (reply.status, reply.body) == (status, b"ok")
    assert proxy.wait_log(2)[1]["status"] == status


def test_trailers_that_steer_are_dropped_in_both_directions(proxy, make_origin, dial):
    """R15; they ended the message. RFC 9110 section 6.5.1 lets us drop the field."""
    trailers = (b"Digest: a\r\nContent-Length: 9\r\nHost: b\r\nVia: c\r\n"
                b"Connection: Digest\r\nProxy-Authorization: d\r\nZ: e\r\n")
    body = chunked([b"hello"])[:-2] + trailers + b"\r\n"
    kept = b"0\r\nDigest: a\r\nZ: e\r\n\r\n"
    seen = bytearray()

    def script(conn):
        yield conn.read_head
        seen.extend((yield conn.read_until, b"hello\r\n"))
        seen.extend((yield conn.read_until, b"\r\n\r\n"))
        conn.send(CHUNKED + body)
        yield conn.stall

    client = dial()
    client.send(build_request(
        "POST", make_origin(script).url(), "Transfer-Encoding: chunked", body=body))
    client.read_until(kept)
    assert bytes(seen) == b"5\r\nhello\r\n" + kept
    assert bytes(client.received).endswith(b"5\r\nhello\r\n" + kept)
    proxy.wait_reason("ok")
