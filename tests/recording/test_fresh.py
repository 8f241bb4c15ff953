"""Parts of an answer that are made anew: dates, the end of cookies, identifiers."""

import gzip
import json
import re
from datetime import UTC, datetime

import pytest

from cutthrough.recording.model.fresh import make_id, move, refresh
from cutthrough.recording.model.recording import Chunk, Recording, Request, Response

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ASKED = Request(method="GET", scheme="http", host="a.example", port=80, path="/")


def made(*fields, chunks=(), created_us=0):
    return Recording(request=ASKED, created_us=created_us, response=Response(
        status=200, fields=fields, chunks=tuple(
            Chunk(at_us, data) for at_us, data in chunks)))


def test_dates_move_by_the_time_since_the_answers_own():
    one = refresh(made(("Date", "Sat, 01 Mar 2025 12:00:00 GMT"),
                       ("Expires", "Sat, 01 Mar 2025 13:00:00 GMT"),
                       ("Last-Modified", "Fri, 28 Feb 2025 12:00:00 GMT"),
                       ("Retry-After", "120"), ("X-Date", "Sat, 01 Mar 2025 12:00:00"),
                       ), ("dates",), (), NOW)
    assert one.response.fields == (
        ("Date", "Sun, 01 Mar 2026 12:00:00 GMT"),
        ("Expires", "Sun, 01 Mar 2026 13:00:00 GMT"),
        ("Last-Modified", "Sat, 28 Feb 2026 12:00:00 GMT"), ("Retry-After", "120"),
        ("X-Date", "Sat, 01 Mar 2025 12:00:00"))


def test_without_a_date_the_time_of_the_recording_counts():
    at = datetime(2026, 3, 1, 11, 0, 0, tzinfo=UTC)
    one = refresh(made(("Expires", "Sun, 01 Mar 2026 11:30:00 GMT"),
                       created_us=int(at.timestamp() * 1e6)), ("dates",), (), NOW)
    assert one.response.field("expires") == "Sun, 01 Mar 2026 12:30:00 GMT"


def test_cookies_expire_as_much_later():
    one = refresh(made(
        ("Date", "Sat, 01 Mar 2025 12:00:00 GMT"),
        ("Set-Cookie", "a=b; Expires=Sat, 01-Mar-2025 12:10:00 GMT; Path=/"),
        ("Set-Cookie", "c=expires=5; Max-Age=60")), ("cookies",), (), NOW)
    assert [value for name, value in one.response.fields] == [
        "Sat, 01 Mar 2025 12:00:00 GMT",
        "a=b; Expires=Sun, 01 Mar 2026 12:10:00 GMT; Path=/", "c=expires=5; Max-Age=60"]


@pytest.mark.parametrize("text", ["0", "-1", "", "never", "Sat, 99 Foo 2025 12:00:00",
                                  "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_what_is_no_date_or_has_no_later_one_stays(text):
    assert move(text, NOW - datetime(2025, 1, 1, tzinfo=UTC)) == text


@pytest.mark.parametrize("old", [
    "9f8b1e9c-1d2e-4f6a-8b3c-0a1b2c3d4e5f", "req_011CQabcDEF", "8f3a99c0de", "1234567",
    "chatcmpl-AbC123xyz", "ABCDEF0123"])
def test_a_new_identifier_has_the_form_of_the_old_one(old):
    new = make_id(old)
    assert new != old and len(new) == len(old)

    def shape(text):
        return re.sub(r"[0-9a-f]", "h", text.lower()) if set(
            text.lower().replace("-", "")) <= set("0123456789abcdef") else re.sub(
            r"[A-Z]", "A", re.sub(r"[a-z]", "a", re.sub(r"[0-9]", "0", text)))

    assert shape(new) == shape(old)
    prefix = re.match(r"[A-Za-z]+[-_]", old)
    if prefix:
        assert new.startswith(prefix[0])


def test_equal_identifiers_stay_equal_and_pieces_keep_their_sizes_and_times():
    events = [b'data: {"id": "chatcmpl-8f3a77", "n": 1}\n\n',
              b'data: {"id": "chatcmpl-8f3a77", "n": 2}\n\ndata: [DO', b"NE]\n\n"]
    one = refresh(made(
        ("Content-Type", "text/event-stream"), ("X-Request-Id", "req_8f3a77"),
        ("Location", "/chatcmpl-8f3a77"), ("Repr-Digest", "sha-256=:x:"),
        chunks=list(enumerate(events))),
        (), ("x-request-id", "$.id"), NOW).response
    assert [(chunk.at_us, len(chunk.data)) for chunk in one.chunks] == [
        (at, len(data)) for at, data in enumerate(events)]
    found = re.findall(rb'"id": "([^"]+)"', one.body)
    assert len(set(found)) == 1 and found[0] != b"chatcmpl-8f3a77"
    assert one.field("location") == f"/{found[0].decode()}"
    assert one.field("x-request-id").startswith("req_")
    assert one.field("x-request-id") != "req_8f3a77"
    assert one.body.endswith(b"data: [DONE]\n\n")
    assert not one.field("repr-digest"), "a client would refuse the body"


def test_a_compressed_body_is_read_and_goes_without_its_coding():
    body = gzip.compress(
        b'{"items": [{"id": 1234567890}, {"id": 5}], "x": "1234567890"}')
    one = refresh(made(
        ("Content-Type", "application/json"), ("Content-Encoding", "gzip"),
        ("Content-Length", str(len(body))), chunks=[(7, body)]),
        (), ("$.items[*].id",), NOW).response
    document = json.loads(one.body)
    assert document["items"][1]["id"] == 5
    assert document["items"][0]["id"] != 1234567890
    assert document["x"] == str(document["items"][0]["id"])
    assert not one.field("content-encoding")
    assert one.field("content-length") == str(len(one.body))


@pytest.mark.parametrize(("coding", "body"), [
    ("", b"no json"), ("gzip", b"no gzip"), ("unknown", b"x"), ("", b""),
    ("", b'{"id": null}'), ("", b'{"id": {"id": "12345678"}}')])
def test_a_body_without_such_an_identifier_stays(coding, body):
    one = made(("Content-Encoding", coding), chunks=[(1, body)] if body else ())
    assert refresh(one, (), ("$.id",), NOW) == one
