"""Filters and recording in one rule: what a filter makes of a request is its key, and
what it makes of an answer goes to this client alone."""

import gzip

import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from cutthrough.recording.sessions.session import SessionError
from tests.support.captures import database as database
from tests.support.captures import wait_rows
from tests.support.client import build_request
from tests.support.origin import answer
from tests.support.recordings import fill, made
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

KEY, WORD = "sk-secret-0123456789", "body-word-0123456789"
MODULE = f"""
import sys

class Key:
    async def on_request_head(self, flow):
        flow.request.headers["Authorization"] = "Bearer {KEY}"
        flow.request.headers["X-Key"] = "{KEY}"
        flow.request.path = flow.request.path.partition("?")[0] + "?k={KEY}"

class Body:
    async def on_request_body(self, flow, body):
        return body.replace(b"NONE", b"{WORD}")

class Pieces:
    async def on_request_body(self, flow, pieces):
        async for piece in pieces:
            yield piece.replace(b"a", b"b")

class Head:
    async def on_response_head(self, flow):
        flow.response.headers["X-Filtered"] = flow.response.headers.get("X-Own", "-")

class Answer:
    async def on_response_body(self, flow, body):
        return body.replace(b"price", b"-----")

class Stream:
    async def on_response_body(self, flow, pieces):
        async for piece in pieces:
            yield piece.replace(b"p", b"q")

class Local:
    async def on_response_head(self, flow):
        if flow.request.path == "/local":
            flow.respond(200, b"local")

class Refuse:
    async def on_response_body(self, flow, body):
        if b"secret" in body:
            flow.refuse("not for you")

class End:
    async def on_end(self, flow):
        print("ended", flow.outcome, file=sys.stderr, flush=True)
"""


@pytest.fixture
def begin(start_policy, directory):
    def run(filters, mode="record", more="", config="", shown="Body, Pieces"):
        folder = directory("sessions")
        tables = "".join(
            # The budget is wall time, which a busy machine takes from a filter, too
            f"[filters.{name}]\ncode = \"both:{name}\"\nbudget = \"30s\"\n"
            + ("shown = true\n" if name in shown else "") for name in filters)
        names = ", ".join(f'"{name}"' for name in filters)
        proxy = start_policy(f"""
            {tables}
            [[rules]]
            action = "allow"
            addresses = ["127.0.0.0/8"]
            recording = "{mode}"
            filters = [{names}]
            {more}
            """, f'recording_directory = "{folder}"\n{config}',
            modules={"both": MODULE})
        return proxy, folder
    return run


def replay(proxy, folder, mode="replay"):
    write_state(folder, State(mode))
    wait_until(lambda: f"mode {mode}, session default" in proxy.stderr(), mode)


def recordings(folder, count):
    """So many, as they are kept."""
    def read():
        try:
            session = Sessions(folder).open("default")
        except SessionError:
            return []
        try:
            return list(session.recordings())
        finally:
            session.close()
    wait_until(lambda: len(read()) >= count, "recordings")
    return read()


def on_disk(folder):
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


PRICED = (b"HTTP/1.1 200 OK\r\nX-Own: yes\r\nContent-Type: text/plain\r\n"
          b"Content-Length: 8\r\n\r\nprice: 7")


@pytest.mark.parametrize("filters", [
    ["Head"], ["Answer"], ["Stream"], ["Head", "Answer", "Stream"]])
def test_a_response_is_recorded_as_its_origin_sent_it_and_filtered_each_time(
        begin, make_origin, dial, filters):
    proxy, folder = begin(filters)
    origin, client = make_origin(answer(PRICED)), dial(proxy)
    first = client.get(origin.url("/a"))
    (recording,) = recordings(folder, 1)
    assert recording.response.body == b"price: 7"
    assert "X-Filtered" not in dict(recording.response.fields)
    assert dict(recording.response.fields)["Content-Length"] == "8"
    replay(proxy, folder)
    again = client.get(origin.url("/a"))
    assert again.body == first.body
    assert first.body == {"Head": b"price: 7", "Answer": b"-----: 7",
                          "Stream": b"qrice: 7"}.get("".join(filters), b"-----: 7")
    assert first.get("X-Filtered") == again.get("X-Filtered") == (
        "yes" if "Head" in filters else None)
    assert len(origin.requests) == 1
    assert [line["reason"] for line in proxy.wait_log(2)] == ["ok", "replayed"]
    assert client.get(origin.url("/a")).body == first.body, "its connection goes on"


def test_what_a_filter_adds_to_a_request_is_sent_and_neither_recorded_nor_compared(
        begin, make_origin, dial, database):
    """R82: and an origin that repeats it is recorded, and captured, without it."""
    def repeat(conn):
        while True:
            request = conn.read_request()
            said = f"{request.get('X-Key')} {request.target}".encode()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Said: "
                      + (request.get("Authorization") or "").encode()
                      + b"\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    proxy, folder = begin(["Key"], more='capture = "full"',
                          config=f'capture_file = "{database}"\n')
    origin, client = make_origin(repeat), dial(proxy)
    first = client.get(origin.url("/a?own=1"))
    assert origin.requests[0].get("X-Key") == KEY and KEY in origin.requests[0].target
    assert KEY.encode() not in first.body and KEY not in (first.get("X-Said") or "")
    (recording,) = recordings(folder, 1)
    assert dict(recording.request.fields)["X-Key"] == "[redacted]"
    assert recording.request.query == "k=[redacted]"
    assert recording.response.body == b"[redacted] /a?k=[redacted]"
    wait_rows(database, 1)
    assert KEY.encode() not in (
        on_disk(folder) + on_disk(database.parent) + proxy.stderr().encode())
    replay(proxy, folder)
    assert client.get(origin.url("/a?own=2")).status == 200
    assert len(origin.requests) == 1
    assert proxy.wait_log(2)[1]["reason"] == "replayed"
    assert KEY not in proxy.log_path.read_text()


@pytest.mark.parametrize("filters", [["Body"], ["Pieces"], ["Body", "Pieces"]])
@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_a_changed_body_is_keyed_and_sent(begin, make_origin, dial, filters, framing):
    proxy, folder = begin(filters, "cache")
    origin, client = make_origin(answer(PRICED)), dial(proxy)
    body = b"NONE and banana"

    def post(data):
        if framing == "sized":
            return client.ask("POST", origin.url("/a"), f"Content-Length: {len(data)}",
                              body=data)
        return client.ask("POST", origin.url("/a"), "Transfer-Encoding: chunked",
                          body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))

    assert post(body).body == b"price: 7"
    changed = body.replace(b"NONE", WORD.encode()) if "Body" in filters else body
    changed = changed.replace(b"a", b"b") if "Pieces" in filters else changed
    assert origin.requests[0].body == changed
    (recording,) = recordings(folder, 1)
    assert recording.request.body == changed
    replay(proxy, folder, "cache")
    assert post(body).body == b"price: 7"
    assert proxy.wait_log(2)[1]["reason"] == "replayed"
    assert origin.requests[-1].body == changed
    if "Pieces" in filters:
        before = len(origin.requests)
        assert post(body.replace(b"b", b"a")).body == b"price: 7"
        assert len(origin.requests) == before, "the filter makes both alike"


def test_a_coded_answer_is_recorded_with_its_coding(begin, make_origin, dial):
    packed = gzip.compress(b"price: 7")
    head = (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
            % len(packed))
    proxy, folder = begin(["Answer"])
    origin, client = make_origin(answer(head + packed)), dial(proxy)
    asked = "Accept-Encoding: gzip"
    assert client.get(origin.url("/a"), asked).body == b"-----: 7"
    (recording,) = recordings(folder, 1)
    assert recording.response.body == packed
    replay(proxy, folder)
    assert client.get(origin.url("/a"), asked).body == b"-----: 7"
    assert proxy.wait_log(2)[1]["reason"] == "replayed"


def test_a_long_answer_goes_through_filters_at_the_pace_of_its_client(begin, dial):
    proxy, folder = begin(["Stream"], "replay")
    body = b"p" * 3_000_000
    fill(folder, made(9, body=body))
    replay(proxy, folder)
    client = dial(proxy)
    for _ in range(3):
        assert client.get("http://127.0.0.1:9/a").body == body.replace(b"p", b"q")
    assert {line["reason"] for line in proxy.wait_log(3)} == {"replayed"}


def test_a_filter_that_answers_or_refuses_does_so_each_time_and_none_is_recorded(
        begin, make_origin, dial):
    told = (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
    proxy, folder = begin(["Local", "Refuse"], "cache")
    origin = make_origin(answer(told))
    for _ in range(2):
        assert dial(proxy).get(origin.url("/local")).body == b"local"
        assert dial(proxy).get(origin.url("/a")).status == 403
    plain = make_origin(answer(PRICED))
    assert dial(proxy).get(plain.url("/b")).body == b"price: 7"
    (recording,) = recordings(folder, 1)
    assert recording.request.path == "/b"
    assert [line["reason"] for line in proxy.wait_log(5)] == [
        "filter_answered", "filter_refused"] * 2 + ["ok"]
    session = Sessions(folder).open("default")
    session.add([made(origin.port, "/a", b"a secret", host="127.0.0.1")])
    session.close()
    replay(proxy, folder)
    assert dial(proxy).get(origin.url("/a")).status == 403
    assert proxy.wait_log(6)[5]["reason"] == "filter_refused"


def test_a_miss_is_refused_and_ends_the_filters_too(begin, dial):
    proxy, _ = begin(["Head", "Answer", "End"], "replay")
    client = dial(proxy)
    assert client.get("http://127.0.0.1:9/a").status == 502
    wait_until(lambda: "ended recording_missed" in proxy.stderr(), "on_end")
    assert proxy.wait_log(1)[0]["reason"] == "recording_missed"


def test_a_cut_answer_is_cut_behind_filters(begin, dial):
    proxy, folder = begin(["Head", "End"], "replay")
    fill(folder, made(9, body=b"data: 1\n\n", is_cut=True,
                      fields=(("Content-Type", "text/event-stream"),)))
    replay(proxy, folder)
    client = dial(proxy)
    client.send(build_request("GET", "http://127.0.0.1:9/a"))
    said = client.read_rest()
    assert b"X-Filtered: -" in said and b"data: 1" in said
    assert not said.endswith(b"0\r\n\r\n")


def test_a_body_beyond_the_bound_is_refused_if_nothing_may_go_unrecorded(
        begin, make_origin, dial):
    proxy, _ = begin(["Answer"], more='unrecorded = "refuse"',
                     config='recording_body = "1KiB"\n')
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000
    chunked = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"1388\r\n" + b"x" * 5000 + b"\r\n0\r\n\r\n")
    assert dial(proxy).get(make_origin(answer(long)).url("/a")).status == 502
    assert dial(proxy).get(make_origin(answer(chunked)).url("/a")).status == 502
    assert {line["reason"] for line in proxy.wait_log(2)} == {"recording_too_large"}


def test_a_filter_of_requests_bodies_that_hides_them_has_no_place_beside_recording(
        begin):
    with pytest.raises(Exception, match=r"shown = true in \[filters.Body\]"):
        begin(["Body"], shown="")
