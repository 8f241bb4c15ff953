"""Message bodies: framed as they came, whole, in order, and never one for another."""

import re

import pytest

from tests.support.client import build_request
from tests.support.origin import OK
from tests.support.scripted_peers import answer
from tests.support.stream import chunked

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

PAIRS = [
    pytest.param(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "length",
        b"hello",
        id="length",
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "length", b"", id="empty"
    ),
    pytest.param(
        b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", "length", b"no", id="404"
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunked([b"he", b"llo"]),
        "chunked",
        b"hello",
        id="chunked",
    ),
    pytest.param(
        CHUNKED + b"5;x=y\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
        "chunked",
        b"hello",
        id="extensions-trailers",
    ),
    pytest.param(b"HTTP/1.1 204 None\r\n\r\n", "none", b"", id="204"),
    pytest.param(
        b"HTTP/1.1 304 Same\r\nContent-Length: 99\r\n\r\n", "none", b"", id="304"
    ),
    pytest.param(
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK,
        "length",
        b"ok",
        id="103",
    ),
]


@pytest.mark.parametrize(("raw", "framing", "body"), PAIRS)
@pytest.mark.parametrize("split", ["whole", "bytes"])
def test_a_response_arrives_as_it_was_framed(
    proxy, make_origin, dial, raw, framing, body, split
):
    """Whole and byte by byte; the connections on both sides are used again after it."""

    def script(conn):
        for _ in range(2):
            yield conn.read_request
            conn.send(
                *(
                    [raw]
                    if split == "whole"
                    else [raw[i : i + 1] for i in range(len(raw))]
                )
            )
        yield conn.stall

    origin = make_origin(script)
    client = dial()
    for _ in range(2):
        got = client.get(origin.url())
        assert (got.framing, got.body) == (framing, body)
    assert len(origin.connections) == 1


@pytest.mark.parametrize("pieces", [
    (b"HTTP/1.1 200 OK\r\n\r\none ", b"two"),
    (b"HTTP/1.0 200 OK\r\n\r\n", b"one ", b"two"),
    (b"HTTP/1.0 200 OK\r\n\r\none two",),
    (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\none two",)])
def test_a_close_delimited_response_comes_in_chunks_and_the_connection_is_kept(
    proxy, make_origin, dial, pieces
):
    def script(conn):
        yield conn.read_request
        conn.send(*pieces)

    client, origin = dial(), make_origin(script)
    for _ in range(2):
        got = client.get(origin.url())
        assert (got.framing, got.body) == ("chunked", b"one two")
        assert got.get("Connection") is None
    assert len(origin.connections) == 2


@pytest.mark.parametrize("size", [0, 15, 16, 65535, 65536, 5_000_000])
def test_a_close_delimited_body_of_any_size_is_the_same(
    proxy, make_origin, dial, size
):
    body = bytes(n % 251 for n in range(size % 9973)) * (size // max(1, size % 9973))

    def script(conn):
        yield conn.read_request
        conn.send(b"HTTP/1.0 200 OK\r\n\r\n" + body)

    client, origin = dial(), make_origin(script)
    for _ in range(2):
        got = client.get(origin.url())
        assert got.framing == "chunked" and got.body == body


@pytest.mark.parametrize("fields", [("Connection: close",), ()])
def test_a_close_delimited_response_ends_a_connection_that_ends_anyway(
    proxy, make_origin, dial, fields
):
    def script(conn):
        yield conn.read_request
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n", b"one ", b"two")

    origin, client = make_origin(script), dial()
    if fields:
        got = client.get(origin.url(), *fields)
    else:
        got = client.get(origin.url(), version="HTTP/1.0")
    assert (got.framing, got.body) == ("close", b"one two")
    assert got.get("Connection") == "close"


def test_a_close_delimited_response_that_is_reset_has_no_last_chunk(
    proxy, make_origin, dial
):
    """It would look whole: without chunks, the client's reset said so."""
    client, origin = dial(), make_origin(None)
    client.send(build_request("GET", origin.url()))
    conn = origin.connections[0]
    conn.read_request()
    conn.send(b"HTTP/1.0 200 OK\r\n\r\nhalf")
    assert client.read_head().get("Transfer-Encoding") == "chunked"
    assert not client.is_silent(0)
    # In a chunk, or one for each byte; the end of the last one has not come
    assert re.sub(rb"(^|\r\n)\d\r\n", b"", client.pending) == b"half"
    conn.reset()
    try:
        rest = client.read_rest()
    except ConnectionResetError:
        rest = b""
    assert b"0\r\n" not in rest
    proxy.wait_reason("origin_reset")


def test_head_is_answered_without_its_body(proxy, make_origin, dial):
    origin = make_origin(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"))
    client = dial()
    for _ in range(2):
        got = client.ask("HEAD", origin.url())
        assert (got.get("Content-Length"), got.body) == ("1000", b"")
    assert len(origin.connections) == 1


@pytest.mark.parametrize("size", [1, 4096, 70_000, 1 << 20])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_request_body_arrives_whole(proxy, make_origin, dial, size, framing):
    origin = make_origin()
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    if framing == "length":
        fields, body = f"Content-Length: {size}", data
    else:
        half = size // 2
        fields, body = (
            "Transfer-Encoding: chunked",
            chunked(filter(None, [data[:half], data[half:]])),
        )
    client = dial()
    for _ in range(2):
        assert client.ask("POST", origin.url(), fields, body=body).status == 200
    assert [request.body == data for request in origin.requests] == [True, True]
    assert {request.framing for request in origin.requests} == {framing}


def test_a_body_byte_by_byte_is_the_same_body(proxy, make_origin, dial):
    origin = make_origin()
    body = chunked([b"chunk", b"ed"])
    client = dial()
    client.send(build_request("POST", origin.url(), "Transfer-Encoding: chunked"))
    client.send(*(body[at : at + 1] for at in range(len(body))))
    assert client.read_response().status == 200
    assert origin.requests[0].body == b"chunked"


@pytest.mark.parametrize(
    "framing", ["Content-Length: 99", "Transfer-Encoding: chunked"]
)
def test_a_body_that_is_cut_is_not_ended_as_if_whole(proxy, make_origin, dial, framing):
    """The origin's connection ends short of the length, or without the last chunk."""
    rest = []

    def script(conn):
        yield conn.read_head
        try:
            rest.append((yield conn.read_rest))
        except ConnectionResetError:
            rest.append(bytes(conn.pending))

    origin = make_origin(script)
    client = dial()
    client.send(build_request("POST", origin.url(), framing), b"4\r\nhalf\r\n")
    origin.wait_connections(1)
    client.close()
    proxy.wait_reason("client_closed")
    assert b"4\r\nhalf\r\n".startswith(rest[0])


def test_an_early_answer_leaves_no_body_behind(proxy, make_origin, dial):
    """R6: the rest of the client's body is never read as a request."""

    def script(conn):
        yield conn.read_head
        conn.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        yield conn.stall

    smuggled = make_origin()
    inner = build_request("GET", smuggled.url("/smuggled"))
    client = dial()
    client.send(
        build_request(
            "POST", make_origin(script).url(), f"Content-Length: {len(inner)}"
        )
    )
    assert client.read_response().status == 413
    try:
        client.send(inner)
        client.read_rest()
    except (ConnectionError, TimeoutError):
        pass
    assert not smuggled.connections


def test_an_answer_that_did_not_wait_for_the_body_is_its_connections_last(
    proxy, make_origin, dial
):
    """R18: the rest of the body came while the response did, so both were whole in the
    end, and the connection was kept: an origin that had given the body up reads that
    rest as a request, and its answer was the next client's."""

    def script(conn):
        conn.note((yield conn.read_head))
        conn.send(b"HTTP/1.1 408 Late\r\nContent-Length: 2\r\n\r\nn")
        if conn.requests[0].method == "POST":
            assert (yield conn.read_exact, 4) == b"body"
        conn.send(b"o")
        yield conn.stall

    origin = make_origin(script)
    client = dial()
    client.send(build_request("POST", origin.url(), "Content-Length: 4"))
    client.read_until(b"\r\n\r\nn")
    client.send(b"body")
    assert client.read_rest() == b"o"
    assert dial().get(origin.url()).body == b"no"
    assert [len(conn.requests) for conn in origin.connections] == [1, 1]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_that_means_nothing_is_the_last_of_its_connection(
    proxy, make_origin, dial, method
):
    """RFC 9110 section 9.3.1: if an origin does not look for the body, it reads a
    request in it, and the answer to that was the next client's."""
    origin = make_origin()
    inner = build_request("GET", origin.url("/inner"), auth=None)
    length = f"Content-Length: {len(inner)}"
    client = dial()
    assert client.ask(method, origin.url(), length, body=inner).status == 200
    assert client.get(origin.url()).status == 200
    assert client.get(origin.url()).status == 200
    assert [len(conn.requests) for conn in origin.connections] == [1, 2]


def test_pipelined_requests_are_answered_in_order(proxy, make_origin, dial):
    def script(conn):
        for _ in range(20):
            conn.send(numbered((yield conn.read_request)))

    origin = make_origin(script)
    client = dial()
    client.send(b"".join(build_request("GET", origin.url(f"/{n}")) for n in range(20)))
    assert [client.read_response().body for _ in range(20)] == [
        b"/%d" % n for n in range(20)
    ]


def numbered(request) -> bytes:
    body = request.target.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_pipelined_posts_keep_their_bodies_apart(proxy, make_origin, dial):
    origin = make_origin()
    client = dial()
    client.send(
        build_request("POST", origin.url(), "Content-Length: 3", body=b"one")
        + build_request(
            "POST", origin.url(), "Transfer-Encoding: chunked", body=chunked([b"two"])
        )
        + build_request("GET", origin.url())
    )
    assert [client.read_response().status for _ in range(3)] == [200] * 3
    assert [request.body for request in origin.requests] == [b"one", b"two", b""]


@pytest.mark.parametrize(
    ("connection", "trailers"),
    [("keep-alive", [("X-T", "1"), ("X-U", "2")]), ("X-T", []), ("X-Other", [])],
)
def test_trailers_that_connection_names_stay_here(
    proxy, make_origin, dial, connection, trailers
):
    """RFC 9110 section 7.6.1: a name has gone on before its end shows that it must
    not, so if one is named, no trailer goes on."""
    fields = ("Transfer-Encoding: chunked", f"Connection: {connection}", "Trailer: X-T")
    body = b"5\r\nhello\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\n"
    head = "\r\n".join(["HTTP/1.1 200 OK", *fields, "", ""]).encode()
    origin = make_origin(answer(head + body))
    client = dial()
    for _ in range(2):
        got = client.ask("POST", origin.url(), *fields, body=body)
        assert (got.body, got.trailers) == (b"hello", trailers)
        assert got.get("Trailer") == ("X-T" if trailers else None)
    for request in origin.requests:
        assert (request.body, request.trailers) == (b"hello", trailers)
        assert request.get("Trailer") == ("X-T" if trailers else None)
    assert client.get(origin.url()).body == b"hello"
    assert len(origin.connections) == 2         # one of the uploads' was kept
