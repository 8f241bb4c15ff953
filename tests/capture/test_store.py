"""The database: its bounds, its file, its index, its readers (R58, R59)."""

import os
import sqlite3
import stat

import pytest

from cutthrough.capture.store import Reader, Store, StoreError
from tests.capture.flows import row

NOW = 4_000_000_000_000_000         # microseconds, far ahead: nothing is too old


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "flows.db")


def make(path, count=100, most_bytes=0, age=0.0):
    return Store(path, count, most_bytes, age)


def ids(path):
    reader = Reader(path)
    found = [one["request"] for one in reader.flows()]
    reader.close()
    return found


def test_the_file_and_its_companions_are_the_owners_alone(path):
    old = os.umask(0)
    try:
        store = make(path)
        store.write([row()])
        for name in (path, f"{path}-wal", f"{path}-shm"):
            assert stat.S_IMODE(os.stat(name).st_mode) == 0o600, name
    finally:
        os.umask(old)
    store.close()


def test_a_file_that_others_may_read_becomes_the_owners(path):
    open(path, "w").close()
    os.chmod(path, 0o644)
    make(path).close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_link_and_a_directory_are_refused(path, tmp_path):
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(OSError, match="symbolic"):
        make(path)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(OSError, match="directory"):
        make(str(tmp_path))


def test_a_file_that_is_no_database_of_ours_is_left_alone(path, tmp_path):
    (tmp_path / "flows.db").write_text("something of a user's" * 100)
    with pytest.raises(StoreError, match="not a database"):
        make(path)
    other = str(tmp_path / "other.db")
    with sqlite3.connect(other) as base:
        base.execute("PRAGMA user_version = 77")
    with pytest.raises(StoreError, match="version 77"):
        make(other)


def test_a_file_with_pages_of_another_size_stays_as_it_is(path):
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA page_size = 4096")
        base.execute("PRAGMA journal_mode = WAL")
    store = make(path)
    store.write([row()])
    store.close()
    assert ids(path) == ["0-1"]
    assert sqlite3.connect(path).execute("PRAGMA page_size").fetchone() == (4096,)


def test_the_oldest_go_first_by_count(path):
    store = make(path, count=10)
    for first in range(1, 50, 7):
        store.write([row(n) for n in range(first, first + 7)])
    store.close()
    assert ids(path) == [f"0-{n}" for n in range(49, 39, -1)]


def test_a_batch_larger_than_the_bound_leaves_its_newest(path):
    store = make(path, count=10)
    store.write([row(n) for n in range(1, 1001)])
    store.close()
    assert ids(path) == [f"0-{n}" for n in range(1000, 990, -1)]


def test_the_oldest_go_first_by_bytes(path):
    store = make(path, count=0, most_bytes=1000)
    for n in range(1, 8):
        store.write([row(n, bytes=300)])
    assert ids(path) == ["0-7", "0-6", "0-5"]
    store.write([row(8, bytes=900)])
    assert ids(path) == ["0-8"]
    store.close()
    again = make(path, count=0, most_bytes=1000)
    again.write([row(9, bytes=300)])
    assert ids(path) == ["0-9"], "the sum is read at the start"
    again.close()


def test_what_is_too_old_goes(path):
    store = make(path, age=3600.0)
    store.write([row(1, ended_us=0), row(2, ended_us=NOW)])
    store.prune()
    assert ids(path) == ["0-2"]
    store.close()


def test_a_row_that_is_written_twice_is_there_once(path):
    """A writer that was killed leaves its records to the next."""
    store = make(path)
    store.write([row(1), row(2)])
    store.write([row(2), row(3)])
    store.close()
    assert ids(path) == ["0-3", "0-2", "0-1"]


def test_words_are_found_in_urls_heads_and_bodies_until_their_row_goes(path):
    store = make(path, count=2)
    store.write([row(1, url="http://a.test/zebra"), row(2, response_body="a gnu here")])
    assert store.index(500) and not store.index(500)
    reader = Reader(path)

    def search(words):
        return [one["request"] for one in reader.flows(words)]

    assert search("zebra") == ["0-1"] and search("gnu") == ["0-2"]
    assert search("accept") == ["0-2", "0-1"]
    store.write([row(3, request_body="an emu")])
    assert search("zebra") == [] and search("emu") == []
    store.index(500)
    assert search("emu") == ["0-3"] and search("gnu") == ["0-2"]
    store.write([row(n) for n in range(4, 8)])
    store.index(500)
    assert search("gnu") == [] and search("accept") == ["0-7", "0-6"]
    store._base.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 0)")
    reader.close()
    store.close()


def test_bytes_are_not_indexed_and_stay_bytes(path):
    store = make(path)
    store.write([row(1, response_body=b"\x00\xffpanda")])
    store.index(500)
    reader = Reader(path)
    (found,) = reader.flows()
    assert found["response_body"] == b"\x00\xffpanda"
    assert list(reader.flows("panda")) == []
    reader.close()
    store.close()


def test_a_write_that_fails_changes_nothing(path):
    store = make(path, count=0, most_bytes=1000)
    store.write([row(1, bytes=300)])
    with pytest.raises(sqlite3.Error):
        store.write([row(2, bytes=900), row(3, url=object())])
    store.write([row(4, bytes=300)])
    store.close()
    assert ids(path) == ["0-4", "0-1"]


def test_a_reader_does_not_hold_up_the_writer(path):
    store = make(path)
    store.write([row(n) for n in range(1, 50)])
    reader = Reader(path)
    flows = reader.flows()
    next(flows)
    store.write([row(n) for n in range(50, 200)])
    assert len(list(flows)) <= 48
    reader.close()
    store.close()


def test_every_read_is_logged(path):
    """R59."""
    make(path).close()
    reader = Reader(path)
    reader.log("export", "~d a.test", 7)
    (found,) = reader.reads()
    assert (found["uid"], found["verb"], found["what"], found["found"]) == (
        os.getuid(), "export", "~d a.test", 7)
    reader.close()


def test_a_file_that_is_not_there_is_not_made(path):
    with pytest.raises(StoreError, match="No such file"):
        Reader(path)
    assert not os.path.exists(path)
