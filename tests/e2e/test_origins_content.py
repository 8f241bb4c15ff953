"""Capture, recording, replay and filters on requests to named origins."""

import pytest

from tests.support.captures import database as database
from tests.support.captures import wait_rows
from tests.support.certificates import authority
from tests.support.client import Client
from tests.support.origin import Connection
from tests.support.origins import HOST, RULE, named, say
from tests.support.recordings import folder as folder
from tests.support.recordings import recorded
from tests.support.stream import chunked
from tests.support.tls_parents import over_tls
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

TLS = {"scheme": "https", "ca": str(authority().own.certificate)}
FILTERS = """
    class Change:
        async def on_request_head(self, flow):
            assert flow.request.host == "api.local", flow.request.host
            flow.request.headers["X-Added"] = "by filter"
            flow.request.path = flow.request.path.replace("/old", "/new")

        async def on_request_body(self, flow, body):
            return body.upper()

        async def on_response_body(self, flow, body):
            return body[::-1]

    class Move:
        async def on_request_head(self, flow):
            flow.request.host = "b.local"
"""


def parrot(conn: Connection) -> None:
    """A server that answers with the body of the request, or with its target."""
    while True:
        request = conn.read_request()
        body = request.body or request.target.encode()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body)


@pytest.fixture(params=["http", "https"])
def server(request, make_origin):
    """A server, and the keys of its origin."""
    if request.param == "http":
        return make_origin(parrot), {}
    return make_origin(over_tls(parrot)), TLS


def test_a_request_is_captured_as_the_client_sent_it(
        start_policy, server, dial, database):
    origin, keys = server
    proxy = start_policy(
        RULE + 'capture = "full"\n', f'capture_file = "{database}"\n'
        + named(origin, host="url", forwarded="x", **keys))
    client = dial(proxy)
    assert client.get("/v1/x?a=1", "X-Forwarded-For: 6.6.6.6", host=HOST).status == 200
    assert client.ask("POST", "/v1/y", "Content-Length: 5", host=HOST,
                      body=b"hello").body == b"hello"
    first, second = wait_rows(database, 2)
    assert (first["url"], first["host"], first["port"]) == (
        f"http://{HOST}/v1/x?a=1", HOST, 80)
    assert first["parent"] == f"api/127.0.0.1:{origin.port}"
    assert (first["peer"], first["peer_port"]) == ("127.0.0.1", origin.port)
    assert f"\r\nHost: {HOST}\r\n" in first["request_head"]
    assert "6.6.6.6" in first["request_head"], "what the client sent"
    assert "127.0.0.1" not in first["request_head"]
    assert (second["request_body"], second["response_body"]) == ("hello", "hello")
    assert origin.requests[0].all("Host") == [f"127.0.0.1:{origin.port}"]
    assert origin.requests[0].all("X-Forwarded-For") == ["127.0.0.1"]


def test_what_is_recorded_is_replayed_without_a_server(
        start_policy, server, dial, folder):
    origin, keys = server
    config = f'recording_directory = "{folder}"\n' + named(origin, host="url", **keys)
    proxy = start_policy(RULE + 'recording = "record"\n', config)
    client = dial(proxy)
    asked = [("GET", "/v1/models", b""), ("POST", "/v1/chat", b"x" * 70_000)]
    for method, path, body in asked:
        reply = client.ask(method, path, f"Content-Length: {len(body)}", host=HOST,
                           body=body)
        assert reply.body == body or reply.body == path.encode()
    wait_until(lambda: recorded(folder) == 2, "both are recorded")
    origin.close()
    proxy.policy.write_text(RULE + 'recording = "replay"\n')
    assert "refused" not in proxy.hup()
    wait_until(lambda: "session default, 2 recordings" in proxy.stderr(), "it is read")
    client = dial(proxy)
    for method, path, body in asked:
        reply = client.ask(method, path, f"Content-Length: {len(body)}", host=HOST,
                           body=body)
        assert (reply.status, reply.body) == (200, body or path.encode())
    assert client.get("/v1/other", host=HOST).status == 502
    reasons = [one["reason"] for one in proxy.wait_log(5)]
    assert reasons[2:] == ["replayed", "replayed", "recording_missed"]


def test_a_stream_of_events_is_recorded_and_replayed(
        start_policy, make_origin, dial, folder):
    events = [b"data: 1\n\n", b"data: 2\n\n"]

    def script(conn: Connection) -> None:
        while True:
            conn.read_request()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                      b"Transfer-Encoding: chunked\r\n\r\n", chunked(events))
    origin = make_origin(script)
    proxy = start_policy(RULE + 'recording = "cache"\n',
                         f'recording_directory = "{folder}"\n' + named(origin))

    def is_replayed() -> bool:
        assert dial(proxy).get("/v1/stream", host=HOST).body == b"".join(events)
        return "replayed" in {one["reason"] for one in proxy.log()}
    wait_until(is_replayed, "it is replayed")
    before = len(origin.requests)
    assert is_replayed() and len(origin.requests) == before


def test_filters_change_heads_and_bodies(start_policy, server, dial):
    origin, keys = server
    proxy = start_policy(
        RULE + 'filters = ["change"]\n[filters.change]\ncode = "changes:Change"\n',
        named(origin, host="url", forwarded="x", **keys), modules={"changes": FILTERS})
    client = dial(proxy)
    reply = client.ask("POST", "/old/a", "Content-Length: 5",
                       "X-Forwarded-For: 6.6.6.6", host=HOST, body=b"hello")
    assert (reply.status, reply.body) == (200, b"OLLEH")
    assert client.get("/old/b", host=HOST).body == b"/new/b"[::-1]
    first, second = origin.requests
    assert (first.target, second.target) == ("/new/a", "/new/b")
    for request in origin.requests:
        assert request.get("X-Added") == "by filter"
        assert request.all("Host") == [f"127.0.0.1:{origin.port}"]
        assert request.all("X-Forwarded-For") == ["127.0.0.1"]
        assert request.all("X-Forwarded-Host") == [HOST]


def test_a_filter_that_changes_the_host_changes_the_origin(
        start_policy, make_origin, dial):
    a, b = make_origin(say("a")), make_origin(say("b"))
    proxy = start_policy(
        RULE + 'filters = ["move"]\n[[rules]]\naction = "allow"\nhosts = ["b.local"]\n'
        'origin = "b"\n[filters.move]\ncode = "changes:Move"\n',
        named(a) + named(b, name="b"), modules={"changes": FILTERS})
    assert dial(proxy).get("/", host=HOST).body == b"b"
    assert not a.requests and b.requests[0].all("Host") == ["b.local"]


def test_headers_of_a_rule_and_of_the_origin_are_both_applied(
        start_policy, make_origin, dial):
    origin = make_origin()
    proxy = start_policy(
        '[headers.key.request]\nset = { Authorization = "Bearer one" }\n' + RULE
        + 'headers = ["key"]\n', named(origin, host="hosted.test", forwarded="rfc7239"))
    assert dial(proxy).get("/", "Authorization: Bearer mine", host=HOST).status == 200
    (request,) = origin.requests
    assert request.all("Authorization") == ["Bearer one"]
    assert request.all("Host") == ["hosted.test"]
    assert len(request.all("Forwarded")) == 1


def test_the_limits_of_a_user_count(start_policy, make_origin):
    origin = make_origin()
    proxy = start_policy(
        RULE + 'limits = "few"\n[limits.few]\nrequests_per_second = 1\nburst = 2\n',
        '[[listeners]]\naddress = "127.0.0.1:0"\nauth = "none"\nuser = "sdk"\n'
        + named(origin))
    with Client(proxy.port) as client:
        statuses = [client.get("/", host=HOST, auth=None).status for _ in range(6)]
    assert statuses[:2] == [200, 200] and 429 in statuses
