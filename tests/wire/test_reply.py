"""Replies of the proxy's own: constants with the required content."""

from email.parser import BytesHeaderParser
from http import HTTPStatus

import pytest

from cutthrough.outcome import TABLE
from tests.doors.wire import read_framing, read_response, render

WITH_REPLY = [row for row in TABLE if row.status]
WITHOUT = [row for row in TABLE if not row.status]
GET, HEAD = 1, 2


def each(rows):
    named = [pytest.param(row, id=row.label) for row in rows]
    return pytest.mark.parametrize("row", named)


def fields_of(reply: bytes):
    return BytesHeaderParser().parsebytes(reply.split(b"\r\n", 1)[1])


@each(WITHOUT)
def test_outcome_without_status_has_no_reply(row) -> None:
    assert render(row.label) == b""


@each(WITH_REPLY)
def test_reply_is_a_response_that_our_own_parser_reads(row) -> None:
    reply = render(row.label)
    head = read_response(reply)
    assert (head["status"], head["minor"]) == (row.status, 1)
    phrase = {413: "Content Too Large", 414: "URI Too Long"}.get(
        row.status, HTTPStatus(row.status).phrase)     # RFC 9110's, not this Python's
    assert head["reason"].decode() == phrase
    content = reply[head["length"]:]
    kind = "length" if content else "none"
    assert read_framing(reply, GET) == (kind, len(content), False)
    if row.status == 200:
        assert content == b""
        return
    assert content.startswith(f"{row.status} {row.label}: {row.meaning}".encode())
    assert content.count(b"\n") == 1
    assert content.endswith(b"\n")


@each(WITH_REPLY)
def test_reply_without_body_keeps_its_length(row) -> None:
    # RFC 9110 section 9.3.2: HEAD is answered with the fields of GET.
    whole, head = render(row.label), render(row.label, body=False)
    assert whole.startswith(head)
    assert head.endswith(b"\r\n\r\n")
    assert read_framing(head, HEAD) == ("none", 0, False)


@each(WITH_REPLY)
def test_reply_says_close_only_when_it_closes(row) -> None:
    assert fields_of(render(row.label, close=True))["Connection"] == "close"
    assert fields_of(render(row.label, close=False))["Connection"] is None
    assert read_framing(render(row.label, close=False), GET)[2]


@each(WITH_REPLY)
def test_details_are_for_known_users(row) -> None:
    # RFC 9209 section 2.1.5.
    status = fields_of(render(row.label))["Proxy-Status"]
    assert status == f"cutthrough; error={row.token}"
    told = fields_of(render(row.label, known_user=True))["Proxy-Status"]
    assert told == f'{status}; details="{row.label}"'


@each(WITH_REPLY)
def test_challenge_stands_in_407_and_retry_after_in_503_and_429(row) -> None:
    fields = fields_of(render(row.label))
    challenge = 'Basic realm="cutthrough", charset="UTF-8"'
    assert fields["Proxy-Authenticate"] == (challenge if row.status == 407 else None)
    assert fields["Retry-After"] == ("1" if row.status in (429, 503) else None)
    assert fields["Cache-Control"] == "no-store"


@each(WITH_REPLY)
def test_allow_stands_where_it_must_and_never_names_trace(row) -> None:
    # RFC 9110 sections 9.3.7 and 15.5.6.
    allow = fields_of(render(row.label))["Allow"]
    assert (allow is not None) is (row.status in (200, 405))
    assert "TRACE" not in (allow or "")


@each(WITH_REPLY)
def test_no_reply_says_what_a_proxy_must_not(row) -> None:
    # RFC 9110 sections 12.5.5 and 15.5.20.
    # Inside an interception the proxy answers in the origin's place (R56).
    assert row.status != 421 or row.label == "misdirected"
    assert fields_of(render(row.label))["Vary"] is None


def test_reply_for_a_label_that_is_none_is_an_error() -> None:
    with pytest.raises(KeyError):
        render("no_such_outcome")


@pytest.mark.parametrize("seconds", [1, 9, 10, 86400, 4294967295])
@each([row for row in WITH_REPLY if row.status in (429, 503)])
def test_retry_after_can_say_another_time(row, seconds: int) -> None:
    told = render(row.label, known_user=True, retry_s=seconds)
    head, mark, rest = render(row.label, known_user=True).partition(b"Retry-After: ")
    assert told == head + mark + b"%d" % seconds + rest.lstrip(b"0123456789")


@each([row for row in WITH_REPLY if row.status not in (429, 503)])
def test_nothing_else_says_when_to_come_again(row) -> None:
    assert render(row.label, retry_s=7) == render(row.label)
