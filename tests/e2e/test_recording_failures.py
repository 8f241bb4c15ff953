"""A worker meets malformed recordings and locked sessions: it replays the sound ones,
and a switch has its effect."""

import json
import sqlite3

import pytest

from cutthrough.recording.sessions.modes import State, write_state
from tests.support.recordings import fill, made, run_verb
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

URL = "http://127.0.0.1:9/a"


def switch(proxy, folder, session):
    write_state(folder, State("replay", session))
    wait_until(lambda: f"mode replay, session {session}" in proxy.stderr(),
               proxy.stderr)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_malformed_pattern_that_was_imported_stops_no_replay(
        start, folder, dial, tmp_path, when):
    """Each request hung, and the worker saw no switch until it was started again."""
    fill(folder, made(9))
    fill(folder, made(9, body=b"other"), name="other")
    (tmp_path / "manifest.json").write_text(json.dumps(
        {"version": 1, "recordings": ["a.json"]}))
    (tmp_path / "a.json").write_text(json.dumps({
        "request": {"method": "GET", "scheme": "http", "host": "h", "port": 80,
                    "path": "/"}, "response": {"status": 200},
        "patterns": [{"part": "query", "how": "array", "key": "a", "value": "{}"}]}))
    proxy = start() if when == "meanwhile" else None
    run_verb(folder, "recordings", "import", "default", str(tmp_path))
    proxy = proxy or start()
    wait_until(lambda: "recording 2: '{}' has no list" in proxy.stderr(), proxy.stderr)
    assert dial(proxy).get(URL).body == b"hello"
    switch(proxy, folder, "other")
    assert dial(proxy).get(URL).body == b"other"


def test_a_session_that_was_locked_is_replayed_when_it_is_free(start, folder, dial):
    fill(folder, made(9))
    base = sqlite3.connect(folder / "default.session", isolation_level=None)
    base.execute("PRAGMA locking_mode = EXCLUSIVE")
    base.executescript("BEGIN IMMEDIATE; UPDATE recordings SET hits = hits; COMMIT")
    proxy = start()
    wait_until(lambda: "is locked" in proxy.stderr(), proxy.stderr)
    assert dial(proxy).get(URL).status == 502
    base.close()
    wait_until(lambda: dial(proxy).get(URL).body == b"hello", proxy.stderr)
    assert proxy.stderr().count("is locked") == 1
