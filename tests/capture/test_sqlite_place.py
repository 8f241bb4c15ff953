"""A database that was deleted or moved, while it is open: its log is found by name."""

import shutil
import sqlite3
import subprocess
import sys

import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.storage.sqlite_place import Place, make_file
from cutthrough.storage.sqlite_store import connect
from tests.recording.answers import recording, request
from tests.recording.exchanges import ended
from tests.recording.settings import SETTINGS


def opened(path):
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("CREATE TABLE IF NOT EXISTS t (n)")
    return base, Place(str(path))


@pytest.mark.parametrize("moved", [False, True])
def test_the_log_of_another_file_of_that_name_stays(tmp_path, moved):
    """SQLite deletes it by its name: its content was lost."""
    path = tmp_path / "one.db"
    old, place = opened(path)
    old.execute("INSERT INTO t VALUES (1)")
    for file in list(tmp_path.iterdir()):
        if moved and file == path:
            file.rename(tmp_path / "old.db")
        else:
            file.unlink()
    new, new_place = opened(path)
    new.execute("INSERT INTO t VALUES (2)")
    assert not place.is_there and place.is_deleted != moved and new_place.is_there
    place.close(old)
    place.close(old)
    assert path.with_name("one.db-wal").exists()
    new.execute("INSERT INTO t VALUES (3)")
    seen = subprocess.run(
        [sys.executable, "-c", "import sqlite3, sys; print(sqlite3.connect("
         "sys.argv[1]).execute('SELECT n FROM t').fetchall())", str(path)],
        capture_output=True, text=True, check=True).stdout
    assert seen == "[(2,), (3,)]\n"
    new_place.close(new)
    assert not path.with_name("one.db-wal").exists()
    if moved:
        assert sqlite3.connect(tmp_path / "old.db").execute(
            "SELECT n FROM t").fetchall() == [(1,)]


def test_a_follower_of_a_deleted_session_leaves_the_new_one_whole(tmp_path):
    """R72."""
    sessions = Sessions(tmp_path)
    writer, follower = sessions.create("a"), None
    writer.put([recording(0, request("/0"))])
    follower = sessions.open("a")
    sessions.delete("a")
    writer.close()
    writer = sessions.create("a")
    writer.put([recording(0, request("/1"))])
    follower.close()
    writer.put([recording(0, request("/2"))])
    other = sessions.open("a")
    assert [one.request.path for one in other.recordings()] == ["/1", "/2"]
    other.close()
    writer.close()


def test_the_book_of_a_replaced_session_takes_the_new_file(tmp_path, caplog):
    """It took the old one, as long as its name was there (R72)."""
    import msgspec

    from cutthrough.recording.record.recorder import Recorder

    recorder = Recorder(msgspec.structs.replace(SETTINGS, directory=str(tmp_path)))
    assert recorder.write([ended()]) == 0
    sessions = Sessions(tmp_path)
    sessions.delete("a")
    sessions.create("a").close()
    assert recorder.write([ended()]) == 0
    with_new = sessions.open("a")
    assert len(with_new) == 1 and "was deleted or moved" in caplog.text
    with_new.close()
    assert recorder.close() == 0


def test_the_log_of_a_file_that_was_moved_away_is_not_read(tmp_path):
    """It was removed by whoever made the new file: another program could have opened
    that by then, lost its own log, and had "disk I/O error"."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    base = sqlite3.connect(old, isolation_level=None)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("CREATE TABLE t (n)")
    for end in ("-wal", "-shm"):
        shutil.copy(f"{old}{end}", f"{new}{end}")
    base.close()
    make_file(str(new))
    base = connect(str(new))
    assert not base.execute("SELECT 1 FROM sqlite_master WHERE name = 't'").fetchall()
    base.close()
