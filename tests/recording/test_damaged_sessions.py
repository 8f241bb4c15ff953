"""Sessions whose file a damaged page, or another program, has changed."""

import contextlib
import sqlite3

import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.session import SessionError
from tests.recording.answers import recording, request


@pytest.mark.parametrize("damage", [
    "data = 'x'", "data = 5", "data = x'ff'", "created_us = 'x'", "hits = 'x'"])
def test_a_recording_that_cannot_be_read_is_named(tmp_path, damage):
    """It was a TypeError: a traceback, without the file's name."""
    session = Sessions(tmp_path).create("a")
    session.add([recording(0, request("/1")), recording(0, request("/2"))])
    with contextlib.closing(sqlite3.connect(tmp_path / "a.session")) as base, base:
        base.execute(f"UPDATE recordings SET {damage} WHERE number = 2")
    with pytest.raises(SessionError, match=r"a\.session: recording 2: "):
        list(session.recordings())
    session.close()


@pytest.mark.parametrize("data", ["'x'", "5", "x'ff'"])
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, data):
    sessions = Sessions(tmp_path)
    sessions.create("a").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "a.session")) as base, base:
        base.execute(f"UPDATE manifest SET data = {data}")
    with pytest.raises(SessionError, match=r"a\.session: its manifest: "):
        sessions.open("a")
