"""The recorder of sessions in a database, when requests choose them."""

import contextlib
import logging
import threading

import msgspec
import pytest

from cutthrough.recording.record import session_writer, shared_recorder
from cutthrough.recording.record.shared_recorder import SharedRecorder
from cutthrough.recording.sessions.copies import Copy
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from cutthrough.recording.sessions.postgres import PostgresSessions
from cutthrough.storage.postgres import Base
from cutthrough.storage.store import StoreAway
from tests.recording.exchanges import ended
from tests.recording.settings import SETTINGS
from tests.support.wait import wait_until


def of(session, path="/x"):
    return ended(up_head=f"GET {path} HTTP/1.1\r\nHost: a\r\n"
                 f"X-Session: {session}\r\n\r\n")


@pytest.fixture
def recorder(tmp_path, postgres):
    """With the sessions of its database."""
    url = postgres.make()
    with contextlib.closing(SharedRecorder(msgspec.structs.replace(
            SETTINGS, directory=str(tmp_path / "a"), url=url, session_field="x-session")
            )) as made, contextlib.closing(
            PostgresSessions(url, tmp_path / "a")) as sessions:
        yield made, sessions


def counts(sessions):
    return {name: len(sessions.open(name)) for name in sessions.names()}


def test_each_is_in_the_session_that_it_names_and_copied(recorder, tmp_path):
    made, sessions = recorder
    mixed = [of(name, f"/{n}") for n in range(10) for name in ("one", "two")]
    assert made.write([*mixed, of(""), of("../three")]) == 0
    wanted = {"one": 10, "two": 10, "a": 1}
    wait_until(lambda: counts(sessions) == wanted, lambda: str(counts(sessions)))
    here = Sessions(tmp_path / "a")
    wait_until(lambda: counts(here) == wanted, lambda: str(counts(here)))
    assert [one.request.path for one in sessions.open("two").recordings()] == [
        f"/{n}" for n in range(10)]


def test_requests_make_so_many_sessions_and_no_more(recorder, monkeypatch, caplog):
    """A recording without a session does not wait for one, and holds up no other."""
    monkeypatch.setattr(shared_recorder, "MOST_SESSIONS", 2)
    made, sessions = recorder
    with caplog.at_level(logging.ERROR):
        lost = made.write([of(name) for name in ("one", "two")])
        wait_until(lambda: len(counts(sessions)) == 2, "two")
        lost += made.write([of("three"), of("one", "/more")])
        wait_until(lambda: counts(sessions) == {"one": 2, "two": 1}, "the second")
        wait_until(lambda: lost + made.take_lost() == 1, "one is lost")
    assert "1 recordings are lost: the database has 2 sessions" in caplog.text
    assert not made.fails


def test_more_than_may_wait_comes_in_one_turn_and_none_is_lost(recorder, monkeypatch):
    """The ring keeps them until they have room."""
    monkeypatch.setattr(session_writer, "MOST_WAITING", 20)
    made, sessions = recorder
    assert made.write([of("one", f"/{n}") for n in range(90)]) == 0
    wait_until(lambda: counts(sessions) == {"one": 90}, lambda: str(counts(sessions)))
    assert [one.request.path for one in sessions.open("one").recordings()] == [
        f"/{n}" for n in range(90)]


@pytest.fixture
def making(monkeypatch):
    """A copy that is being made, until this is set; and whether it has begun."""
    begun, over, follow = threading.Event(), threading.Event(), Copy.follow

    def follow_long(copy, session):
        begun.set()
        return follow(copy, session) or not over.is_set()

    monkeypatch.setattr(Copy, "follow", follow_long)
    return begun, over


def test_recordings_are_sent_while_a_copy_is_made(recorder, making, tmp_path):
    """Of 70 180 exchanges 66 080 were lost while a new host copied 300 000."""
    (made, sessions), (begun, over) = recorder, making
    assert made.write([of("", "/0")]) == 0
    assert begun.wait(60)
    assert made.write([of("", "/1")]) == 0
    wait_until(lambda: counts(sessions) == {"a": 2}, lambda: str(counts(sessions)))
    over.set()
    here = Sessions(tmp_path / "a")
    wait_until(lambda: counts(here) == {"a": 2}, lambda: str(counts(here)))


def test_the_end_does_not_wait_for_a_copy(recorder, making):
    (made, _), (begun, _) = recorder, making
    assert made.write([of("", "/0")]) == 0
    assert begun.wait(60)
    assert made.close() == 0
    assert not made._thread.is_alive()


def test_that_too_many_wait_is_said_once(recorder, making, monkeypatch, caplog):
    monkeypatch.setattr(session_writer, "MOST_WAITING", 2)
    monkeypatch.setattr(shared_recorder, "ROOM_S", 0.0)
    monkeypatch.setattr(SharedRecorder, "_send_queue", lambda self: None)
    made, _ = recorder
    assert [made.write([of("", "/0")]) for _ in range(4)] == [0, 0, 1, 1]
    assert caplog.text.count("too many wait for the database") == 1


@pytest.mark.parametrize("is_done", [True, False])
def test_a_commit_without_an_answer_adds_nothing_twice(recorder, monkeypatch, is_done):
    """Of 400 exchanges 26 were recorded twice when three connections broke, so that a
    sequence went back to its first answer."""
    made, sessions = recorder
    assert made.write([of("one", "/0")]) == 0
    wait_until(lambda: counts(sessions) == {"one": 1}, lambda: str(counts(sessions)))
    transaction, broken = Base.transaction, []

    @contextlib.contextmanager
    def without_answer(base):
        with transaction(base) as cursor:
            yield cursor
            breaks = not broken and cursor.execute(
                "SELECT FROM cutthrough_recordings.recordings").rowcount == 4
            if breaks and not is_done:
                broken.append(1)
                raise StoreAway("at the commit")
        if breaks:
            broken.append(1)
            raise StoreAway("at the commit")

    monkeypatch.setattr(Base, "transaction", without_answer)
    assert made.write([of("one", f"/{n}") for n in range(1, 4)]) == 0
    wait_until(lambda: broken and made.fails, "an outage")
    assert made.write([of("one", "/4")]) == 0
    wait_until(lambda: not made.waiting, "the end of the outage")
    assert [one.request.path for one in sessions.open("one").recordings()] == [
        f"/{n}" for n in range(5)]


def test_a_mode_that_cannot_be_read_loses_nothing(recorder, tmp_path, caplog):
    """Each recording was lost meanwhile. Its former content counts, as for files."""
    made, sessions = recorder
    write_state(tmp_path / "a", State(session="b"))
    assert made.write([of("")]) == 0
    wait_until(lambda: counts(sessions) == {"b": 1}, lambda: str(counts(sessions)))
    (tmp_path / "a/mode").write_text("{")
    assert made.write([of("")]) == 0
    wait_until(lambda: counts(sessions) == {"b": 2}, lambda: str(counts(sessions)))
    assert "recordings go into session b: the mode cannot be read" in caplog.text
