"""Files of other programs, imported and replayed: the responses that a client gets, and
the import's messages about recordings that it leaves out."""

import json
import time

import pytest

from tests.capture.dumps import dump, state
from tests.support.cassettes import (
    CASSETTE,
    OF_FILES,
    OF_OLD_HTTPX,
    OF_TORNADO,
    cassette,
)
from tests.support.exports import document, export
from tests.support.simulations import delay, exact, globals_of, pair, simulation
from tests.support.verbs import run_apart

pytestmark = pytest.mark.any_loop

RULE = """
    [[rules]]
    action = "allow"
    hosts = [".example", "a.test"]
    recording = "replay"
"""


@pytest.fixture
def folder(directory):
    return directory("sessions")


def verb(folder, *words):
    return run_apart("recordings", *words, CUTTHROUGH_RECORDING_DIRECTORY=str(folder))


@pytest.fixture
def replay(folder, tmp_path, start_policy, dial):
    """Imports a file of this name; returns a client, and the import's output."""
    def begin(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        done = verb(folder, "import", "default", path)
        proxy = start_policy(RULE, f'recording_directory = "{folder}"')
        return dial(proxy), done
    return begin


def over_http(text):
    return text.replace("https://", "http://")


def test_cassettes_of_all_clients_are_replayed_byte_for_byte(replay, folder, tmp_path):
    chunked = cassette({"uri": "http://a.example/chunked"}, body={"string": "größer"},
                       headers={"Transfer-Encoding": ["chunked"]})
    for name, text in (("t.yaml", OF_TORNADO), ("f.yaml", OF_FILES),
                       ("h.json", chunked.decode()),
                       ("g.yaml", over_http(CASSETTE.rpartition("- request:")[0]))):
        (tmp_path / name).write_text(text)
        done = verb(folder, "import", "default", tmp_path / name)
        assert done.returncode == 0, done.stderr
    client, done = replay("old.yaml", over_http(OF_OLD_HTTPX))
    assert done.returncode == 0, done.stderr
    reply = client.get("http://a.example/")
    assert (reply.status, reply.body) == (404, b"not found")
    assert len(reply.all("Set-Cookie")) == 2
    reply = client.get("http://a.example/gzip")
    assert (reply.status, reply.body) == (200, b'{\n  "gzipped": true}\n')
    assert not reply.get("Content-Encoding")
    reply = client.get("http://a.example/chunked")
    assert (reply.status, reply.body) == (200, "größer".encode())
    reply = client.ask("POST", "http://a.example/x?q=1", "Content-Length: 3",
                       body=b"a=1")
    assert (reply.status, reply.body) == (200, b"\xff\x00")
    for path in ("file", "iterator"):
        reply = client.ask("POST", f"http://a.example/{path}", "Content-Length: 3",
                           body=b"abc")
        assert (reply.status, reply.body) == (204 if path == "file" else 200, b"")


def test_a_delay_of_a_simulation_delays_the_answer(replay):
    client, done = replay("s.json", simulation(
        pair({"destination": exact("a.example")}, postServeAction="callback"),
        pair({"body": [{"matcher": "xquery", "value": "/a"}]}),
        **globals_of(delay(r"a\.example/slow", 300))))
    assert done.returncode == 1 and done.stdout.startswith("2 recordings added")
    altered, refused = done.stderr.splitlines()
    assert "pair 1: the matcher 'xquery' is not known" in refused
    assert "pair 0: the action 'callback' behind its answer is left out" in altered
    begun = time.monotonic()
    assert client.get("http://a.example/slow").body == b"ok"
    assert time.monotonic() - begun >= 0.3
    assert client.get("http://a.example/other").body == b"ok"


def test_a_path_of_xml_finds_the_answer_of_a_simulation(replay):
    client, done = replay("s.json", simulation(
        pair({"body": [{"matcher": "xpath", "value": "//s:get[@id = '7']"}]})))
    assert done.returncode == 0, done.stderr
    body = b"<a xmlns:s='urn:s'><s:get id='7'/></a>"
    for sent, status in ((body, 200), (body.replace(b"7", b"8"), 502),
                         (b"<!DOCTYPE a>" + body, 502)):
        reply = client.ask("POST", "http://a.example/", f"Content-Length: {len(sent)}",
                           body=sent)
        assert reply.status == status


def test_what_is_only_altered_is_no_failure_of_an_import(replay):
    client, done = replay("s.json", simulation(pair({}, logNormalDelay={"median": 1})))
    assert done.returncode == 0 and "median" in done.stderr
    assert client.get("http://a.example/").body == b"ok"


def test_an_archive_of_a_browser_is_replayed(replay):
    """Chromium joins the fields of a name by line ends."""
    entry = {"startedDateTime": "2026-01-01T00:00:00Z", "time": 1, "cache": {},
             "timings": {"send": 0, "wait": 1, "receive": 0}, "request": {
                 "method": "GET", "url": "http://a.example/", "headers": [],
                 "httpVersion": "h2", "cookies": [], "queryString": [],
                 "headersSize": -1, "bodySize": 0},
             "response": {
                 "status": 200, "statusText": "", "httpVersion": "h2", "cookies": [],
                 "redirectURL": "", "headersSize": -1, "bodySize": 30, "headers": [
                     {"name": "connection", "value": "keep-alive"},
                     {"name": "content-encoding", "value": "gzip"},
                     {"name": "x-two", "value": "1\n2"}],
                 "content": {"size": 3, "mimeType": "text/plain", "text": "abc"}}}
    client, done = replay("b.har", json.dumps({"log": {
        "version": "1.2", "creator": {"name": "WebInspector", "version": "1"},
        "entries": [entry]}}))
    assert done.returncode == 0, done.stderr
    reply = client.get("http://a.example/")
    assert reply.body == b"abc" and not reply.get("content-encoding")
    assert reply.all("x-two") == ["1", "2"]


def test_a_dump_is_replayed(replay):
    client, done = replay("d.flows", dump(state()))
    assert done.returncode == 0, done.stderr
    reply = client.get("http://a.test:8080/a?b=c")
    assert (reply.status, reply.body) == (200, b"hello")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_an_export_of_replayproxy_is_replayed(folder, tmp_path, start_policy, dial,
                                              form):
    """Before, its two formats were not read."""
    body = b'{"id": 7}'
    exported = export(
        tmp_path / "out", form,
        document(1, method="POST", uri="/v1/chat?n=1", sent=b'{"q": "hello"}',
                 body=body, response=[
                     ("content-type", b"application/json"),
                     ("content-length", b"9"), ("x-request-id", b"abc")]),
        document(2, uri="/gone", status=404, body=b"no"),
        document(3) | {"response_status": 0})
    done = verb(folder, "import", "default", "--base-url", "http://a.example", exported)
    assert done.returncode == 1 and done.stdout == "2 recordings added to default\n"
    assert done.stderr.endswith("recording 2: the status 0 is none\n")
    proxy = start_policy(RULE, f'recording_directory = "{folder}"')
    client = dial(proxy)
    reply = client.ask("POST", "http://a.example/v1/chat?n=1", "Content-Length: 14",
                       body=b'{"q": "hello"}')
    assert (reply.status, reply.body) == (200, body)
    assert reply.get("X-Request-Id") == "abc"
    reply = client.get("http://a.example/gone")
    assert (reply.status, reply.body) == (404, b"no")
    assert client.get("http://a.example/v1/chat?n=1").status == 502
    done = verb(folder, "import", "default", "--base-url", "a.example", exported)
    assert done.returncode == 2 and "--base-url" in done.stderr
