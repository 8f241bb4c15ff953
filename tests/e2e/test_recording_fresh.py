"""Answers that are changed on their way: refreshed dates and identifiers, templates."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import pytest

from cutthrough.recording.model.recording import Chunk, Recording, Request, Response
from cutthrough.recording.sessions.directory import Sessions

pytestmark = pytest.mark.any_loop

RULE = """
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
    recording = "replay"
"""


@pytest.fixture
def start(start_policy, directory):
    def run(*recordings, config=""):
        folder = directory("sessions")
        session = Sessions(folder).create("default")
        session.add(recordings)
        session.close()
        return start_policy(RULE, f'recording_directory = "{folder}"\n{config}')
    return run


def made(path, body, *fields, method="GET", asked=b"", **more):
    return Recording(
        request=Request(method=method, scheme="http", host="127.0.0.1", port=9,
                        path=path, body=asked),
        response=Response(status=200, fields=fields, chunks=(Chunk(0, body),)), **more)


ROUTE = """
[recording_routes.api]
refresh = ["dates", "cookies"]
refresh_ids = ["x-request-id", "$.id"]
"""


def test_dates_cookies_and_identifiers_are_new_in_each_replay(start, dial):
    body = b'{"id": "req_1234567890", "n": 1}'
    proxy = start(made(
        "/a", body, ("Date", "Sat, 01 Mar 2025 12:00:00 GMT"),
        ("Expires", "Sat, 01 Mar 2025 13:00:00 GMT"),
        ("Set-Cookie", "a=b; Expires=Sat, 01 Mar 2025 12:10:00 GMT"),
        ("X-Request-Id", "req_1234567890"), ("Content-Type", "application/json"),
        ("Content-Length", str(len(body)))), config=ROUTE)
    client = dial(proxy)
    seen = set()
    for _ in range(5):
        reply = client.get("http://127.0.0.1:9/a")
        now = datetime.now(UTC)
        moved = parsedate_to_datetime(reply.get("Date")) - now
        assert abs(moved) < timedelta(minutes=1)
        late = parsedate_to_datetime(reply.get("Expires")) - now
        assert timedelta(minutes=59) < late < timedelta(minutes=61)
        until = re.search("Expires=(.*)", reply.get("Set-Cookie"))
        assert parsedate_to_datetime(until[1]) > now
        (found,) = re.findall(rb'"id": "(req_\d{10})"', reply.body)
        assert reply.get("X-Request-Id") == found.decode()
        seen.add(found)
    assert len(seen) == 5 and b"req_1234567890" not in seen
    assert {line["reason"] for line in proxy.wait_log(5)} == {"replayed"}


def test_without_these_options_the_answer_is_the_same_bytes(start, dial):
    date = "Sat, 01 Mar 2025 12:00:00 GMT"
    client = dial(start(made("/a", b"{{ uuid() }}", ("Date", date),
                             ("Content-Length", "12"))))
    for _ in range(3):
        reply = client.get("http://127.0.0.1:9/a")
        assert (reply.get("Date"), reply.body) == (date, b"{{ uuid() }}")


def test_a_template_is_filled_for_each_request(start, dial):
    pytest.importorskip("jinja2")
    proxy = start(
        made("/a", b"Hello {{ json.name }}, {{ request.fields['x-user'] }}",
             ("X-Method", "{{ request.method }}"), method="POST", template=True),
        config='[recording_routes.a]\nbody = "ignore"')
    client = dial(proxy)
    for name in ("Ann", "Bob" * 10_000):
        body = f'{{"name": "{name}"}}'.encode()
        reply = client.ask("POST", "http://127.0.0.1:9/a",
                           f"Content-Length: {len(body)}", "X-User: u", body=body)
        assert reply.body == f"Hello {name}, u".encode()
        assert reply.get("X-Method") == "POST"
        assert reply.get("Content-Length") == str(len(name) + 9)


def test_a_template_that_cannot_be_filled_is_said_by_reply_log_and_metric(start, dial):
    pytest.importorskip("jinja2")
    proxy = start(made("/a", b"{{ request.query.page }}", template=True),
                  made("/b", b"b"))
    client = dial(proxy)
    reply = client.get("http://127.0.0.1:9/a")
    assert reply.status == 502
    assert b"recording 1, its template: there is no 'page'" in reply.body
    assert b"replay_failed" in reply.body
    (line,) = proxy.wait_log(1)
    assert line["reason"] == "replay_failed" and "there is no 'page'" in line["hook"]
    assert client.get("http://127.0.0.1:9/b").body == b"b"
