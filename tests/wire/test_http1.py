"""Heads: read or refused, however the bytes arrive."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.wire.target import read_request_target
from tests.doors.wire import (
    last_answer,
    lists_token,
    read_framing,
    read_request,
    read_response,
    rewrite_request,
    rewrite_response,
)
from tests.wire.cases import Case, as_params, unescape
from tests.wire.replay import parse_every_way

TCHAR = rb"!#$%&'*+\-.^_`|~0-9A-Za-z"
VALUE = rb"\t\x20-\x7e\x80-\xff"

# The slow obvious twin: the grammar of RFC 9112 as a regular expression.
FIELDS = rb"((?:[%b]+:[%b]*\r\n)*)\r\n" % (TCHAR, VALUE)
REQUEST = re.compile(
    rb"(?:\r\n)?([%b]+) ([!-~\x80-\xff]+) HTTP/1\.([01])\r\n" % TCHAR + FIELDS)
# With the forms that are read leniently: one empty line before, bare LF, obs-fold,
# controls, white space before a colon.
ODD = rb"\x01-\x09\x0b\x0c\x0e-\xff"
RESPONSE = re.compile(
    rb"(?:\r?\n)?HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([%b]*))?\r?\n" % ODD
    + rb"((?:[%b]+[ \t]{0,8}:[%b]*\r?\n(?:[ \t][%b]*\r?\n)*)*)\r?\n" % (
        TCHAR, ODD, ODD))

# Numbers of http1.pxd.
HOST, CONTENT_LENGTH, CONNECTION = 1, 2, 4
NAMES = (
    "Host", "Content-Length", "Transfer-Encoding", "Connection", "Proxy-Connection",
    "Keep-Alive", "TE", "Trailer", "Upgrade", "Via", "Expect", "Proxy-Authorization",
    "Proxy-Authenticate", "Proxy-Authentication-Info", "Date")


def describe(answer: dict | str | None) -> list[bytes]:
    """The answer in the words of the literate cases."""
    if answer is None:
        return [b"more"]
    if isinstance(answer, str):
        return [b"refused: " + answer.encode()]
    if "status" in answer:
        first = b"%d 1.%d [%b]" % (answer["status"], answer["minor"], answer["reason"])
    else:
        first = b"%b %b 1.%d" % (answer["method"], answer["target"], answer["minor"])
    fields = [name + b"=" + value for name, value, _ in answer["fields"]]
    return [first, *fields, *([b"lenient"] if "lenient" in answer else [])]


@pytest.mark.parametrize("case", as_params("request", "request-line"))
def test_request_is_read_as_told(case: Case) -> None:
    answer = parse_every_way(read_request, case.octets("request"))
    assert describe(answer) == [unescape(line) for line in case.words("result")]


@pytest.mark.parametrize("case", as_params("response"))
def test_response_is_read_as_told(case: Case) -> None:
    answer = parse_every_way(read_response, case.octets("response"))
    assert describe(answer) == [unescape(line) for line in case.words("result")]


@pytest.mark.parametrize("octet", [n for n in range(32) if n != 9] + [127])
@pytest.mark.parametrize("before", [0, 1, 7, 8, 9, 30])
def test_every_control_in_a_value_is_found_wherever_it_stands(
    octet: int, before: int
) -> None:
    # R9. The scan takes eight bytes at a time: each place in a word, and the tail.
    value = b"x" * before + bytes([octet]) + b"yz"
    head = b"GET / HTTP/1.1\r\nA: " + value + b"\r\n\r\n"
    assert read_request(head) == "bad_request"
    answer = read_response(b"HTTP/1.1 200 " + value + b"\r\nA: " + value + b"\r\n\r\n")
    if octet in b"\0\r\n":
        assert answer == "bad_response"     # of LF, because "yz" has no colon
    else:
        assert (answer["reason"], answer["fields"]) == (value, [(b"A", value, 0)])


@pytest.mark.parametrize("octet", range(256))
def test_only_tchars_stand_in_names_and_methods(octet: int) -> None:
    # RFC 9110 section 5.6.2, from the table in the RFC rather than ours.
    is_token = re.fullmatch(rb"[%b]" % TCHAR, bytes([octet])) is not None
    head = b"GET / HTTP/1.1\r\nab" + bytes([octet]) + b"c: d\r\n\r\n"
    assert isinstance(read_request(head), dict) == (is_token or octet == ord(":"))
    head = b"G" + bytes([octet]) + b"T / HTTP/1.1\r\n\r\n"
    assert isinstance(read_request(head), dict) == is_token


@pytest.mark.parametrize("name", NAMES)
def test_known_name_is_known_in_any_case(name: str) -> None:
    # R10.
    number = NAMES.index(name) + 1
    for spelling in (name, name.lower(), name.upper(), name.swapcase()):
        answer = read_request(b"GET / HTTP/1.1\r\n%b:x\r\n\r\n" % spelling.encode())
        assert answer["fields"] == [(spelling.encode(), b"x", number)]


@pytest.mark.parametrize("name", NAMES)
def test_name_that_differs_by_one_character_is_another(name: str) -> None:
    for at in range(len(name)):
        for other in "x_!~":
            if other == name[at].lower():
                continue
            wrong = name[:at] + other + name[at + 1:]
            answer = read_request(b"GET / HTTP/1.1\r\n%b: x\r\n\r\n" % wrong.encode())
            assert answer["fields"][0][2] == 0, wrong


@pytest.mark.parametrize(
    ("method", "number"),
    [(b"GET", 1), (b"HEAD", 2), (b"POST", 3), (b"PUT", 4), (b"DELETE", 5),
     (b"OPTIONS", 6), (b"TRACE", 7), (b"CONNECT", 8), (b"get", 0), (b"Connect", 0),
     (b"GETS", 0), (b"GE", 0), (b"CONNECTX", 0), (b"PATCH", 0)])
def test_methods_are_case_sensitive(method: bytes, number: int) -> None:
    answer = read_request(method + b" / HTTP/1.1\r\n\r\n")
    assert answer["known_method"] == number


LONG = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"


def test_request_line_at_its_limit_passes() -> None:
    head = LONG % (b"x" * 86)
    assert head.index(b"\r") == 100
    assert isinstance(parse_every_way(read_request, head, line_bytes=100), dict)
    head = b"\r\n" + head
    assert isinstance(parse_every_way(read_request, head, line_bytes=100), dict)


@pytest.mark.parametrize("more", [1, 2, 3, 50])
def test_request_line_above_its_limit_is_uri_too_long(more: int) -> None:
    head = LONG % (b"x" * (86 + more))
    for before in (b"", b"\r\n"):
        answer = parse_every_way(read_request, before + head, line_bytes=100)
        assert answer == "uri_too_long"
        assert read_request(head[:102], line_bytes=100) == "uri_too_long"


def test_status_line_above_its_limit_is_refused() -> None:
    head = b"HTTP/1.1 200 %b\r\n\r\n"
    for length, answer in ((87, True), (88, False), (300, False)):
        got = parse_every_way(read_response, head % (b"x" * length), line_bytes=100)
        assert (got == "response_head_too_large") != answer


def test_head_at_its_limit_passes_and_one_byte_more_is_refused() -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 300 + b"\r\n\r\n"
    size = len(head)
    assert isinstance(parse_every_way(read_request, head, head_bytes=size), dict)
    for limit in (size - 1, size - 2, size - 3, 100, 20, 5, 1):
        answer = parse_every_way(read_request, head, head_bytes=limit)
        assert answer == "head_too_large", limit
    head = head.replace(b"GET / HTTP/1.1", b"HTTP/1.1 200 O")
    assert isinstance(parse_every_way(read_response, head, head_bytes=size), dict)
    answer = parse_every_way(read_response, head, head_bytes=size - 1)
    assert answer == "response_head_too_large"


def test_fields_at_their_limit_pass_and_one_more_is_refused() -> None:
    def head(n: int) -> bytes:
        return b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * n + b"\r\n"

    assert len(parse_every_way(read_request, head(3), n_fields=3)["fields"]) == 3
    assert parse_every_way(read_request, head(4), n_fields=3) == "head_too_large"
    assert len(read_request(head(1024))["fields"]) == 1024
    # The struct has room for 1024, at any limit.
    assert read_request(head(1025), n_fields=2000) == "head_too_large"


def test_a_fold_is_no_field_and_comes_after_the_last_one_too() -> None:
    head = b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n d\r\n\r\n"
    got = parse_every_way(read_response, head, n_fields=1)
    assert got["fields"] == [(b"A", b"b   c   d", 0)]


@pytest.mark.parametrize("fold", [b"\r\n \r\n", b"\n\t\n \n", b" \r\n  \r\n"])
def test_a_fold_without_a_value_adds_nothing_to_the_one_before_it(fold: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked" + fold + b"\r\n"
    got = parse_every_way(read_response, head, n_fields=1)
    assert got["fields"][0][1] == b"chunked"


def test_a_thousand_folds_are_read_in_the_time_of_one_line() -> None:
    # Each was scanned again from the value's first octet: 20 000 of them took seconds.
    head = b"HTTP/1.1 200 OK\r\nA: b\n" + b" c\n" * 21_000 + b"\n"
    got = read_response(head, head_bytes=65536, line_bytes=65536)
    assert got["fields"][0][1].count(b"c") == 21_000


def test_name_longer_than_its_counter_is_refused() -> None:
    head = b"GET / HTTP/1.1\r\n" + b"x" * 65536 + b": a\r\n\r\n"
    assert read_request(head, head_bytes=1 << 20) == "head_too_large"
    colon = head.index(b":")
    answer = read_request(head[:colon + 1], seen=colon, head_bytes=1 << 20)
    assert answer == "head_too_large"
    head = head.replace(b"x" * 65536, b"x" * 65535)
    assert len(read_request(head, head_bytes=1 << 20)["fields"][0][0]) == 65535


def test_no_limit_of_a_head_counts_above_16_mib() -> None:
    head = b"GET / HTTP/1.1\r\nA: " + b"x" * (1 << 24)
    assert read_request(head, head_bytes=0xffffffff) == "head_too_large"


def test_line_that_is_bad_before_its_limit_is_bad() -> None:
    # Which of two refusals it is does not depend on how many bytes came at once.
    head = b"G@T /" + b"x" * 200
    assert parse_every_way(read_request, head, line_bytes=100) == "bad_request"
    head = b"GET /" + b"x" * 200 + b"\0"
    assert parse_every_way(read_request, head, line_bytes=100) == "uri_too_long"


def test_refusal_comes_with_the_byte_that_shows_it() -> None:
    for head, refused_at in (
        (b"\x16\x03\x01", 1),
        (b"GET / HTTP/1.1\r\n Host: a\r\n", 17),
        (b"GET / HTTP/1.1\r\nHost : a\r\n", 21),
        (b"GET / HTTP/1.1\r\nHost: a\rb\r\n", 25),
        (b"GET / HTTP/1.1\r\nHost: a\x01b\r\n", 24),
    ):
        assert read_request(head[:refused_at - 1]) is None
        assert read_request(head[:refused_at]) == "bad_request"


def test_token_is_found_in_the_list_that_all_fields_make() -> None:
    head = (b"GET / HTTP/1.1\r\nConnection: a, Keep-Alive\r\nHost: close\r\n"
            b"connection:,\t,CLOSE ,x\r\nConnection:\r\n\r\n")
    for token in (b"a", b"keep-alive", b"close", b"x"):
        assert lists_token(head, CONNECTION, token)
    for token in (b"", b"clos", b"closed", b"keep", b"alive", b"a, keep-alive"):
        assert not lists_token(head, CONNECTION, token)
    assert not lists_token(head, CONTENT_LENGTH, b"close")


@pytest.mark.parametrize(
    "value", [b"close;x", b'"close"', b"x close", b"close x", b"closeclose"])
def test_token_is_not_found_in_part_of_a_member(value: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nConnection: " + value + b"\r\n\r\n"
    assert not lists_token(head, CONNECTION, b"close")


# Pieces of heads, good and bad, so that many heads made of them are nearly right.
PIECES = st.lists(st.sampled_from([
    b"GET", b" ", b"http://a/", b"/", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\r\n",
    b"\r\n", b"Host", b":", b": ", b"a", b"Content-Length: 5", b"X: y", b"\t", b"\r",
    b"\n", b"\0", b"\x7f", b"\xff", b"HTTP/1.1 200 OK", b"HTTP/1.1", b" 404", b"(",
    b'"', b"x" * 20,
    b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", b"C:d\r\n\r\n",
]), max_size=12).map(b"".join)


def fields_of(lines: bytes) -> list[tuple[bytes, bytes]]:
    lines = re.sub(rb"\r?\n(?=[ \t])", lambda end: b" " * len(end[0]), lines)
    fields = (line.split(b":", 1) for line in re.split(rb"\r?\n", lines)[:-1])
    return [(name.rstrip(b" \t"), value.strip(b" \t")) for name, value in fields]


@given(PIECES)
@settings(max_examples=600, deadline=None)
def test_request_parser_agrees_with_the_grammar(data: bytes) -> None:
    answer = parse_every_way(read_request, data)
    twin = REQUEST.match(data)
    assert isinstance(answer, dict) == (twin is not None)
    if twin:
        assert (answer["method"], answer["target"]) == twin.group(1, 2)
        assert answer["minor"] == int(twin[3])
        assert answer["length"] == twin.end()
        assert [field[:2] for field in answer["fields"]] == fields_of(twin[4])


@given(PIECES)
@settings(max_examples=600, deadline=None)
def test_response_parser_agrees_with_the_grammar(data: bytes) -> None:
    answer = parse_every_way(read_response, data)
    twin = RESPONSE.match(data)
    assert isinstance(answer, dict) == (twin is not None)
    if twin:
        assert (answer["minor"], answer["status"]) == (int(twin[1]), int(twin[2]))
        assert answer["reason"] == (twin[3] or b"")
        assert answer["length"] == twin.end()
        assert [field[:2] for field in answer["fields"]] == fields_of(twin[4])


@given(
    st.binary(max_size=60), st.integers(1, 40), st.integers(1, 60), st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_refusal_never_depends_on_the_cut(
    data: bytes, line_bytes: int, head_bytes: int, n_fields: int
) -> None:
    limits = {"line_bytes": line_bytes, "head_bytes": head_bytes, "n_fields": n_fields}
    for start in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nA: b"):
        parse_every_way(read_request, start + data, **limits)
    parse_every_way(read_response, b"HTTP/1.1 200 " + data, **limits)


@pytest.mark.parametrize("head", [
    b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_asked_of_a_head_is_not_asked_of_half_a_one(head: bytes) -> None:
    # The entry points for tests and tools: an error, and never an answer.
    requests = (read_request_target, rewrite_request, last_answer, read_framing,
                lambda head: lists_token(head, 4, b"close"))
    responses = (rewrite_response, lambda head: read_framing(head, 1))
    for ask in (*requests, *responses):
        with pytest.raises(ValueError, match="not a whole, valid"):
            ask(head)
