"""A request as a command or a call: a run of it sends the same bytes."""

import json
import re
import subprocess
from base64 import b64decode

import msgspec
import pytest

from cutthrough.capture.copies import (
    FORMS,
    MOST_LINES,
    as_fetch,
    as_httpx,
    copy_as,
    differences,
)
from cutthrough.capture.query import QueryError, Request
from cutthrough.capture.send import check, check_whole, replay_of
from cutthrough.exchange.bodies import make_content
from cutthrough.exchange.redaction.redactor import Options, Redactor
from tests.capture.flows import flow

HEAD = ("POST /a HTTP/1.1\r\nHost: a.test\r\nX-Odd: it's \"$(id)\" `id` \\\r\n"
        "X-Empty:\r\nCookie: [redacted]\r\nContent-Length: 3\r\n\r\n")
BODIES = ("it's $(id) \\ \N{SNOWMAN}", "it's\n%s $(id) \\ \N{SNOWMAN}\r\n",
          b"\0\xff'\"\\", b"-caf\xe9!!\n\n")
LATIN = "POST / HTTP/1.1\r\nContent-Type: text/plain; charset={}\r\n\r\n"


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("body", [*BODIES, "long\n" * 60_000])
def test_a_shell_gives_curl_the_same_request(body, shell):
    """printf in place of curl prints the words that it would get."""
    text = copy_as(flow(method="POST", request_head=HEAD, request_body=body), "curl")
    assert text.startswith("# not kept: Cookie\n")
    done = subprocess.run(
        [shell], input=("curl() { printf '%s\\0' \"$@\"; printf '|'; "
                        "case \"$*\" in *@-) cat;; esac; }\n" + text).encode(),
        capture_output=True, check=True)
    words, _, piped = done.stdout.partition(b"\0|")
    found = words.split(b"\0")
    assert found[2] == b"http://a.test/a?b=c%20d"
    assert b"X-Odd: it's \"$(id)\" `id` \\" in found and b"X-Empty;" in found
    assert b"Content-Type:" in found         # curl would send its own
    octets = body.encode() if isinstance(body, str) else body
    if body == BODIES[0]:
        assert found[-2:] == [b"--data-raw", octets]
    else:
        assert found[-2:] == [b"--data-binary", b"@-"] and piped == octets


@pytest.mark.parametrize("body", BODIES)
def test_httpx_gets_the_same_request(body):
    text = copy_as(flow(method="POST", request_head=HEAD, request_body=body), "httpx")
    got = {}

    class Client:
        @staticmethod
        def request(method, url, headers, content):
            got.update(method=method, url=url, headers=headers, content=content)

    exec(text.replace("import httpx\n", ""), {"httpx": Client})
    assert got["method"] == "POST" and got["url"] == "http://a.test/a?b=c%20d"
    assert got["headers"] == [(b"X-Odd", b"it's \"$(id)\" `id` \\"), (b"X-Empty", b"")]
    assert got["content"] == (body.encode() if isinstance(body, str) else body)


def test_fetch_gets_the_same_request():
    head = HEAD.replace("X-Empty:", "Content-Type: text/plain\r\nX-Empty:")
    text = copy_as(
        flow(method="POST", request_head=head, request_body=BODIES[0]), "fetch")
    assert text.startswith("// not kept: Cookie\nawait fetch(\"http://a.test/")
    body = re.search(r"  body: (.*),\n", text)[1]
    assert json.loads(body) == BODIES[0]
    fields = re.search(r"  headers: (.*),\n", text)[1]
    assert ["X-Empty", ""] in json.loads(fields)


@pytest.mark.parametrize(("charset", "octets"), [
    ("iso-8859-1", b"caf\xe9"), ("shift_jis", "日本".encode("shift_jis")),
    ("windows-1252", b"\x80 5"), ("gbk", "中文".encode("gbk")),
    ("utf-8", b"\xef\xbb\xbfab"), ("utf-16", "\ufeff日".encode("utf-16-le"))])
def test_a_text_in_any_charset_is_sent_as_it_came(charset, octets):
    """`caf\\xe9` was sent in UTF-8, and its type was ISO-8859-1."""
    head = LATIN.format(charset)
    body = make_content(octets, head, len(octets), whole=True, cut=False,
                        redactor=Redactor(Options()))
    again, left = replay_of(flow(
        method="POST", request_head=head, request_body=body.content))
    assert again.body == octets and left == []
    assert f"content={octets!r}" in as_httpx(again)
    fetched = as_fetch(again)
    assert re.search(r"atob|\\ufeffab", fetched)
    if "atob" in fetched:
        assert b64decode(re.search(r'atob\("(.*)"\)', fetched)[1]) == octets


@pytest.mark.parametrize(("fields", "part"), [
    ({"url": "http://a.test/?token=[redacted]"}, "url"),
    ({"request_body": '{"password": "[redacted]"}'}, "body"),
    ({"request_body": "a=%7B%22password%22%3A%22%5Bredacted%5D%22%7D"}, "body"),
    ({"request_body": b"\xfftoken=[redacted]"}, "body")])
def test_a_stand_in_is_not_sent(fields, part):
    """R93. A replay made a password of it, and said nothing."""
    again, left = replay_of(flow(method="POST", **fields))
    assert left == [f"{part} (a part of it was redacted)"]
    with pytest.raises(QueryError, match=f"{part}: a part of it was redacted"):
        check_whole(left)
    if part == "url":
        with pytest.raises(QueryError, match="url: a part of it was redacted"):
            check(again)


def test_a_field_with_a_stand_in_in_it_is_left_out():
    head = HEAD.replace("\r\n\r\n", "\r\nReferer: http://[redacted]@a/\r\n\r\n")
    again, left = replay_of(flow(request_head=head))
    assert "Referer" in left and not any(name == "Referer" for name, _ in again.fields)
    check_whole(left)


def test_a_text_that_its_charset_does_not_have_is_left_out():
    """Of another program's archive, which has texts and no octets."""
    again, left = replay_of(flow(
        method="POST", request_head=LATIN.format("koi8-r"), request_body="日本"))
    assert again.body == b"" and left == [
        "body (it has characters beyond the charset of its type)"]
    again, left = replay_of(flow(      # as browsers have it
        method="POST", request_head=LATIN.format("latin1"), request_body="\u20ac"))
    assert again.body == b"\x80" and left == []


def test_a_body_whose_coding_was_not_undone_keeps_its_name():
    head = ("POST / HTTP/1.1\r\nContent-Encoding: odd\r\n"
            "Content-Type: text/plain\r\n\r\n")
    again, left = replay_of(flow(method="POST", request_head=head, request_body=b"\1",
                                 request_body_state="encoded"))
    assert ("Content-Encoding", "odd") in again.fields and left == []


def test_fetch_has_no_body_with_a_get():
    head = HEAD.replace("POST", "GET")
    with pytest.raises(QueryError, match="fetch sends no body with GET"):
        copy_as(flow(request_head=head, request_body="x"), "fetch")


@pytest.mark.parametrize("form", FORMS)
def test_a_get_has_no_body(form):
    text = copy_as(flow(), form).replace('"body":""', "")
    assert "data" not in text and "body" not in text and "content" not in text


@pytest.mark.parametrize("body", BODIES)
def test_json_is_a_request_that_can_be_sent_again(body):
    found = json.loads(copy_as(
        flow(method="POST", request_head=HEAD, request_body=body), "json"))
    assert found["left"] == ["Cookie"]
    request = msgspec.convert(found["request"], Request)
    check(request)
    assert request.body == (body.encode() if isinstance(body, str) else body)
    assert (request.method, request.url) == ("POST", "http://a.test/a?b=c%20d")
    assert ("X-Empty", "") in request.fields


def test_long_bodies_are_not_aligned():
    one = flow(response_body="a\n" * (MOST_LINES + 1))
    other = flow(2, response_body="b\n" * (MOST_LINES + 1))
    assert list(differences(one, other))[2:] == [
        f"(more than {MOST_LINES} lines, and not the same)"]
    assert list(differences(one, one)) == []
