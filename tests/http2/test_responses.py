"""A response's head as HTTP/1.1, and malformed ones (RFC 9113 section 8; R62)."""

import pytest

from tests.doors.http2 import response_of
from tests.doors.wire import read_response

OKAY = [(b":status", b"200")]
CLOSE = b"Connection: close"


def lines(fields, method: str = "GET", ends: bool = False) -> list[bytes]:
    found = response_of(fields, method, ends)
    assert not isinstance(found, str), found
    return found[0].split(b"\r\n")[:-2]


@pytest.mark.parametrize("method, status, ends, framed", [
    ("GET", b"200", False, [b"Transfer-Encoding: chunked", CLOSE]),
    ("GET", b"200", True, [b"Content-Length: 0", CLOSE]),
    ("POST", b"404", True, [b"Content-Length: 0", CLOSE]),
    ("HEAD", b"200", True, [CLOSE]),
    ("GET", b"204", True, [CLOSE]),
    ("GET", b"304", True, [CLOSE]),
    ("GET", b"103", False, []),
    ("GET", b"599", False, [b"Transfer-Encoding: chunked", CLOSE]),
])
def test_the_body_is_framed_for_http_11(method, status, ends, framed) -> None:
    head, found, chunked = response_of([(b":status", status)], method, ends)
    assert head.split(b"\r\n")[:-2] == [b"HTTP/1.1 " + status + b" ", *framed]
    assert found == int(status)
    assert chunked == (framed[:1] == [b"Transfer-Encoding: chunked"])


@pytest.mark.parametrize("ends", [False, True])
def test_a_length_stays(ends) -> None:
    assert lines([*OKAY, (b"content-length", b"5")], ends=ends) == [
        b"HTTP/1.1 200 ", b"content-length: 5", CLOSE]


@pytest.mark.parametrize("length_first", [True, False])
@pytest.mark.parametrize("method, status, ends, left_out", [
    ("GET", b"200", False, True),
    ("HEAD", b"200", True, False),
    ("GET", b"200", True, False),
    ("GET", b"304", True, False)])
def test_a_length_makes_room_for_trailers_that_are_announced(
        length_first, method, status, ends, left_out) -> None:
    length = (b"content-length", b"5")
    fields = [(b":status", status), (b"x", b"y"), (b"trailer", b"t"), (b"z", b"")]
    fields.insert(1 if length_first else 3, length)
    others = [b": ".join(one) for one in fields[1:] if one != length or not left_out]
    framed = [b"Transfer-Encoding: chunked"] if left_out else []
    assert lines(fields, method, ends)[1:] == [*others, *framed, CLOSE]


def test_a_length_stays_beside_an_empty_announcement() -> None:
    fields = [(b"content-length", b"5"), (b"trailer", b"")]
    assert lines([*OKAY, *fields])[1:3] == [b"content-length: 5", b"trailer: "]


def test_fields_keep_their_order_and_number() -> None:
    fields = [(b"set-cookie", b"a=1"), (b"x", b""), (b"set-cookie", b"b=2")]
    assert lines([*OKAY, *fields])[1:4] == [
        b"set-cookie: a=1", b"x: ", b"set-cookie: b=2"]


@pytest.mark.parametrize("value", [b" y", b"y\t", b" \ty \t"])
def test_space_around_a_value_is_taken_off(value) -> None:
    assert lines([*OKAY, (b"x", value)])[1] == b"x: y"


MALFORMED = {
    "nothing": [],
    "no status": [(b"x", b"y")],
    "status twice": [*OKAY, *OKAY],
    "status behind a field": [(b"x", b"y"), *OKAY],
    "status of two digits": [(b":status", b"20")],
    "status of four digits": [(b":status", b"2000")],
    "status below 100": [(b":status", b"099")],
    "status with a reason": [(b":status", b"200 OK")],
    "status of letters": [(b":status", b"2x0")],
    "101": [(b":status", b"101")],
    "pseudo-field of a request": [*OKAY, (b":path", b"/")],
    "upper case": [*OKAY, (b"X-y", b"z")],
    "empty name": [*OKAY, (b"", b"z")],
    "colon in a name": [*OKAY, (b"x:y", b"z")],
    "line end in a name": [*OKAY, (b"x\r\ny", b"z")],
    "line end in a value": [*OKAY, (b"x", b"y\r\nz: 1")],
    "bare LF in a value": [*OKAY, (b"x", b"y\nz: 1")],
    "NUL in a value": [*OKAY, (b"x", b"\0")],
    "connection": [*OKAY, (b"connection", b"x")],
    "keep-alive": [*OKAY, (b"keep-alive", b"timeout=5")],
    "transfer-encoding": [*OKAY, (b"transfer-encoding", b"chunked")],
    "upgrade": [*OKAY, (b"upgrade", b"websocket")],
}


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED)
def test_what_http_11_would_read_differently_is_malformed(fields) -> None:
    assert response_of(fields) == "malformed"


def test_an_interim_head_ends_no_stream() -> None:
    assert response_of([(b":status", b"103")], ends=True) == "malformed"


def test_no_room_is_said() -> None:
    head, *_ = response_of(OKAY)
    assert response_of(OKAY, room=len(head)) != "no room"
    assert response_of(OKAY, room=len(head) - 1) == "no room"


def test_the_reader_of_responses_takes_each_head() -> None:
    for status in range(100, 600):
        if status != 101:
            head, *_ = response_of([(b":status", b"%d" % status), (b"a", b"b")])
            assert read_response(head)
