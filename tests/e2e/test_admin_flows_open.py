"""Captured exchanges that have not ended, over the admin listener: WebSockets, event
streams, and all else that takes its time."""

import base64
import json
import queue

import pytest
from websockets.frames import Opcode

from tests.support.admin import AUTHORIZED
from tests.support.client import build_request
from tests.support.flows import database as database
from tests.support.flows import get, listed, reads
from tests.support.flows import start as start
from tests.support.open_flows import opened_rows, upgrade_at, wait_file, wait_open
from tests.support.origin import send_events, stall
from tests.support.wait import wait_until
from tests.support.websockets import frame, parrot, talk

pytestmark = pytest.mark.any_loop

SECRET = "c2VjcmV0"


def messages(operator, name):
    return [(one["side"], one["kind"], one.get("text"))
            for one in json.loads(get(operator, f"/flows/open/{name}/messages")[2])]


@pytest.fixture
def events():
    """The bytes that an origin's stream of events sends."""
    return queue.Queue()


@pytest.fixture
def stream(start, make_origin, dial, events, opened):
    """An operator of a proxy through which a stream of events is open."""
    def run(config="", path="/a/events"):
        def script(conn):
            conn.read_request()
            send_events(conn, events)

        proxy, operator = start(config)
        origin = make_origin(script)
        opened.callback(events.put, b"")     # the last one, before the origin's end
        client = dial(proxy)
        client.send(build_request("GET", origin.url(path),
                                  f"Authorization: Bearer {SECRET}"))
        events.put(b"data: one\n\n")
        client.read_until(b"one")
        return operator, client
    return run


class Watch:
    """A stream of events of the admin listener."""

    def __init__(self, operator, path, opened):
        connection = operator.connection()
        opened.callback(connection.close)
        connection.request("GET", path, headers=AUTHORIZED)
        self.answer = connection.getresponse()
        assert self.answer.status == 200
        opened.callback(self.answer.close)

    def next(self):
        """The next event: its name and its data. Comments are left out."""
        name = ""
        while line := self.answer.readline():
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                return name, json.loads(line[6:])
        raise AssertionError("the stream has ended")

    def until(self, wanted):
        """The first result of `wanted` for an event that is not None."""
        while (found := wanted(*self.next())) is None:
            pass
        return found


@pytest.fixture
def watch(opened):
    return lambda operator, path: Watch(operator, path, opened)


def test_a_websocket_has_a_row_while_it_is_open(start, make_origin, dial, database):
    proxy, operator = start()
    origin = make_origin(parrot)
    client = dial(proxy)
    upgrade_at(client, origin, "/a/chat")
    (row,) = wait_open(operator)
    assert row["open"] is True and "id" not in row
    assert (row["kind"], row["method"], row["url"], row["status"], row["rule"]) == (
        "tunnel", "GET", origin.url("/a/chat"), 101, "seen")
    assert row["ms"] >= 200
    assert listed(operator)["flows"] == []
    client.close()
    (ended,) = wait_until(lambda: listed(operator)["flows"], "the row")
    assert ended["request"] == row["request"] and opened_rows(operator) == []


def test_its_messages_are_there_as_they_come(start, make_origin, dial):
    proxy, operator = start()
    origin = make_origin(parrot)
    client = dial(proxy)
    upgrade_at(client, origin, "/a/chat")
    name = wait_open(operator)[0]["request"]
    talk(client, frame(Opcode.TEXT, b"zebra"))
    assert messages(operator, name) == [
        ("response", "text", "welcome"), ("request", "text", "zebra"),
        ("response", "text", "zebra")]
    shown = json.loads(get(operator, f"/flows/open/{name}")[2])
    assert shown["open"] and shown["messages"] >= 3
    assert "Upgrade: websocket" in shown["request_head"]
    assert shown["response_head"].startswith("HTTP/1.1 101 ")


def test_messages_are_streamed_until_the_end(start, make_origin, dial, watch):
    proxy, operator = start()
    client = dial(proxy)
    upgrade_at(client, make_origin(parrot), "/a/chat")
    name = wait_open(operator)[0]["request"]
    live = watch(operator, f"/flows/open/{name}/live")
    assert [one["text"] for one in live.next()[1]] == ["welcome"]
    for text in (b"first", b"second"):
        client.send(frame(Opcode.TEXT, text))
        found = []
        while len(found) < 2:
            found += live.next()[1]
        assert [(one["side"], one["text"]) for one in found] == [
            ("request", text.decode()), ("response", text.decode())]
    client.send(frame(Opcode.TEXT, b"last"))
    client.close()
    found = live.next()[1]
    while (event := live.next())[0] != "end":
        found += event[1]
    assert ("request", "last") in [(one["side"], one.get("text")) for one in found]
    number = event[1]["id"]
    assert json.loads(get(operator, f"/flows/{number}")[2])["request"] == name
    assert get(operator, f"/flows/open/{name}/live")[0] == 404


def test_a_message_is_streamed_when_it_is_whole(start, make_origin, dial, watch):
    proxy, operator = start()
    client = dial(proxy)
    upgrade_at(client, make_origin(parrot), "/a/chat")
    name = wait_open(operator)[0]["request"]
    live = watch(operator, f"/flows/open/{name}/live")
    assert [one["text"] for one in live.next()[1]] == ["welcome"]
    data = frame(Opcode.TEXT, b"long message")
    client.send(data[:9])
    client.read_until(data[:9])              # both ways it is there in part
    assert len(messages(operator, name)) == 3, "shown so far on request"
    client.send(data[9:])
    found = []
    while len(found) < 2:
        found += live.next()[1]
    assert [one["text"] for one in found] == ["long message"] * 2
    assert not [one for one in found if "state" in one]


def test_events_are_there_as_they_come(stream, events, watch):
    operator, client = stream()
    (row,) = wait_open(operator)
    name = row["request"]
    assert (row["kind"], row["status"], row["type"]) == (
        "request", 200, "text/event-stream")
    live = watch(operator, f"/flows/open/{name}/live")
    assert [one["text"] for one in live.next()[1]] == ["one"]
    events.put(b"event: tick\ndata: two\n\ndata: thr")
    client.read_until(b"thr")
    assert [(one["event"], one["text"]) for one in live.next()[1]] == [("tick", "two")]
    status, _, body = get(operator, f"/flows/open/{name}/response-body")
    assert status == 200 and body.startswith(b"data: one\n\n") and body.endswith(b"thr")
    events.put(b"ee\n\n")
    assert [one["text"] for one in live.next()[1]] == ["three"]


def test_what_is_open_is_redacted(stream, events, database):
    """R59: neither the writer's database nor a reader has the secret."""
    operator, client = stream('capture_redact_query = ["key"]\n',
                              "/a/events?key=hunter2")
    (row,) = wait_open(operator)
    name = row["request"]
    assert row["url"].endswith("?key=[redacted]")
    events.put(b"data: http://a.test/?key=hunter2\n\n")
    client.read_until(b"hunter2")
    pages = [get(operator, f"/flows/open/{name}{more}")[2] for more in (
        "", "/messages", "/response-body", "/as/curl", "/as/json")]
    for page in (*pages, json.dumps(row).encode()):
        assert b"hunter2" not in page and SECRET.encode() not in page
        assert base64.b64encode(b"hunter2") not in page
    assert b"Authorization: [redacted]" in json.loads(pages[0])["request_head"].encode()


def test_a_request_that_waits_for_its_answer_is_open(start, make_origin, dial):
    def script(conn):
        conn.read_request()
        stall(conn)

    proxy, operator = start()
    origin = make_origin(script)
    dial(proxy).send(build_request("GET", origin.url("/a/slow")))
    (row,) = wait_open(operator)
    assert row["method"] == "GET" and "status" not in row
    shown = json.loads(get(operator, f"/flows/open/{row['request']}")[2])
    assert shown["request_head"].startswith("GET /a/slow HTTP/1.1\r\n")


def test_a_filter_selects_among_them(start, make_origin, dial):
    proxy, operator = start()
    origin = make_origin(parrot)
    for path in ("/a/one", "/a/two"):
        upgrade_at(dial(proxy), origin, path)
    wait_open(operator, 2)
    assert [row["url"] for row in opened_rows(operator, "filter=~u+two")] == [
        origin.url("/a/two")]
    assert len(opened_rows(operator, "filter=~websocket+%26+~bs+welcome")) == 0, (
        "the list has heads alone")
    status, _, text = get(operator, "/flows/open?filter=~x")
    assert status == 400 and text.startswith(b"filter: ")


def test_what_no_rule_captures_is_not_there(start, make_origin, dial, tmp_path):
    proxy, operator = start()
    policy = tmp_path / "policy.toml"
    policy.write_text(policy.read_text() + """
[[rules]]
name = "unseen"
action = "allow"
addresses = ["127.0.0.0/8"]
paths = ["/b/**"]
""")
    assert operator.ask("POST", "/reload", **AUTHORIZED)[0] == 200
    upgrade_at(dial(proxy), make_origin(parrot), "/b/unseen")
    wait_until(lambda: [one for one in operator.connections()
                        if one["age"] > 0.3 and one["kind"] == "tunnel"], "its age")
    assert opened_rows(operator) == []


def test_the_live_stream_has_what_opens_changes_and_ends(
        start, make_origin, dial, watch):
    proxy, operator = start()
    wait_file(operator)
    live = watch(operator, "/flows/live?open=true")
    assert live.next() == ("open", {"rows": [], "gone": [], "all": True})
    client = dial(proxy)
    upgrade_at(client, make_origin(parrot), "/a/chat")
    name, found = live.next()
    (row,) = found["rows"]
    assert name == "open" and row["status"] == 101 and not found["all"]
    talk(client, frame(Opcode.TEXT, b"x" * 1000))
    (changed,) = live.next()[1]["rows"]
    assert changed["request"] == row["request"] and (
        changed["bytes"] - row["bytes"] > 2000)
    client.close()
    ended = live.until(lambda name, found: found if name == "" else None)
    assert [one["request"] for one in ended] == [row["request"]]
    gone = live.until(lambda name, found: found["gone"] or None)
    assert gone == [row["request"]]


def test_without_the_parameter_the_live_stream_has_ended_ones_alone(
        start, make_origin, dial, watch):
    proxy, operator = start()
    wait_file(operator)
    live = watch(operator, "/flows/live")
    client = dial(proxy)
    upgrade_at(client, make_origin(parrot), "/a/chat")
    wait_open(operator)
    client.close()
    name, (row,) = live.next()
    assert name == "" and row["status"] == 101


def test_reads_of_what_is_open_are_logged_once_each(
        start, make_origin, dial, database, watch):
    proxy, operator = start()
    client = dial(proxy)
    upgrade_at(client, make_origin(parrot), "/a/chat")
    name = wait_open(operator)[0]["request"]
    before = len(reads(database))
    live = watch(operator, f"/flows/open/{name}/live")
    live.next()
    client.send(frame(Opcode.TEXT, b"more"))
    live.next()
    get(operator, f"/flows/open/{name}/messages")
    assert reads(database)[before:] == [
        ("127.0.0.1", "open tail", name, 1), ("127.0.0.1", "open messages", name, 1)]


def test_an_identifier_that_is_not_open_is_not_found(start):
    _, operator = start()
    for path in ("", "/messages", "/response-body", "/live"):
        status, _, text = get(operator, f"/flows/open/0-99999{path}")
        assert (status, text) == (404, b"no captured exchange 0-99999 is open\n")
    assert get(operator, "/flows/open/7")[0] == 404
