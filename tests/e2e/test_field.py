"""Messages of the field, which other proxies pass (docs/field.md).

Each is sent by a plain request and inside an intercepted tunnel.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.support.client import Client, build_request
from tests.support.inside import ALL, config, enter, over_tls, send
from tests.support.inside_http2 import reach as reach
from tests.support.origin import Connection, Origin, Script, keep_open
from tests.support.stream import Message

pytestmark = pytest.mark.any_loop

OK = b"HTTP/1.1 200 OK\r\n"
BODY = b"Content-Length: 2\r\n\r\nok"
CHUNKS = b"2\r\nok\r\n0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


class Caller(NamedTuple):
    """A client's connection, and an origin that answers its requests."""

    client: Client
    origin: Origin
    is_plain: bool

    def url(self, path: str) -> str:
        scheme, host = ("http", self.origin.host) if self.is_plain else (
            "https", "a.example")
        return f"{scheme}://{host}:{self.origin.port}{path}"

    def send(self, target: str, *fields: str, method: str = "GET") -> None:
        """`target`: a path, or a URL that is sent as it is."""
        if self.is_plain:
            url = self.url(target) if target.startswith("/") else target
            host = f"{self.origin.host}:{self.origin.port}"
            self.client.send(build_request(method, url, *fields, host=host))
        else:
            send(self.client, method, target, *fields,
                 host=f"a.example:{self.origin.port}")

    def ask(self, target: str = "/", *fields: str, method: str = "GET") -> Message:
        self.send(target, *fields, method=method)
        return self.client.read_response(method)


Call = Callable[[Script], Caller]


@pytest.fixture
def intercepting(keep_policy):
    return keep_policy(ALL, config('origin_http2 = "off"\n'))


@pytest.fixture(params=["plain", "intercepted"])
def call(request, intercepting, make_origin, dial) -> Call:
    def connect(script: Script) -> Caller:
        if request.param == "plain":
            return Caller(dial(intercepting), make_origin(script), is_plain=True)
        origin = make_origin(over_tls(script))
        client = enter(intercepting, dial(intercepting), origin.port)
        return Caller(client, origin, is_plain=False)
    return connect


# --- responses without content


#: Whether the fields contradict the status: then octets of no message may follow.
WITHOUT_CONTENT = {
    "a length of null": ("204 No", b"Content-Length: 4\r\n", b"null", True),
    "a length, and nothing behind it": ("204 No", b"Content-Length: 4\r\n", b"", True),
    "a length of zero": ("204 No", b"Content-Length: 0\r\n", b"", False),
    "chunks": ("204 No", CHUNKED, b"0\r\n\r\n", True),
    "chunks and a length": ("204 No", CHUNKED + b"Content-Length: 4\r\n", b"", True),
    "a length that is none": ("204 No", b"Content-Length: x\r\n", b"", True),
    "another coding": ("204 No", b"Transfer-Encoding: gzip\r\n", b"", True),
    "what GET would get": ("304 Same", b"Content-Length: 4\r\n", b"", False),
    "two lengths": ("304 Same", b"Content-Length: 4, 5\r\n", b"", True),
    "chunks, unchanged": (
        "304 Same", CHUNKED + b"Content-Length: 4\r\n", b"", True),
}


@pytest.mark.parametrize("name", WITHOUT_CONTENT)
def test_a_response_without_content_ends_with_its_head(call, name) -> None:
    """RFC 9112 section 6.3, rule 1; R18."""
    status, fields, behind, contradicts = WITHOUT_CONTENT[name]
    raw = f"HTTP/1.1 {status}\r\nX: 1\r\n".encode() + fields + b"\r\n" + behind
    caller = call(keep_open(raw, raw))
    for _ in range(2):
        reply = caller.ask()
        assert (f"{reply.status}", reply.get("X")) == (status[:3], "1")
        assert reply.get("Transfer-Encoding") is None
        if contradicts:
            assert reply.get("Content-Length") is None
    assert not caller.client.pending
    # Of an intercepted client the first connection is the handshake's
    assert len(caller.origin.connections) == (2 if contradicts else 1)


@pytest.mark.parametrize("fields", [
    b"Content-Length: 0\r\n", b"Content-Length: 7\r\n", CHUNKED,
    CHUNKED + b"Content-Length: 7\r\n"])
@pytest.mark.parametrize("status", [b"100 Continue", b"103 Early Hints"])
def test_an_interim_response_ends_with_its_head(call, status, fields) -> None:
    caller = call(keep_open(
        b"HTTP/1.1 " + status + b"\r\nX: 1\r\n" + fields + b"\r\n" + OK + BODY))
    caller.send("/")
    interim = caller.client.read_response(interim=True)
    assert (interim.status, interim.get("X")) == (int(status[:3]), "1")
    assert len(interim.fields) == 2             # and Via
    final = caller.client.read_response()
    assert (final.status, final.body) == (200, b"ok")


# --- upgrades


OFFER = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\n"
ANSWERS = {
    "usual": b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "a length of zero":
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n",
    "chunks": b"Connection: upgrade\r\nUpgrade: websocket\r\n" + CHUNKED,
    "Upgrade twice":
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: WebSocket\r\n",
    "no Upgrade": b"Connection: Upgrade\r\n",
    "no Connection": b"Upgrade: websocket\r\n",
}


def switch(fields: bytes) -> Script:
    def script(conn: Connection) -> None:
        conn.note(conn.read_head())
        conn.send(SWITCH + fields + b"\r\n" + b"first")
        conn.send(conn.read_exact(4))
        conn.stall()
    return script


@pytest.mark.parametrize("name", ANSWERS)
def test_an_upgrade_is_granted_by_any_101_to_its_offer(call, name) -> None:
    caller = call(switch(ANSWERS[name]))
    reply = caller.ask("/chat", *OFFER)
    assert reply.status == 101
    assert {value.lower() for value in reply.all("Upgrade")} <= {"websocket"}
    assert reply.get("Connection").lower() == "upgrade"
    assert reply.get("Content-Length") is None
    assert reply.get("Transfer-Encoding") is None
    caller.client.send(b"more")
    assert caller.client.read_exact(9) == b"firstmore"


def test_an_upgrade_to_another_protocol_is_refused(call) -> None:
    """R4: a protocol that was not offered."""
    caller = call(switch(b"Connection: Upgrade\r\nUpgrade: h2c\r\n"))
    assert caller.ask("/chat", *OFFER).status == 502


def test_the_target_of_an_upgrade_may_be_a_web_socket_s(
        intercepting, make_origin, dial) -> None:
    origin = make_origin(switch(ANSWERS["usual"]))
    client = dial(intercepting)
    client.send(build_request(
        "GET", f"ws://{origin.authority}/chat?a", *OFFER, host=origin.authority))
    assert client.read_response().status == 101
    assert origin.requests[0].target == "/chat?a"


# --- heads


PASSED = {
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + CHUNKED + b"\r\n" + CHUNKS,
    "chunks and a length": OK + CHUNKED + b"Content-Length: 9\r\n\r\n" + CHUNKS,
    "a length and chunks": OK + b"Content-Length: 2\r\n" + CHUNKED + b"\r\n" + CHUNKS,
    "HTTP/2.0 in text": b"HTTP/2.0 200 OK\r\n" + BODY,
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n" + BODY,
    "white space before a colon": OK + b"X-A : 1\r\nContent-Length : 2\r\n\r\nok",
}


@pytest.mark.parametrize("name", PASSED)
def test_an_odd_head_is_sent_on_in_the_usual_form(call, name) -> None:
    """R18: and its connection carries no other message."""
    caller = call(keep_open(PASSED[name]))
    for _ in range(2):
        reply = caller.ask()
        assert (reply.start[0], reply.status, reply.body) == ("HTTP/1.1", 200, b"ok")
        assert reply.get("X-A") == ("1" if "colon" in name else None)
        assert reply.framing == ("chunked" if "chunks" in name else "length")
    assert len(caller.origin.connections) == 2


@pytest.mark.parametrize("octet", [b"\x01", b"\x1b", b"\x7f"])
def test_a_control_in_a_value_goes_on(call, octet) -> None:
    value = b"a=b" + octet + b"c"
    raw = b"HTTP/1.1 200 O" + octet + b"K\r\nSet-Cookie: " + value + b"\r\n" + BODY
    caller = call(keep_open(raw, raw))
    for _ in range(2):
        reply = caller.ask()
        assert (reply.status, reply.body) == (200, b"ok")
        assert reply.get("Set-Cookie") == value.decode()
    assert len(caller.origin.connections) == 1


def test_a_client_of_http2_gets_a_value_without_its_controls(
        intercepting, make_origin, reach) -> None:
    """RFC 9113 section 8.2.1 has such a response malformed."""
    origin = make_origin(over_tls(keep_open(OK + b"X: a\x01b\tc\x7f\r\n" + BODY)))
    peer = reach(intercepting, origin.port)
    got = peer.wait(peer.get("https://a.example/"))
    assert (got.status, got.body, got.heads[0]["x"]) == (200, b"ok", "ab\tc")


@pytest.mark.parametrize("octet", [b"\0", b"\r"])
def test_what_ends_a_value_for_some_readers_is_refused(call, octet) -> None:
    """RFC 9110 section 5.5."""
    caller = call(keep_open(OK + b"X: a" + octet + b"b\r\n" + BODY))
    assert caller.ask().status == 502


# --- targets


TARGETS = {
    "quotes": ('/s?q="a"', '/s?q="a"'),
    "angle brackets": ("/<b>?q=<c>", "/<b>?q=<c>"),
    "UTF-8": ("/caf\xc3\xa9?q=\xe2\x82\xac", "/caf%C3%A9?q=%E2%82%AC"),
    "an octet that is no UTF-8": ("/\xff", "/%FF"),
}


@pytest.fixture
def answered() -> Iterator[Script]:
    """An origin's script: it answers every request on its connection."""
    return keep_open(*[OK + BODY] * 9)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_goes_on_as_it_was_typed(call, answered, name) -> None:
    typed, sent = TARGETS[name]
    caller = call(answered)
    if caller.is_plain:
        assert caller.ask(typed).status == 200
    else:
        caller.client.send(
            f"GET {typed} HTTP/1.1\r\nHost: a.example:{caller.origin.port}\r\n\r\n"
            .encode("latin-1"))
        assert caller.client.read_response().status == 200
    assert caller.origin.requests[0].target.upper() == sent.upper()


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_of_http2_goes_on_as_it_was_typed(
        intercepting, make_origin, reach, answered, name) -> None:
    typed, sent = TARGETS[name]
    origin = make_origin(over_tls(answered))
    peer = reach(intercepting, origin.port)
    path = typed.encode("latin-1")
    got = peer.wait(peer.request([
        (":method", "GET"), (":scheme", "https"), (":authority", "a.example"),
        (":path", path)]))
    assert got.status == 200
    assert origin.requests[0].target.upper() == sent.upper()


def test_an_absolute_target_of_the_tunnel_s_own_is_answered(
        intercepting, make_origin, dial, answered) -> None:
    """RFC 9112 section 3.2.2: a server must accept it."""
    origin = make_origin(over_tls(answered))
    client = enter(intercepting, dial(intercepting), origin.port)
    caller = Caller(client, origin, is_plain=False)
    assert caller.ask(caller.url("/a?b")).status == 200
    assert origin.requests[0].target == "/a?b"
    assert origin.requests[0].get("Host") == f"a.example:{origin.port}"
    other = f"https://b.example:{origin.port}/a"
    assert caller.ask(other).status in (400, 421)
    assert len(origin.requests) == 1


# --- requests of HTTP/2


SPACED = [("user-agent", " App/1.0 (iPhone; en) \t"), ("cookie", "a=1 ")]


def test_white_space_around_a_value_of_http2_is_trimmed(
        intercepting, make_origin, reach, answered) -> None:
    origin = make_origin(over_tls(answered))
    peer = reach(intercepting, origin.port)
    assert peer.wait(peer.get("https://a.example/", *SPACED)).status == 200
    (request,) = origin.requests
    assert b"\r\nuser-agent: App/1.0 (iPhone; en)\r\n" in request.raw
    assert b"\r\ncookie: a=1\r\n" in request.raw


@pytest.mark.parametrize(("fields", "status"), [
    ([("host", "other.example")], 400),
    ([("x", "a\x01b")], 400),
    ([("content-length", "1"), ("content-length", "2")], 400),
    ([("x-y\r\nz", "1")], None),
    ([("connection", "keep-alive")], None),
    ([("X", "1")], None)])
def test_a_request_of_http2_that_can_be_read_is_answered(
        intercepting, make_origin, reach, answered, fields, status) -> None:
    """RFC 9113 section 8.1.1: the others are malformed, and cost their stream alone."""
    origin = make_origin(over_tls(answered))
    peer = reach(intercepting, origin.port)
    got = peer.wait(peer.get(
        "https://a.example/", *fields, ends=fields[0][0] != "content-length"))
    if status is None:
        assert got.reset is not None
    else:
        assert got.status == status
    assert not origin.requests
    assert peer.wait(peer.get("https://a.example/")).status == 200


# --- other protocols


def test_an_extended_connect_is_not_implemented(
        intercepting, make_origin, reach, answered) -> None:
    """RFC 8441: it was not offered. The client learns so, and its log too."""
    origin = make_origin(over_tls(answered))
    peer = reach(intercepting, origin.port)
    got = peer.wait(peer.request([
        (":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"),
        (":authority", "a.example"), (":path", "/chat")]))
    assert got.status == 501
    assert intercepting.wait_reason("unsupported_protocol")["status"] == 501


@pytest.mark.parametrize("protocol", ["connect-udp", "connect-ip"])
def test_udp_over_http_is_not_implemented(intercepting, dial, protocol) -> None:
    """RFC 9298, RFC 9484: a request to the proxy itself."""
    client = dial(intercepting)
    host = f"127.0.0.1:{intercepting.port}"
    for target in ("/.well-known/masque/udp/192.0.2.6/443/", f"http://{host}/masque"):
        client = dial(intercepting)
        client.send(build_request("GET", target, "Connection: Upgrade",
                                  f"Upgrade: {protocol}", host=host))
        assert client.read_response().status == 501
    assert {line["reason"] for line in intercepting.wait_log(2)} == {
        "unsupported_protocol"}


# --- other details


def test_an_address_without_brackets_is_read(proxy, make_origin, dial) -> None:
    """`CONNECT ::1:443`, as some programs write it."""
    origin = make_origin(lambda conn: conn.send(b"hello"), host="::1")
    assert dial().tunnel(f"::1:{origin.port}").read_exact(5) == b"hello"
