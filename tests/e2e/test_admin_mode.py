"""The mode of recordings by the admin listener: all may see it, and few change it. A
change holds when it is answered."""

import contextlib
import json
import signal

import psutil
import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import read_state
from tests.support.admin import AUTHORIZED, TOKEN, TOLD, Operator, administered
from tests.support.inside import okay
from tests.support.recordings import RULE, fill, made, writer
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

WORKERS = 2


@pytest.fixture
def start(loop_name, directory, opened):
    return lambda text="": administered(opened, directory("proxy"), loop_name, text)


def test_the_mode_is_shown_to_all_and_changed_with_the_token(start, directory):
    folder = directory("sessions")
    _, operator = start(f'recording_directory = "{folder}"\n')
    assert json.loads(operator.get("/mode")) == {"mode": "rules", "session": None}
    assert operator.ask("POST", "/mode?mode=replay")[0] == 401
    assert read_state(folder).mode == "rules"
    status, text = operator.ask("POST", "/mode?mode=replay&session=ci", **AUTHORIZED)
    assert (status, json.loads(text)) == (200, {
        "mode": "replay", "session": "ci", "errors": [], "unanswered": []})
    before = read_state(folder)
    assert (before.mode, before.session) == ("replay", "ci")
    status, text = operator.ask("POST", "/mode?session=", **AUTHORIZED)
    assert json.loads(text)["session"] is None
    assert read_state(folder).run > before.run


@pytest.mark.parametrize("query", ["", "mode=other", "session=../x", "mod=replay"])
def test_a_change_that_is_none_is_refused(start, directory, query):
    folder = directory("sessions")
    _, operator = start(f'recording_directory = "{folder}"\n')
    assert operator.ask("POST", f"/mode?{query}", **AUTHORIZED)[0] == 400
    assert not (folder / "mode").exists()


def test_without_a_directory_there_is_no_mode(start):
    _, operator = start()
    assert operator.ask("GET", "/mode")[0] == 404
    assert operator.ask("POST", "/mode?mode=replay", **AUTHORIZED)[0] == 404
    assert operator.ask("POST", "/settle")[0] == 401
    assert operator.ask("GET", "/settle", **AUTHORIZED)[0] == 405
    assert tell(operator, "/settle") == {"unanswered": []}


def tell(operator, path):
    status, text = operator.ask("POST", path, **AUTHORIZED)
    assert status == 200, text
    return json.loads(text)


@pytest.fixture
def recorder(start_policy, directory):
    """A proxy of two workers that records, an operator of it, and the sessions."""
    folder = directory("sessions")
    proxy = start_policy(
        RULE.format(mode="record", keys=""), f'admin = "127.0.0.1:0"\n'
        f'admin_token = "{TOKEN}"\nworkers = {WORKERS}\n'
        f'recording_directory = "{folder}"\n')
    told = wait_until(lambda: TOLD.findall(proxy.stderr()), proxy.stderr)
    return proxy, Operator(int(told[-1])), folder


def recorded(folder, name):
    with contextlib.closing(Sessions(folder).open(name)) as session:
        return [one.request.path for one in session.recordings()]


def test_a_change_holds_in_all_workers_when_it_is_answered(
        recorder, make_origin, dial):
    proxy, operator, folder = recorder
    origin = make_origin(okay)
    clients = [dial(proxy) for _ in range(8)]            # of both workers
    for number in range(10):
        fill(folder, made(origin.port, "/a", b"%d" % number), name=f"s{number}")
        found = tell(operator, f"/mode?mode=replay&session=s{number}")
        assert found == {"mode": "replay", "session": f"s{number}", "errors": [],
                         "unanswered": []}
        for client in clients:
            reply = client.get(f"http://127.0.0.1:{origin.port}/a")
            assert reply.body == b"%d" % number
    assert not origin.connections


def test_what_has_ended_before_a_change_is_in_the_session_of_then(
        recorder, make_origin, dial):
    proxy, operator, folder = recorder
    origin = make_origin(okay)
    for number in range(10):
        tell(operator, f"/mode?session=s{number}")
        for _ in range(4):
            url = f"http://127.0.0.1:{origin.port}/{number}"
            assert dial(proxy).get(url).status == 200
        # A busy writer is waited for here: a change waits for it, and not for ever
        wait_until(lambda: not tell(operator, "/settle")["unanswered"], proxy.stderr)
        if not number % 2:
            tell(operator, "/mode?session=other")
        assert recorded(folder, f"s{number}") == [f"/{number}"] * 4
        assert len(proxy.log()) == 4 * (number + 1)


def test_a_session_that_cannot_be_read_is_told(recorder, make_origin, dial):
    _, operator, folder = recorder
    (folder / "bad.session").write_text("none")
    found = tell(operator, "/mode?mode=replay&session=bad")
    assert len(found["errors"]) == 1 and "bad.session" in found["errors"][0]
    assert tell(operator, "/mode?session=good")["errors"] == []


def test_who_has_not_answered_in_time_is_named(recorder, make_origin, dial):
    proxy, operator, _ = recorder
    for stopped in (writer(proxy), next(
            one for one in proxy.workers() if one != writer(proxy))):
        stopped.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda one=stopped: one.status() == psutil.STATUS_STOPPED,
                       "it stops")
            (name,) = tell(operator, "/settle")["unanswered"]
            assert name.startswith(("worker", "the writer"))
            assert tell(operator, "/mode?mode=record")["unanswered"] == [name]
        finally:
            stopped.send_signal(signal.SIGCONT)
        wait_until(lambda: tell(operator, "/settle")["unanswered"] == [], "it goes on")


def test_a_writer_that_dies_is_waited_for_no_longer(recorder):
    proxy, operator, _ = recorder
    before = writer(proxy)
    before.send_signal(signal.SIGSTOP)
    asked = operator.connection()
    asked.request("POST", "/settle", headers=AUTHORIZED)
    before.kill()
    answer = asked.getresponse()
    assert (answer.status, len(json.loads(answer.read())["unanswered"])) == (200, 1)
    asked.close()
    wait_until(lambda: tell(operator, "/settle")["unanswered"] == [], "another")
