"""Dumps of mitmproxy, from states of its flows."""

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.formats.dump_reader import read_dump
from cutthrough.exchange.formats.imported import (
    Exchange,
    NotImported,
    make_redactor,
    make_row,
)
from tests.capture.dumps import dump, request, response, state

REDACTOR = make_redactor(keep_credentials=False)


def read(*states):
    return list(read_dump(io.BytesIO(b"".join(map(dump, states))), REDACTOR))


def row(one):
    (found,) = read(one)
    if isinstance(found, NotImported):
        raise found
    return dict(zip(COLUMNS, make_row(found, REDACTOR), strict=True))


def test_a_flow_is_an_exchange():
    one = row(state())
    assert (one["method"], one["url"], one["host"], one["port"]) == (
        "GET", "http://a.test:8080/a?b=c", "a.test", 8080)
    assert (one["status"], one["reason"], one["peer"], one["request"]) == (
        200, "ok", "192.0.2.1", state()["id"])
    assert one["begun_us"] == 1_700_000_000_000_000
    assert one["total_us"] == 14_000
    # It dials when it has the request: the connection lies before the wait
    assert (one["send_us"], one["connect_us"], one["wait_us"], one["receive_us"]) == (
        500, 2000, 11_000, 500)
    assert one["dns_us"] is None and one["head_us"] is None, "nothing is invented"
    assert one["request_head"] == (
        "GET /a?b=c HTTP/1.1\r\nHost: a.test:8080\r\nCookie: [redacted]\r\n\r\n")
    assert one["response_head"] == (
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n")
    assert (one["response_body"], one["response_body_bytes"],
            one["response_content_bytes"]) == ("hello", 5, 5)


def test_a_websocket_has_its_messages():
    """They were left out."""
    one = row(state(websocket={
        "messages": [[1, True, b"hi", 1700000000.02, False, False],
                     [2, False, b"\xff\0", 1700000000.03, False, True],
                     [1, True, b"dropped", 1700000000.04, True, False]],
        "closed_by_client": True, "close_code": 1001, "close_reason": "bye",
        "timestamp_end": 1700000000.05}))
    assert one["kind"] == "tunnel"
    first, second, last = json.loads(one["messages"])
    assert (first["side"], first["kind"], first["text"], first["at_us"]) == (
        "request", "text", "hi", 1_700_000_000_020_000)
    assert (second["side"], second["kind"], second["bytes"]) == (
        "response", "binary", 2)
    assert (last["side"], last["kind"], last["code"], last["text"]) == (
        "request", "close", 1001, "bye")
    assert row(state())["messages"] is None


def test_a_connection_from_before_is_no_phase():
    used = state()["server_conn"] | {"timestamp_start": 1699999999.0,
                                     "timestamp_tcp_setup": 1699999999.1}
    one = row(state(server_conn=used))
    assert one["connect_us"] is None and one["wait_us"] == 13_000


def test_a_body_is_kept_as_content():
    packed = gzip.compress(b'{"a": 1}')
    one = row(state(response=response(content=packed, headers=[
        [b"Content-Type", b"application/json"], [b"Content-Encoding", b"gzip"]])))
    assert (one["response_body"], one["response_body_bytes"],
            one["response_content_bytes"]) == ('{"a": 1}', len(packed), 8)


def test_a_streamed_body_is_not_there():
    one = row(state(response=response(content=None)))
    assert one["response_body"] is None and one["response_body_bytes"] is None


def test_a_flow_without_an_answer_has_the_error():
    one = row(state(response=None, error={"msg": "refused", "timestamp": 1.0}))
    assert (one["status"], one["reason"], one["response_head"]) == (
        None, "refused", None)
    assert row(state(response=None))["reason"] == "failed"


def test_the_usual_port_and_an_ip_address_are_written_as_in_urls():
    assert row(state(request=request(
        scheme=b"https", port=443, host="::1")))["url"] == "https://[::1]/a?b=c"


def test_older_versions_are_read():
    old = state(version=7, server_conn={
        "address": ["a.test", 8080], "ip_address": [b"192.0.2.1", 8080],
        "timestamp_start": None, "timestamp_tcp_setup": None})
    one = row(old)
    assert (one["peer"], one["connect_us"]) == ("192.0.2.1", None)


@pytest.mark.parametrize(("one", "reason"), [
    (state(type="quic"), "type 'quic'"), (state(type="tcp"), "type tcp"),
    (state(request=None), "request is no dictionary"),
    (state(request=request(port="80")), "port has the wrong type"),
    (state(request=request(port=True)), "port has the wrong type"),
    (state(request=request(headers=[[b"a"]])), "no pair of bytes"),
    (state(request=request(headers=[["a", "b"]])), "no pair of bytes"),
    (state(request=request(timestamp_start=None)), "no time"),
    (state(request=request(method=b"CONNECT")), "CONNECT"),
    (state(request=request(method=b"GET /")), "method"),
    (state(request=request(path=b"/\r\nX: y")), "URL"),
    (state(request=request(timestamp_start=-5.0)), "time"),
    (state(request=request(timestamp_start=1e15)), "time"),
    (state(request=request(scheme=b"file")), "none of HTTP"),
    (state(request=request(port=99999)), "URL"),
    (state(response=response(status_code=1000)), "status"),
    (state(websocket={"messages": [[1, True, "text", 1.7e9, False, False]]}),
     "WebSocket"),
    (state(websocket={"messages": [[7, True, b"", 1.7e9, False, False]]}), "WebSocket"),
    (state(websocket={"messages": [[1, True, b"", -5.0, False, False]]}), "time"),
    ([], "no dictionary"), (5, "no dictionary")])
def test_what_is_no_exchange_is_refused_with_the_reason(one, reason):
    with pytest.raises(NotImported, match=reason):
        row(one)


def test_one_bad_flow_does_not_cost_the_others():
    found = read(state(), state(type="udp"), state(id="2"))
    assert [isinstance(one, Exchange) for one in found] == [True, False, True]


def test_behind_damage_nothing_is_read():
    found = list(read_dump(io.BytesIO(dump(state()) + b"12x:" + dump(state())),
                           REDACTOR))
    assert len(found) == 2 and "nothing behind it" in str(found[1])


@given(st.data())
def test_any_value_in_any_place_is_refused_or_becomes_a_row(draw):
    one = state(request=request(), response=response())
    part = draw.draw(st.sampled_from([
        one, one["request"], one["response"], one["server_conn"]]))
    key = draw.draw(st.sampled_from(sorted(part)))
    part[key] = draw.draw(st.none() | st.booleans() | st.integers(-10**17, 10**17)
                          | st.floats(-1e17, 1e17) | st.binary(max_size=9)
                          | st.text(max_size=9) | st.lists(st.binary(), max_size=3))
    for found in read(one):
        if isinstance(found, Exchange):
            try:
                make_row(found, REDACTOR)
            except NotImported:
                pass
