"""A store of captures as the writer has it: locked, moved, refused, full (R71, R72)."""

import contextlib
import errno
import os
import sqlite3
import threading

import msgspec
import pytest

from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.failures import Failures
from cutthrough.storage import outlet as outlets
from cutthrough.storage import sqlite_store
from cutthrough.storage.outlet import Outlet, Queue
from cutthrough.storage.sqlite_store import SqliteReader, SqliteStore
from cutthrough.storage.store import NoRoom, NotNow
from cutthrough.tape.batch import Batch
from tests.capture.flows import row
from tests.capture.settings import SETTINGS
from tests.support.wait import wait_until


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(sqlite_store, "BUSY_MS", 20)
    monkeypatch.setattr(outlets, "AWAY_S", 0.01)
    monkeypatch.setattr(outlets, "HOUSEKEEPING_S", 0.01)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "flows.db"


@pytest.fixture
def outlet(file):
    with contextlib.closing(Outlet(msgspec.structs.replace(
            SETTINGS, database=str(file), age=0, count=0), Failures())) as made:
        yield made


class Ring:
    """Counts."""

    def __init__(self):
        self.unwritten = 0

    def lose(self, unwritten):
        self.unwritten += unwritten


def batch(*numbers, **fields):
    return Batch.of([row(number, **fields) for number in numbers], len(COLUMNS))


def names(file):
    reader = SqliteReader(str(file))
    found = sorted(int(one["request"][2:]) for one in reader.flows())
    reader.close()
    return found


@contextlib.contextmanager
def locked(file):
    base = sqlite3.connect(file, isolation_level=None)
    base.execute("BEGIN IMMEDIATE")
    yield
    base.execute("ROLLBACK")
    base.close()


def test_rows_wait_for_a_file_that_is_locked(outlet, file, caplog):
    """They were counted as lost after five seconds, with an empty ring (R72)."""
    assert outlet.write(batch(1)) == 0
    with locked(file):
        for _ in range(3):
            with pytest.raises(NotNow, match="locked"):
                outlet.write(batch(2))
        assert 0 < outlet.pause_s <= 1.0
    assert outlet.write(batch(2)) == 0 and outlet.pause_s == 0
    assert names(file) == [1, 2]
    assert caplog.text.count("cannot be written") == 1
    assert caplog.text.count("are written again") == 1


@pytest.mark.parametrize("how", ["deleted", "moved", "moved alone", "replaced"])
def test_a_file_that_has_gone_is_made_again(outlet, file, caplog, how):
    """It took everything in silence (R72)."""
    assert outlet.write(batch(1)) == 0
    for path in list(file.parent.glob("flows.db*")):
        if how == "moved" or (how == "moved alone" and path == file):
            path.rename(path.with_name(path.name.replace("flows", "old")))
        elif how != "moved alone":
            path.unlink()
    if how == "replaced":
        SqliteStore(str(file), 0, 0, 0).close()
    assert outlet.write(batch(2)) == 0
    assert names(file) == [2]
    assert "flows.db was deleted or moved; it is made again" in caplog.text
    if "moved" in how:
        assert names(file.with_name("old.db")) == [1]


def test_a_file_that_its_server_has_lost_is_made_again(outlet, file, monkeypatch):
    """As NFS says it (ESTALE): it ended the thread that writes captures."""
    assert outlet.write(batch(1)) == 0
    lost, fstat = [outlet._store._place._fd], os.fstat

    def stale(fd):
        if fd in lost:
            lost.remove(fd)                  # its number is another file's next
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return fstat(fd)

    monkeypatch.setattr(os, "fstat", stale)
    file.unlink()
    assert outlet.write(batch(2)) == 0 and names(file) == [2]


def test_a_file_that_has_gone_is_noticed_without_rows(outlet, file):
    assert outlet.write(batch(1)) == 0
    file.unlink()
    wait_until(lambda: outlet.keep_house() or file.exists(), "the file")
    assert names(file) == []


def test_a_file_that_goes_in_the_middle_of_a_write_costs_nothing(
        outlet, file, monkeypatch):
    assert outlet.write(batch(1)) == 0
    insert = outlet._store._inserter.insert

    def remove(rows):
        file.unlink()
        return insert(rows)

    monkeypatch.setattr(outlet._store._inserter, "insert", remove)
    with pytest.raises(NotNow, match="deleted"):
        outlet.write(batch(2))
    assert outlet.write(batch(2)) == 0 and names(file) == [2]


@pytest.mark.parametrize("content", [b"of a user" * 999, None])
def test_what_is_no_store_is_awaited_and_left_alone(outlet, file, content, caplog):
    """The writer ended, and with it recordings."""
    if content is None:
        with sqlite3.connect(file) as base:
            base.execute("PRAGMA user_version = 4")
        base.close()
    else:
        file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(NotNow):
            outlet.write(batch(1))
        assert not outlet.open()
    if content is None:
        with contextlib.closing(sqlite3.connect(file)) as base:
            assert base.execute("PRAGMA user_version").fetchone() == (4,)
    else:
        assert file.read_bytes() == content
    file.unlink()
    assert outlet.write(batch(1)) == 0 and names(file) == [1]
    assert caplog.text.count("cannot be written") == 1


def test_another_reason_is_said_as_well(outlet, file, caplog):
    """A server of another version came back, and the log had that it was away."""
    assert outlet.write(batch(1)) == 0
    with locked(file), pytest.raises(NotNow, match="locked"):
        outlet.write(batch(2))
    for path in file.parent.glob("flows.db*"):
        path.unlink()
    file.write_bytes(b"of a user" * 999)
    for _ in range(2):
        with pytest.raises(NotNow, match="not a database"):
            outlet.write(batch(2))
    assert caplog.text.count("cannot be written") == 2


def test_a_row_that_the_store_refuses_costs_itself_alone(outlet, file, monkeypatch):
    """R71: a batch was lost with it, or the writer."""
    def refuse(given, rows):
        if any(one[0] == "0-3" for one in rows):
            raise OverflowError("secret")
        return write(given, rows)

    write = SqliteStore.write
    monkeypatch.setattr(SqliteStore, "write", refuse)
    assert outlet.write(batch(1, 2, 3, 4)) == 0
    assert outlet._failures.take() == 1 and names(file) == [1, 2, 4]


def test_reasons_of_failures_are_logged_at_once_and_then_once_a_minute(caplog):
    """R37: without their texts."""
    failures = Failures()
    for count in (1, 5):
        for _ in range(count):
            try:
                b"\xff".decode()
            except UnicodeDecodeError as error:
                failures.add(error)
            failures.report()
    assert caplog.text.count("could not be captured") == 1
    assert "1 exchanges could not be captured, and are lost: UnicodeDecodeError" in (
        caplog.text) and "0xff" not in caplog.text
    failures.report(at_once=True)
    assert "5 exchanges could not be captured" in caplog.text
    assert failures.take() == 6 and failures.take() == 0


# The thread in front of it


def test_what_waits_for_a_store_is_bounded_and_the_rest_is_counted(
        outlet, file, monkeypatch):
    monkeypatch.setattr(outlets, "MOST_QUEUED", 40_000)
    file.write_bytes(b"of a user" * 999)
    queue, ring = Queue(outlet, lambda: None), Ring()
    for number in range(100):
        queue.put(batch(number, response_body="x" * 1000), ring)
    assert 20 < queue.waiting < 40 and ring.unwritten == 100 - queue.waiting
    kept = queue.waiting
    file.unlink()
    wait_until(lambda: not queue.waiting, "rows")
    queue.close()
    assert names(file) == list(range(kept)) and ring.unwritten == 100 - kept


def test_what_still_waits_at_the_end_is_counted_and_said(outlet, file, caplog):
    """R72: no message said so."""
    file.write_bytes(b"of a user" * 999)
    queue, ring = Queue(outlet, lambda: None), Ring()
    for number in range(3):
        queue.put(batch(number, number + 10), ring)
    queue.close()
    assert ring.unwritten == 6 and queue.waiting == 0
    assert "6 captured exchanges are lost: " in caplog.text


def test_what_ends_the_thread_ends_the_writer_which_is_replaced(outlet, caplog):
    """Captures were dropped from then on, and the process stayed."""
    def fail(rows):
        raise MemoryError("no room")

    outlet.write, outlet.keep_house = fail, lambda: None
    queue, ring = Queue(outlet, lambda: None), Ring()
    queue.put(batch(1, 2), ring)
    queue.wait(30)
    with pytest.raises(MemoryError, match="no room"):
        queue.put(batch(3), ring)            # it is in its ring still
    queue.close()
    assert ring.unwritten == 2
    assert "2 captured exchanges are lost: MemoryError" in caplog.text


def test_a_queue_is_settled_when_all_is_written_as_far_as_it_can_be(outlet, file):
    queue, gate = Queue(outlet, lambda: None), threading.Event()
    write = outlet.write
    outlet.write = lambda rows: gate.wait(30) and write(rows)
    queue.put(batch(1), Ring())
    assert not queue.is_settled
    gate.set()
    wait_until(lambda: queue.is_settled, "rows")
    assert names(file) == [1]
    os.replace(file, file.with_name("old.db"))
    file.write_bytes(b"of a user" * 999)
    queue.put(batch(2), Ring())
    wait_until(lambda: queue.is_settled, "the failure")
    queue.close()


def test_a_turn_waits_for_a_store_once_and_not_again_until_all_is_written(
        outlet, file, monkeypatch):
    """The rows that it waits for are in the ring still, if the process is killed."""
    queue, gate = Queue(outlet, lambda: None), threading.Event()
    gate.set()
    write = outlet.write
    outlet.write = lambda rows: gate.wait(30) and write(rows)
    queue.put(batch(1), Ring())
    queue.wait(30)
    assert names(file) == [1] and not queue.waiting
    gate.clear()
    queue.put(batch(2), Ring())
    queue.wait(0.01)
    queue.wait(30)                           # at once
    assert queue.waiting == 1
    gate.set()
    wait_until(lambda: not queue.waiting, "rows")
    queue.put(batch(3), Ring())
    queue.wait(30)
    assert not queue.waiting
    queue.close()


def test_words_that_are_not_indexed_at_the_end_are_indexed_by_the_next(
        outlet, file, monkeypatch):
    """A writer that a reload replaced read no ring until all words were indexed, and
    was killed after 20 s."""
    monkeypatch.setattr(outlets, "LAST_INDEX_S", 0.0)
    outlet.write(batch(1, 2))
    outlet.finish()
    assert found(file, "test") == 0
    outlet.keep_house()
    assert found(file, "test") == 2


def found(file, words):
    reader = SqliteReader(str(file))
    count = len(list(reader.flows(words)))
    reader.close()
    return count


def test_what_a_full_disk_keeps_from_being_done_is_said_once(
        outlet, monkeypatch, caplog):
    """It was said each second, for as long as the disk was full."""
    outlet.write(batch(1))

    def fail(*args):
        raise NoRoom("database or disk is full")

    monkeypatch.setattr(SqliteStore, "index", fail)
    for _ in range(3):
        outlet.index()
        outlet._delete_old(0)                # which has it indexed again
    monkeypatch.setattr(SqliteStore, "prune", fail)
    for _ in range(3):
        outlet._delete_old(0)
    assert [record.message for record in caplog.records] == [
        f"captured exchanges cannot be {done}: database or disk is full"
        for done in ("indexed", "deleted")]
