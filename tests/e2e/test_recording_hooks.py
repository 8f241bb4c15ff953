"""on_record and on_replay: the operator's code sees and changes recordings."""

import textwrap

import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from cutthrough.recording.sessions.session import SessionError
from tests.support.origin import answer
from tests.support.proxy import ROOT
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

RULE = """
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
    recording = "record"
"""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BAD = b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno"
# Requests are the secret; redaction must hold for the hook's result, too
CODE = """
from msgspec.structs import replace
from cutthrough.recording.model.recording import Chunk

class Hooks:
    def on_record(self, one):
        {on_record}
    def on_replay(self, request, one):
        {on_replay}
"""


@pytest.fixture
def start(start_policy, directory):
    def run(code, config=""):
        folder = directory("sessions")
        proxy = start_policy(
            RULE, f'recording_directory = "{folder}"\n'
            f'recording_hooks = "kept:Hooks"\n{config}', modules={"kept": code})
        return proxy, folder
    return run


def hooks(on_record="return one", on_replay="return None"):
    return CODE.format(**{name: textwrap.indent(textwrap.dedent(body), " " * 8).strip()
                          for name, body in (("on_record", on_record),
                                             ("on_replay", on_replay))})


def recordings(folder):
    try:
        session = Sessions(folder).open("default")
    except SessionError:
        return []
    try:
        return list(session.recordings())
    finally:
        session.close()


def replay(proxy, folder, workers=1):
    write_state(folder, State("replay"))
    wait_until(lambda: proxy.stderr().count("mode replay, session default") == workers,
               "replay")


def test_the_example_keeps_no_failures_and_marks_replayed_answers(
        start, make_origin, dial):
    proxy, folder = start((ROOT / "docs/examples/recordings.py").read_text())
    origin = make_origin(answer(BAD, OK))
    client = dial(proxy)
    assert client.get(origin.url("/bad")).status == 500
    assert client.ask("GET", origin.url("/a"), "X-Team: blue").status == 200
    assert client.get(origin.url("/b")).status == 200
    wait_until(lambda: len(recordings(folder)) == 2, "two recordings")
    assert [one.tags for one in recordings(folder)] == [("team-blue",), ("team-none",)]
    replay(proxy, folder)
    for _ in range(3):
        reply = client.get(origin.url("/b"))
        assert (reply.get("X-Recording"), reply.body) == ("2", b"ok")
    assert client.get(origin.url("/bad")).status == 502


def test_what_a_hook_returns_is_redacted_before_it_is_stored(start, make_origin, dial):
    proxy, folder = start(hooks(on_record="""
        seen = one.request.field("authorization")
        return replace(one, tags=(str(len(seen)),), response=replace(
            one.response, fields=(("Set-Cookie", seen),)))"""))
    origin = make_origin(answer(OK))
    dial(proxy).ask("GET", origin.url("/a"), "Authorization: Bearer s3cret")
    wait_until(lambda: len(recordings(folder)) == 1, "a recording")
    assert recordings(folder)[0].tags == ("13",)
    found = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"s3cret" not in found


@pytest.mark.parametrize("body", ["raise KeyError(one)", "return 1",
                                  "raise SystemExit(3)"])
def test_a_hook_that_fails_has_nothing_recorded_and_is_told(
        start, make_origin, dial, body):
    proxy, folder = start(hooks(on_record=body))
    client, origin = dial(proxy), make_origin(answer(OK))
    for _ in range(3):
        assert client.get(origin.url("/a")).status == 200
    wait_until(lambda: "is not recorded: " in proxy.stderr(), "a line")
    assert recordings(folder) == []


@pytest.mark.parametrize("body", ["raise KeyError(one)", "return 1",
                                  "raise SystemExit(3)",
                                  "return replace(one.response, status=103)"])
def test_a_replay_whose_hook_fails_is_refused_and_the_next_one_is_served(
        start, make_origin, dial, body):
    proxy, folder = start(hooks(
        on_replay=f"if request.path == '/a':\n    {body}\nreturn None"))
    client, origin = dial(proxy), make_origin(answer(OK))
    for path in ("/a", "/b"):
        assert client.get(origin.url(path)).status == 200
    wait_until(lambda: len(recordings(folder)) == 2, "two recordings")
    replay(proxy, folder)
    reply = client.get(origin.url("/a"))
    assert reply.status == 502 and b"recording 1, on_replay: " in reply.body
    assert proxy.wait_log(3)[2]["reason"] == "replay_failed"
    assert client.get(origin.url("/b")).body == b"ok"


def test_an_answer_that_would_come_too_late_is_a_failed_replay_and_no_filter_s_fault(
        start, make_origin, dial):
    proxy, folder = start(hooks(on_record="return replace(one, delay_us=20_000_000)"),
                          'response_timeout = "300ms"\n')
    client, origin = dial(proxy), make_origin(answer(OK))
    assert client.get(origin.url("/a")).status == 200
    wait_until(lambda: len(recordings(folder)) == 1, "a recording")
    replay(proxy, folder)
    reply = client.get(origin.url("/a"))
    assert reply.status == 502 and b"no answer within response_timeout" in reply.body
    assert proxy.wait_log(2)[1]["reason"] == "replay_failed"


@pytest.mark.parametrize(("code", "reason"), [
    ("class Other: pass", "AttributeError"), ("class Hooks: pass", "has neither"),
    ("class Hooks:\n    async def on_replay(self, a, b): pass", "no async functions"),
    ("raise SystemExit(2)", "exits when it is imported"), ("x = (", "SyntaxError")])
def test_hooks_that_cannot_be_used_are_refused_at_the_start(start, code, reason):
    with pytest.raises(AssertionError, match=f"recording_hooks: .*{reason}"):
        start(code)


def test_a_reload_brings_new_code_and_keeps_what_serves_if_it_is_wrong(
        start, make_origin, dial):
    proxy, folder = start(hooks(on_replay="return replace(one.response, status=201)"),
                          "workers = 2")
    origin = make_origin(answer(OK))
    assert dial(proxy).get(origin.url("/a")).status == 200
    wait_until(lambda: len(recordings(folder)) == 1, "a recording")
    replay(proxy, folder, workers=2)
    assert dial(proxy).get(origin.url("/a")).status == 201
    file = proxy.policy.parent / "kept.py"
    good = hooks(on_replay="return replace(one.response, status=202)")
    file.write_text("x = (")
    assert "SyntaxError" in proxy.hup()
    assert dial(proxy).get(origin.url("/a")).status == 201
    file.write_text(good)
    proxy.hup()
    wait_until(lambda: dial(proxy).get(origin.url("/a")).status == 202, "the new code")
