"""Rows in C memory go into SQLite as sqlite3 would take them."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.storage import sqlite_insert
from cutthrough.storage.sqlite_batch import BatchTable
from cutthrough.storage.sqlite_insert import Inserter, batch_table_of
from cutthrough.tape.batch import Batch

VALUES = st.one_of(
    st.none(), st.integers(-2**63, 2**63 - 1), st.binary(max_size=40),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.sampled_from(["", b"", "ä" * 3000, b"\0" * 5000, "a\0b"]))
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=150)
NAMES = ("a", "b", "c")


@pytest.fixture(params=["a table that SQLite reads", "executemany"])
def inserter(request, monkeypatch):
    if request.param == "executemany":
        monkeypatch.setattr(sqlite_insert, "batch_table_of", lambda _base, _width: None)
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.execute("CREATE TABLE rows (a, b, c)")
    base.execute("CREATE UNIQUE INDEX once ON rows (a) WHERE typeof(a) = 'integer'")
    return base, Inserter(base, "INSERT OR IGNORE INTO", "rows", NAMES)


@given(ROWS)
def test_a_batch_gives_back_what_it_was_given(rows):
    batch = Batch.of(rows, 3)
    assert list(batch) == rows and len(batch) == len(rows)
    assert batch.used() == tuple(
        n for n in range(3) if any(row[n] is not None for row in rows))


@pytest.mark.parametrize("used", [0, 1, 2, 3])
def test_rows_are_inserted(inserter, used):
    base, one = inserter
    rows = [(*(value if n < used else None for n, value in enumerate(row)),)
            for row in [(1, "ä\0x", b"\xff"), (2, "", b""), (None, "b" * 9000, 1 << 62),
                        (-5, None, "x")]]
    assert one.insert(Batch.of(rows, 3)) == len(rows)
    assert base.execute("SELECT * FROM rows").fetchall() == rows
    assert one.insert(Batch(3)) == 0


def test_only_new_rows_count(inserter):
    base, one = inserter
    assert one.insert(Batch.of([(1, 2, 3), (1, 4, 5), (2, 6, 7)], 3)) == 2
    assert one.insert(Batch.of([(2, 2, 2)], 3)) == 0
    assert base.execute("SELECT b FROM rows").fetchall() == [(2,), (6,)]


@given(ROWS)
def test_both_ways_give_the_same_table(rows):
    found = []
    for takes_table in (True, False):
        base = sqlite3.connect(":memory:", isolation_level=None)
        base.execute("CREATE TABLE rows (a INTEGER, b TEXT, c BLOB)")
        one = Inserter(base, "INSERT INTO", "rows", NAMES)
        if not takes_table:
            one._given = None
        one.insert(Batch.of(rows, 3))
        found.append(base.execute(
            "SELECT *, typeof(a), typeof(b) FROM rows").fetchall())
        base.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("row", [
    (1, 2), (1, 2, 3, 4), (1, 2, 1.5), (1, 2, 1 << 63), (1, 2, "\ud800"),
    (1, 2, object())])
def test_what_cannot_be_a_row_adds_nothing(row):
    batch = Batch.of([(1, "a", b"b")], 3)
    with pytest.raises(ValueError):
        batch.append(row)
    batch.append((2, "c", None))
    assert list(batch) == [(1, "a", b"b"), (2, "c", None)]


def test_the_last_rows_are_kept():
    batch = Batch.of([(n, 10 * n) for n in range(5)], 2)
    batch.keep_last(7)
    assert len(batch) == 5
    batch.keep_last(2)
    assert list(batch) == [(3, 30), (4, 40)] and batch.sum(1) == 70
    batch.clear()
    assert list(batch) == [] and batch.used() == ()
    batch.append((1, None))
    assert list(batch) == [(1, None)] and batch.used() == (0,)


def test_a_large_batch_does_not_keep_its_memory():
    batch = Batch(1)
    for _ in range(3):
        for _ in range(20):
            batch.append((b"x" * (1 << 20),))
        assert sum(len(row[0]) for row in batch) == 20 << 20
        batch.clear()


def test_the_table_is_empty_but_during_its_statement():
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.execute("CREATE TABLE rows (a NOT NULL)")
    table = BatchTable(base, 1)
    batch = Batch.of([("x",), (None,)], 1)
    with pytest.raises(sqlite3.IntegrityError):
        table.insert("INSERT INTO rows SELECT c0 FROM given", batch)
    assert base.execute("SELECT count(*) FROM given").fetchone() == (0,)
    with pytest.raises(ValueError):
        table.insert("INSERT INTO rows SELECT c0 FROM given", Batch(2))
    with pytest.raises(ValueError):
        BatchTable(base, 1000)
    # Others cannot load a module by a statement
    with pytest.raises(sqlite3.OperationalError, match="not authorized"):
        base.execute("SELECT load_extension('/nothing')")


def test_a_connection_that_loads_nothing_takes_rows_by_sqlite3():
    class Other(sqlite3.Connection):
        def enable_load_extension(self, enabled):
            raise AttributeError("enable_load_extension")

    assert batch_table_of(sqlite3.connect(":memory:", factory=Other), 3) is None
    assert batch_table_of(sqlite3.connect(":memory:"), 3) is not None
