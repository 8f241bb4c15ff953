"""HAR 1.2, field by field."""

import base64
import json

import jsonschema
import pytest

from cutthrough.exchange.formats import har
from cutthrough.exchange.formats.har import make_archive, make_entry
from tests.capture.flows import flow
from tests.capture.har_flows import (
    ALL,
    BINARY,
    CUT,
    FAILED,
    FORM,
    GZIPPED,
    HEADS,
    HTTP2,
    ODD,
    POOLED,
    UPGRADED,
    WEBSOCKET,
)
from tests.capture.har_schema import SCHEMA


def test_every_archive_keeps_to_the_schema():
    archive = make_archive(ALL)
    jsonschema.validate(json.loads(json.dumps(archive)), SCHEMA)
    assert len(archive["log"]["entries"]) == len(ALL)


@pytest.mark.parametrize("key", ["startedDateTime", "time", "timings", "cache"])
def test_the_schema_is_one(key):
    archive = make_archive(ALL)
    del archive["log"]["entries"][0][key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(archive, SCHEMA)


def test_entries_are_in_the_order_of_their_begin_and_tunnels_left_out():
    """A request for a tunnel (CONNECT, SOCKS, or a transparent connection) has a
    request's row if the tunnel is intercepted or refused."""
    tunnels = [flow(20 + n, method=method, url="a.test:443", status=status)
               for status in (200, 502)
               for n, method in enumerate(("CONNECT", "SOCKS5", "SOCKS4", "TUNNEL"))]
    entries = make_archive([
        FORM, flow(30, kind="tunnel"), *tunnels, flow(1)])["log"]["entries"]
    assert [entry["_id"] for entry in entries] == ["0-1", "0-6"]


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.request)
def test_time_is_the_sum_of_what_applies_and_ssl_is_not_added(one):
    entry = make_entry(one)
    timings = entry["timings"]
    assert timings["ssl"] == (0.7 if one is HTTP2 else -1)
    assert min(timings["send"], timings["wait"], timings["receive"]) >= 0
    assert entry["time"] == pytest.approx(
        sum(ms for name, ms in timings.items()
            if ms > 0 and name not in (
                "ssl", "_auth", "_hook", "_held", "_client_tls")))


def test_phases_are_the_measured_ones():
    assert make_entry(flow())["timings"] == {
        "blocked": 0.11, "dns": 2.0, "connect": 3.0, "send": 0.05, "wait": 10.0,
        "receive": 0.5, "ssl": -1, "_auth": 0.01}
    pooled = make_entry(POOLED)["timings"]
    assert (pooled["dns"], pooled["connect"]) == (-1, -1), "they do not apply"


def test_http2_has_its_version_its_handshakes_and_trailers():
    entry = make_entry(HTTP2)
    assert {name: entry["timings"][name] for name in (
        "blocked", "connect", "ssl", "_held", "_client_tls")} == {
        "blocked": 0.16, "connect": 3.7, "ssl": 0.7, "_held": 0.05, "_client_tls": 0.9}
    assert (entry["_clientHttpVersion"], entry["_detail"]) == (
        "HTTP/2.0", "it said so")
    assert entry["_fingerprints"] == {
        "client_ja4": "t13d1516h2_8daaf6152771_b186095e22b6",
        "http2_fingerprint": "1:65536;4:6291456|15663105|0|m,a,s,p"}
    assert "_fingerprints" not in make_entry(flow())
    for side in ("request", "response"):
        assert entry[side]["httpVersion"] == "HTTP/2.0"
        assert entry[side]["headersSize"] == -1
    assert entry["request"]["_trailers"] == [{"name": "X-Sum", "value": "7"}]
    assert entry["response"]["_trailers"] == [
        {"name": "grpc-status", "value": "0"},
        {"name": "grpc-message", "value": "fine"}]


def test_sizes_are_of_the_head_the_wire_and_the_content():
    entry = make_entry(GZIPPED)
    assert entry["request"]["headersSize"] == len(flow().request_head)
    response = entry["response"]
    assert (response["bodySize"], response["content"]["size"],
            response["content"]["compression"]) == (40, 600, 560)
    assert "encoding" not in response["content"], "text is not base64"


def test_a_websocket_has_its_messages_as_chromium_writes_them():
    entry = make_entry(WEBSOCKET)
    assert (entry["_resourceType"], entry["_messagesState"]) == (
        "websocket", "malformed")
    found = entry["_webSocketMessages"]
    assert found[0] == {"type": "send", "time": 1_700_000_000.000007, "opcode": 1,
                        "data": "hello"}
    assert found[1] == {"type": "receive", "time": 1_700_000_000.000009, "opcode": 2,
                        "data": "/wA="}
    assert [one["opcode"] for one in found] == [1, 2, 2, 1, 1, 1, 9, 8, 8]
    assert base64.b64decode(found[7]["data"]) == b"\x03\xe8bye"
    assert found[4] | {"time": 0} == {
        "type": "send", "time": 0, "opcode": 1, "data": "cut", "_bytes": 900,
        "_state": "truncated"}
    heads = make_entry(flow(1, kind="tunnel", response_head=UPGRADED))
    assert "_webSocketMessages" not in heads


def test_only_what_is_no_text_is_base64_and_says_so():
    entry = make_entry(BINARY)
    content = entry["response"]["content"]
    assert (content["encoding"], base64.b64decode(content["text"])) == (
        "base64", b"\xff\xfe")
    post = entry["request"]["postData"]
    assert (post["_encoding"], base64.b64decode(post["text"])) == ("base64", b"\x89PNG")


def test_a_form_has_its_text_and_no_parameters():
    # One excludes the other, and Chromium's reader and mitmproxy's fail without text
    request = make_entry(FORM)["request"]
    assert request["postData"] == {
        "mimeType": "application/x-www-form-urlencoded", "text": "x=1&y=a%20b"}
    assert request["cookies"] == [{"name": "a", "value": "1"},
                                  {"name": "b", "value": "2"}]


def test_the_query_is_decoded():
    assert make_entry(flow())["request"]["queryString"] == [
        {"name": "b", "value": "c d"}]


def test_heads_alone_have_the_announced_length_and_invent_nothing():
    entry = make_entry(HEADS)
    assert (entry["request"]["bodySize"], entry["response"]["bodySize"]) == (0, 5)
    content = entry["response"]["content"]
    assert content["size"] == -1 and "text" not in content
    upload = flow(1, method="POST", origin_http="2", request_body_bytes=None,
                  request_head="POST / HTTP/2\r\nHost: a.test\r\n\r\n")
    assert make_entry(upload)["request"]["bodySize"] == -1
    reset = flow(1, reason="origin_reset", response_body_bytes=None,
                 response_content_bytes=None, response_body=None)
    assert make_entry(reset)["response"]["bodySize"] == -1


def test_a_response_that_is_cut_says_so():
    content = make_entry(CUT)["response"]["content"]
    assert (content["size"], content["comment"]) == (5 << 20, "truncated")


def test_a_request_without_an_answer_has_our_reply_and_the_reason():
    entry = make_entry(FAILED)
    assert entry["_error"] == "connection_refused"
    assert (entry["response"]["status"], entry["response"]["headersSize"]) == (502, -1)
    assert "serverIPAddress" not in entry


def test_cookies_have_their_attributes():
    first, second = make_entry(ODD)["response"]["cookies"]
    assert first == {"name": "a", "value": "1", "path": "/", "secure": True,
                     "httpOnly": True, "expires": "2027-06-09T10:18:14.000+00:00"}
    assert "expires" not in second
    assert make_entry(flow(1, response_head="HTTP/1.1 200 OK\r\nSet-Cookie: [redacted]"
                           "\r\n\r\n"))["response"]["cookies"] == []


def test_the_start_line_is_the_origins():
    response = make_entry(ODD)["response"]
    assert (response["httpVersion"], response["status"], response["statusText"]) == (
        "HTTP/1.0", 200, "")
    assert make_entry(flow())["response"]["redirectURL"] == "/next"


def test_a_flow_that_cannot_be_an_entry_costs_itself_alone_and_is_named(monkeypatch):
    """R71: there was no archive."""
    def fail(one):
        if one.request == "0-2":
            raise LookupError("s3cret")
        return make_request(one)

    make_request = har.make_request
    monkeypatch.setattr(har, "make_request", fail)
    made = make_archive([flow(1), flow(2), flow(3)])
    assert [one["_id"] for one in made["log"]["entries"]] == ["0-1", "0-3"]
    (left,) = made["log"]["_leftOut"]
    assert left["_id"] == "0-2" and left["reason"].startswith("LookupError in ")
    jsonschema.validate(json.loads(json.dumps(made)), SCHEMA)
