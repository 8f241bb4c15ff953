"""Breakpoints: an operator sees, edits and aborts requests and responses."""

import base64
import gzip

import pytest

from tests.support.breakpoints import FREE, send, starter
from tests.support.client import USER
from tests.support.filters import FILTERS
from tests.support.origin import answer
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

CHUNKED = (b"HTTP/1.1 200 OK\r\nX-One: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
           b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")


@pytest.fixture
def start(start_policy):
    return starter(start_policy)


def test_nothing_is_held_unless_they_are_armed(start, make_origin, dial):
    proxy, desk = start()
    origin = make_origin()
    assert dial(proxy).get(origin.url()).status == 200
    assert desk.state() == {"armed_s": 0.0, "held": [], "unanswered": []}
    desk.arm()
    assert 50 < desk.state()["armed_s"] <= 60
    desk.arm(0)
    assert dial(proxy).get(origin.url()).status == 200
    assert desk.state()["armed_s"] == 0


def test_a_rule_without_the_key_holds_nothing(start, make_origin, dial):
    proxy, desk = start(rule='paths = ["/held"]\n' + FREE)
    origin = make_origin()
    desk.arm()
    assert dial(proxy).get(origin.url("/free")).status == 200
    client = dial(proxy)
    send(client, "GET", origin.url("/held"))
    assert desk.wait_one("request")["path"] == "/held"


def test_an_arming_names_the_requests_that_are_held(start, make_origin, dial):
    """A breakpoint that an operator makes: the rule has one for everything."""
    proxy, desk = start("request")
    origin = make_origin()
    desk.arm(methods=["post"], hosts=["127.0.0.1"], paths=["/v1/**/item"])
    assert desk.state()["armed_for"] == {
        "hosts": ["127.0.0.1"], "methods": ["post"], "paths": ["/v1/**/item"]}
    assert "s for post 127.0.0.1 /v1/**/item by" in proxy.stderr()
    assert dial(proxy).get(origin.url("/v1/a/item")).status == 200
    free, client = dial(proxy), dial(proxy)
    send(free, "POST", origin.url("/v1/item/a"), "Content-Length: 0")
    assert free.read_response().status == 200
    send(client, "POST", origin.url("/v1/a/b/item?q"), "Content-Length: 0")
    assert desk.wait_one("request")["path"] == "/v1/a/b/item?q"
    desk.arm(methods=["DELETE"])        # in the place of the other one
    send(free, "POST", origin.url("/v1/item"), "Content-Length: 0")
    assert free.read_response().status == 200
    desk.arm()
    assert "armed_for" not in desk.state()


@pytest.mark.parametrize("chosen", [
    {"hosts": ["a*b"]}, {"paths": ["v1"]}, {"paths": ["/a"] * 33}, {"methods": [1]}])
def test_an_arming_that_cannot_be_read_arms_nothing(start, chosen):
    _, desk = start()
    status, text = desk.ask("POST", "/breakpoints/armed", {"seconds": 60, **chosen})
    assert (status, desk.state()["armed_s"]) == (400, 0.0), text


def test_a_request_is_edited_at_its_head(start, make_origin, dial):
    proxy, desk = start("request")
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url("/old?a"), "X-Old: 1", "Accept: */*")
    held = desk.wait_one("request")
    assert not origin.requests
    assert (held["method"], held["user"], held["body"]) == ("GET", USER, "none")
    assert held["url"] == origin.url("/old?a") and held["rule"] == "held"
    assert ["X-Old", "1"] in held["fields"] and held["left_s"] <= 30
    desk.decide(held, "edit", method="DELETE", path="/new?b",
                fields=[["X-New", "2"], ["Accept", "*/*"]])
    assert client.read_response().status == 200
    (request,) = origin.requests
    assert (request.method, request.target) == ("DELETE", "/new?b")
    assert (request.get("X-New"), request.get("X-Old")) == ("2", None)
    (line,) = proxy.wait_log(1)
    assert (line["method"], line["reason"]) == ("DELETE", "ok")
    assert line["url"].endswith("/new?b")
    desk.wait_counts(held=1, edited=1)
    wait_until(lambda: "edit of" in proxy.stderr(), "the error log")


def test_an_edited_path_is_judged_again(start, make_origin, dial):
    """R41: a decision about a path is one of the policy."""
    proxy, desk = start(rule='paths = ["/held/**"]\n')
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url("/held/1"))
    desk.decide(desk.wait_one("request"), "edit", path="/secret")
    assert client.read_response().status == 403
    assert not origin.requests
    assert proxy.wait_log(1)[0]["reason"] == "path_denied"


@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_a_request_s_body_is_seen_and_edited(start, make_origin, dial, framing):
    proxy, desk = start("request")
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    if framing == "sized":
        send(client, "POST", origin.url("/p"), "Content-Length: 6", body=b"secret")
    else:
        send(client, "POST", origin.url("/p"), "Transfer-Encoding: chunked",
             body=b"3\r\nsec\r\n3\r\nret\r\n0\r\n\r\n")
    held = desk.wait_one("request", "follows")
    desk.decide(held, "edit", hold_body=True, path="/q")
    held = desk.wait_one("request", "here")
    assert held["body_bytes"] == 6 and "content" not in held
    assert base64.b64decode(desk.show(held)["content"]) == b"secret"
    status, text = desk.try_to_decide(held, "edit", path="/r")
    assert status == 400 and "judged" in text
    desk.decide(held, "edit", body=b"open to all")
    assert client.read_response().status == 200
    (request,) = origin.requests
    assert (request.target, request.body) == ("/q", b"open to all")
    assert request.get("Content-Length") == "11"
    desk.wait_counts(held=2, edited=2)


def test_a_body_is_replaced_without_being_seen(start, make_origin, dial):
    proxy, desk = start("both")
    origin, client = make_origin(answer(CHUNKED)), dial(proxy)
    desk.arm()
    send(client, "PUT", origin.url("/"), "Content-Length: 3", body=b"old")
    desk.decide(desk.wait_one("request"), "edit", body=b"newer")
    desk.decide(desk.wait_one("response", "follows"), "edit", body=b"")
    reply = client.read_response()
    assert (reply.status, reply.body) == (200, b"")
    assert origin.requests[0].body == b"newer"
    assert desk.state()["held"] == []


def test_a_response_is_edited_in_every_part(start, make_origin, dial):
    proxy, desk = start("response")
    packed = gzip.compress(b"secret")
    origin, client = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nX-One: 1\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(packed), packed))), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url())
    held = desk.wait_one("response")
    assert (held["status"], held["body"]) == (200, "follows")
    desk.decide(held, "edit", status=404, hold_body=True)
    held = desk.wait_one("response", "here")
    assert held["status"] == 404
    assert base64.b64decode(desk.show(held)["content"]) == b"secret"
    desk.decide(held, "edit", status=201, fields=[["X-Two", "2"]], body=b"open")
    reply = client.read_response()
    assert (reply.status, reply.get("X-One"), reply.get("X-Two"), reply.body) == (
        201, None, "2", b"open")
    assert proxy.wait_log(1)[0]["status"] == 201
    # The connection serves on
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one("response"))
    assert gzip.decompress(client.read_response().body) == b"secret"
    assert len(origin.connections) == 1


def test_an_edit_cannot_break_the_framing(start, make_origin, dial):
    """R41: lengths are made again, and a body is in the coding that its head names."""
    proxy, desk = start("both")
    packed = gzip.compress(b"secret")
    origin, client = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(packed), packed))), dial(proxy)
    desk.arm()
    send(client, "POST", origin.url(), "Content-Length: 3", body=b"old")
    desk.decide(desk.wait_one("request"), "edit", body=b"longer", fields=[
        ["Content-Length", "2"], ["Transfer-Encoding", "chunked"], ["X", "1"]])
    held = desk.wait_one("response")
    desk.decide(held, "edit", body=b"other", fields=[
        *held["fields"], ["Content-Length", "99"], ["Transfer-Encoding", "gzip"]])
    reply = client.read_response()
    coded = reply.get("Content-Encoding") == "gzip"
    assert (gzip.decompress(reply.body) if coded else reply.body) == b"other"
    (request,) = origin.requests
    assert request.body == b"longer" and request.get("Transfer-Encoding") is None
    assert request.all("Content-Length") == ["6"]
    # The connection serves on
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one("request"))
    desk.decide(desk.wait_one("response"))
    assert client.read_response().status == 200


def test_a_coding_that_an_edit_invents_does_not_touch_the_framing(
        start, make_origin, dial):
    proxy, desk = start("response")
    origin, client = make_origin(answer(CHUNKED)), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one("response"), "edit", body=b"x",
                fields=[["Content-Encoding", "unknown"]])
    reply = client.read_response()
    assert (reply.body, reply.all("Content-Length")) == (b"x", ["1"])
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one("response"))
    assert client.read_response().body == b"abcdef"


def test_what_passes_is_as_it_came(start, make_origin, dial):
    proxy, desk = start("both")
    origin, client = make_origin(answer(CHUNKED)), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url("/?q=1"), "Range: bytes=0-", "Accept-Encoding: x")
    desk.decide(desk.wait_one("request"))
    desk.decide(desk.wait_one("response"), "edit", hold_body=True)
    desk.decide(desk.wait_one("response", "here"))
    reply = client.read_response()
    assert (reply.status, reply.body, reply.get("X-One")) == (200, b"abcdef", "1")
    (request,) = origin.requests
    assert request.get("Range") == "bytes=0-" and request.get("Accept-Encoding") == "x"
    desk.wait_counts(held=3, passed=2, edited=1)


@pytest.mark.parametrize("side", ["request", "response"])
def test_an_aborted_exchange_gets_a_refusal(start, make_origin, dial, side):
    proxy, desk = start(side)
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one(side), "abort")
    reply = client.read_response()
    assert (reply.status, reply.error) == (403, "http_request_denied")
    (line,) = proxy.wait_log(1)
    assert line["reason"] == "breakpoint_aborted"
    assert line["hook"] == "breakpoint: aborted by an operator"
    assert len(origin.requests) == (side == "response")
    desk.wait_counts(held=1, aborted=1)
    assert desk.operator.metrics()["breakpoint_holds"] == 0


def test_a_body_is_aborted_before_anything_is_sent(start, make_origin, dial):
    proxy, desk = start("both")
    origin, client = make_origin(answer(CHUNKED)), dial(proxy)
    desk.arm()
    send(client, "POST", origin.url(), "Content-Length: 3", body=b"old")
    desk.decide(desk.wait_one("request"), "edit", hold_body=True)
    desk.decide(desk.wait_one("request", "here"), "abort")
    assert client.read_response().status == 403
    assert not origin.requests
    client = dial(proxy)
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one("request"))
    desk.decide(desk.wait_one("response"), "edit", hold_body=True)
    desk.decide(desk.wait_one("response", "here"), "abort")
    reply = client.read_response()
    assert (reply.status, reply.get("X-One")) == (403, None)
    assert [line["reason"] for line in proxy.wait_log(2)] == ["breakpoint_aborted"] * 2


@pytest.mark.parametrize("changes, why", [
    ({"path": "no path"}, "is not a path"),
    ({"method": "CONNECT"}, "cannot become"),
    ({"method": "GE T"}, "is not a method"),
    ({"fields": [["X", "1\r\nY: 2"]]}, "control character"),
    ({"fields": [["X Y", "1"]]}, "not the name"),
    ({"fields": [["Cookie", "[redacted]"]]}, "stands for no value"),
    ({"status": 404}, "no status"),
    ({"body": "YQ=="}, "no body"),
    ({"hold_body": True}, "no body"),
    ({"colour": 1}, "unknown field"),
    ({"body": "%"}, "cannot be read"),
])
def test_an_edit_that_cannot_be_leaves_it_held(start, make_origin, dial, changes, why):
    """R5: no field ends a line."""
    proxy, desk = start("request")
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url("/same"), "X-Same: 1")
    held = desk.wait_one("request")
    status, text = desk.try_to_decide(held, "edit", **changes)
    assert status == 400 and why in text
    desk.decide(desk.wait_one("request"))
    assert client.read_response().status == 200
    assert origin.requests[0].target == "/same"
    assert origin.requests[0].get("X-Same") == "1"


def test_credentials_are_not_shown_and_stay(start, make_origin, dial):
    proxy, desk = start("both")
    origin, client = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nSet-Cookie: s=1\r\nSet-Cookie: t=2\r\n"
        b"Content-Length: 0\r\n\r\n")), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url(), "Authorization: Basic c2VjcmV0", "Cookie: a=b")
    held = desk.wait_one("request")
    assert dict(held["fields"])["Authorization"] == "[redacted]"
    assert "c2VjcmV0" not in str(desk.state())
    desk.decide(held, "edit", fields=[
        ["X-New", "1"], *(one for one in held["fields"] if one[0] != "Cookie")])
    held = desk.wait_one("response")
    assert [one for one in held["fields"] if one[0] == "Set-Cookie"] == [
        ["Set-Cookie", "[redacted]"]] * 2
    desk.decide(held, "edit", fields=held["fields"])
    assert client.read_response().all("Set-Cookie") == ["s=1", "t=2"]
    (request,) = origin.requests
    assert request.get("Authorization") == "Basic c2VjcmV0"
    assert (request.get("Cookie"), request.get("X-New")) == (None, "1")


def test_the_api_takes_the_token(start):
    """R39, R59: to read is to see the traffic."""
    _, desk = start()
    for method, path in (("GET", "/breakpoints"), ("GET", "/breakpoints/1-1"),
                         ("POST", "/breakpoints/armed"), ("POST", "/breakpoints/1-1")):
        assert desk.operator.ask(method, path)[0] == 401
    assert desk.ask("GET", "/breakpoints/1-1")[0] == 404
    assert desk.ask("POST", "/breakpoints/1-1", {"action": "pass"})[0] == 404
    for seconds in (-1, 3601, "1", None):
        assert desk.ask("POST", "/breakpoints/armed", {"seconds": seconds})[0] == 400


def test_filters_come_before_the_operator(start, make_origin, dial):
    proxy, desk = start("both", rule='filters = ["change", "upper"]\n'
                        '[filters.change]\ncode = "sieve:Change"\n'
                        '[filters.upper]\ncode = "sieve:Upper"\n',
                        modules={"sieve": FILTERS})
    origin, client = make_origin(answer(CHUNKED)), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url("/old/x"))
    held = desk.wait_one("request")
    assert ["X-Added", "by filter"] in held["fields"] and held["path"] == "/new/x"
    desk.decide(held)
    held = desk.wait_one("response")
    assert held["status"] == 203
    desk.decide(held, "edit", hold_body=True)
    held = desk.wait_one("response", "here")
    assert base64.b64decode(desk.show(held)["content"]) == b"ABCDEF"
    desk.decide(held, "edit", body=b"last word")
    assert client.read_response().body == b"last word"


def test_a_stream_is_held_at_its_head_alone(start, make_origin, dial):
    proxy, desk = start("response", rule='filters = ["pieces"]\n[filters.pieces]\n'
                        'code = "sieve:Pieces"\n', modules={"sieve": FILTERS})
    origin, client = make_origin(answer(CHUNKED)), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url())
    held = desk.wait_one("response")
    assert held["body"] == "none"
    assert desk.try_to_decide(held, "edit", hold_body=True)[0] == 400
    desk.decide(held, "edit", status=201)
    assert client.read_response().status == 201


def test_a_body_that_is_too_long_goes_on_or_ends_it(start, make_origin, dial):
    """It goes on unchanged, unless the operator has replaced it."""
    proxy, desk = start("response")
    body = b"x" * (2 << 20)
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)))
    desk.arm()
    client = dial(proxy)
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one("response"), "edit", hold_body=True)
    assert client.read_response().body == body
    client = dial(proxy)
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one("response"), "edit", body=b"short")
    assert client.read_response().status == 502
    assert proxy.wait_log(2)[1]["reason"] == "filter_failed"
