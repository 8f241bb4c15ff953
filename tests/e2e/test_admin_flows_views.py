"""The proxy's forms of captured exchanges: commands, differences, views."""

import json

import pytest

from tests.capture.flows import row
from tests.support.client import PASSWORD, USER
from tests.support.flows import database as database
from tests.support.flows import fill, get, listed, reads
from tests.support.flows import filled as filled
from tests.support.flows import start as start
from tests.support.origin import answer

pytestmark = pytest.mark.any_loop


def test_a_request_is_copied_and_two_are_compared(filled):
    _, operator = filled
    _, fields, text = get(operator, "/flows/4/as/curl")
    assert b"'http://h0.test/4'" in text and "Content-Security-Policy" in fields
    for path, found in (("as/wget", 404), ("as/json", 200), ("diff/5", 200),
                        ("diff/99", 404)):
        assert get(operator, f"/flows/4/{path}")[0] == found, path


def head(kind):
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n"


def test_a_body_is_shown_as_text_for_a_person(filled, database):
    """`cutthrough flows show` prints the same; a browser that opens it runs nothing."""
    _, operator = filled
    frame = b"\0\0\0\0\2\x08\x05"
    fill(database, [
        row(20, response_head=head("application/grpc"), response_body=frame),
        row(21, response_head=head("text/html"),
            response_body="<p>a<script>b</script><i>c"),
        row(22, response_body="[" * 100_000)])
    shown = json.loads(get(operator, "/flows/11")[2])
    assert shown["response_views"] == ["grpc", "hex", "protobuf", "msgpack"]
    assert "request_views" not in shown
    shown = json.loads(get(operator, "/flows/12")[2])
    assert shown["response_views"] == ["html", "text", "json", "hex", "preview"]
    status, fields, text = get(operator, "/flows/11/response-body?view=auto")
    assert (status, text) == (200, b"frame 1: 2 bytes\n1: 5\n")
    assert fields["Content-Type"] == "text/plain; charset=utf-8"
    assert fields["Content-Security-Policy"].startswith("sandbox;")
    assert get(operator, "/flows/12/response-body?view=html")[2] == (
        b"<p>a\n  <script>b</script>\n  <i>c\n")
    _, fields, text = get(operator, "/flows/12/response-body?view=preview")
    assert text.endswith(b"<p>a<i>c</body></html>")
    assert fields["Content-Type"] == "application/octet-stream"
    text = get(operator, "/flows/13/response-body?view=json")[2]
    assert len(text) < 5_000_000 and text.endswith(b"(more is not shown)\n")
    for path, status in (("11/response-body?view=odd", 400), ("11/response-body", 200),
                         ("99/response-body?view=auto", 404)):
        assert get(operator, f"/flows/{path}")[0] == status, path
    assert ("127.0.0.1", "response", "11", 1) in reads(database)


def test_messages_are_shown_too(filled, database):
    _, operator = filled
    found = [{"at_us": 1, "side": "request", "kind": "text", "bytes": 2, "text": text}
             for text in ('{"a":10000000000000000001}', "plain")]
    fill(database, [row(20, kind="tunnel", status=101, messages=json.dumps(found))])
    assert json.loads(get(operator, "/flows/11/messages?view=json")[2]) == [
        found[0] | {"shown": '{\n  "a": 10000000000000000001\n}'}, found[1]]
    assert json.loads(get(operator, "/flows/11/messages")[2]) == found


def test_the_answer_of_a_request_that_is_sent_is_shown(start, make_origin):
    _, operator = start()
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n"
        b"<b><i>"))
    request = json.dumps({"url": origin.url("/a"), "user": USER, "password": PASSWORD})
    found = json.loads(get(operator, "/flows/send?view=auto", "POST", request)[2])
    assert (found["views"][0], found["shown"]) == ("html", "<b>\n  <i>")
    assert "shown" not in json.loads(get(operator, "/flows/send", "POST", request)[2])


def test_a_row_has_what_completes_a_filter(filled, database):
    _, operator = filled
    fill(database, [row(11, client="2001:db8::1", peer="2001:db8::2", peer_port=443,
                        sni="in.test", ja4="t13d_a_b"), row(12, peer=None)])
    bare, one = listed(operator, "limit=2")["flows"]
    assert (one["client"], one["peer"]) == ("2001:db8::1", "[2001:db8::2]:443")
    assert (one["sni"], one["ja4"]) == ("in.test", "t13d_a_b")
    assert not {"peer", "sni", "ja4"} & {*bare}
