"""The writer's part of recordings: which file each goes into."""

import sqlite3

import msgspec
import pytest

from cutthrough.recording.record import recorder as recorders
from cutthrough.recording.record import session_writer
from cutthrough.recording.record.recorder import Recorder
from cutthrough.recording.sessions import offsets
from cutthrough.recording.sessions.directory import Session, Sessions
from cutthrough.recording.sessions.modes import State, write_state
from cutthrough.recording.sessions.offsets import Offset
from cutthrough.storage.store import Locked, Refused, StoreError
from tests.recording.exchanges import ended
from tests.recording.settings import SETTINGS

GET = "GET /{} HTTP/1.1\r\nHost: a.example\r\nX-Session: {}\r\n\r\n"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "made"


@pytest.fixture
def recorder(folder):
    made = Recorder(msgspec.structs.replace(SETTINGS, directory=str(folder)))
    yield made
    made.close()


def of(session, *names):
    return [ended(up_head=GET.format(name, session)) for name in names]


def found_in(folder, name):
    session = Sessions(folder).open(name)
    try:
        return [one.request.path for one in session.recordings()]
    finally:
        session.close()


def found(folder):
    return {name: found_in(folder, name) for name in Sessions(folder).names()}


def test_a_batch_goes_into_as_many_sessions_as_it_names(recorder, folder):
    assert recorder.write(of("x", 1) + of("y", 2) + of("x", 3) + of("", 4)) == 0
    assert found(folder) == {"x": ["/1", "/3"], "y": ["/2"], "a": ["/4"]}


def test_what_a_killed_writer_has_added_is_not_added_again(folder):
    """It is killed when it has written one of two sessions."""
    settings = msgspec.structs.replace(SETTINGS, directory=str(folder))
    killed = Recorder(settings)
    assert killed.write(of("x", 1), Offset(7, 1000, False)) == 0
    assert killed.write(of("x", 2, 3), Offset(7, 2000, False)) == 0
    killed.close()
    successor = Recorder(settings)
    both = of("x", 2) + of("y", 4) + of("x", 3)
    assert successor.write(both, Offset(7, 2000, True)) == 0
    assert found(folder) == {"x": ["/1", "/2", "/3"], "y": ["/4"]}
    # Another ring's records that end at the same place, and the next ones of this ring
    assert successor.write(of("x", 5), Offset(8, 2000, True)) == 0
    assert successor.write(of("x", 6), Offset(7, 3000, False)) == 0
    assert found_in(folder, "x") == ["/1", "/2", "/3", "/5", "/6"]
    successor.close()


@pytest.mark.parametrize("alone", [False, True])
def test_what_was_added_behind_waiting_ones_is_not_added_again(
        folder, monkeypatch, alone):
    """The session was locked in an earlier turn. The writer is killed when it has added
    what waited and the next turn, before it has released that. `alone`: one of the turn
    is refused, so that each is added alone."""
    settings = msgspec.structs.replace(SETTINGS, directory=str(folder))
    killed = Recorder(settings)
    put_rows = Session.put_rows

    def refuse(session, batches, offset=None):
        made = list(batches)
        if sum(map(len, made)) > 1:
            raise Refused("one of them")
        put_rows(session, made, offset)

    def locked(*_):
        raise Locked("it is locked")

    monkeypatch.setattr(Session, "put_rows", locked)
    assert killed.write(of("x", 1), Offset(7, 1000, False)) == 0
    monkeypatch.setattr(Session, "put_rows", refuse if alone else put_rows)
    monkeypatch.setattr(session_writer, "AGAIN_S", 0)
    assert killed.write(of("x", 2, 3), Offset(7, 2000, False)) == 0
    killed.close()
    monkeypatch.setattr(Session, "put_rows", put_rows)
    successor = Recorder(settings)
    assert successor.write(of("x", 2, 3), Offset(7, 2000, True)) == 0
    assert found_in(folder, "x") == ["/1", "/2", "/3"]
    successor.close()


def test_offsets_of_few_rings_are_remembered(recorder, folder, monkeypatch):
    monkeypatch.setattr(offsets, "MOST", 3)
    for ring in range(10):
        assert recorder.write(of("x", ring), Offset(ring, 1, False)) == 0
    with sqlite3.connect(folder / "x.session") as base:
        assert base.execute("SELECT count(*) FROM turns").fetchone()[0] <= 3


def test_files_that_were_not_used_for_long_are_closed(recorder, folder, monkeypatch):
    monkeypatch.setattr(recorders, "MOST_OPEN", 3)
    for turn in range(2):
        for number in range(5):
            assert recorder.write(of(f"s{number}", turn)) == 0
    assert len(recorder._writers) == 3
    assert found(folder) == {f"s{number}": ["/0", "/1"] for number in range(5)}


def test_requests_make_no_more_sessions_than_the_bound(
        recorder, folder, monkeypatch, caplog):
    monkeypatch.setattr(recorders, "MOST_SESSIONS", 3)
    lost = [recorder.write(of(f"s{number}", 1, 2)) for number in range(6)]
    assert lost == [0, 0, 0, 2, 2, 2] and not recorder.fails
    assert "requests make no more" in caplog.text
    assert recorder.write(of("", 1)) == 0        # that in force is made always
    assert sorted(found(folder)) == ["a", "s0", "s1", "s2"]


def test_what_waits_for_many_sessions_is_bounded_as_for_one(
        recorder, folder, monkeypatch):
    monkeypatch.setattr(session_writer, "MOST_WAITING", 10)

    def fail(_session, _rows, _offset):
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Session, "put_rows", fail)
        patch.setattr(Session, "put", fail)
        lost = sum(recorder.write(of(f"s{number}", *range(4))) for number in range(5))
    assert lost == 10
    assert sum(len(writer.waiting) for writer in recorder._writers.values()) == 10
    for writer in recorder._writers.values():
        writer._tried = 0.0
    recorder.on_idle()
    assert not recorder.fails
    assert sum(map(len, found(folder).values())) == 10


def test_what_waits_goes_into_the_session_that_it_is_of(
        recorder, folder, monkeypatch):
    """It went into the session that was chosen next."""
    monkeypatch.setattr(session_writer, "AGAIN_S", 0.0)    # it is tried again at once
    Sessions(folder)
    (folder / "first.session").write_bytes(b"no session" * 1000)
    write_state(folder, State(session="first"))
    assert recorder.write(of("", 1)) == 0 and recorder.fails
    write_state(folder, State(session="second"))
    assert recorder.write(of("", 2)) == 0
    assert found_in(folder, "second") == ["/2"]
    (folder / "first.session").unlink()
    recorder.on_idle()
    assert found(folder) == {"first": ["/1"], "second": ["/2"]}


def test_a_session_that_cannot_be_written_takes_no_room_of_the_next(
        folder, monkeypatch):
    monkeypatch.setattr(session_writer, "MOST_WAITING", 3)
    Sessions(folder)
    (folder / "a.session").write_bytes(b"no session" * 1000)
    recorder = Recorder(msgspec.structs.replace(
        SETTINGS, directory=str(folder), session_field=""))
    assert [recorder.write(of("", n)) for n in range(4)] == [0, 0, 0, 1]
    assert recorder.fails
    write_state(folder, State(session="next"))
    assert [recorder.write(of("", n)) for n in range(4)] == [0] * 4
    assert not recorder.fails, "the session in force can be written"
    assert found_in(folder, "next") == ["/0", "/1", "/2", "/3"]
    recorder.close()


@pytest.mark.parametrize("text", ["{", '{"mode":"record","session":"../evil"}'])
def test_a_mode_that_cannot_be_read_leaves_the_session_as_it_was(
        recorder, folder, caplog, text):
    Sessions(folder)
    write_state(folder, State(session="first"))
    assert recorder.write(of("", 1)) == 0
    (folder / "mode").write_text(text)
    for number in (2, 3):
        assert recorder.write(of("", number)) == 0
    assert caplog.text.count("the mode cannot be read") == 1
    assert str(folder / "mode") in caplog.text
    assert found(folder) == {"first": ["/1", "/2", "/3"]}
    assert not (folder.parent / "evil.session").exists()
