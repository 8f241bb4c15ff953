"""The head for a server of a named origin: Host, and the forwarded fields (R95)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doors.wire import read_request, rewrite_request
from tests.doors.wire_parents import origin_head

DROPPED, X, ELEMENT = 1, 2, 4
HEAD = (b"GET /a HTTP/1.1\r\nHost: api.local\r\nX-Forwarded-For: 6.6.6.6\r\nA: 1\r\n"
        b"x-forwarded-for:  7.7.7.7 \r\nX-REAL-IP: 6.6.6.6\r\n"
        b"Forwarded: for=6.6.6.6\r\nX-Forwarded-Proto: ftp\r\nVia: 1.1 p\r\n\r\n")
PLAIN = b"GET /a HTTP/1.1\r\nHost: api.local\r\nA: 1\r\nVia: 1.1 p\r\n"


def test_without_a_wish_the_head_stays() -> None:
    assert origin_head(HEAD) == HEAD


def test_host_is_replaced_in_its_place() -> None:
    assert origin_head(HEAD, host=b"b:8000") == HEAD.replace(b"api.local", b"b:8000")


def test_what_a_client_says_of_itself_is_dropped() -> None:
    assert origin_head(HEAD, forwarded=DROPPED) == PLAIN + b"\r\n"


@pytest.mark.parametrize(("client", "is_tls", "fields"), [
    (b"192.0.2.7", False, b"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: api.local"
     b"\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 80\r\nForwarded: "
     b"for=192.0.2.7;host=\"api.local\";"
     b"proto=http\r\n\r\n"),
    (b"2001:db8::1", True, b"X-Forwarded-For: 2001:db8::1\r\nX-Forwarded-Host: "
     b"api.local\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\n"
     b"Forwarded: for=\"[2001:db8::1]\";"
     b"host=\"api.local\";proto=https\r\n\r\n"),
    (b"", False, b"X-Forwarded-For: unknown\r\nX-Forwarded-Host: api.local\r\n"
     b"X-Forwarded-Proto: http\r\nX-Forwarded-Port: 80\r\n"
     b"Forwarded: for=unknown;host=\"api.local\";"
     b"proto=http\r\n\r\n")])
def test_ours_are_written_in_their_place(client, is_tls, fields) -> None:
    got = origin_head(HEAD, forwarded=DROPPED | X | ELEMENT, client=client,
                      is_tls=is_tls)
    assert got == PLAIN + fields
    assert origin_head(HEAD, host=b"b", forwarded=DROPPED | X | ELEMENT, client=client,
                       is_tls=is_tls) == got.replace(b"Host: api.local", b"Host: b", 1)


def test_a_trusted_senders_are_continued_in_one_line() -> None:
    got = origin_head(HEAD, forwarded=DROPPED | X | ELEMENT, is_trusted=True,
                      client=b"192.0.2.7")
    assert got == PLAIN + (
        b"X-Forwarded-For: 6.6.6.6, 7.7.7.7, 192.0.2.7\r\nX-Forwarded-Host: api.local"
        b"\r\nX-Forwarded-Proto: ftp\r\nX-Forwarded-Port: 80\r\n"
        b"Forwarded: for=6.6.6.6, for=192.0.2.7;"
        b"host=\"api.local\";proto=http\r\n\r\n")


NAMES = st.sampled_from((
    "X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Proto", "Forwarded",
    "X-Real-IP", "X-Forwarded-", "X-Forwarded", "ForwardedX", "Host2", "A"))
VALUES = st.sampled_from(("", "a", "1.2.3.4, 5.6.7.8", "x" * 300, 'for="[::1]"', ","))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=40), st.integers(0, 7),
       st.booleans(), st.sampled_from((None, b"b", b"x" * 250 + b":65535")),
       st.integers(0, 14000))
def test_a_head_is_whole_or_has_no_room(fields, forwarded, is_trusted, host,
                                        cap) -> None:
    head, _ = rewrite_request(("GET / HTTP/1.1\r\nHost: api.local\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in fields) + "\r\n").encode())
    got = origin_head(head, host, forwarded | bool(forwarded), is_trusted,
                      b"2001:db8::1", True, cap)
    assert len(got) <= cap
    if not got:
        return
    before, read = read_request(head), read_request(got)
    assert read["length"] == len(got)
    said = [field[0].lower() for field in read["fields"]]
    assert said.count(b"host") == 1
    kept = [one for one in before["fields"] if not one[0].lower().startswith((
        b"x-forwarded-", b"forwarded", b"x-real-ip")) or one[0] == b"ForwardedX"]
    assert [one[:2] for one in kept if one[0] != b"Host"] == [
        one[:2] for one in read["fields"] if one[0] != b"Host" and (
            not one[0].startswith((b"X-Forwarded-", b"Forwarded")) or
            one[0] == b"ForwardedX")] or not forwarded
    if forwarded & X:
        assert said.count(b"x-forwarded-for") == said.count(b"x-forwarded-proto") == 1


@pytest.mark.parametrize(("host", "is_tls", "port"), [
    (b"a", False, b"80"), (b"a", True, b"443"), (b"a:8080", False, b"8080"),
    (b"a:80", True, b"80"), (b"[::1]", False, b"80"), (b"[::1]:9", True, b"9"),
    (b"1.2.3.4", False, b"80")])
def test_the_port_is_that_of_host_or_of_the_scheme(host, is_tls, port) -> None:
    got = origin_head(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n",
                      forwarded=DROPPED | X, is_tls=is_tls)
    assert b"\r\nX-Forwarded-Port: " + port + b"\r\n" in got


@pytest.mark.parametrize(("path", "replaced", "prefix", "sent"), [
    (b"/api/x", 4, b"", b"/x"), (b"/api", 4, b"", b"/"), (b"/api?q", 4, b"", b"/?q"),
    (b"/api", 4, b"/v2", b"/v2"), (b"/x", 0, b"/v2", b"/v2/x"),
    (b"/x", 0, b"", b"/x")])
def test_a_prefix_is_replaced(path, replaced, prefix, sent) -> None:
    head = b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    assert origin_head(head, prefix=prefix, replaced=replaced) == head.replace(
        path, sent, 1)
    assert origin_head(head, prefix=prefix, replaced=replaced, cap=30) == b""
