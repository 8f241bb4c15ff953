"""Requests that the proxy refuses: a message has one reading, or it does not pass.

The parser's own tests feed every input at every split; here each row is seen to reach
no origin, to get its status, its label in the log, a length, and a closed connection.
"""

import ssl

import pytest

from tests.support.client import AUTH
from tests.support.stream import chunked

NO_HOST = "without Host"

# label, status, and the request with {a} for the origin's authority.
ROWS = [
    # R7, R8, R5: how long is the body?
    (
        "bad_framing",
        400,
        "POST http://{a}/ HTTP/1.1",
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
    ),
    (
        "bad_framing",
        400,
        "POST http://{a}/ HTTP/1.1",
        "Content-Length: 3",
        "Content-Length: 4",
    ),
    ("bad_framing", 400, "POST http://{a}/ HTTP/1.1", "Content-Length: 3, 4"),
    ("bad_framing", 400, "POST http://{a}/ HTTP/1.1", "Content-Length: +3"),
    ("bad_framing", 400, "POST http://{a}/ HTTP/1.1", "Content-Length: 0x3"),
    ("bad_framing", 400, "POST http://{a}/ HTTP/1.1", "Content-Length: -1"),
    ("bad_framing", 400, "POST http://{a}/ HTTP/1.1", "Content-Length:"),
    (
        "bad_framing",
        400,
        "POST http://{a}/ HTTP/1.1",
        "Content-Length: 18446744073709551616",
    ),
    (
        "bad_framing",
        400,
        "POST http://{a}/ HTTP/1.1",
        "Content-Length: 9223372036854775808",
    ),
    ("bad_framing", 400, "POST http://{a}/ HTTP/1.0", "Transfer-Encoding: chunked"),
    (
        "unsupported_coding",
        501,
        "POST http://{a}/ HTTP/1.1",
        "Transfer-Encoding: gzip, chunked",
    ),
    # RFC 9112 section 6.3: chunked is not the last coding
    (
        "bad_framing",
        400,
        "POST http://{a}/ HTTP/1.1",
        "Transfer-Encoding: xchunked",
    ),
    (None, None, "POST http://{a}/ HTTP/1.1", "Transfer-Encoding: chunked, chunked"),
    (None, None, "POST http://{a}/ HTTP/1.1", "Transfer-Encoding: chunked, identity"),
    (None, None, "POST http://{a}/ HTTP/1.1", "Transfer-Encoding: \x0bchunked"),
    (
        None,
        None,
        "POST http://{a}/ HTTP/1.1",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: x",
    ),
    # R9: lines and fields
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "X-Space : 1"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "X-Fold: 1", " folded"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "X-Cr: 1\r2"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "X-Lf: 1\nX-Other: 2"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "X-Nul: \x00"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "X-Bell: \x07"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "X-Del: \x7f"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", ": no name"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "no colon"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "X-\xe9: 1"),
    ("bad_request", 400, "GET  http://{a}/ HTTP/1.1"),
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1 "),
    ("bad_request", 400, "GET http://{a}/ http/1.1"),
    ("bad_request", 400, "GET http://{a}/"),
    ("bad_request", 400, "G(T http://{a}/ HTTP/1.1"),
    ("bad_request", 400, " GET http://{a}/ HTTP/1.1"),
    ("unsupported_version", 505, "GET http://{a}/ HTTP/2.0"),
    ("unsupported_version", 505, "PRI * HTTP/2.0"),
    # R16: which destination?
    ("bad_request", 400, "GET http://{a}/ HTTP/1.1", "Host: twice"),
    ("bad_target", 400, "GET http://user@{a}/ HTTP/1.1"),
    ("bad_target", 400, "GET http://{a}/#fragment HTTP/1.1"),
    ("bad_target", 400, "GET http:///path HTTP/1.1"),
    ("bad_target", 400, "GET http://127.0.0.1:0/ HTTP/1.1"),
    ("bad_target", 400, "GET http://127.0.0.1:65536/ HTTP/1.1"),
    ("bad_target", 400, "GET http://a,b/ HTTP/1.1"),
    ("bad_target", 400, "GET ftp://{a}/ HTTP/1.1"),
    ("bad_target", 400, "GET https://{a}/ HTTP/1.1"),
    ("bad_target", 400, "GET 127.0.0.1 HTTP/1.1"),
    ("bad_target", 400, "GET * HTTP/1.1"),
    ("no_origin", 400, "GET /index.html HTTP/1.1"),
    ("bad_target", 400, "OPTIONS * HTTP/1.0", NO_HOST),
    # R11: sizes
    ("uri_too_long", 414, "GET http://{a}/" + "u" * 9000 + " HTTP/1.1"),
    ("head_too_large", 431, "GET http://{a}/ HTTP/1.1", "X-Long: " + "h" * 17_000),
    (
        "head_too_large",
        431,
        "GET http://{a}/ HTTP/1.1",
        *(f"X-{n}: 1" for n in range(120)),
    ),
]
SHORT = [f"{row[0] or '400-or-501'}: {' | '.join(row[2:])[:60]!r}" for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=SHORT)
def test_what_has_two_readings_has_none(proxy, make_origin, dial, row):
    origin = make_origin()
    label, status, line, *fields = row
    host = [] if NO_HOST in fields else ["Host: x"]
    fields = [field for field in fields if field != NO_HOST]
    lines = [line.format(a=origin.authority), *host, AUTH.strip(), *fields, "", ""]
    smuggled = f"GET {origin.url('/smuggled')} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n"
    client = dial()
    client.send(("\r\n".join(lines) + smuggled).encode("latin-1"))

    reply = client.read_response()
    assert reply.status in ((status,) if status else (400, 501))
    assert reply.get("Connection") == "close"
    assert int(reply.get("Content-Length")) == len(reply.body)
    assert reply.error == "http_request_error"
    assert client.at_eof(), "a byte after the refusal"
    (record,) = proxy.wait_log(1)
    assert record["reason"] == label or label is None
    assert record["status"] == reply.status
    assert not origin.connections


def test_two_credentials_fields_are_refused(proxy, make_origin, dial):
    """R21: the proxy does not choose one of the two."""
    origin = make_origin()
    for fields in ((AUTH.strip(),), (AUTH.strip().lower(),)):
        reply = dial().get(origin.url(), *fields)
        assert (reply.status, reply.error) == (400, "http_request_error")
    assert len(proxy.wait_log(2, reason="bad_credentials_field")) == 2
    assert not origin.connections


def test_http_1_1_without_host_is_refused(proxy, make_origin, dial):
    """RFC 9112 section 3.2."""
    client = dial()
    client.send(f"GET {make_origin().url()} HTTP/1.1\r\n{AUTH}\r\n".encode())
    assert client.read_response().status == 400
    proxy.wait_reason("bad_request")


@pytest.mark.parametrize(
    "body",
    [
        "x\r\n",
        "-1\r\n",
        "5 \r\nhello\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "0x5\r\n",
        "5\r\nhelloXX",
        "FFFFFFFFFFFFFFFFF\r\n",
        "0\r\nbad trailer\r\n\r\n",
        ("1;" + "x" * 4000 + "\r\ny\r\n") * 5,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_bad_chunk_ends_both_connections(proxy, make_origin, dial, body):
    """R11, R18: nothing that follows a bad chunk is read as anything."""
    ends = []

    def script(conn):
        yield conn.read_head
        ends.append((yield conn.read_rest))

    origin = make_origin(script)
    client = dial()
    client.send(
        f"POST {origin.url()} HTTP/1.1\r\nHost: x\r\n{AUTH}"
        f"Transfer-Encoding: chunked\r\n\r\n{body}".encode()
    )
    assert client.read_response().status == 400
    assert client.at_eof()
    proxy.wait_reason("bad_framing")
    origin.close()
    assert all(b"0\r\n\r\n" not in end for end in ends), (
        "the body was ended as if whole"
    )


def test_a_body_over_the_limit_is_refused(start_proxy, make_origin, dial):
    proxy = start_proxy("--max-body", "1KiB")
    origin = make_origin()
    client = dial(proxy)
    assert (
        client.ask(
            "POST", origin.url(), "Content-Length: 1024", body=b"b" * 1024
        ).status
        == 200
    )
    assert dial(proxy).ask("POST", origin.url(), "Content-Length: 1025").status == 413
    proxy.wait_reason("body_too_large")
    assert len(origin.requests) == 1


def test_a_chunked_body_over_the_limit_is_refused(start_proxy, make_origin, dial):
    proxy = start_proxy("--max-body", "1KiB")
    client = dial(proxy)
    reply = client.ask(
        "POST",
        make_origin().url(),
        "Transfer-Encoding: chunked",
        body=chunked([b"b" * 600] * 4),
    )
    assert reply.status == 413
    proxy.wait_reason("body_too_large")


def test_the_limits_of_a_head_can_be_set(start_proxy, make_origin, dial):
    proxy = start_proxy("--max-line", "256", "--max-head", "1KiB", "--max-fields", "6")
    origin = make_origin()
    assert dial(proxy).get(origin.url()).status == 200
    assert dial(proxy).get(origin.url("/" + "u" * 300)).status == 414
    assert dial(proxy).get(origin.url(), "X-Long: " + "h" * 1024).status == 431
    assert dial(proxy).get(origin.url(), *(f"X-{n}: 1" for n in range(6))).status == 431


@pytest.mark.parametrize(
    ("flags", "method", "label", "error"),
    [
        (
            ("--address-floor", "on"),
            "CONNECT",
            "address_denied",
            "destination_ip_prohibited",
        ),
        (
            ("--address-floor", "on"),
            "GET",
            "address_denied",
            "destination_ip_prohibited",
        ),
        (("--connect-ports", "443"), "CONNECT", "port_denied", "http_request_denied"),
    ],
)
def test_policy_answers_403(
    start_proxy, make_origin, dial, flags, method, label, error
):
    """R27, R28: and never before the credentials have been read."""
    proxy = start_proxy(*flags)
    origin = make_origin()
    for host in ("127.0.0.1", "localhost"):
        authority = f"{host}:{origin.port}"
        target = authority if method == "CONNECT" else f"http://{authority}/"
        reply = dial(proxy).ask(method, target, host=authority)
        assert (reply.status, reply.error) == (403, error)
        assert dial(proxy).ask(method, target, host=authority, auth=None).status == 407
    assert len(proxy.wait_log(2, reason=label)) == 2
    assert not origin.connections


def test_a_refusal_repeats_nothing_of_the_request(proxy, dial):
    """R13: bodies are constants."""
    reply = dial().get(
        "http://127.0.0.1:1/<script>", "X-Marked: <marked>", host="<host>"
    )
    assert b"script" not in reply.raw + reply.body
    assert b"marked" not in reply.raw + reply.body


def test_head_is_refused_without_a_body(proxy, dial):
    """RFC 9110 section 9.3.2: the length of the body of a GET, and no body."""
    client = dial()
    reply = client.ask("HEAD", "http://127.0.0.1:1/")
    assert (reply.status, reply.body) == (502, b"")
    if reply.get("Connection") == "close":
        assert client.at_eof()


@pytest.mark.parametrize(("line", "label", "words"), [
    (b"CONNECT a.test HTTP/1.1", "bad_target", "CONNECT takes host:port"),
    (b"GET https://a.test/ HTTP/1.1", "bad_target",
     "for https:// use CONNECT host:port"),
    (b"GET ftp://a.test/ HTTP/1.1", "bad_target",
     "the only supported scheme is http://"),
    (b"GET http://u:secret@a.test/ HTTP/1.1", "bad_target",
     "a target cannot contain credentials; those for this proxy belong in "
     "Proxy-Authorization"),
    (b"GET a.test HTTP/1.1", "bad_target",
     "the request target or Host is invalid or ambiguous"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "bad_request",
     "this is TLS; the proxy takes plain HTTP"),
    (b"\x17\x03\x01", "bad_request",
     "the head breaks RFC 9112: a line, a field or a control character"),
])
def test_a_refusal_says_what_to_do_where_that_is_plain(proxy, dial, line, label, words):
    """One sentence stood for all of these faults, and did not distinguish them."""
    client = dial()
    client.send(line + b"\r\nHost: a.test\r\n\r\n")
    reply = client.read_response()
    assert (reply.status, reply.body.decode().partition("\nrequest ")[0]) == (
        400, f"400 {label}: {words}")
    assert reply.get("Content-Length") == str(len(reply.body))
    assert proxy.wait_log(1)[0]["reason"] == label


def test_tls_towards_the_proxy_is_told_so_at_its_first_bytes(proxy, dial):
    """Without waiting for a line's end, which a handshake may not have."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = ssl.create_default_context().wrap_bio(
        incoming, outgoing, server_hostname="a.test")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    client = dial()
    client.send(outgoing.read())
    reply = client.read_response()
    assert (reply.status, reply.body.decode().partition("\nrequest ")[0]) == (
        400, "400 bad_request: this is TLS; the proxy takes plain HTTP")


HEAD_LINE = b"HEAD http://a/ HTTP/1.1\r\n"


@pytest.mark.parametrize(("head", "status"), [
    (b"HEAD http://a/ HTTP/2.0\r\n", 505),
    (b"\r\nHEAD http://a/ HTTP/2.0\r\n", 505),
    (b"HEAD http://a/" + b"u" * 9000, 414),
    (b"HEAD  /", 400),
    (HEAD_LINE + b"X : v\r\n", 400),
    (HEAD_LINE + b"X: " + b"v" * 17_000, 431),
    (HEAD_LINE + b"Host: a\r\nHost: b\r\n\r\n", 400),
])
def test_a_head_that_is_refused_before_it_is_whole_gets_no_content(
    proxy, dial, head, status
):
    """RFC 9110 section 9.3.2, MUST NOT: and they had content."""
    client = dial()
    client.send(head)
    reply = client.read_response("HEAD")
    assert (reply.status, reply.get("Connection")) == (status, "close")
    assert int(reply.get("Content-Length")) > 0
    assert client.read_rest() == b""


@pytest.mark.parametrize("head", [HEAD_LINE + b"Host", b"HEAD", b"\r\nHEAD http"])
def test_a_head_that_stays_unfinished_gets_no_content(start_proxy, dial, head):
    client = dial(start_proxy("--head-timeout", "200ms"))
    client.send(head)
    assert client.read_response("HEAD").status == 408
    assert client.read_rest() == b""


@pytest.mark.parametrize("head", [
    b"HEADS http://a/ HTTP/2.0\r\n", b"HEA\x01", b"head \x01"])
def test_another_method_gets_its_content(proxy, dial, head):
    client = dial()
    client.send(head)
    reply = client.read_response("HEAD")
    assert client.read_rest().startswith(f"{reply.status} ".encode())
