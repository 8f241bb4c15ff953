"""Heads as they go on: fields dropped, fields added, and fields that never get out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.wire import (
    last_answer,
    passes_trailers,
    read_request,
    read_response,
    rewrite_request,
    rewrite_response,
)
from tests.wire.cases import Case, as_params
from tests.wire.replay import guarded

ROOM = 512      # REWRITE_ROOM of rewrite.pxd
HOP_BY_HOP = {
    b"connection", b"proxy-connection", b"keep-alive", b"te", b"upgrade",
    b"proxy-authorization", b"proxy-authenticate", b"proxy-authentication-info",
    b"http2-settings"}


def rewritten(case: Case) -> bytes | str:
    flags = dict.fromkeys(case.words("flags") if "flags" in case.blocks else [], True)
    if "request" in case.blocks:
        got = rewrite_request(guarded().place(case.octets("request")), **flags)
        return got if isinstance(got, str) else got[0]
    flags.setdefault("chunked", False)
    return rewrite_response(guarded().place(case.octets("response")), **flags)


@pytest.mark.parametrize(
    "case", as_params(
        "rewrite", "rewrite-refused", "rewrite-response", "rewrite-upgrade"))
def test_head_goes_on_as_told(case: Case) -> None:
    if "refused" in case.blocks:
        assert rewritten(case) == case.blocks["refused"].strip()
    else:
        assert rewritten(case) == case.octets("sent")


@pytest.mark.parametrize(("line", "path"), [
    (b"GET http://a/b?c HTTP/1.1", b"/b?c"), (b"GET http://a HTTP/1.1", b"/"),
    (b"PROPFIND http://a?c HTTP/1.1", b"/?c"), (b"OPTIONS http://a HTTP/1.1", b"*"),
    (b"OPTIONS * HTTP/1.1", b"*"), (b"GET //b HTTP/1.1", b"//b")])
def test_path_is_told_to_the_caller(line: bytes, path: bytes) -> None:
    head, told = rewrite_request(line + b"\r\nHost: a\r\n\r\n")
    assert told == path
    assert head.split(b" ")[1] == path


def test_head_does_not_go_on_without_room() -> None:
    head = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"
    assert not isinstance(rewrite_request(head, cap=len(head) + ROOM), str)
    for cap in (0, len(head), len(head) + ROOM - 1):
        assert rewrite_request(head, cap=cap) == "head_too_large"
        answer = b"HTTP/1.1 200 \r\nA: 1234567\r\n\r\n"
        assert rewrite_response(answer, cap=min(cap, len(answer) + ROOM)) == (
            "response_head_too_large")
    assert not isinstance(rewrite_response(answer, cap=len(answer) + 1 + ROOM), str)


def test_a_head_of_bare_line_ends_grows_no_further_than_its_room() -> None:
    head = b"HTTP/1.1 200 OK\n" + b"a:\n" * 1000 + b"\n"
    sent = rewrite_response(head, pseudonym=b"p" * 64, close=True)
    assert len(head) < len(sent) <= len(head) + 1000 + ROOM
    assert sent.count(b"\r\n") == sent.count(b"\n") == 1004


@pytest.mark.parametrize(("length", "good"), [(1, True), (64, True), (65, False)])
def test_pseudonym_has_at_most_64_octets(length: int, good: bool) -> None:
    head = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"
    got = rewrite_request(head, pseudonym=b"p" * length)
    assert (got != "head_too_large") is good


def test_growth_is_bounded_by_the_room_promised() -> None:
    # The most that a rewrite can add: the longest name if there was no Host, the
    # longest port, the longest pseudonym, an upgrade.
    name = b".".join([b"x" * 63] * 3 + [b"y" * 61])
    head = b"GET / HTTP/1.1\r\nHost:" + name + b":65535\r\nUpgrade:x\r\n\r\n"
    sent, _ = rewrite_request(head, pseudonym=b"p" * 64, upgrade=True)
    assert len(sent) <= len(head) + ROOM
    sent, _ = rewrite_request(b"GET http://%b:65535 HTTP/1.0\r\n\r\n" % name)
    assert len(sent) <= len(head) + ROOM


@pytest.mark.parametrize("n", [1, 32, 33, 1000])
def test_connection_may_name_a_thousand_unknown_fields(n: int) -> None:
    # 33 were a 400, and a browser's extension had come to them.
    names = b",".join(b"x-%d" % i for i in range(n))
    fields = b"".join(b"X-%d: y\r\n" % i for i in range(min(n, 100)))
    head = (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n" + fields
            + b"Connection: close, " + names + b"\r\n\r\n")
    sent, _ = rewrite_request(head)
    assert sent == b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 cutthrough\r\n\r\n"


def test_connection_may_name_1024_unknown_fields_and_no_more() -> None:
    # R31: each is compared with each field.
    for n, good in ((1024, True), (1025, False)):
        names = b",".join([b"x"] * n)
        lines = b"\r\nConnection: " + names + b"\r\n\r\n"
        got = rewrite_request(b"GET http://a/ HTTP/1.1\r\nHost: a" + lines)
        assert (got != "bad_request") is good
        assert (rewrite_response(b"HTTP/1.1 200 OK" + lines) != "bad_response") is good


def listed_in(fields: list[tuple[bytes, bytes, int]]) -> set[bytes]:
    values = [value for name, value, _ in fields
              if name.lower() in (b"connection", b"proxy-connection")]
    return {member.strip().lower() for value in values for member in value.split(b",")}


# The slow obvious twin: which fields go on, by the words of RFC 9110 section 7.6.1.
def kept(fields: list[tuple[bytes, bytes, int]], also: set[bytes]) -> list[tuple]:
    protected = {b"host", b"content-length", b"transfer-encoding", b"via",
                 b"max-forwards"}
    gone = HOP_BY_HOP | (listed_in(fields) - protected) | also
    return [(name, value) for name, value, _ in fields if name.lower() not in gone]


NAMES = st.sampled_from(
    ["A", "X-B", "x-b", "Accept", "Cookie", "Date", "Via", "Expect", "Trailer",
     "Keep-Alive", "TE", "Upgrade", "Proxy-Authorization", "Proxy-Connection",
     "Connection", "Max-Forwards", "HTTP2-Settings"])
MEMBERS = st.lists(
    st.sampled_from(["close", "a", "X-B", "via", "Host", "cookie", "date", "",
                     "max-forwards"]),
    max_size=3).map(",".join)
FIELDS = st.lists(st.tuples(NAMES, MEMBERS), max_size=12).map(
    lambda fields: "".join(f"{name}: {value}\r\n" for name, value in fields).encode())


@given(FIELDS)
@settings(max_examples=300)
def test_request_fields_go_on_in_order_or_not_at_all(fields: bytes) -> None:
    head = b"GET http://a/ HTTP/1.1\r\nHost: b\r\n" + fields + b"\r\n"
    sent, _ = rewrite_request(guarded().place(head))
    expected = kept(read_request(head)["fields"], {b"host", b"trailer"})
    got = [field[:2] for field in read_request(sent)["fields"]]
    assert got == [(b"Host", b"a"), *expected, (b"Via", b"1.1 cutthrough")]


@given(FIELDS, st.booleans(), st.booleans())
@settings(max_examples=300)
def test_response_fields_go_on_in_order_or_not_at_all(fields, close, chunked) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + fields + b"\r\n"
    sent = rewrite_response(guarded().place(head), close=close, chunked=chunked)
    also = set() if chunked else {b"trailer", b"transfer-encoding"}
    if not passes_trailers(head, 1):
        also |= {b"trailer"}
    expected = kept(read_response(head)["fields"], also)
    if close:
        expected.append((b"Connection", b"close"))
    got = [field[:2] for field in read_response(sent)["fields"]]
    assert got == [*expected, (b"Via", b"1.1 cutthrough")]


@pytest.mark.parametrize("field", [
    b"Allow: GET,, get , X-Y", b"allow:", b"WWW-Authenticate: A b=\"c, d\", New",
    b"Authorization:Basic\tdTpw", b"Authentication-Info: nextnonce=\"x\"",
    b"Referer: http://a/?b#c", b"From: x@y", b"User-Agent: (a (b)) c/1",
    b"Server: \xff",
    b"Vary: *", b"ETag: W/\"a\"", b"Last-Modified: never", b"Range: lines=1-,5-2",
    b"If-Match: *", b"If-None-Match: \"a\",W/\"b\"", b"If-Modified-Since: today",
    b"If-Unmodified-Since: 0", b"If-Range: \"x", b"Cache-Control: no-transform",
    b"Content-Encoding: gzip,gzip", b"Location: //u@b/#c", b"Retry-After: -1",
    b"Accept:  a/b ; q=1.0001 , ", b"Set-Cookie: a=b; c", b"Set-Cookie2: \"",
    b"X:\t y\t "])
def test_fields_that_are_not_for_us_go_on_octet_by_octet(field: bytes) -> None:
    lines = b"\r\nA: 1\r\n" + field + b"\r\n" + field + b"\r\nB: 2\r\n"
    sent, _ = rewrite_request(b"GET http://a/ HTTP/1.1\r\nHost: a" + lines + b"\r\n")
    assert lines in sent
    assert lines in rewrite_response(b"HTTP/1.1 401 No" + lines + b"\r\n", close=True)


def limited(method: str, *values: str, version: str = "1.1") -> bytes:
    lines = [f"{method} http://a/b HTTP/{version}", "Host: a",
             *(f"Max-Forwards:{value}" for value in values), "", ""]
    return "\r\n".join(lines).encode("latin-1")


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
@pytest.mark.parametrize(("value", "sent"), [
    (" 1", "0"), ("1", "0"), ("\t2 ", "1"), (" 10", "9"), (" 007", "6"),
    (" 100000", "99999"), (" 999999999", "999999998"), (" 1000000000", "999999999"),
    (" 4294967296", "999999999"), (" 18446744073709551616", "999999999"),
    (" " + "9" * 200, "999999999"), (" " + "0" * 200 + "3", "2")])
def test_max_forwards_is_counted_down(method: str, value: str, sent: str) -> None:
    head, path = rewrite_request(guarded().place(limited(method, value)))
    assert path == b"/b"
    assert b"\r\nMax-Forwards: %b\r\n" % sent.encode() in head
    assert head.lower().count(b"max-forwards") == 1
    assert last_answer(limited(method, value)) == "ok"


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
@pytest.mark.parametrize("values", [
    [""], [" "], [" -1"], [" +1"], [" 1 1"], [" 1,1"], [" 1,"], [" 0x1"], [" 1.0"],
    [" one"], [" \xb2"], [" 1;"], [" 1", " 1"], [" 0", " 5"], [" 5", ""]])
def test_max_forwards_that_is_no_number_is_refused(method, values) -> None:
    assert rewrite_request(guarded().place(limited(method, *values))) == "bad_request"


@pytest.mark.parametrize("method", ["GET", "POST", "options", "Trace", "TRACES", "X"])
@pytest.mark.parametrize("values", [[" 0"], [" 5"], [" x"], ["007"], [" 1", " 2"]])
def test_max_forwards_means_nothing_to_other_methods(method, values) -> None:
    sent, _ = rewrite_request(limited(method, *values))
    for value in values:
        assert f"\r\nMax-Forwards:{value}\r\n".encode() in sent
    assert last_answer(limited(method, *values)) == "ok"


@pytest.mark.parametrize("zero", ["0", " 0", " 000", "\t0 ", " " + "0" * 300])
@pytest.mark.parametrize(("method", "label"), [
    ("OPTIONS", "final_recipient"), ("TRACE", "trace_refused")])
def test_max_forwards_of_zero_is_answered_here(method, zero, label) -> None:
    for version in ("1.0", "1.1"):
        assert last_answer(guarded().place(limited(method, zero, version=version))
                           ) == label


def test_without_max_forwards_nothing_is_counted() -> None:
    for method in ("OPTIONS", "TRACE"):
        assert last_answer(limited(method)) == "ok"
        assert b"Forwards" not in rewrite_request(limited(method))[0]


def test_connection_cannot_name_max_forwards_away() -> None:
    # R14, R20: or a client could take the end from a loop.
    head = limited("TRACE", " 7\r\nConnection: Max-Forwards")
    assert b"\r\nMax-Forwards: 6\r\n" in rewrite_request(head)[0]


def test_credentials_for_us_never_go_on() -> None:
    # R15, in any case and beside any fields.
    secret = b"Basic dXNlcm5hbWU6cGFzc3dvcmQ="
    field = b"Proxy-Authorization"
    for name in (field, field.lower(), field.upper(), field.swapcase()):
        for company in (b"", b"A: b\r\n", b"Connection: keep-alive\r\n"):
            for flags in ({}, {"upgrade": True}):
                head = (b"GET http://a/ HTTP/1.1\r\n" + company + b"Host: a\r\n" + name
                        + b":" + secret + b"\r\n" + company + b"\r\n")
                sent, _ = rewrite_request(head, **flags)
                assert secret not in sent
