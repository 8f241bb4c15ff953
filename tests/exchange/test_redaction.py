"""Secrets are left out before anything is written (R59)."""

import pytest

from cutthrough.exchange.redaction.redactor import REDACTED
from tests.support.redaction import redactor

HEAD = ("GET /a?b=1&Token=s3cret&c=2 HTTP/1.1\r\nHost: a\r\n"
        "authorization: Bearer s3cret\r\nCookie: a=s3cret\r\nX-Key: s3cret\r\n"
        "Referer: http://a/?to%6ben=s3cret\r\n\r\n")


def test_credentials_go_without_being_asked():
    head = redactor().head("HTTP/1.1 200 OK\r\nSet-Cookie: a=s3cret; Path=/\r\n"
                           "Proxy-Authorization: Basic s3cret\r\nServer: x\r\n\r\n")
    assert head == (f"HTTP/1.1 200 OK\r\nSet-Cookie: {REDACTED}\r\n"
                    f"Proxy-Authorization: {REDACTED}\r\nServer: x\r\n\r\n")


def test_fields_and_keys_go_wherever_they_are():
    head = redactor(fields=("x-key",), query=("token",)).head(HEAD)
    assert "s3cret" not in head
    assert "GET /a?b=1&Token=[redacted]&c=2 HTTP/1.1\r\n" in head
    assert head.count("\r\n") == HEAD.count("\r\n")


def test_credentials_stay_if_they_are_configured_to():
    kept = redactor(credentials=True)
    assert kept.head(HEAD) == HEAD
    assert "Bearer s3cret" in redactor(credentials=True, fields=("cookie",)).head(HEAD)


def test_no_field_but_the_named_one_goes():
    text = "GET / HTTP/1.1\r\nX-Cookie: a\r\nCookies: b\r\nA: Cookie: c\r\n\r\n"
    assert redactor().head(text) == text


@pytest.mark.parametrize(("path", "gone", "left"), [
    ("password", "s1", "s2 s3 s4"),
    ("$.user.token", "s2", "s1 s3 s4"),
    ("items.*.key", "s3 s4", "s1 s2"),
    ("items.1.key", "s4", "s1 s2 s3"),
    ("$..key", "s3 s4", "s1 s2"),
    ("..token", "s2", "s1 s3 s4"),
])
def test_values_of_json_go_by_their_path(path, gone, left):
    text = ('{"password": "s1", "user": {"token": "s2"}, '
            '"items": [{"key": "s3"}, {"key": "s4"}]}')
    kept = redactor(json=(path,)).body(text, "application/json", True)
    assert not any(word in kept for word in gone.split())
    assert all(word in kept for word in left.split())


def test_json_without_such_a_value_stays_as_it_is():
    text = '{ "a" :1.50}'
    assert redactor(json=("b",)).body(text, "application/json", True) == text


@pytest.mark.parametrize(("text", "kind", "whole"), [
    ('{"password": "s3', "application/json", False),
    ('{"password": "s3cret"', "application/json", True),
    ('{"password": "s3cret"', "text/plain", True),
    ("[" * 100_000, "", True),
])
def test_json_that_cannot_be_read_goes_as_a_whole(text, kind, whole):
    assert redactor(json=("password",)).body(text, kind, whole) is None


def test_keys_go_from_forms_and_pages():
    keys = redactor(query=("token",))
    form = "application/x-www-form-urlencoded"
    assert keys.body("a=1&token=s3cret", form, True) == "a=1&token=[redacted]"
    assert keys.body("token=s3cret", form, True) == "token=[redacted]"
    page = keys.body('<a href="/?x=1&amp;token=s3cret">', "text/html", True)
    assert "s3cret" not in page
    assert keys.body("--b\r\ntoken\r\n\r\ns3cret", "multipart/form-data", True) is None
