"""Bodies that are collected, and bodies that are costly to read, in a worker."""

import gzip
import json
import random

import pytest
from websockets.frames import Opcode

from cutthrough.recording.model.recording import (
    Chunk,
    Message,
    Pattern,
    Recording,
    Request,
    Response,
)
from tests.support.chats import enter, expect, expect_reason, frame
from tests.support.client import build_request
from tests.support.recordings import fill, made
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start

pytestmark = pytest.mark.any_loop

LARGE = bytes(400_000)
FILTERED = """
    [filters.Looks]
    code = "sieve:Looks"
    on_fault = "{on_fault}"

    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
    filters = ["Looks"]
"""
LOOKS = """
class Looks:
    async def on_request_body(self, flow, body):
        return None
"""


def begin(client, url, body=LARGE):
    """Sends all of a body but its end."""
    client.send(build_request("POST", url, f"Content-Length: {len(body) + 1}") + body)


def test_a_body_without_room_is_503_and_finds_some_when_the_others_have_gone(
        start, folder, dial):
    """R69: 400 connections that sent 4 MB each took 950 MiB, for good."""
    fill(folder, made(9, method="POST", sent=LARGE + b"x"))
    proxy = start(config='workers = 1\ncollected_bodies = "1MiB"')
    url = "http://127.0.0.1:9/a"
    first = dial(proxy)
    begin(first, url)                        # one user alone gets half
    refused = None
    for _ in range(100):                     # until the first is here
        second = dial(proxy)
        reply = second.ask("POST", url, f"Content-Length: {len(LARGE) + 1}",
                           body=LARGE + b"x")
        if reply.status == 503:
            refused = reply
            break
        if not first.is_silent(0.01):        # the second was quicker
            first = dial(proxy)
            begin(first, url)
    assert refused is not None and b"content_limit" in refused.body
    first.send(b"x")
    assert first.read_response("POST").body == b"hello"
    reply = dial(proxy).ask("POST", url, f"Content-Length: {len(LARGE) + 1}",
                            body=LARGE + b"x")
    assert (reply.status, reply.body) == (200, b"hello")


def test_a_body_without_room_goes_on_unread_if_its_rule_has_an_origin(
        start, make_origin, dial):
    # R69
    origin = make_origin()
    proxy = start("cache", config='workers = 1\ncollected_bodies = "1MiB"')
    body = random.randbytes(900_000)         # of which a part was collected
    client = dial(proxy)
    for _ in range(2):
        reply = client.ask("POST", origin.url("/a"), f"Content-Length: {len(body)}",
                           body=body)
        assert reply.status == 200
    assert [request.body for request in origin.requests] == [body] * 2


@pytest.mark.parametrize("on_fault", ["refuse", "pass"])
def test_a_body_without_room_is_a_fault_of_its_filters(
        start_policy, make_origin, dial, on_fault):
    # R69
    origin = make_origin()
    proxy = start_policy(
        FILTERED.format(on_fault=on_fault), 'collected_bodies = "1MiB"',
        modules={"sieve": LOOKS})
    body = bytes(900_000)
    reply = dial(proxy).ask("POST", origin.url("/a"), f"Content-Length: {len(body)}",
                            body=body)
    assert reply.status == (503 if on_fault == "refuse" else 200)
    line = proxy.wait_log(1)[0]
    assert line["reason"] == ("content_limit" if on_fault == "refuse" else "ok")


def test_what_is_costly_to_read_is_matched_all_the_same(start, folder, dial):
    """R64: it is read in another process. 1 MB of lists took a worker 5 s."""
    document = [[number] for number in range(20_000)]
    fill(folder, made(9, method="POST", sent=json.dumps(document).encode()))
    proxy = start(config='workers = 1\nrecording_redact_json = ["$..password"]\n'
                  'recording_misses = "nearest"\n'
                  '[recording_routes.all]\nbody = "json"')
    client = dial(proxy)
    body = gzip.compress(json.dumps(document, indent=2).encode())
    reply = client.ask("POST", "http://127.0.0.1:9/a", "Content-Encoding: gzip",
                       f"Content-Length: {len(body)}", body=body)
    assert (reply.status, reply.body) == (200, b"hello")
    body = json.dumps([*document, 0]).encode()
    reply = client.ask("POST", "http://127.0.0.1:9/a", f"Content-Length: {len(body)}",
                       body=body)
    assert reply.status == 502 and b"the nearest is recording 1" in reply.body


def test_many_patterns_are_asked_elsewhere(start, folder, dial):
    """R64: 2000 recordings with patterns took the loop 0.4 s with each body."""
    fill(folder, *(Recording(
        request=Request(method="POST", scheme="http", host="127.0.0.1", port=9,
                        path="/a"),
        patterns=(Pattern(part="path", how="exact", value="/a"),
                  Pattern(part="body", how="jsonpath",
                          value=f"$.items[?@.id == {number}]")),
        response=Response(status=200, chunks=(Chunk(0, b"%d" % number),)))
        for number in range(1, 2001)))
    client = dial(start(config="workers = 1"))
    body = json.dumps({"items": [{"id": number} for number in range(1990, 2020)]})
    reply = client.ask("POST", "http://127.0.0.1:9/a", f"Content-Length: {len(body)}",
                       body=body.encode())
    assert (reply.status, reply.body) == (200, b"1990")
    body = json.dumps({"items": [{"id": 0}]})
    reply = client.ask("POST", "http://127.0.0.1:9/a", f"Content-Length: {len(body)}",
                       body=body.encode())
    assert reply.status == 502


def test_costly_messages_of_a_websocket_are_compared_elsewhere(start, folder, dial):
    """R64: a message of 1 MB of lists took a worker seconds."""
    said = {"id": "a-1", "lists": [[number] for number in range(20_000)]}
    answered = {"id": "a-1", "lists": said["lists"]}
    fill(folder, Recording(
        request=Request(method="GET", scheme="http", host="127.0.0.1", port=9,
                        path="/rpc"),
        response=Response(status=101, messages=(
            Message(0, True, "text", json.dumps(said, indent=1).encode()),
            Message(1, False, "text", json.dumps(answered).encode()),
            Message(2, True, "text", json.dumps(said).encode())))))
    client = dial(start(config="""
workers = 1
recording_redact_json = ["$..password"]
[recording_routes.rpc]
paths = ["/rpc"]
body = "json"
ignored_paths = ["$.id"]
"""))
    enter(client, "http://127.0.0.1:9/rpc")
    client.send(frame(Opcode.TEXT, json.dumps(said | {"id": "mine"}).encode()))
    expect(client, Opcode.TEXT, json.dumps(
        answered | {"id": "mine"}, separators=(",", ":")).encode())
    client.send(frame(Opcode.TEXT, json.dumps(said | {"lists": [0] * 20_000}).encode()))
    expect_reason(client, b"message 3 differs from the recording")
