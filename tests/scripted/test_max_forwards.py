"""OPTIONS and TRACE count the proxies on their way (RFC 9110 sections 7.6.2, 9.3.8)."""

import pytest

from tests.support.client import build_request

SECRET = "Cookie: secret=of-this-client"


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    ("fields", "sent"),
    [([], None), (["Max-Forwards: 1"], "0"), (["MAX-FORWARDS:08"], "7")],
)
def test_what_may_go_on_arrives_with_one_less(
    proxy, make_origin, dial, method, fields, sent
):
    origin = make_origin()
    assert dial().ask(method, origin.url(), *fields).body == b"ok"
    assert origin.requests[0].get("Max-Forwards") == sent


def test_other_methods_do_not_count(proxy, make_origin, dial):
    origin = make_origin()
    client = dial()
    for value in ("0", "7", "x"):
        assert client.get(origin.url(), f"Max-Forwards: {value}").body == b"ok"
    assert [r.get("Max-Forwards") for r in origin.requests] == ["0", "7", "x"]


@pytest.mark.parametrize("target", ["http://{}/path", "http://{}", "*"])
def test_options_that_may_go_no_further_is_answered_here(
    proxy, make_origin, dial, target
):
    origin = make_origin()
    client = dial()
    for _ in range(2):
        reply = client.ask(
            "OPTIONS", target.format(origin.authority), "Max-Forwards: 0",
            host=origin.authority)
        assert (reply.status, reply.body) == (200, b"")
        assert reply.get("Content-Length") == "0"
        assert "OPTIONS" in reply.get("Allow").split(", ")
        assert reply.get("Connection") is None
    assert client.get(origin.url()).body == b"ok", "the connection goes on"
    assert len(origin.connections) == 1
    record = proxy.wait_log(2, reason="final_recipient")[0]
    assert (record["method"], record["status"], record["user"]) == (
        "OPTIONS", 200, "user")
    assert (record["host"], record["peer"]) == ("127.0.0.1", None)


def test_trace_that_may_go_no_further_gets_nothing_back(proxy, make_origin, dial):
    """R13: an echo would show a script the fields that the browser added."""
    origin = make_origin()
    client = dial()
    reply = client.ask("TRACE", origin.url("/path"), "Max-Forwards: 0", SECRET)
    assert reply.status == 405
    assert "TRACE" not in reply.get("Allow")
    assert b"secret" not in client.received
    assert b"Basic " not in client.received
    assert client.get(origin.url()).body == b"ok", "the connection goes on"
    assert len(origin.requests) == 1
    record = proxy.wait_reason("trace_refused")
    assert (record["method"], record["status"]) == ("TRACE", 405)


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
def test_nobody_is_answered_before_the_credentials_are_read(
    proxy, make_origin, dial, method
):
    """R21."""
    origin = make_origin()
    reply = dial().ask(method, origin.url(), "Max-Forwards: 0", auth=None)
    assert reply.status == 407
    assert not origin.connections


def test_a_body_behind_an_answer_of_ours_is_no_request(proxy, make_origin, dial):
    """R6."""
    origin = make_origin()
    inner = build_request("GET", origin.url("/smuggled"))
    client = dial()
    client.send(build_request("OPTIONS", origin.url(), "Max-Forwards: 0",
                              f"Content-Length: {len(inner)}", body=inner))
    reply = client.read_response()
    assert (reply.status, reply.get("Connection")) == (200, "close")
    assert client.at_eof()
    assert not origin.connections


@pytest.mark.parametrize(
    ("reason", "method", "fields"),
    [
        ("bad_request", "OPTIONS", ["Max-Forwards: 1", "Max-Forwards: 1"]),
        ("bad_request", "TRACE", ["Max-Forwards: -1"]),
        ("bad_request", "TRACE", ["Max-Forwards:"]),
        ("bad_framing", "TRACE", ["Content-Length: 5"]),
        ("bad_framing", "TRACE", ["Transfer-Encoding: chunked"]),
        ("bad_framing", "TRACE", ["Content-Length: 5", "Max-Forwards: 0"]),
    ],
)
def test_what_cannot_be_counted_or_has_a_body_is_refused(
    proxy, make_origin, dial, reason, method, fields
):
    origin = make_origin()
    assert dial().ask(method, origin.url(), *fields).status == 400
    proxy.wait_reason(reason)
    assert not origin.connections
