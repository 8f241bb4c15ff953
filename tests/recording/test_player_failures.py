"""A session, a recording or an answer that cannot be read costs itself alone, and a
session is looked at again (R71)."""

import asyncio
import sqlite3
from functools import partial
from unittest import mock

import msgspec
import pytest

from cutthrough.exchange.bounds import KeyMistake
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.patterns import make_predicate
from cutthrough.recording.model.recording import Pattern
from cutthrough.recording.play.player import Player, Settings
from cutthrough.recording.play.stubs import write_stubs
from cutthrough.recording.sessions import directory as sessions
from cutthrough.recording.sessions.choice import Choice
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from cutthrough.session.replay.answer_cache import AnswerCache
from tests.recording.answers import recording, request
from tests.support.wait import PATIENCE

VALUES = ["{}", "[]", "5", "null", '{"values": 5}', '{"values": {}}', "", "["]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A locked file is not waited for."""
    monkeypatch.setattr(sessions, "BUSY_MS", 0)
    monkeypatch.setattr(sessions, "use_wal", partial(sessions.use_wal, patience_s=0))


@pytest.fixture
def folder(tmp_path):
    for name in ("first", "second"):
        session = Sessions(tmp_path).create(name)
        session.put([recording(0, request(f"/{name}"))])
        session.close()
    return tmp_path


def run(folder, play, modes=None, **more):
    async def main():
        player = Player((modes if modes is not None else []).append, AnswerCache())
        player.configure(Settings(
            directory=str(folder), session="first", **more))
        try:
            await asyncio.wait_for(play(player), PATIENCE)
        finally:
            player.close()
    asyncio.run(main())


def lock(path):
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA locking_mode = EXCLUSIVE")
    base.executescript("BEGIN IMMEDIATE; UPDATE recordings SET hits = hits; COMMIT")
    return base


def paths(player):
    return [path for path in ("/first", "/second")
            if player.matcher.has_place(request(path))]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("how", ["array", "json", "partial_json"])
def test_a_pattern_of_another_form_is_a_mistake_in_it(how, value):
    pattern = Pattern(part="query", key="a", how=how, value=value)
    if how == "array" or value in ("", "["):
        with pytest.raises(KeyMistake):
            make_predicate(pattern)
    else:
        make_predicate(pattern)


def test_a_recording_with_a_malformed_pattern_costs_itself_alone(folder, caplog):
    """It ended the worker's task: each request hung, and no switch had an effect."""
    session = Sessions(folder).open("first")
    session.put([recording(0, request("/b"), patterns=(
        Pattern(part="query", key="a", how="array", value=value),)) for value in VALUES]
        + [recording(0, request("/c"))])
    session.close()

    async def play(player):
        assert await player.look() == ""
        assert player.matcher.numbers() == [1, len(VALUES) + 2]
        write_state(folder, State("replay", "second"))
        assert await player.look() == ""
        assert paths(player) == ["/second"]
    run(folder, play)
    assert caplog.text.count("has no list of `values`") == len(VALUES) - 2


@pytest.mark.parametrize("status", [-1, 0, 1, 99, 100, 103, 199, 1000, 10 ** 17])
def test_a_recording_with_a_status_of_no_answer_costs_itself_alone(
        folder, caplog, status):
    """A client waited behind a status of 1xx for the answer."""
    session = Sessions(folder).open("first")
    one = recording(0, request("/b"))
    session.put([msgspec.structs.replace(
        one, response=msgspec.structs.replace(one.response, status=status)), one])
    session.close()

    async def play(player):
        assert await player.look() == ""
        assert player.matcher.numbers() == [1, 3]
    run(folder, play)
    assert f"recording 2: no client takes the status {status}" in caplog.text


def test_whatever_a_recording_raises_is_of_that_recording(folder, caplog):
    session = Sessions(folder).open("first")
    session.put([recording(0, request("/b"))])
    session.close()
    add = Matcher.add

    def fail(self, entry, reading=None):
        if entry.request.path == "/b":
            raise KeyError("odd")
        return add(self, entry, reading)

    async def play(player):
        assert await player.look() == ""
        assert paths(player) == ["/first"]
    with mock.patch.object(Matcher, "add", fail):
        run(folder, play)
    assert "recording 2: KeyError" in caplog.text


def test_no_error_ends_the_watch_and_each_is_logged_once(folder, caplog, monkeypatch):
    monkeypatch.setattr("cutthrough.recording.play.player.POLL_S", 0.01)
    looks = asyncio.Event()

    async def fail(*_arguments, **_more):
        looks.set()
        raise TypeError                      # without a text

    async def play(player):
        with mock.patch.object(player._in_force, "look", fail), mock.patch.object(
                player._in_force, "count_hits", fail):
            for _ in range(5):
                player._counted = float("-inf")
                await looks.wait()
                looks.clear()
        assert await player.look() == "" and paths(player) == ["/first"]
        assert not player._task.done()
    run(folder, play)
    assert caplog.text.count("recordings: TypeError") == 1


def test_a_session_that_was_locked_is_opened_at_a_later_look(folder, caplog):
    modes = []

    async def play(player):
        for _ in range(3):
            assert "locked" in await player.look()
        assert paths(player) == [] and modes == []
        first.close()
        assert await player.look() == ""
        assert paths(player) == ["/first"] and modes == ["replay"]
        held = lock(folder / "second.session")
        write_state(folder, State("cache", "second"))
        for _ in range(3):
            assert "locked" in await player.look()
        assert paths(player) == ["/first"] and modes == ["replay"]
        held.close()
        assert await player.look() == ""
        assert paths(player) == ["/second"] and modes == ["replay", "cache"]
    write_state(folder, State("replay", "first"))
    first = lock(folder / "first.session")
    run(folder, play, modes)
    assert [caplog.text.count(f"{name}.session: ") for name in ("first", "second")] == [
        1, 1]


def test_a_session_that_is_copied_to_its_place_is_opened_when_it_is_whole(folder):
    data = (folder / "first.session").read_bytes()

    async def play(player):
        for begin, end in ((0, 0), (0, 1000), (1000, 20_000)):
            file.write(data[begin:end])
            assert await player.look() != ""
            assert file.tell() == end == (folder / "third.session").stat().st_size
        file.write(data[20_000:])
        assert await player.look() == ""
        assert paths(player) == ["/first"]
    write_state(folder, State("replay", "third"))
    with open(folder / "third.session", "wb", buffering=0) as file:
        run(folder, play)


@pytest.mark.parametrize("kind", ["addition", "edit"])
@pytest.mark.parametrize("method", ["span", "edits", "read_behind"])
def test_changes_that_could_not_be_read_are_read_at_the_next_look(
        folder, kind, method):
    """The file's version was noted before its rows were read."""
    session = Sessions(folder).open("first")

    async def play(player):
        assert await player.look() == ""
        if kind == "edit":
            session.edit(msgspec.structs.replace(session.get(1), request=request("/e")))
        session.put([recording(0, request("/second"))])
        with mock.patch.object(sessions.Session, method, side_effect=OSError("slow")):
            for _ in range(2):
                assert await player.look() == "slow"
        assert await player.look() == ""
        assert player.matcher.numbers() == [1, 2]
        assert player.matcher.has_place(request("/e")) == (kind == "edit")
    run(folder, play)
    session.close()


def test_a_session_that_cannot_be_read_keeps_none_that_a_request_chooses(folder):
    (folder / "broken.session").write_bytes(b"no database" * 1000)
    write_state(folder, State("replay", "broken"))

    async def play(player):
        shared = player._choose(player._settings, "first")
        waiter = asyncio.get_running_loop().create_future()
        shared.waiting.add(waiter)
        assert await player.look() != ""
        await waiter
        assert shared.matcher.has_place(request("/first"))
    run(folder, play, choice=Choice(field="x-session"))


def test_a_malformed_mode_keeps_no_request_waiting(folder):
    async def play(player):
        shared = player._choose(player._settings, "second")
        waiter = asyncio.get_running_loop().create_future()
        shared.waiting.add(waiter)
        (folder / "mode").write_text("nonsense")
        assert "JSON" in await player.look()
        await waiter
        (folder / "mode").unlink()
        assert await player.look() == ""
        assert shared.matcher.has_place(request("/second"))
    run(folder, play, choice=Choice(field="x-session"))


def test_a_malformed_stub_costs_itself_alone(folder, caplog):
    odd = Pattern(part="query", key="a", how="array", value="{}")
    write_stubs(folder, "mine", [
        recording(0, request("/x"), patterns=(pattern,)) for pattern in (
            odd, Pattern(part="path", value="/x"))])
    write_state(folder, State("replay", "first", answers="mine"))

    async def play(player):
        assert await player.look() == ""
        assert player._in_force.shared.stubs.numbers() == [2]
    run(folder, play)
    assert "stub 1 of mine: " in caplog.text
