"""Identity and destination belong to a request, never to the connection (R21, R23)."""

import pytest

from tests.support.client import AUTH, CREDENTIALS, WRONG
from tests.support.origin import Origin
from tests.support.stream import chunked

pytestmark = pytest.mark.any_loop


@pytest.fixture(scope="module")
def origin():
    """Of requests that are refused: it has no connection in the end."""
    with Origin() as listening:
        yield listening


def test_each_request_of_a_connection_reaches_its_own_origin(proxy, make_origin, dial):
    a, b = make_origin(), make_origin()
    client = dial()

    assert client.get(a.url("/one")).status == 200
    post = client.ask(
        "POST",
        b.url("/two"),
        "Transfer-Encoding: chunked",
        body=chunked([b"first ", b"second"]),
    )
    assert post.status == 200
    head = client.ask("HEAD", a.url("/three"))
    assert (head.status, head.body) == (200, b"")
    refused = client.get(b.url("/four"), auth=WRONG)
    assert (refused.status, refused.error) == (407, "http_request_denied")
    assert refused.get("Connection") != "close" or client.at_eof()

    assert [(r.method, r.target) for r in a.requests] == [
        ("GET", "/one"),
        ("HEAD", "/three"),
    ]
    assert [(r.method, r.target, r.body) for r in b.requests] == [
        ("POST", "/two", b"first second")
    ]
    for secret in (CREDENTIALS.split()[1].encode(), WRONG.split()[1].encode()):
        assert secret not in a.received + b.received
    assert b"proxy-authorization" not in (a.received + b.received).lower()

    by_url = {record["url"]: record for record in proxy.wait_log(4)}
    assert [
        by_url[o.url(p)]["reason"] for o, p in ((a, "/one"), (b, "/two"), (a, "/three"))
    ] == ["ok"] * 3
    assert by_url[b.url("/four")]["reason"] == "auth_failed"


def test_a_verified_user_is_asked_again_with_every_request(proxy, make_origin, dial):
    origin = make_origin()
    client = dial()
    assert client.get(origin.url()).status == 200
    assert client.get(origin.url(), auth=None).status == 407
    assert len(origin.requests) == 1
    proxy.wait_reason("auth_required")


@pytest.mark.parametrize("head", [
    "GET http://{to}/ HTTP/1.0\r\n", "GET http://{to}/ HTTP/1.1\r\nHost: x\r\n",
    "gEt http://{to}/ HTTP/1.1\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost: {to}\r\n",
    "GET / HTTP/1.0\r\n", "GET /metrics HTTP/1.1\r\nHost: {to}\r\n",
    "CONNECT {to} HTTP/1.0\r\n", "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: {to}\r\n",
    "PROPFIND http://{to}/ HTTP/1.1\r\nHost: x\r\n",
    "GET http://{to}/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: a\r\n",
    "POST http://{to}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
    "Content-Length: 1\r\n",
    "GET http://{to}/ HTTP/1.1\r\nHost: x\r\nAuthorization: {secret}\r\n",
    "GET http://{to}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization:\r\n",
    "GET http://{to}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization2: {secret}\r\n",
])
def test_no_form_of_request_goes_past_authentication(
    keep_proxy, origin, dial, head
):
    """R21: for every request, to any destination, authentication comes first."""
    proxy = keep_proxy("--origin", origin.url().rstrip("/"))
    client = dial(proxy)
    text = head.format(to=origin.authority, secret=CREDENTIALS)
    client.send(f"{text}\r\n".encode())
    reply = client.read_response()
    assert (reply.status, reply.error) == (407, "http_request_denied")
    assert not origin.connections


def test_pipelined_requests_to_two_origins_are_answered_in_order(
    proxy, make_origin, dial
):
    def slow(conn):
        conn.read_request()
        fast.wait_requests(0)
        conn.send(b"HTTP/1.1 200 OK\r\n", b"Content-Length: 4\r\n\r\n", b"slow")

    origin, fast = make_origin(slow), make_origin()
    client = dial()
    client.send(
        f"GET {origin.url()} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n"
        f"GET {fast.url()} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode()
    )
    assert [client.read_response().body for _ in range(2)] == [b"slow", b"ok"]
