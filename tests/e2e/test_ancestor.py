"""The bugs of this proxy's predecessor, one acceptance test each.

Every test opens with the failure there. Resources and signals are in
test_ancestor_limits.py.
"""

import pytest

from tests.support.client import AUTH, CREDENTIALS
from tests.support.origin import answer_and_close, echo
from tests.support.stream import chunked

pytestmark = pytest.mark.any_loop


def test_the_second_request_of_a_connection_is_handled_too(proxy, make_origin, dial):
    """Only the first request was parsed; bytes behind it went to its origin, unread."""
    first, second = make_origin(), make_origin()
    client = dial()
    assert client.get(first.url()).status == 200
    assert client.get(second.url()).status == 200
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize(
    "where",
    [
        "X-Note: Proxy-Authorization: {}",
        "X-Proxy-Authorization: {}",
        "Authorization: {}",
        "Cookie: a=b; Proxy-Authorization: {}",
    ],
)
def test_credentials_anywhere_else_are_no_credentials(proxy, make_origin, dial, where):
    """The secret was looked for as a substring anywhere in the first 2048 bytes."""
    origin = make_origin()
    reply = dial().get(origin.url(), where.format(CREDENTIALS), auth=None)
    assert reply.status == 407
    assert (
        reply.get("Proxy-Authenticate") == 'Basic realm="cutthrough", charset="UTF-8"'
    )
    proxy.wait_reason("auth_required")
    assert not origin.connections


def test_credentials_in_the_target_are_no_credentials(proxy, make_origin, dial):
    """The substring was found in the request line as well."""
    origin = make_origin()
    url = origin.url(f"/Proxy-Authorization:{CREDENTIALS.replace(' ', '+')}")
    assert dial().get(url, auth=None).status == 407
    assert not origin.connections


def test_credentials_in_the_body_are_no_credentials(proxy, make_origin, dial):
    """The body stood within the first 2048 bytes too."""
    origin = make_origin()
    body = AUTH.encode()
    reply = dial().ask(
        "POST", origin.url(), f"Content-Length: {len(body)}", body=body, auth=None
    )
    assert reply.status == 407
    assert not origin.connections


@pytest.mark.parametrize(
    "name", ["proxy-authorization", "PROXY-AUTHORIZATION", "pRoXy-AuThOrIzAtIoN"]
)
def test_the_field_name_is_read_in_any_case(proxy, make_origin, dial, name):
    """A lower-case `proxy-authorization`, as HTTP libraries send it, was refused."""
    origin = make_origin()
    assert dial().get(origin.url(), f"{name}: {CREDENTIALS}", auth=None).status == 200


@pytest.mark.parametrize("scheme", ["basic", "BASIC", "bAsIc"])
def test_the_scheme_is_read_in_any_case(proxy, make_origin, dial, scheme):
    """The scheme was compared as bytes (R10; RFC 9110 section 11.1)."""
    credentials = CREDENTIALS.replace("Basic", scheme)
    assert dial().get(make_origin().url(), auth=credentials).status == 200


def test_metrics_in_a_body_is_a_body(proxy, make_origin, dial):
    """`GET /metrics` anywhere in the bytes was answered by the proxy itself, without
    credentials."""
    origin = make_origin()
    body = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    length = f"Content-Length: {len(body)}"
    assert dial().ask("POST", origin.url(), length, body=body).body == b"ok"
    assert origin.requests[0].body == body
    assert dial().ask("POST", origin.url(), length, body=body, auth=None).status == 407
    assert dial().get("/metrics", auth=None, host="localhost").status in (400, 407)


def test_credentials_never_reach_an_origin(proxy, make_origin, dial):
    """Proxy-Authorization was forwarded as it came (R15)."""
    origin = make_origin(echo)
    plain = make_origin()
    client = dial()
    for fields in ((), ("Connection: keep-alive", "Proxy-Connection: keep-alive")):
        assert client.get(plain.url(), *fields).status == 200
    tunnel = dial().tunnel(origin.authority)
    tunnel.send(b"inside")
    assert tunnel.read_exact(6) == b"inside"
    for received in (plain.received, origin.received):
        assert b"proxy-" not in received.lower()
        assert CREDENTIALS.split()[1].encode() not in received


def test_a_response_that_ends_by_close_ends(proxy, make_origin, dial):
    """Half-close was not propagated: a close-delimited response never ended."""
    origin = make_origin(
        answer_and_close(b"HTTP/1.1 200 OK\r\n\r\nall of it, ", b"to the FIN")
    )
    reply = dial().get(origin.url())
    assert (reply.framing, reply.body) == ("chunked", b"all of it, to the FIN")


def test_a_close_delimited_response_ends_in_a_tunnel_too(proxy, make_origin, dial):
    """The same, behind CONNECT."""
    origin = make_origin(answer_and_close(b"HTTP/1.0 200 OK\r\n\r\n", b"all of it"))
    tunnel = dial().tunnel(origin.authority)
    tunnel.send(b"GET / HTTP/1.0\r\n\r\n")
    assert tunnel.read_rest() == b"HTTP/1.0 200 OK\r\n\r\nall of it"


def test_a_head_may_come_in_any_two_segments(proxy, make_origin, dial):
    """A head that came in two segments was refused."""
    origin = make_origin()
    client = dial()
    head = f"GET {origin.url()} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode()
    for cut in (
        1,
        4,
        20,
        head.index(b"\r\n") + 1,
        head.index(b"Basic") + 9,
        len(head) - 1,
    ):
        client.send(head[:cut], head[cut:])
        assert client.read_response().status == 200
    for at in range(len(head)):
        client.send(head[at : at + 1])
    assert client.read_response().status == 200


@pytest.mark.parametrize("size", [2040, 2048, 2049, 4096, 12000])
def test_a_head_may_be_longer_than_2048_bytes(proxy, make_origin, dial, size):
    """A head of more than 2048 bytes was refused, or its end taken for a body."""
    origin = make_origin()
    cookie = "Cookie: " + "c" * size
    assert dial().get(origin.url(), cookie).status == 200
    assert origin.requests[0].get("Cookie") == "c" * size


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_origin_form_post_stays_a_post(start_proxy, make_origin, dial, framing):
    """POST in origin form became GET, and its fields became the body."""
    origin = make_origin()
    proxy = start_proxy("--origin", f"http://{origin.authority}")
    if framing == "length":
        fields, body = ["Content-Length: 4"], b"data"
    else:
        fields, body = ["Transfer-Encoding: chunked"], chunked([b"da", b"ta"])
    reply = dial(proxy).ask(
        "POST", "/form?q=1", "X-Kept: yes", *fields, body=body, host="site"
    )
    assert reply.status == 200
    (request,) = origin.requests
    assert (request.method, request.target, request.body) == (
        "POST",
        "/form?q=1",
        b"data",
    )
    assert (request.framing, request.get("X-Kept")) == (framing, "yes")


def test_connect_to_an_ipv6_address_is_a_tunnel(proxy, make_origin, dial):
    """`CONNECT [::1]:443` was closed without an answer."""
    tunnel = dial().tunnel(make_origin(echo, "::1").authority)
    tunnel.send(b"over six")
    assert tunnel.read_exact(8) == b"over six"


def test_bytes_behind_the_connect_head_are_delivered(proxy, make_origin, dial):
    """Bytes that came in the same segment as the CONNECT head were lost (R2)."""
    origin = make_origin(echo)
    tunnel = dial().tunnel(origin.authority, early=b"early bytes")
    assert tunnel.read_exact(11) == b"early bytes"


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
@pytest.mark.parametrize("status", [407, 502])
def test_a_reply_of_the_proxy_has_a_length(proxy, make_origin, dial, method, status):
    """407 and 502 came without a length: a client waited for the close."""
    origin = make_origin()
    target = origin.authority if method == "CONNECT" else origin.url()
    if status == 502:
        origin.close()  # the port refuses from here on
    auth = CREDENTIALS if status == 502 else None
    reply = dial().ask(method, target, auth=auth, host=origin.authority)
    assert reply.status == status
    assert int(reply.get("Content-Length")) == len(reply.body) > 0
    assert reply.get("Transfer-Encoding") is None


def test_a_failed_tunnel_is_not_logged_as_a_success(proxy, make_origin, dial):
    """`successful` was counted after errors as well."""
    origin = make_origin()
    origin.close()
    assert dial().connect(origin.authority).status == 502
    (record,) = proxy.wait_log(1)
    assert (record["reason"], record["status"]) == ("connection_refused", 502)
