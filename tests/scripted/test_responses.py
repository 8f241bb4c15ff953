"""Responses that the proxy must not believe, and connections that it must not reuse."""

import contextlib
import re

import pytest

from tests.support.client import build_request
from tests.support.origin import OK
from tests.support.scripted_peers import answer, answer_and_close, okay
from tests.support.stream import chunked

BAD = [
    # R18: how long is it?
    (
        "bad_response_framing",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: gzip\r\n\r\nok",
    ),
    (
        "bad_response_framing",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    ),
    ("bad_response_framing", b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok"),
    (
        "bad_response_framing",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
    ),
    # R9
    ("bad_response", b"HTTP/1.1 200 OK\r\nX Y: 1\r\nContent-Length: 0\r\n\r\n"),
    ("bad_response", b"HTTP/1.1 200 OK\r\n folded\r\nContent-Length: 0\r\n\r\n"),
    ("bad_response", b"HTTP/1.1 200 OK\nX: 1\n\rContent-Length: 0\n\n"),
    ("bad_response", b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 0\r\n\r\n"),
    ("bad_response", b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
    ("bad_response", b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n"),
    ("bad_response", b"ICY 200 OK\r\n\r\n"),
    ("bad_response", b"<!doctype html>\r\n\r\n"),
    ("bad_response", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"),
    # R4
    (
        "upgrade_failed",
        b"HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ),
    ("origin_closed", b""),
    ("origin_closed", b"HTTP/1.1 200 OK\r\nContent-Le"),
]


@pytest.mark.parametrize(
    ("label", "raw"), BAD, ids=[f"{label}: {raw[:60]!r}" for label, raw in BAD]
)
def test_a_response_that_cannot_be_believed_is_a_502(
    proxy, make_origin, dial, label, raw
):
    """R17, R18: no byte of it is passed on, and its connection is not used again."""
    origin = make_origin(answer_and_close(raw))
    client = dial()
    reply = client.ask("POST", origin.url(), "Content-Length: 0")  # never retried
    assert reply.status == 502
    assert (reply.get("Proxy-Status") or "").startswith("cutthrough; error=")
    assert int(reply.get("Content-Length")) == len(reply.body)
    assert proxy.wait_log(1)[0]["reason"] == label
    assert len(origin.connections) == 1


def test_a_head_and_a_fin_in_one_wake_up_are_both_seen(
    proxy, network, make_origin, dial
):
    """A FIN behind half a head, read in one go, was not looked for again."""

    def script(conn):
        yield conn.read_request
        with network.at_once():
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Le")
            conn.close()

    reply = dial().ask("POST", make_origin(script).url(), "Content-Length: 0")
    assert (reply.status, reply.error) == (502, "connection_terminated")


def test_a_response_head_over_the_limit_is_a_502(proxy, make_origin, dial):
    raw = b"HTTP/1.1 200 OK\r\nX: " + b"x" * 65_536 + b"\r\n\r\n"
    reply = dial().get(make_origin(answer_and_close(raw)).url())
    assert (reply.status, reply.error) == (502, "http_response_header_section_size")
    proxy.wait_reason("response_head_too_large")


def test_a_reset_before_the_head_is_a_502(proxy, make_origin, dial):
    def script(conn):
        yield conn.read_request
        conn.reset()

    reply = dial().ask("POST", make_origin(script).url(), "Content-Length: 0")
    assert (reply.status, reply.error) == (502, "connection_terminated")
    proxy.wait_reason("origin_reset")


CHUNKED = b"Transfer-Encoding: chunked"
CUT = [
    ("response_truncated", b"Content-Length: 100", b"not all"),
    ("response_truncated", CHUNKED, b"5\r\nhello\r\n"),
    ("response_truncated", CHUNKED, b"5\r\nhel"),
    ("response_truncated", CHUNKED, b"5\r\nhello\r\n0\r\n"),
    ("bad_response_framing", CHUNKED, b"5\r\nhello\r\nZ\r\n"),
    ("bad_response_framing", CHUNKED, (b"1;" + b"x" * 4000 + b"\r\ny\r\n") * 5),
]


@pytest.mark.parametrize(("label", "framing", "body"), CUT)
def test_a_response_that_is_cut_is_not_ended_as_if_whole(
    proxy, make_origin, dial, label, framing, body
):
    """The client's connection ends without the last chunk, or short of the length."""
    client, origin = dial(), make_origin(None)
    client.send(build_request("GET", origin.url()))
    conn = origin.connections[0]
    conn.read_request()
    conn.send(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n")
    assert client.read_head().status == 200
    conn.send(body)
    conn.close()
    client.read_rest()
    passed = bytes(client.received).partition(b"\r\n\r\n")[2]
    assert re.sub(b";x+", b"", body).startswith(passed) and b"0\r\n\r\n" not in passed
    proxy.wait_reason(label)


@pytest.mark.parametrize("framing", [b"", b"Content-Length: 100\r\n"])
def test_a_reset_that_the_upload_meets_first_is_a_reset(
    proxy, network, make_origin, dial, framing
):
    """A send had the kernel's one word of it, the read behind it saw an end, and a
    response that ends so looked whole.
    Behind a length that is not met the end may be a FIN."""
    client, origin = dial(), make_origin(None)
    client.send(build_request(
        "POST", origin.url(), "Content-Length: 9999", body=b"x"))
    conn = origin.connections[0]
    conn.read_head()
    conn.send(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\na beginning")
    client.read_until(b"a beginning")
    with network.at_once():
        client.send(b"y")
        conn.reset()
    with contextlib.nullcontext() if framing else pytest.raises(ConnectionResetError):
        assert client.read_rest() == b""
    proxy.wait_reason("origin_reset")


def test_a_bad_chunk_beside_the_head_is_a_502(proxy, network, make_origin, dial):
    """R18: the client may get the error, because nothing was sent yet."""

    def script(conn):
        yield conn.read_request
        with network.at_once():
            conn.send(b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"\r\n\r\nZ\r\n")
            conn.close()

    reply = dial().get(make_origin(script).url())
    assert (reply.status, reply.error) == (502, "http_protocol_error")
    proxy.wait_reason("bad_response_framing")


def test_bytes_behind_a_response_are_nobodys_answer(proxy, make_origin, dial):
    """R19: bytes without a request are never read as the next response."""
    poisoned = OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    origin = make_origin(answer(poisoned, OK))
    client = dial()
    for _ in range(3):
        assert client.get(origin.url()).body == b"ok"
    assert len(origin.connections) == 3


def test_bytes_sent_to_an_idle_connection_are_nobodys_answer(proxy, make_origin, dial):
    origin = make_origin(okay)
    client = dial()
    assert client.get(origin.url()).body == b"ok"
    proxy.wait_log(1)
    origin.connections[0].send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
    assert client.get(origin.url()).body == b"ok"
    assert len(origin.connections) == 2


def test_a_body_where_none_may_be_is_not_passed_on(proxy, make_origin, dial):
    """R17: bytes behind a 204, a 304, the answer to HEAD end the connection."""
    for method, raw in (
        ("GET", b"HTTP/1.1 204 None\r\n\r\nsmuggled"),
        ("GET", b"HTTP/1.1 304 Same\r\nContent-Length: 8\r\n\r\nsmuggled"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"),
    ):

        def script(conn, raw=raw):
            yield conn.read_request
            conn.send(raw)
            yield conn.stall

        origin = make_origin(script)
        client = dial()
        client.ask(method, origin.url())
        after = make_origin()
        assert client.get(after.url()).body == b"ok"
        assert b"smuggled" not in client.received


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100, 4096])
def test_the_chunk_frame_survives_any_split(proxy, make_origin, dial, step):
    body = chunked([b"a" * 100, b"b" * 5000, b"c"])

    def script(conn):
        yield conn.read_request
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        conn.send(*(body[at : at + step] for at in range(0, len(body), step)))
        yield conn.stall

    got = dial().get(make_origin(script).url())
    assert got.body == b"a" * 100 + b"b" * 5000 + b"c"


def test_interim_responses_are_bounded(proxy, make_origin, dial):
    """R31: an origin that only ever continues is not listened to for ever."""

    def script(conn):
        yield conn.read_request
        while True:
            conn.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")

    client = dial()
    client.send(build_request("GET", make_origin(script).url()))
    assert client.read_response().status == 502
    assert client.received.count(b"103") <= 32
    proxy.wait_reason("bad_response")


def test_an_origin_that_closes_at_once_ends_its_tunnel(proxy, make_origin, dial):
    def close(conn):
        yield from ()

    tunnel = dial().tunnel(make_origin(close).authority)
    assert tunnel.at_eof()
    tunnel.half_close()
    proxy.wait_reason("ok")
