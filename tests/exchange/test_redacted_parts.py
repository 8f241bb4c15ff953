"""Multipart bodies without secrets, in each other and with any fields (R63, R79,
R100)."""

import time
from typing import Any

import pytest

from cutthrough.exchange.redaction.redactor import MOST_LEVELS, Unreadable
from tests.support.memory import peak_of
from tests.support.redaction import redactor

FORM = "multipart/form-data; boundary=b"
MIB = 1 << 20


def nest(inner: bytes, kind: str, levels: int) -> tuple[bytes, str]:
    """A body in so many multipart bodies, and the type of the last of these."""
    for level in range(levels):
        inner = b"--B%dZ\r\nContent-Type: %s\r\n\r\n%s\r\n--B%dZ--\r\n" % (
            level, kind.encode(), inner, level)
        kind = f"Multipart/mixed; boundary=B{level}Z"
    return inner, kind


@pytest.mark.parametrize("levels", [1, 2, MOST_LEVELS])
def test_a_few_levels_of_parts_are_read(levels: int) -> None:
    """R79."""
    data, kind = nest(b"a=1&token=s3cret&b=2", "text/plain", levels)
    made = redactor(query=("token",)).content(data, kind)
    assert made == data.replace(b"s3cret", b"[redacted]")
    assert redactor(query=("token",)).body(data.decode(), kind, True) == made.decode()


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 50, 600, 2000])
def test_parts_of_more_levels_go_as_a_whole(levels: int) -> None:
    """R63, R79. 600 levels were more than Python's, and cost the row."""
    data, kind = nest(b"a=1&token=s3cret", "text/plain", levels)
    made = redactor(query=("token",)).content(data, kind)
    assert b"s3cret" not in made and len(made) < 500
    assert made.count(b"[redacted]") == 1
    assert redactor(query=("token",)).body(data.decode(), kind, True) == made.decode()


def test_nested_parts_take_little_memory() -> None:
    """R63. 200 levels of 4 MiB took the writer of captures to 839 MiB."""
    data, kind = nest(b"x" * MIB, "text/plain", 200)
    made = redactor(query=("token",))
    assert peak_of(lambda: made.content(data, kind)) < 12 * MIB


@pytest.mark.parametrize("field", [
    'form-data; filename="; name=x"; name="token"', "form-data; name=token; name=a",
    'form-data; name="a"; Name="token"', 'form-data; name="a"; name*=UTF-8\'\'token',
    'form-data; filename="a\\"; name=x"; name="%74oken[]"', 'form-data; name="Token"',
    'form-data;\r\n name="token"', r'form-data; name="to\ken"',
    'form-data name="token"', "form-data; name='token'",
    'form-data; name*0="tok"; name*1=en',
    "form-data; name*0*=UTF-8''tok; name*1*=%65n"])
def test_each_name_of_a_part_counts(field: str) -> None:
    """R79. A file's name may have what looks as one."""
    data = f"--b\r\nContent-Disposition: {field}\r\n\r\ns3cret\r\n--b--".encode()
    made = redactor(query=("token",)).content(data, FORM)
    assert made == data.replace(b"s3cret", b"[redacted]")


@pytest.mark.parametrize("value", [
    b'form-data; name="' + b"a" * MIB,
    b'form-data; name="' + b"\\a" * (MIB // 2) + b'"',
    b'form-data; name="' + b"%" * MIB + b'"', b";" * MIB, b"; name=" * (MIB // 7)])
def test_a_long_field_of_a_part_is_not_read(value: bytes) -> None:
    """R63."""
    data = b"--b\r\nContent-Disposition: %s\r\n\r\ns3cret\r\n--b--" % value
    made = redactor(query=("token",))

    def read() -> None:
        with pytest.raises(Unreadable):
            made.content(data, FORM)
    assert peak_of(read) < 4 * MIB


MESSAGE = ("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCookie: a\r\n{field}\r\n{body}")


@pytest.mark.parametrize("kind", ["multipart/mixed; boundary=b", "multipart/related",
                                  "application/http; version=1.1", "message/http"])
@pytest.mark.parametrize("options", [{}, {"json": ("$..password",)}])
def test_credentials_of_messages_go_without_being_asked(
        kind: str, options: dict[str, Any]) -> None:
    """R59. A body was looked at only if keys, paths or expressions were configured."""
    begin = "--b\r\nContent-Type: application/http\r\n\r\n" if "b" in kind[10:] else ""
    end = "\r\n--b--\r\n" if begin else ""
    data = (f"{begin}POST /a HTTP/1.1\r\nauthorization : Bearer s3cret\r\n"
            "X-Own: s3cret\r\nCookie: a=s3cret;\r\n b=s3cret\r\nX: \xe9\r\n\r\n"
            f"plain{end}").encode("latin-1")
    made = redactor(fields=("x-own",), **options)
    made.heard = []
    try:
        kept = made.content(data, kind)
    except Unreadable:                       # multipart without a boundary
        assert options
        return
    assert b"s3cret" not in kept and b"X: \xe9\r\n\r\nplain" in kept
    assert {"Bearer s3cret", "s3cret"} <= {*made.heard}
    assert redactor(credentials=True).content(data, kind) == data


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b", "text/plain",
                                  "message/rfc822", "application/json"])
def test_lines_of_other_bodies_stay(kind: str) -> None:
    data = b"--b\r\n\r\nCookie: a=s3cret\r\n--b--\r\n"
    assert redactor().content(data, kind) == data


@pytest.mark.parametrize(("kind", "field", "body"), [
    ("application/json", "", '{"token": "s3cret"}'),
    ("text/plain", "", "a?token=s3cret"), ("", "", '{"a": {"token": "s3cret"}}'),
    ("text/plain", "Location: /?token=s3cret\r\n", "a"),
    ("application/json", "", '{"token": "s3cret'), ("image/png", "", "\0 s3cret"),
    ("text/plain", "Content-Encoding: gzip\r\n", "s3cret"),
    ("text/plain", "Content-Transfer-Encoding: base64\r\n", "s3cret"),
    ("multipart/a; boundary=c", "", '--c\r\n\r\n{"token": "s3cret"}\r\n--c--'),
    ("message/http", "", 'A: b\r\nC: d\r\n\r\n{"token": "s3cret"}')])
@pytest.mark.parametrize("outer", ["application/http", "Message/rfc822; a=b"])
def test_messages_in_parts_are_read_as_messages(
        kind: str, field: str, body: str, outer: str) -> None:
    """R79. A batch of requests has them, with heads."""
    message = MESSAGE.format(kind=kind, field=field, body=body)
    kept = redactor(query=("token",), json=("$..token",))
    part = f"--b\r\nContent-Type: {outer}\r\n\r\n{message}\r\n--b--"
    for text, whole in (message, outer), (part, "multipart/mixed; boundary=b"):
        made = kept.content(text.encode(), whole)
        assert b"s3cret" not in made and b"Cookie: [redacted]\r\n" in made
        assert b"HTTP/1.1 200 OK\r\nContent-Type: " in made


def test_messages_in_each_other_are_bounded() -> None:
    """R63."""
    kept = redactor(query=("token",))
    data = b"Content-Type: message/http\r\n\r\n" * 2000 + b"token=s3cret"
    assert b"s3cret" not in kept.content(data, "message/http")
    with pytest.raises(Unreadable):
        kept.content(b"no head", "application/http")


def test_half_a_character_in_a_head_is_no_error() -> None:
    for options in {}, {"query": ("token",)}:
        made = redactor(**options).head("GET / HTTP/1.1\r\nCookie: \ud800\r\nA: \udcff")
        assert made == "GET / HTTP/1.1\r\nCookie: [redacted]\r\nA: ?"


@pytest.mark.parametrize("field", [
    "Authorization: Bearer s3cret", "X-Secret : s3cret", "Cookie: a=1;\r\n b=s3cret",
    "Content-Location: https://a.test/?token=s3cret", "X: https://bob:s3cret@a.test/",
    'Content-Disposition: form-data; name=a; filename="https://a.test/?token=s3cret"'])
def test_fields_of_a_part_are_those_of_a_head(field: str) -> None:
    """R79. They stayed as they were."""
    data = f"--b\r\n{field}\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--".encode()
    made = redactor(query=("token",), fields=("x-secret",)).content(data, FORM)
    assert b"s3cret" not in made and b"[redacted]" in made
    assert made.endswith(b"\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--")


def test_all_parts_of_a_body_have_one_bound() -> None:
    """R63. A thousand on each level took 4 MiB seconds of the writer."""
    inner = b"--c\n\n\n" * 600 + b"--c--"
    part = b"--b\nContent-Type: multipart/mixed; boundary=c\n\n%s\n" % inner
    made = redactor(query=("token",)).content(part * 3 + b"--b--", FORM)
    assert made == part + 2 * (part[:-len(inner) - 1] + b"[redacted]\n") + b"--b--"


def test_a_field_of_many_lines_is_not_read() -> None:
    """R63. Each line copied those before it."""
    data = b"--b\nX: a\n" + b" b\n" * 200 + b"\ny\n--b--"
    with pytest.raises(Unreadable):
        redactor(query=("token",)).content(data, FORM)


@pytest.mark.parametrize("between", [b"", b"\r\n", b"\n\n\n"])
@pytest.mark.parametrize("first", [
    b"GET /?token=s3cret HTTP/1.1\r\n\r\n", b"HTTP/1.1 204 No\r\nX-Own: s3cret\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 14\r\n\r\na=token=s3cret"])
def test_messages_behind_each_other_are_read(first: bytes, between: bytes) -> None:
    """R79. A body of application/http may have several (RFC 9112 section 10.2)."""
    other = b"PUT /x HTTP/1.1\r\nAuthorization: Bearer s3cret\r\n\r\nsome text"
    made = redactor(query=("token",), fields=("x-own",)).content(
        first + between + first + between + other, "application/http")
    assert b"s3cret" not in made and made.count(b"[redacted]") == 3
    assert made.endswith(b"\r\n\r\nsome text")


def test_messages_behind_each_other_are_bounded() -> None:
    """R63."""
    kept = redactor(query=("token",))
    for piece in (b"GET / HTTP/1.1\r\n\r\n", b"\r\n", b"\n", b"A B HTTP/1\n\nx"):
        data = piece * (MIB // len(piece)) + b"GET / HTTP/1.1\r\n\r\n"
        begin = time.process_time()
        kept.content(data, "application/http")
        assert time.process_time() - begin < 3
