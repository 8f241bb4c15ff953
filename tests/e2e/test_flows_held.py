"""`cutthrough flows held` and the actions that decide about it."""

import json

import pytest

from tests.support.admin import TOKEN
from tests.support.breakpoints import send, starter
from tests.support.verbs import run_apart
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy):
    return starter(start_policy)


@pytest.fixture
def flows(tmp_path):
    """Runs an action for an operator; returns exit status, output and errors."""
    token = tmp_path / "token"
    token.write_text(TOKEN)

    def run(desk, *words, token=token):
        done = run_apart("flows", *words, "--admin", f"127.0.0.1:{desk.operator.where}",
                         *(("--token-file", token) if token else ()))
        return done.returncode, done.stdout, done.stderr
    return run


def held(flows, desk, side="request"):
    def look():
        rows = [row.split() for row in flows(desk, "held")[1].splitlines()[1:]]
        return next((row[0] for row in rows if row[2] == side), None)
    return wait_until(look, side)


def test_a_request_is_edited_and_its_response_aborted(start, flows, make_origin, dial,
                                                      tmp_path):
    proxy, desk = start("both")
    origin, client = make_origin(), dial(proxy)
    assert flows(desk, "held") == (
        0, "ID  LEFT_S  SIDE  USER  METHOD  STATUS  BODY  URL\n", "not armed\n")
    assert flows(desk, "arm", "60") == (0, "armed for 60 s\n", "")
    send(client, "POST", origin.url("/a"), "X-Old: 1", "X-Kept: 1", "Cookie: a=b",
         "Content-Length: 3", body=b"old")
    one = held(flows, desk)
    assert flows(desk, "edit", one, "--hold-body")[0] == 0
    wait_until(lambda: (found := held(flows, desk)) != one and found, "its body")
    one = held(flows, desk)
    shown = flows(desk, "held", one)[1]
    assert "X-Old: 1\n" in shown and shown.endswith("\n\nold\n")
    assert json.loads(flows(desk, "held", one, "--json")[1])["id"] == one
    (tmp_path / "body").write_text("newer")
    assert flows(desk, "edit", one, "-H", "X-Old:", "-H", "X-New: 2", "--data-file",
                 str(tmp_path / "body"))[0] == 0
    one = held(flows, desk, "response")
    assert flows(desk, "abort", one) == (0, "", "")
    assert client.read_response().status == 403
    (request,) = origin.requests
    assert request.body == b"newer" and request.get("Cookie") == "a=b"
    assert [request.get(name) for name in ("X-Old", "X-New", "X-Kept")] == [
        None, "2", "1"]
    status, _, errors = flows(desk, "resume", one)
    assert status == 1 and "404: not held any more" in errors


def test_what_is_held_is_resumed(start, flows, make_origin, dial):
    proxy, desk = start("request")
    origin, client = make_origin(), dial(proxy)
    assert flows(desk, "arm", "60", "--method", "GET", "--host", "127.0.0.1", "--path",
                 "/a", "--path", "/b") == (
        0, "armed for 60 s GET 127.0.0.1 /a /b\n", "")
    assert dial(proxy).get(origin.url("/c")).status == 200
    send(client, "GET", origin.url("/a"))
    assert flows(desk, "resume", held(flows, desk))[0] == 0
    assert client.read_response().status == 200
    send(client, "GET", origin.url("/b"))
    held(flows, desk)
    assert flows(desk, "disarm") == (0, "not armed\n", "")
    assert client.read_response().status == 200


@pytest.mark.parametrize("words, why", [
    (("resume", "1"), "prints"), (("edit", "1-1"), "changes nothing"),
    (("edit", "1-1", "--data-file", "/none"), "No such file"),
    (("resume", "../flows-1"), "prints"),
])
def test_a_command_that_makes_no_sense_is_refused(start, flows, words, why):
    _, desk = start()
    status, _, errors = flows(desk, *words)
    assert status == 2 and why in errors


def test_without_the_token_nothing_is_told(start, flows):
    _, desk = start()
    for words in (("held",), ("arm",), ("resume", "1-1")):
        status, out, errors = flows(desk, *words, token=None)
        assert (status, out) == (1, "") and "401" in errors
