"""Identity and destination belong to a request, never to the connection (R21, R23)."""

import pytest

from tests.support.client import AUTH, CREDENTIALS


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
    keep_proxy, make_origin, dial, head
):
    """R21: for every request, to any destination, authentication comes first."""
    origin = make_origin()
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
        yield conn.read_request
        conn.send(b"HTTP/1.1 200 OK\r\n", b"Content-Length: 4\r\n\r\n", b"slow")

    origin, fast = make_origin(slow), make_origin()
    client = dial()
    client.send(
        f"GET {origin.url()} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n"
        f"GET {fast.url()} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode()
    )
    assert [client.read_response().body for _ in range(2)] == [b"slow", b"ok"]
