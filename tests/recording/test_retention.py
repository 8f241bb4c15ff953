"""Recordings beyond a session's bounds go, whether something is written or not."""

import math
import os
import time
from unittest import mock

import pytest

from cutthrough.recording.sessions import retention as module
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.retention import Retention
from cutthrough.recording.sessions.session import Manifest
from cutthrough.storage.store import StoreError
from tests.recording.answers import recording, request


def some(*ages_s):
    now_us = time.time_ns() // 1000
    return [recording(0, request(f"/{age}"), created_us=now_us - int(age * 1e6))
            for age in ages_s]


@pytest.fixture
def sessions(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0)
    return Sessions(tmp_path)


@pytest.fixture
def opened(monkeypatch):
    """The names of sessions that were opened."""
    names = []
    real = Retention._prune
    monkeypatch.setattr(Retention, "_prune", lambda self, name: (
        names.append(name), real(self, name))[1])
    return names


def fill(sessions, name, recordings, **bounds):
    session = sessions.create(name)
    session.add(recordings)
    if bounds:
        session.set_bounds(bounds.get("count", 0), bounds.get("age_s", 0))
    session.close()


def paths(sessions, name):
    session = sessions.open(name)
    found = [one.request.path for one in session.recordings()]
    session.close()
    return found


def test_recordings_beyond_a_bound_go_from_all_sessions(sessions, tmp_path):
    """Recordings went only if something was written into their session."""
    fill(sessions, "old", some(90, 70, 10), age_s=60)
    fill(sessions, "imported", some(10, 90, 20), age_s=60)
    fill(sessions, "many", some(5, 4, 3), count=2)
    fill(sessions, "free", some(90, 4))
    (tmp_path / "broken.session").write_bytes(b"no session" * 1000)
    made = Retention(str(tmp_path))
    for _ in range(2):                       # some at a time
        made.prune()
    assert paths(sessions, "old") == ["/10"]
    assert paths(sessions, "imported") == ["/10", "/20"]
    assert paths(sessions, "many") == ["/4", "/3"]
    assert paths(sessions, "free") == ["/90", "/4"]


def test_many_more_than_one_transaction_takes_go(sessions, tmp_path, monkeypatch):
    for place in ("cutthrough.recording.sessions.directory", module.__name__):
        monkeypatch.setattr(f"{place}.MOST_PRUNED", 2)
    fill(sessions, "a", some(*range(60, 67), 1), age_s=30)
    made = Retention(str(tmp_path))
    monkeypatch.setattr(module, "SHARE", 0)
    for _ in range(5):
        made.prune()
    assert paths(sessions, "a") == ["/1"]


def test_a_session_is_opened_if_it_has_changed_or_something_is_due(
        sessions, tmp_path, opened, monkeypatch):
    monkeypatch.setattr(module, "SHARE", 0)
    fill(sessions, "bound", some(10), age_s=60)
    fill(sessions, "free", some(90))
    made = Retention(str(tmp_path))
    made.prune()
    assert sorted(opened) == ["bound", "free"]
    for _ in range(5):
        made.prune()
    assert sorted(opened) == ["bound", "free"], "a thousand may be there"
    assert made._due["bound"] == pytest.approx(time.time() + 50, abs=5)
    assert made._due["free"] == math.inf
    session = sessions.open("free")          # an operator, while others have it open
    session.set_bounds(0, 60)
    made.prune()
    assert opened[2:] == ["free"] and len(session) == 0
    session.close()
    sessions.delete("bound")
    made.prune()
    assert [*made._due] == ["free"]


def test_a_session_that_was_locked_is_opened_again(sessions, tmp_path, monkeypatch):
    """It was left until it changed, and what was too old stayed."""
    fill(sessions, "a", some(90), age_s=0)
    session = sessions.open("a")
    session.set_bounds(0, 60)
    session.close()
    made = Retention(str(tmp_path))
    for error in (StoreError("database is locked"), OverflowError("too large")):
        with mock.patch.object(module.Sessions, "open", side_effect=error):
            made.prune()
        assert made._due["a"] == pytest.approx(time.time() + module.AGAIN_S, abs=5)
        made._due["a"] = 0.0
    made.prune()
    assert paths(sessions, "a") == []


def test_a_copy_has_no_bounds_of_its_own(sessions, tmp_path):
    fill(sessions, "a", some(90))
    sessions.create("b", Manifest(age_s=60, copy_of="x/1")).close()
    made = Retention(str(tmp_path))
    made.prune()
    assert made._due["b"] == math.inf


def test_a_directory_that_goes_is_none_of_its_matter(tmp_path):
    made = Retention(str(tmp_path / "none"))
    made.prune()
    assert not os.path.exists(tmp_path / "none")
