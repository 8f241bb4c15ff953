"""Filters of one rule with bounds of their own: each fails for itself alone."""

import gzip

import pytest
from websockets.frames import Frame, Opcode

from tests.support.client import build_request
from tests.support.origin import answer
from tests.support.stream import chunked
from tests.support.wait import wait_until
from tests.support.websockets import UPGRADE, frame

pytestmark = pytest.mark.any_loop

MODULE = """
class Small:
    async def on_request_body(self, flow, body):
        return b"small"

    on_response_body = on_request_body

    async def on_websocket_message(self, flow, message):
        message.content = b"small"

class Large:
    async def on_request_body(self, flow, body):
        return body.replace(b"secret", b"------")

    on_response_body = on_request_body

    async def on_websocket_message(self, flow, message):
        message.content = message.content.replace(b"secret", b"------")

class Short:
    async def on_request_body(self, flow, body):
        return body[:5]
"""
BODY, CLEAN = b"secret" + b"x" * 4000, b"------" + b"x" * 4000


@pytest.fixture
def begin(start_policy):
    def run(*names, small="pass", large="refuse", config=""):
        return start_policy(
            f'[filters.small]\ncode = "sieve:Small"\nmax_body = "1KiB"\n'
            f'on_fault = "{small}"\n'
            f'[filters.large]\ncode = "sieve:Large"\nmax_body = "100KiB"\n'
            f'on_fault = "{large}"\n'
            f'[filters.short]\ncode = "sieve:Short"\n'
            f'[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
            f'filters = {list(names)!r}\n', config, modules={"sieve": MODULE})
    return run


def post(client, url, body, *fields):
    client.send(build_request("POST", url, *(
        fields or [f"Content-Length: {len(body)}"])) + body)
    return client.read_response("POST")


@pytest.mark.parametrize("large", ["pass", "refuse"])
@pytest.mark.parametrize("names", [("small", "large"), ("large", "small")])
@pytest.mark.parametrize("coding", ["", "gzip"])
def test_a_neighbour_s_smaller_bound_bypasses_no_filter(
        begin, make_origin, dial, large, names, coding):
    """The origin got the secret, or the client a 502, because of `small` alone."""
    raw = gzip.compress(BODY) if coding else BODY
    fields = [f"Content-Encoding: {coding}"] if coding else []
    head = "".join(f"{field}\r\n" for field in fields).encode()
    origin = make_origin(answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n%b" % (
        len(raw), head, raw)))
    proxy = begin(*names, large=large)
    reply = post(dial(proxy), origin.url(), raw, f"Content-Length: {len(raw)}", *fields)
    assert (reply.status, reply.body) == (200, CLEAN)
    assert origin.requests[0].body == CLEAN
    fault = ("the filter small failed in on_request_body (1 so far): the body is "
             "longer than 1024 bytes")
    wait_until(lambda: fault in proxy.stderr(), fault)
    assert "large failed" not in proxy.stderr()


def test_a_bound_is_of_the_body_that_the_filter_gets(begin, make_origin, dial):
    origin = make_origin()
    proxy = begin("large", "short", "small", small="refuse")
    assert post(dial(proxy), origin.url(), BODY).status == 200
    assert origin.requests[0].body == b"small"


@pytest.mark.parametrize("faults", [("pass", "pass"), ("refuse", "pass"),
                                    ("pass", "refuse")])
def test_a_body_beyond_all_bounds_is_every_filter_s_fault(
        begin, make_origin, dial, faults):
    body = b"secret" * 25_000
    origin = make_origin()
    proxy = begin("small", "large", small=faults[0], large=faults[1])
    reply = post(dial(proxy), origin.url(), chunked([body]),
                 "Transfer-Encoding: chunked")
    if "refuse" in faults:
        assert reply.status == 502 and not origin.requests
    else:
        assert reply.status == 200 and origin.requests[0].body == body
        wait_until(lambda: "large failed in on_request_body (2 so far)"
                   in proxy.stderr(), "both faults")


@pytest.mark.parametrize("names", [("small", "large"), ("large", "small")])
def test_a_message_too_long_for_one_filter_comes_to_the_others(
        begin, make_origin, dial, names):
    """The message passed both of them."""
    def script(conn):
        conn.read_request()
        conn.send(UPGRADE
                  + Frame(Opcode.BINARY, BODY[:900], fin=False).serialize(mask=False)
                  + Frame(Opcode.CONT, BODY[900:]).serialize(mask=False)
                  + frame(Opcode.BINARY, b"x", mask=False))
        conn.stall()

    client = dial(begin(*names))
    client.send(build_request("GET", make_origin(script).url(), "Connection: Upgrade",
                              "Upgrade: websocket"))
    assert client.read_head().status == 101
    for wanted in (frame(Opcode.BINARY, CLEAN, mask=False),
                   frame(Opcode.BINARY, b"small", mask=False)):
        assert client.read_exact(len(wanted)) == wanted


def test_a_silence_in_a_body_that_a_filter_awaits_is_answered(
        begin, make_origin, dial):
    """Nothing of the response had gone out: the client got an end without a word."""
    def half(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        conn.stall()

    proxy, origin = begin("large", config='idle_timeout = "200ms"\n'), make_origin(half)
    reply = dial(proxy).get(origin.url())
    assert (reply.status, reply.error) == (504, "connection_read_timeout")
    assert proxy.wait_log(1)[0]["reason"] == "idle_timeout"


LATE = """
class Late:
    async def on_request_body(self, flow, body):
        method, _, path = body.decode().partition(" ")
        flow.request.method, flow.request.path = method, path
"""


def test_a_path_that_filters_of_a_body_change_is_judged_again(
        start_policy, make_origin, dial):
    """R41: the origin was connected, and nobody asked the rules about the new one."""
    proxy = start_policy("""
        [filters.late]
        code = "late:Late"
        [[rules]]
        action = "deny"
        paths = ["/admin/**"]
        [[rules]]
        action = "deny"
        methods = ["DELETE"]
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        filters = ["late"]
        """, modules={"late": LATE})
    origin = make_origin()
    for said, status in (
            (b"PUT /here", 200), (b"PUT /admin/x", 403), (b"DELETE /here", 403)):
        reply = dial(proxy).ask(
            "POST", origin.url("/a"), f"Content-Length: {len(said)}", body=said)
        assert reply.status == status, said
    assert [(request.method, request.target) for request in origin.requests] == [
        ("PUT", "/here")]
    lines = proxy.wait_log(3)
    assert [line["reason"] for line in lines] == [
        "ok", "path_denied", "destination_denied"]
    assert len({line["rule"] for line in lines}) == 3
