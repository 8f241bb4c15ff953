"""A request as a command or a call: what runs it gets the same bytes."""

import json
import re
import subprocess

import msgspec
import pytest

from cutthrough.capture.copies import FORMS, MOST_LINES, copy_as, differences
from cutthrough.capture.query import Request
from cutthrough.capture.send import check
from tests.capture.flows import flow

HEAD = ("POST /a HTTP/1.1\r\nHost: a.test\r\nX-Odd: it's \"$(id)\" `id` \\\r\n"
        "X-Empty:\r\nCookie: [redacted]\r\nContent-Length: 3\r\n\r\n")
BODIES = ("it's\n$(id) \\ \N{SNOWMAN}", b"\0\xff'\"\\")


@pytest.mark.parametrize("body", BODIES)
def test_a_shell_gives_curl_the_same_request(body):
    """printf in place of curl prints the words that it would get."""
    text = copy_as(flow(method="POST", request_head=HEAD, request_body=body), "curl")
    assert text.startswith("# not kept: Cookie\n")
    done = subprocess.run(
        ["bash", "-c", "curl() { printf '%s\\0' \"$@\"; printf '|'; "
         "[[ $* == *@-* ]] && cat; :; }\n" + text], capture_output=True, check=True)
    words, _, piped = done.stdout.partition(b"\0|")
    found = words.split(b"\0")
    assert found[2] == b"http://a.test/a?b=c%20d"
    assert b"X-Odd: it's \"$(id)\" `id` \\" in found and b"X-Empty;" in found
    assert b"Content-Type:" in found         # curl would send its own
    if isinstance(body, str):
        assert found[-2:] == [b"--data-raw", body.encode()]
    else:
        assert found[-2:] == [b"--data-binary", b"@-"] and piped == body


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
    text = copy_as(flow(method="POST", request_head=HEAD, request_body=BODIES[0]),
                   "fetch")
    assert text.startswith("// not kept: Cookie\nawait fetch(\"http://a.test/")
    body = re.search(r"  body: (.*),\n", text)[1]
    assert json.loads(body) == BODIES[0]
    fields = re.search(r"  headers: (.*),\n", text)[1]
    assert ["X-Empty", ""] in json.loads(fields)


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
