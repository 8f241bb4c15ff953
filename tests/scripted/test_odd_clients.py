"""Valid requests that look odd: they were a 400, though other proxies pass them.

The next request on the same connection shows that the end of the odd one was found.
"""

import pytest

from tests.support.client import AUTH

CHUNKED = "Transfer-Encoding: chunked\r\n"


def exchange(client, url, fields, body=b"", host="a.test"):
    """Sends a POST with these fields, then a GET; both get a 200."""
    head = f"POST {url} HTTP/1.1\r\nHost: {host}\r\n{AUTH}{fields}\r\n"
    client.send(head.encode() + body)
    assert client.read_response().status == 200
    assert client.get(url).status == 200


@pytest.mark.parametrize("host", [
    "0.0.0.0=5000", "", "example.com:", "example.com:0", "a%20b", "a~b", "a..b"])
def test_a_host_beside_a_target_is_replaced(proxy, make_origin, dial, host):
    """RFC 9112 section 3.2.2: a proxy MUST ignore it."""
    origin = make_origin()
    exchange(dial(), origin.url(), "Content-Length: 0\r\n", host=host)
    assert origin.requests[0].get("Host") == origin.authority


@pytest.mark.parametrize(("fields", "body"), [
    (CHUNKED, b"5 ;a=b\r\nhello\r\n0\r\n\r\n"),       # RFC 9110 section 5.6.3
    (CHUNKED, b"00000000000000000005\r\nhello\r\n0\r\n\r\n"),
    ("Content-Length: 0000000000000000000005\r\n", b"hello"),
    *((CHUNKED, b"5\r\nhello\r\n0\r\n%s\r\n\r\n" % field)    # section 6.5.1
      for field in (b"Content-Length: 9", b"Host: b", b"Via: c", b"Connection: Z"))])
def test_the_end_of_a_body_is_found(proxy, make_origin, dial, fields, body):
    origin = make_origin()
    exchange(dial(), origin.url(), fields, body)
    assert origin.requests[0].body == b"hello"
    assert not origin.requests[0].trailers


@pytest.mark.parametrize("value", [
    "keep-alive;x", ", ".join(f"x{n}" for n in range(40))])
def test_what_connection_names_is_dropped(proxy, make_origin, dial, value):
    origin = make_origin()
    fields = f"Connection: {value}\r\nx7: 1\r\nContent-Length: 0\r\n"
    exchange(dial(), origin.url(), fields)
    assert (origin.requests[0].get("x7") is None) == ("x7" in value)


def test_an_address_may_have_a_zone(proxy, make_origin, dial):
    """RFC 6874. The zone names an interface of the client, and is dropped."""
    origin = make_origin(host="::1")
    url = f"http://[::1%25lo]:{origin.port}/"
    exchange(dial(), url, "Content-Length: 0\r\n")
    assert origin.requests[0].get("Host") == origin.authority
    assert dial().connect(f"[::1%25lo]:{origin.port}").status == 200
