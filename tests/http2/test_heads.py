"""A request's head as HTTP/1.1, and malformed ones (RFC 9113 section 8; R62)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doors.http2 import head_of, trailers_of
from tests.doors.wire import read_request
from tests.http2 import twin

GET = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a.b"),
       (b":path", b"/c")]
TUNNEL = [(b":method", b"CONNECT"), (b":authority", b"a.b:443")]


def without(name: bytes) -> twin.Fields:
    return [one for one in GET if one[0] != name]


def changed(name: bytes, value: bytes) -> twin.Fields:
    return [(one, value if one == name else old) for one, old in GET]


def lines(fields: twin.Fields, ends: bool = True) -> list[bytes]:
    head = head_of(fields, ends)
    assert not isinstance(head, str), head
    return head[0].split(b"\r\n")[:-2]


@pytest.mark.parametrize("fields, first", [
    (GET, b"GET http://a.b/c HTTP/1.1"),
    (changed(b":path", b"/c?d=e"), b"GET http://a.b/c?d=e HTTP/1.1"),
    (changed(b":scheme", b"https"), b"GET /c HTTP/1.1"),
    (changed(b":scheme", b"HTTPS"), b"GET /c HTTP/1.1"),
    (changed(b":scheme", b"ftp"), b"GET ftp://a.b/c HTTP/1.1"),
    (changed(b":path", b"*"), b"GET http://a.b HTTP/1.1"),
    (TUNNEL, b"CONNECT a.b:443 HTTP/1.1"),
    ([*without(b":authority"), (b"host", b"a.b")], b"GET http://a.b/c HTTP/1.1"),
    ([*GET, (b"host", b"A.b")], b"GET http://a.b/c HTTP/1.1"),
])
def test_the_target_is_put_together(fields, first) -> None:
    found = lines(fields)
    assert found[0] == first
    assert found[1].startswith(b"Host: a.b")
    assert found[-1] == b"Connection: close"


def test_cookies_become_one_field() -> None:
    fields = [*GET, (b"cookie", b"a=1"), (b"x", b"y"), (b"cookie", b"b=2")]
    assert lines(fields)[2:] == [b"x: y", b"cookie: a=1; b=2", b"Connection: close"]


@pytest.mark.parametrize("fields, ends, framed", [
    (GET, True, []),
    (GET, False, [b"Transfer-Encoding: chunked"]),
    ([*GET, (b"content-length", b"5")], False, [b"content-length: 5"]),
    ([*GET, (b"content-length", b"5"), (b"trailer", b"x")], False,
     [b"trailer: x", b"Transfer-Encoding: chunked"]),
    ([*GET, (b"trailer", b""), (b"content-length", b"5")], False,
     [b"trailer: ", b"content-length: 5"]),
    ([*GET, (b"trailer", b"x"), (b"content-length", b"y")], False,
     [b"trailer: x", b"content-length: y"]),
    ([*GET, (b"trailer", b"x"), (b"content-length", b"0")], True,
     [b"trailer: x", b"content-length: 0"]),
    (TUNNEL, False, []),
])
def test_the_body_is_framed_for_http_11(fields, ends, framed) -> None:
    assert lines(fields, ends)[2:-1] == framed


def test_te_is_the_connections_in_http_11() -> None:
    assert lines([*GET, (b"te", b"trailers")])[2:] == [b"Connection: close"]


MALFORMED = {
    "no method": without(b":method"),
    "no scheme": without(b":scheme"),
    "no path": without(b":path"),
    "no authority": without(b":authority"),
    "empty authority": changed(b":authority", b""),
    "empty path": changed(b":path", b""),
    "empty method": changed(b":method", b""),
    "relative path": changed(b":path", b"c"),
    "space in the method": changed(b":method", b"GET http://x/ HTTP/1.1\r\nX:"),
    "space in the path": changed(b":path", b"/ HTTP/1.1"),
    "line end in the path": changed(b":path", b"/\r\nX: y"),
    "NUL in the path": changed(b":path", b"/\0"),
    "space in the authority": changed(b":authority", b"a.b /x"),
    "path in the authority": changed(b":authority", b"a.b/x"),
    "query in the authority": changed(b":authority", b"a.b?x"),
    "fragment in the authority": changed(b":authority", b"a.b#x"),
    "userinfo": changed(b":authority", b"u@a.b"),
    "backslash in the authority": changed(b":authority", b"a.b\\x"),
    "scheme that is none": changed(b":scheme", b"ht tp"),
    "method twice": [*GET[:1], *GET],
    "unknown pseudo-field": [(b":x", b"y"), *GET],
    "pseudo-field of a response": [(b":status", b"200"), *GET],
    "pseudo-field behind a field": [*GET[:3], (b"x", b"y"), GET[3]],
    "upper case": [*GET, (b"X-y", b"z")],
    "empty name": [*GET, (b"", b"z")],
    "space in a name": [*GET, (b"x y", b"z")],
    "colon in a name": [*GET, (b"x:y", b"z")],
    "line end in a name": [*GET, (b"x\r\ny", b"z")],
    "line end in a value": [*GET, (b"x", b"y\r\nz: 1")],
    "bare LF in a value": [*GET, (b"x", b"y\nz: 1")],
    "NUL in a value": [*GET, (b"x", b"\0")],
    "connection": [*GET, (b"connection", b"x")],
    "proxy-connection": [*GET, (b"proxy-connection", b"keep-alive")],
    "keep-alive": [*GET, (b"keep-alive", b"timeout=5")],
    "transfer-encoding": [*GET, (b"transfer-encoding", b"chunked")],
    "upgrade": [*GET, (b"upgrade", b"websocket")],
    "te": [*GET, (b"te", b"gzip")],
    "another host": [*GET, (b"host", b"c.d")],
    "two hosts": [*GET, (b"host", b"a.b"), (b"host", b"a.b")],
    "CONNECT with a path": [*TUNNEL, (b":path", b"/")],
    "CONNECT with a scheme": [*TUNNEL, (b":scheme", b"http")],
    "length without a body": [*GET, (b"content-length", b"5")],
}
# These could be read, and are answered
INVALID = {
    "no authority", "empty authority", "relative path", "space in the path",
    "line end in the path", "NUL in the path", "space in the authority",
    "path in the authority", "query in the authority", "fragment in the authority",
    "userinfo", "backslash in the authority", "scheme that is none",
    "line end in a value", "bare LF in a value", "NUL in a value", "another host",
    "two hosts"}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_http_11_would_read_differently_is_refused(name) -> None:
    assert head_of(MALFORMED[name]) == ("invalid" if name in INVALID else "malformed")
    assert twin.head_of(MALFORMED[name], True) is None


@pytest.mark.parametrize("value", [b" y", b"y\t", b" \t y "])
def test_white_space_around_a_value_is_trimmed(value) -> None:
    assert lines([*GET, (b"x", value), (b"cookie", value)])[2:4] == [
        b"x: y", b"cookie: y"]


def test_an_extended_connect_is_known() -> None:
    fields = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), *GET[1:]]
    assert head_of(fields) == "extended"


@pytest.mark.parametrize("fields", [
    [(b":path", b"/")], [(b"X", b"y")], [(b"x", b"y\n")], [(b"connection", b"close")]])
def test_trailers_have_the_same_rules(fields) -> None:
    assert trailers_of(fields) == "malformed"


def test_no_room_is_said() -> None:
    head, *_ = head_of(GET)
    assert head_of(GET, True, len(head)) != "no room"
    assert head_of(GET, True, len(head) - 1) == "no room"


VALUES = st.sampled_from([
    b"", b"x", b"a.b", b"/c", b"GET", b"http", b"https", b"CONNECT", b"trailers", b"5",
    b"*", b"a b", b"a\r\nb", b"\t", b"\xff"])
NAMES = st.sampled_from([
    *twin.PSEUDO, b"host", b"cookie", b"te", b"content-length", b"x", b"connection",
    b"trailer", b"X", b":x", b"", b"transfer-encoding"])
BODIES = st.lists(st.tuples(
    NAMES | st.binary(max_size=3), VALUES | st.binary(max_size=5)), max_size=6)


@given(st.one_of(BODIES, BODIES.map(lambda more: GET + more),
                 BODIES.map(lambda more: TUNNEL + more)), st.booleans())
def test_the_twin_agrees(fields, ends) -> None:
    head = head_of(fields, ends)
    expected = twin.head_of(fields, ends)
    assert (None if isinstance(head, str) else head[0]) == expected
    lines = trailers_of(fields)
    assert lines == ("malformed" if twin.trailers_of(fields) is None
                     else twin.trailers_of(fields))


@given(BODIES)
def test_a_head_is_one_head_of_http_11(fields) -> None:
    """With any fields: one request, and nothing behind it."""
    head = head_of(GET + fields, False)
    if isinstance(head, str):
        return
    answer = read_request(head[0], 0)
    if isinstance(answer, dict):
        assert answer["length"] == len(head[0])
