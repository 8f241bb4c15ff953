"""One odd value of an entry does not cost the entry: the sound values come in."""

import base64
import io
import json

import msgspec
import pytest

from cutthrough.capture.importing import import_file
from cutthrough.exchange.formats.dump_reader import read_dump
from cutthrough.exchange.formats.imported import (
    Altered,
    NotImported,
    OtherProtocol,
    make_redactor,
)
from cutthrough.recording.formats.exchanges import read_exchanges
from cutthrough.recording.formats.vcr import read_cassette
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match, Miss
from tests.capture.dumps import dump, state
from tests.capture.dumps import request as sent
from tests.capture.dumps import response as received
from tests.recording.answers import request
from tests.recording.archives import archive, entry, imported
from tests.support.cassettes import BETAMAX, GO, RUBY

BINARY = bytes(range(200))
IN_BASE64 = base64.b64encode(BINARY).decode()
LINES = "\r\n".join(IN_BASE64[at:at + 76] for at in range(0, len(IN_BASE64), 76))
IMAGE = [{"name": "Content-Type", "value": "image/png"}]


def body_of(**content):
    (one,), named = imported(entry(1, response={
        "headers": IMAGE, "content": {"size": 200, **content}}))
    return one.response.body, named


@pytest.mark.parametrize("more", [
    {"text": LINES, "encoding": "base64"}, {"text": IN_BASE64, "encoding": "BASE64"},
    {"text": IN_BASE64.rstrip("="), "encoding": "base64"},
    {"text": IN_BASE64.replace("+", "-").replace("/", "_"), "encoding": "base64"}])
def test_base64_is_read_in_every_form(more):
    assert body_of(**more) == (BINARY, [])


PAGE = '<meta charset="gbk">\u4e2d\u6587'
PUNYCODE = PAGE.replace("gbk", "punycode")
HTML = [{"name": "Content-Type", "value": "text/html"}]


@pytest.mark.parametrize(("headers", "text", "size", "octets"), [
    (IMAGE, "\0\u00ff", 2, b"\0\xff"),          # mitmproxy writes binary content so
    (IMAGE, "\0\u00ff", 3, b"\0\xc3\xbf"),
    (IMAGE, "\0\u4e2d", 2, b"\0\xe4\xb8\xad"),
    (HTML, PAGE, 24, PAGE.encode("gbk")),
    (HTML, PAGE, 22, PAGE.encode()),              # its characters
    (HTML, PUNYCODE, 24, PUNYCODE.encode()),
    ([{"name": "Content-Type", "value": "text/html; charset=utf-8"}], PAGE, 24,
     PAGE.encode())])
def test_the_size_says_by_which_charset_a_program_has_decoded(
        headers, text, size, octets) -> None:
    (recording,), _ = imported(entry(1, response={
        "headers": headers, "content": {"size": size, "text": text}}))
    assert recording.response.body == octets


def test_text_that_is_called_base64_is_text():
    body, (named,) = body_of(text="hello, world!", encoding="base64")
    assert body == b"hello, world!" and isinstance(named, Altered)


@pytest.mark.parametrize(("one", "names"), [
    (entry(1, {"headers": None}), 0), (entry(1, timings=None), 0),
    (entry(1, {"headers": [{"name": "A", "value": ["1", "2"]}]}), 0),
    (entry(1, {"headers": [{"name": "A", "value": 5}]}), 0),
    (entry(1, time="3"), 0), (entry(1, response={"status": "200"}), 0),
    (entry(1, _error={"message": "x"}), 0),
    (entry(1, timings={"send": float("nan")}), 0),
    (entry(1, {"headers": [{"name": "GET /x HTTP/1.1", "value": "y"}]}), 1),
    (entry(1, {"headers": [{"name": "A", "value": {"b": 1}}]}), 1),
    (entry(1, {"headers": [["a", "b"]]}), 1), (entry(1, {"method": None}), 1),
    (entry(1, {"bodySize": 1e300}), 1), (entry(1, time=1e15), 1),
    (entry(1, startedDateTime=None), 1), (entry(1, startedDateTime="yesterday"), 1),
    (entry(1, serverIPAddress=[1], pageref=5), 1)])
def test_an_odd_value_costs_itself_and_is_named(tmp_path, one, names):
    recordings, named = imported(one)
    assert len(recordings) == 1 and len(named) == names
    assert all(isinstance(line, Altered) for line in named)
    result = import_file(io.BytesIO(archive(one)), str(tmp_path / "db"))
    assert (result.added, result.refused, len(result.notes)) == (1, 0, names)


@pytest.mark.parametrize("one", [
    entry(1, response={"status": -1}), entry(1, response={"status": 99999}),
    entry(1) | {"response": None}])
def test_an_entry_without_an_answer_is_a_capture_alone(tmp_path, one):
    recordings, named = imported(one)
    assert recordings == [] and str(named[0]) == "entry-1: has no response"
    assert import_file(io.BytesIO(archive(one)), str(tmp_path / "db")).added == 1


def test_the_names_of_odd_values_are_bounded():
    _, named = imported(entry(1, {"headers": [{"name": "a b"}] * 1000}))
    assert len(named) == 21 and str(named[-1]) == "entry-1: and 980 more"


def test_entries_of_other_protocols_are_counted(tmp_path):
    others = [entry(at, {"url": url}) for at, url in enumerate((
        "chrome-extension://abc/x.js", "data:text/css,a", "blob:http://a/b",
        "data:,"))]
    connect = entry(7, {"method": "CONNECT", "url": "a.example:443"})
    recordings, named = imported(entry(9), connect, *others)
    assert len(recordings) == 1 and len(named) == 5
    assert all(isinstance(one, OtherProtocol) for one in named)
    result = import_file(
        io.BytesIO(archive(entry(9), connect, *others)), str(tmp_path / "db"))
    assert (result.added, result.refused) == (1, 0)
    assert result.others == {
        "chrome-extension": 1, "data": 2, "blob": 1, "CONNECT": 1}


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(("kind", "params", "body"), [
    (FORM, [("a", "1 2"), ("b", "é")], b"a=1+2&b=%C3%A9"),
    (FORM, [("a", "1%2B2"), ("b", "x")], b"a=1%2B2&b=x"),     # of Chromium, Firefox
    (FORM, [("a", "100%"), ("b", "%41")], b"a=100%25&b=%2541"),
    ("multipart/form-data; boundary=BB", [("a\"", "1"), ("f", "data", "x.txt")],
     b'--BB\r\nContent-Disposition: form-data; name="a%22"\r\n\r\n1\r\n'
     b'--BB\r\nContent-Disposition: form-data; name="f"; filename="x.txt"\r\n'
     b"Content-Type: text/plain\r\n\r\ndata\r\n--BB--\r\n")])
def test_parameters_become_the_body_that_they_were(kind, params, body):
    listed = [{"name": name, "value": value} | (
        {"fileName": file[0], "contentType": "text/plain"} if file else {})
        for name, value, *file in params]
    for text in ({}, {"text": ""}, {"text": None}):
        (one,), _ = imported(entry(1, {
            "headers": [{"name": "Content-Type", "value": kind}],
            "postData": {"mimeType": kind, "params": listed, **text}}))
        assert one.request.body == body


def test_a_query_beside_the_url_is_in_it():
    (one,), _ = imported(entry(1, {"url": "http://a.example/x#y", "queryString": [
        {"name": "a", "value": "1 2"}]}))
    assert (one.request.path, one.request.query) == ("/x", "a=1+2")


@pytest.mark.parametrize(("method", "status", "content"), [
    ("HEAD", 200, {"size": 555}), ("GET", 304, {"size": 99}),
    ("GET", 204, {"size": -1}), ("GET", 302, {"size": -1})])
def test_an_answer_without_content_is_whole(method, status, content):
    (one,), named = imported(entry(1, {"method": method}, {
        "status": status, "content": content,
        "headers": [{"name": "Content-Length", "value": "555"}]}))
    assert one.response.body == b"" and named == []
    assert bool(one.response.field("content-length")) == (
        method == "HEAD" or status in (204, 304))


# Requests that match


def matched(one, *asked):
    """Whether each request gets the recording of this entry."""
    (recording,), _ = imported(one)
    matcher = Matcher()
    matcher.add(numbered(recording))
    return [isinstance(matcher.match(request), Match) for request in asked]


def numbered(recording):
    return msgspec.structs.replace(recording, number=1)


@pytest.mark.parametrize(("url", "path"), [
    ("/café?q=你", "/caf%C3%A9?q=%E4%BD%A0"),
    ("/a b|c?q=a b|c", "/a%20b%7Cc?q=a%20b%7Cc"),
    ("/r/<A>/x", "/r/%3CA%3E/x"), ("/r/<A>/x", "/r/<A>/x"), ("/%7Ea%c3", "/~a%C3"),
    ("", "/"), ("?a=1", "/?a=1")])
def test_an_address_matches_as_clients_send_it(url, path):
    one = entry(1, {"method": "get", "url": f"HTTP://Bücher.Example:80{url}"})
    host = "xn--bcher-kva.example"
    assert matched(one, request(path, host=host), request("/other", host=host)) == [
        True, False]


def test_paths_that_mean_something_else_are_others():
    one = entry(1, {"method": "GET", "url": "http://a.example/a%2Fb"})
    assert matched(one, request("/a/b", host="a.example"),
                   request("/a%2fb", host="a.example")) == [False, True]


def test_an_answer_to_a_condition_or_a_range_answers_no_other_client():
    plain = request("/1", host="a.example")
    conditional = request("/1", host="a.example", fields=(("If-None-Match", "x"),))
    ranged, other = (request("/1", host="a.example", fields=(("Range", value),))
                     for value in ("bytes=1-2", "bytes=5-9"))
    unchanged = entry(1, {"method": "GET"}, {"status": 304})
    assert matched(unchanged, plain, conditional, ranged) == [False, True, False]
    partial = entry(1, {"method": "GET", "headers": [
        {"name": "range", "value": "bytes=1-2"}]}, {"status": 206})
    assert matched(partial, plain, conditional, ranged, other) == [
        False, False, True, False]


def test_a_miss_says_that_the_recording_answers_a_condition():
    (one,), _ = imported(entry(1, {"method": "GET"}, {"status": 304}))
    matcher = Matcher()
    matcher.add(numbered(one))
    found = matcher.match(request("/1", host="a.example"))
    assert isinstance(found, Miss) and "answers a condition" in found.reason


def test_the_address_of_a_websocket_is_one_of_http():
    (one,), _ = imported(entry(1, {"url": "wss://a.example/ws"}, {"status": 101}))
    assert one.request.url == "https://a.example/ws"


# Cassettes


def cassette(request=None, response=None):
    return json.dumps({"version": 1, "interactions": [{
        "request": {"method": "POST", "uri": "http://a.example/", **(request or {})},
        "response": {"status": {"code": 200}, **(response or {})}}]}).encode()


@pytest.mark.parametrize(("body", "expected"), [
    ({"parsed_body": {"a": 1}}, b'{"a": 1}'),                        # pydantic-ai
    ({"parsed_body": [1], "body": None}, b"[1]"),
    ({"body": {"type": "json", "content": {"a": "b"}}}, b'{"a": "b"}'),  # cassetter
    ({"body": {"type": "text", "content": "t"}}, b"t"),
    ({"body": {"type": "base64", "content": "/wA="}}, b"\xff\0"),
    ({"body": {"yaml": {"a": 1}}}, b'{"a": 1}'), ({"body": {"yaml": "a: 1"}}, b"a: 1"),
    ({"body": {"encoding": "ISO-8859-1", "string": "é"}}, b"\xe9"),  # betamax
    ({"body": {"encoding": "ASCII-8BIT", "string": "é"}}, "é".encode()),
    ({"body": {"encoding": "UTF-8", "base64_string": "/w\nA="}}, b"\xff\0")])
def test_bodies_of_other_serializers_are_read(body, expected):
    (one,) = read_cassette(cassette(body, body))
    assert (one.request.body, one.response.body) == (expected, expected)


@pytest.mark.parametrize(("response", "reason"), [
    ({}, "the response has no body"), ({"body": {"file": "a"}}, "is not known: file"),
    ({"body": 5}, "neither text nor bytes"), ({"body": {"type": "x", "content": {}}},
                                              "which is not known"),
    ({"body": {"base64_string": "!"}}, "not base64"),
    ({"status": {"code": 0}, "body": ""}, "no status")])
def test_a_body_that_is_not_understood_is_an_error(response, reason):
    (one,) = read_cassette(cassette(None, response))
    assert isinstance(one, NotImported) and reason in str(one)


@pytest.mark.parametrize("response", [
    {"status": {"code": 204}}, {"headers": {"Content-Length": ["0"]}},
    {"body": {"string": ""}}, {"body": None}])
def test_an_answer_may_have_no_body(response):
    (one,) = read_cassette(cassette(None, response))
    assert one.response.body == b""


def test_a_field_that_is_none_is_named_in_a_cassette():
    one, *named = read_cassette(cassette({"method": None, "headers": {
        "A": [1.5, True, None, {"b": 1}], "a b": "1"}}, {"body": "x"}))
    assert one.request.method == "GET"
    assert one.request.fields == (("A", "1.5"), ("A", "true"), ("A", ""))
    assert [str(line).partition(": ")[2] for line in named] == [
        "without a method: GET is assumed", "request: a value of 'A' is no text",
        "request: without a field: the name 'a b' is none"]


def test_cassettes_of_other_programs_are_read():
    (one,) = read_cassette(GO.encode())
    assert (one.request.method, one.response.status) == ("GET", 302), "not named: Go's"
    assert one.response.trailers == (("T", "1"),) and one.response.reason == "Found"
    (one,) = read_cassette(RUBY.encode())
    assert (one.request.method, one.request.body) == ("POST", b"a=1")
    assert one.response.body == b"\xff\0" and one.created_us == 1_320_123_524_000_000
    (one,) = read_cassette(BETAMAX.encode())
    assert one.response.body == "é".encode() and one.created_us == 1_380_331_538_000_000


def test_octets_of_a_dump_are_escaped():
    (one,) = read_exchanges(io.BytesIO(dump(state(request=sent(
        path=b"/\xff\xe9 ?q=\xe4\xbd\xa0", method=b"get")))))
    assert (one.request.method, one.request.path, one.request.query) == (
        "GET", "/%FF%E9%20", "q=%E4%BD%A0")


def test_octets_that_python_has_escaped_are_octets():
    """mitmproxy's archives have halves of characters."""
    (one,), named = imported(entry(1, {"url": "http://a.example/\udcff?q=\udce9"}, {
        "headers": [{"name": "X-N", "value": "caf\udce9"}]}))
    assert (one.request.path, one.request.query) == ("/%FF", "q=%E9") and named == []
    assert one.response.field("x-n") == "caf\xe9"


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 304)])
def test_the_length_of_no_content_survives_a_dump(method, status):
    fields = [[b"Content-Length", b"555"], [b"Content-Encoding", b"gzip"],
              [b"Transfer-Encoding", b"chunked"]]
    (one,) = read_exchanges(io.BytesIO(dump(state(
        request=sent(method=method), response=received(
            status_code=status, content=b"", headers=fields)))))
    assert one.response.fields == (
        ("Content-Length", "555"), ("Content-Encoding", "gzip"))


@pytest.mark.parametrize("version", [[0, 10, 1], [0, 18, 2], 4])
def test_old_dumps_are_read(version):
    """Their keys have other names."""
    one = state(version=version)
    answer, asked = one["response"], one["request"]
    if version == [0, 10, 1]:
        for side in (one["response"], one["request"]):
            del side["http_version"]
            side["httpversion"] = [1, 0]
        answer |= {"code": answer.pop("status_code"), "msg": answer.pop("reason")}
        del one["type"], one["server_conn"], asked["authority"]
    else:
        one["server_conn"] = {
            "peername": None, "ip_address": {"address": ["192.0.2.1", 80]}}
    (found,) = read_dump(io.BytesIO(dump(one)), make_redactor(keep_credentials=True))
    assert (found.status, found.response.body) == (200, "hello")
    assert found.reason_phrase == "OK" and found.url == "http://a.test:8080/a?b=c"
    assert found.peer == (None if version == [0, 10, 1] else "192.0.2.1")
    assert found.response.version == (
        "HTTP/1.0" if version == [0, 10, 1] else "HTTP/1.1")
