"""The length of a body: RFC 9112 section 6.3, and lengths that are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doors.wire import read_framing

# Numbers of http1.pxd.
GET, HEAD, POST, CONNECT = 1, 2, 3, 8
LONGEST = 2**63 - 1


def request(*fields: str, line: str = "POST / HTTP/1.1") -> tuple[str, int, bool] | str:
    return read_framing("\r\n".join([line, *fields, "", ""]).encode("latin-1"))


def response(
    *fields: str, line: str = "HTTP/1.1 200 OK", method: int = GET
) -> tuple[str, int, bool] | str:
    return read_framing("\r\n".join([line, *fields, "", ""]).encode("latin-1"), method)


@pytest.mark.parametrize(("fields", "framing"), [
    ([], ("none", 0, True)),
    (["Content-Length: 0"], ("none", 0, True)),
    (["Content-Length: 5"], ("length", 5, True)),
    (["CONTENT-LENGTH: 0005"], ("length", 5, True)),
    (["Content-Length: 9223372036854775807"], ("length", LONGEST, True)),
    (["Content-Length: 0000000000000000000005"], ("length", 5, True)),
    ([f"Content-Length: {'0' * 4000}"], ("none", 0, True)),
    ([f"Content-Length: {'0' * 4000}9223372036854775807"], ("length", LONGEST, True)),
    (["Transfer-Encoding: chunked"], ("chunked", 0, True)),
    (["transfer-encoding:CHUNKED \t"], ("chunked", 0, True)),
])
def test_request_has_the_body_that_its_fields_say(fields: list[str], framing) -> None:
    assert request(*fields) == framing


@pytest.mark.parametrize("value", [
    "", "-1", "+5", "5 5", "5, 6", "5,", ",5", "5, x", "0x5", "5.0", "5e1",
    "five", '"5"', "5;", "\xb5", "9223372036854775808", "18446744073709551621",
    "99999999999999999999", "0" * 4000 + "9223372036854775808"])
def test_length_that_is_no_number_of_ours_is_refused(value: str) -> None:
    # R7, R11.
    assert request(f"Content-Length: {value}") == "bad_framing"
    assert response(f"Content-Length: {value}") == "bad_response_framing"


@pytest.mark.parametrize("fields", [
    ["Content-Length: 5", "Content-Length: 5"], ["Content-Length: 5, 5"],
    ["Content-Length: 5", "X: y", "content-length: 05 ,5"], ["Content-Length: 5,5,5"]])
def test_equal_lengths_of_a_response_are_one_of_a_request_none(fields) -> None:
    # RFC 9112 section 6.3, rule 5: both may be taken for one. Every peer does so with a
    # response, which was a 502; in a request the next reader might take the other (R7).
    assert response(*fields) == ("length", 5, True)
    assert request(*fields) == "bad_framing"


@pytest.mark.parametrize("fields", [
    ["Content-Length: 5", "Content-Length: 6"],
    ["Content-Length: 5, 5", "Content-Length: 6"],
    ["Content-Length: 5", "X: y", "content-length: 0"],
    ["Content-Length: 0", "Content-Length:"],
    ["Transfer-Encoding: gzip, chunked", "Content-Length: 5"],
    ["Transfer-Encoding: identity", "Content-Length: 5"],
])
def test_two_lengths_are_refused(fields: list[str]) -> None:
    # R7, R18.
    assert request(*fields) == "bad_framing"
    assert response(*fields) == "bad_response_framing"
    assert response(*fields, method=HEAD) == ("none", 0, False)


@pytest.mark.parametrize("fields", [
    ["Content-Length: 5", "Transfer-Encoding: chunked"],
    ["Transfer-Encoding: chunked", "Content-Length: 5"],
    ["Transfer-Encoding: chunked", "Content-Length: 0"],
    ["Transfer-Encoding: chunked", "Content-Length: x"]])
def test_chunks_count_before_a_length_in_a_response_alone(fields: list[str]) -> None:
    # R7, R18: RFC 9112 section 6.3, rule 3.
    assert request(*fields) == "bad_framing"
    assert response(*fields) == ("chunked", 0, False)


@pytest.mark.parametrize("codings", [
    [""], [","], ["identity"], ["gzip"], ["chunked, gzip"], ["chunked, chunked"],
    ["chunked;q=1"], ["chunked, identity"], ["xchunked"], ["chunked x"], ["x chunked"],
    ['"chunked"'], ["chunked", "chunked"], ["chunked", "gzip"], ["chunked,"],
    [",chunked"], ["gzip;, chunked"], ["chunk\xebd"], ["chunked", ""], ["", "chunked"]])
def test_coding_that_does_not_end_in_one_chunked_is_refused(codings: list[str]) -> None:
    # R8.
    fields = [f"Transfer-Encoding: {value}" for value in codings]
    assert request(*fields) == "bad_framing"
    assert response(*fields) == "bad_response_framing"


@pytest.mark.parametrize("codings", [
    ["gzip, chunked"], ["gzip", "chunked"], ["gzip, deflate,CHUNKED"],
    ["identity, chunked"]])
def test_coding_below_chunked_is_not_supported(codings: list[str]) -> None:
    fields = [f"Transfer-Encoding: {value}" for value in codings]
    assert request(*fields) == "unsupported_coding"
    assert response(*fields) == "bad_response_framing"


@pytest.mark.parametrize(("line", "method"), [
    ("HTTP/1.1 304 Same", GET), ("HTTP/1.1 200 OK", HEAD), ("HTTP/1.1 204 None", GET)])
@pytest.mark.parametrize("field", [
    "Content-Length: x", "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 0\r\nTransfer-Encoding: chunked"])
def test_a_length_that_none_can_mean_ends_the_connection(line, method, field) -> None:
    # R18: octets may follow that belong to no response.
    assert response(field, line=line, method=method) == ("none", 0, False)


@pytest.mark.parametrize("line", [
    "HTTP/1.1 204 None", "HTTP/1.1 304 Same", "HTTP/1.0 204 None"])
@pytest.mark.parametrize("value", ["chunked", "gzip", "gzip, chunked", "", "x y"])
@pytest.mark.parametrize("method", [GET, HEAD, POST])
def test_a_coding_on_204_and_304_means_nothing_but_the_end(line, value, method) -> None:
    # RFC 9112 sections 6.1 and 6.3: such a response ends with its head. Peers pass it.
    # If the origin sends bytes behind it, they are not the next response (R18).
    fields = [f"Transfer-Encoding: {value}"]
    assert response(*fields, line=line, method=method) == ("none", 0, False)
    fields *= 2
    assert response(*fields, line=line, method=method) == ("none", 0, False)


def test_a_response_that_was_read_leniently_is_the_last_of_its_connection() -> None:
    # R18: a bare LF may have come from a user if the origin let the user write a value.
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n\r\n"
    assert read_framing(head, GET) == ("length", 5, True)
    for odd in (b"\r\n" + head, b"\n" + head, head.replace(b"b", b"b\r\n c"),
                head.replace(b"\r\nA", b"\nA"), head[:-2] + b"\n",
                head.replace(b"\r\n", b"\n")):
        assert read_framing(odd, GET) == ("length", 5, False)


def test_transfer_coding_in_http_1_0_is_refused() -> None:
    # R5: a reader of that version sees a body that ends with the connection. The chunks
    # of an origin are read by every client.
    field = "Transfer-Encoding: chunked"
    assert request(field, line="POST / HTTP/1.0") == "bad_framing"
    assert response(field, line="HTTP/1.0 200 OK") == ("chunked", 0, False)


@pytest.mark.parametrize(("field", "framing"), [
    ("Content-Length: 0", ("none", 0, True)),
    ("Content-Length: 1", "bad_framing"),
    ("Content-Length: x", "bad_framing"),
    ("Transfer-Encoding: chunked", "bad_framing"),
    ("Transfer-Encoding: gzip, chunked", "unsupported_coding"),
    ("Transfer-Encoding: gzip", "bad_framing"),
])
def test_connect_has_no_body(field: str, framing) -> None:
    # R2, and RFC 9110 section 9.3.8.
    assert request(field, line="CONNECT a:443 HTTP/1.1") == framing
    assert request(field, line="TRACE http://a/ HTTP/1.1") == framing


@pytest.mark.parametrize(("fields", "persistent"), [
    ([], True),
    (["Connection: keep-alive"], True),
    (["Connection: closed"], True),
    (["X-Connection: close"], True),
    (["Connection: close"], False),
    (["Connection: CLOSE"], False),
    (["Connection: x,close ,y"], False),
    (["Connection: keep-alive", "Connection: close"], False),
    (["Connection: keep-alive", "Proxy-Connection: close"], False),
])
def test_connection_goes_on_unless_somebody_says_close(fields, persistent) -> None:
    assert request(*fields)[2] is persistent
    assert response(*fields, "Content-Length: 1")[2] is persistent


def test_connection_of_http_1_0_never_goes_on() -> None:
    # RFC 9112 section 9.3: a proxy must not keep one alive, even if it asks for it.
    field = "Connection: keep-alive"
    assert request(field, line="GET / HTTP/1.0") == ("none", 0, False)
    answer = response(field, "Content-Length: 5", line="HTTP/1.0 200 OK")
    assert answer == ("length", 5, False)


@pytest.mark.parametrize(("line", "method", "fields", "framing"), [
    ("HTTP/1.1 200 OK", GET, [], ("until-close", 0, False)),
    ("HTTP/1.1 200 OK", POST, ["Content-Length: 5"], ("length", 5, True)),
    ("HTTP/1.1 200 OK", GET, ["Content-Length: 0"], ("none", 0, True)),
    ("HTTP/1.1 200 OK", GET, ["Transfer-Encoding: chunked"], ("chunked", 0, True)),
    ("HTTP/1.0 200 OK", GET, [], ("until-close", 0, False)),
    ("HTTP/1.1 404 No", GET, [], ("until-close", 0, False)),
    ("HTTP/1.1 205 Reset", GET, [], ("until-close", 0, False)),
    ("HTTP/1.1 200 OK", HEAD, [], ("none", 0, True)),
    ("HTTP/1.1 200 OK", HEAD, ["Content-Length: 5"], ("none", 0, True)),
    ("HTTP/1.1 200 OK", HEAD, ["Transfer-Encoding: chunked"], ("none", 0, True)),
    ("HTTP/1.1 304 Same", GET, [], ("none", 0, True)),
    ("HTTP/1.1 304 Same", GET, ["Content-Length: 5"], ("none", 0, True)),
    ("HTTP/1.1 204 None", GET, [], ("none", 0, True)),
    ("HTTP/1.1 204 None", GET, ["Content-Length: 0"], ("none", 0, True)),
    ("HTTP/1.1 100 Continue", POST, [], ("none", 0, True)),
    ("HTTP/1.1 101 Switch", GET, ["Upgrade: x"], ("none", 0, True)),
    ("HTTP/1.1 200 OK", CONNECT, [], ("none", 0, True)),
    # RFC 9112 section 6.3, rule 2: both are ignored there.
    ("HTTP/1.1 200 OK", CONNECT, ["Content-Length: 5"], ("none", 0, True)),
    ("HTTP/1.1 299 OK", CONNECT, ["Transfer-Encoding: chunked"], ("none", 0, True)),
    ("HTTP/1.1 407 No", CONNECT, ["Content-Length: 5"], ("length", 5, True)),
])
def test_response_has_the_body_that_status_and_method_allow(
    line, method, fields, framing
) -> None:
    # R17.
    assert response(*fields, line=line, method=method) == framing


@pytest.mark.parametrize("line", [
    "HTTP/1.1 100 Continue", "HTTP/1.1 101 Switch", "HTTP/1.1 103 Hints",
    "HTTP/1.1 199 X", "HTTP/1.1 204 None"])
@pytest.mark.parametrize("field", ["Content-Length: 5", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("method", [GET, HEAD, POST])
def test_a_length_where_none_may_stand_means_nothing(line, field, method) -> None:
    # R17: RFC 9112 section 6.3, rule 1. The bytes behind such a head may be a body.
    assert response(field, line=line, method=method) == ("none", 0, False)


@given(st.text("0123456789", max_size=25) | st.integers(0, 2**70).map(str))
def test_length_is_the_number_or_a_refusal(digits: str) -> None:
    answer = request(f"Content-Length: {digits}")
    if digits and int(digits) <= LONGEST:
        assert answer == ("length" if int(digits) else "none", int(digits), True)
    else:
        assert answer == "bad_framing"
