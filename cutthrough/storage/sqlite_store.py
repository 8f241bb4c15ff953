"""The store in a file: SQLite, one writer, any number of readers.

The file has mode 0600. The words of URLs, heads and text bodies are indexed (FTS5)
after the rows are in, when there is time for it.
"""

import contextlib
import functools
import itertools
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any

from cutthrough.config.files import limit_of_files
from cutthrough.exchange.columns import ADDED, COLUMNS, PACKED
from cutthrough.exchange.packing import LEAST, Packer
from cutthrough.storage.sqlite_insert import Inserter
from cutthrough.storage.sqlite_place import Place, make_file
from cutthrough.storage.sqlite_words import (
    RUNS,
    SIZE,
    UNPACKED,
    Words,
    unpacked_text,
)
from cutthrough.storage.store import (
    BODIES,
    BYTES,
    LIGHT,
    MOST_PRUNED,
    MOST_PRUNED_BYTES,
    MOST_READS,
    PAIRS,
    TEXTS,
    WORDS,
    Locked,
    NoRoom,
    NoStore,
    NotNow,
    Refused,
    Rows,
    StoreError,
    unpacked,
)
from cutthrough.tape.batch import Batch

VERSION = 5
# Milliseconds that a reader, or the writer of an earlier program, may hold the lock
BUSY_MS = 5000
# Between two attempts, if SQLite does not wait by itself
AGAIN_S = 0.01
# How long another connection may need to close a database for good
CLOSING_S = 5.0
MOST_WAL_BYTES = 64 << 20
# Of a new file. A row of two heads fills a third of SQLite's usual 4096, and its insert
# and deletion take 17 µs of CPU there, 9.5 µs here
PAGE_BYTES = 16384
_LENIENT = functools.partial(str, encoding="utf-8", errors="replace")
_ANY = ("request_body", "response_body", *PACKED.values())
_KINDS: dict[int, type[StoreError]] = {
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
                     sqlite3.SQLITE_PROTOCOL), Locked),
    **dict.fromkeys((sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN,
                     sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT), NotNow),
    sqlite3.SQLITE_FULL: NoRoom, sqlite3.SQLITE_IOERR: NoRoom}


def _type_of(name: str) -> str:
    return "TEXT" if name in TEXTS else "BLOB" if name in _ANY else "INTEGER"


_SCHEMA = f"""
CREATE TABLE flows (id INTEGER PRIMARY KEY AUTOINCREMENT, {", ".join(
    f"{name} {_type_of(name)}" for name in COLUMNS)});
CREATE UNIQUE INDEX flows_by_request ON flows (begun_us, request);
CREATE VIEW texts AS SELECT id, url, request_head, response_head,
    CASE typeof(request_body) WHEN 'text' THEN request_body END AS request_body,
    CASE typeof(response_body) WHEN 'text' THEN response_body END AS response_body,
    CASE WHEN messages IS NOT NULL THEN (
        SELECT group_concat(json_extract(value, '$.text'), char(10))
        FROM json_each(messages)) END AS messages
    FROM flows;
{UNPACKED}
CREATE VIRTUAL TABLE words USING fts5(
    {", ".join(WORDS)}, content='texts', content_rowid='id');
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER);
CREATE TABLE marks (id INTEGER PRIMARY KEY, tag TEXT, comment TEXT);
CREATE TABLE reads (
    at_ms INTEGER, uid INTEGER, client TEXT, verb TEXT, what TEXT, found INTEGER);
INSERT INTO state VALUES ('indexed', 0);
{RUNS}
PRAGMA user_version = {VERSION};
"""
_OLDEST = f"SELECT id, {SIZE} FROM flows ORDER BY id LIMIT ?"
# By an index: one that has lasted long is passed over
_OLD = (f"SELECT id, {SIZE} FROM flows INDEXED BY flows_by_request "
        "WHERE begun_us < ? AND ended_us < ? ORDER BY begun_us LIMIT ?")
_LIGHT = (f"SELECT {', '.join(f'flows.{name}' for name in LIGHT)}, marks.tag, "
          "marks.comment FROM flows LEFT JOIN marks ON marks.id = flows.id WHERE ")


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Raises StoreError in place of SQLite's errors: if it is known which, NotNow,
    NoRoom or Refused."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xff
        kind = _KINDS.get(code, Refused if code else StoreError)
        limit = limit_of_files() if code == sqlite3.SQLITE_IOERR else ""
        raise kind(f"{path}: {error}{limit}") from None


@contextlib.contextmanager
def transaction(base: sqlite3.Connection, path: str) -> Iterator[None]:
    """All or nothing. Raises StoreError."""
    with explained(path):
        base.execute("BEGIN IMMEDIATE")
        try:
            yield
            base.execute("COMMIT")
        finally:
            if base.in_transaction:
                base.execute("ROLLBACK")


def connect(path: str) -> sqlite3.Connection:
    """Opens the database; makes its tables if it is empty. Raises StoreError."""
    until = time.monotonic() + CLOSING_S
    while True:
        try:
            return _connect(path)
        except NoRoom:                       # perhaps another connection, the last of
            if time.monotonic() > until:     # its own, removes the log at this moment
                raise
        time.sleep(AGAIN_S)                  # nothing tells of the end of a close


def _connect(path: str) -> sqlite3.Connection:
    with explained(path):
        base = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
        base.execute(f"PRAGMA page_size = {PAGE_BYTES}")     # before the first table
        use_wal(base)
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute(f"PRAGMA journal_size_limit = {MOST_WAL_BYTES}")
        base.execute("PRAGMA temp_store = MEMORY")
        base.create_function("unpacked_text", 1, unpacked_text, deterministic=True)
        if version_of(base) == 0:
            make_tables(base)
        version = version_of(base)
        if version != VERSION:
            base.close()
            raise NotNow(f"{path}: has version {version} of the tables, and this "
                         f"program has {VERSION}; move the file away")
        add_columns(base)
    return base


def add_columns(base: sqlite3.Connection) -> None:
    """To the tables of an earlier program: it can go on with them."""
    if not missing_in(base):
        return
    base.execute("BEGIN IMMEDIATE")
    for name in missing_in(base):            # another process may have been as quick
        base.execute(f"ALTER TABLE flows ADD COLUMN {name} {_type_of(name)}")
    base.execute(UNPACKED)
    base.execute("COMMIT")


def missing_in(base: sqlite3.Connection) -> list[str]:
    names = {row[1] for row in base.execute("PRAGMA table_info(flows)")}
    return [name for name in ADDED if name not in names]


def use_wal(base: sqlite3.Connection, patience_s: float = BUSY_MS / 1000) -> None:
    """SQLite does not wait for another process that makes this change, too."""
    until = time.monotonic() + patience_s
    while True:
        try:
            base.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or (
                    time.monotonic() > until):
                raise
        time.sleep(AGAIN_S)


def version_of(base: sqlite3.Connection) -> int:
    """Returns the version of the tables; 0 if there are none."""
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def make_tables(base: sqlite3.Connection) -> None:
    try:
        base.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    except sqlite3.OperationalError:
        if base.in_transaction:
            base.execute("ROLLBACK")
        if not version_of(base):             # else another process was as quick
            raise


class SqliteStore:
    """Implements Store."""

    def __init__(self, path: str, count: int, most_bytes: int, age_s: float,
                 packer: Packer | None = None) -> None:
        """`packer`: compresses bodies. Raises OSError and StoreError."""
        self._packer = packer
        make_file(path)
        self._path = path
        self._place = Place(path)
        self._base = connect(path)
        with explained(path):
            self._words = Words(self._base, writes=True)
        self._inserter = Inserter(self._base, "INSERT OR IGNORE INTO", "flows", COLUMNS)
        self._count, self._most_bytes, self._age_us = count, most_bytes, age_s * 1e6
        self._bytes = 0
        self.is_over = False
        self.measure()

    def open(self) -> None:
        """Does nothing: these tables exist."""

    @property
    def is_there(self) -> bool:
        return self._place.is_there

    def measure(self) -> None:
        with explained(self._path):
            (self._bytes,) = self._base.execute(
                f"SELECT coalesce(sum({SIZE}), 0) FROM flows").fetchone()

    def write(self, rows: Rows) -> int:
        batch = rows if isinstance(rows, Batch) else self._batch_of(rows)
        if self._count:
            batch.keep_last(self._count)
        if self._packer is not None:
            batch.pack(PAIRS, BYTES, self._packer.pack, LEAST)
        before, self.is_over = self._bytes, False
        try:
            with transaction(self._base, self._path):
                added = self._inserter.insert(batch)
                size = batch.sum(BYTES)
                self._bytes += size
                is_over = self._prune(
                    MOST_PRUNED + len(batch), MOST_PRUNED_BYTES + size)
        except StoreError:
            self._bytes = before
            raise
        if self._place.is_deleted:
            raise NotNow(f"{self._path}: was deleted")
        self.is_over = is_over
        return added

    def _batch_of(self, rows: Sequence[tuple[Any, ...]]) -> Batch:
        try:
            return Batch.of(rows, len(COLUMNS))
        except ValueError as error:
            raise StoreError(f"{self._path}: {error}") from None

    def prune(self) -> None:
        self.write(())

    def _prune(self, most: int, most_bytes: int) -> bool:
        """Deletes at most so many rows, and about so many bytes; returns whether it was
        so many."""
        (newest,) = self._base.execute("SELECT max(id) FROM flows").fetchone()
        last = count = freed = 0
        for number, size in self._base.execute(_OLDEST, (most,)):
            if not ((self._count and number <= newest - self._count)
                    or (self._most_bytes and self._bytes > self._most_bytes)
                    ) or freed >= most_bytes:
                break
            last = number
            count += 1
            freed += size
            self._bytes -= size
        if last:
            self._delete(0, last)
        old, size = self._delete_old(most - count, most_bytes - freed)
        return count + old == most or freed + size >= most_bytes

    def _delete_old(self, most: int, most_bytes: int) -> tuple[int, int]:
        """Deletes what has ended too long ago, wherever it is: an entry before it may
        be of another clock, or imported. Returns how many, and their bytes."""
        if not self._age_us or most <= 0 or most_bytes <= 0:
            return 0, 0
        oldest_us = time.time_ns() // 1000 - self._age_us
        numbers, freed = list[int](), 0
        for number, size in self._base.execute(_OLD, (oldest_us, oldest_us, most)):
            numbers.append(number)
            freed += size
            if freed >= most_bytes:
                break
        self._bytes -= freed
        numbers.sort()
        for _, run in itertools.groupby(
                enumerate(numbers), lambda pair: pair[1] - pair[0]):
            together = [number for _, number in run]
            self._delete(together[0], together[-1])
        return len(numbers), freed

    def _delete(self, first: int, last: int) -> None:
        self._words.forget(first, last)
        self._base.execute("DELETE FROM flows WHERE id BETWEEN ? AND ?", (first, last))
        self._base.execute("DELETE FROM marks WHERE id BETWEEN ? AND ?", (first, last))

    def index(self, most: int) -> bool:
        with transaction(self._base, self._path):
            return self._words.index(most)

    def close(self) -> None:
        self._place.close(self._base)


class SqliteReader:
    """Implements Reader."""

    def __init__(self, path: str) -> None:
        """Raises StoreError; NoStore: there is no file."""
        if not os.path.exists(path):
            raise NoStore(f"{path}: {os.strerror(2)}")
        self._path = path
        self._place = Place(path)
        self._base = connect(path)
        with explained(path):
            self._words = Words(self._base)
        self._base.row_factory = sqlite3.Row

    def check_place(self) -> None:
        """Raises StoreError if the path does not name the same file still: no row comes
        any more."""
        if not self._place.is_there:
            raise StoreError(f"{self._path}: was deleted or moved")

    def flows(self, words: str = "", number: int = 0) -> Iterator[dict[str, Any]]:
        where = ""
        values: tuple[object, ...] = ()
        if words:
            if (condition := self._words.find(words)) is None:
                return
            where, values = f"WHERE {condition[0]}", condition[1]
        elif number:
            where, values = "WHERE id = ?", (number,)
        numbers = [row[0] for row in self._select(
            f"SELECT id FROM flows {where} ORDER BY id DESC", values)]
        # Row by row: a long read would keep the log of changes from being emptied
        for number in numbers:
            yield from map(unpacked, map(dict, self._select(
                "SELECT flows.*, marks.tag, marks.comment FROM flows LEFT JOIN "
                "marks ON marks.id = flows.id WHERE flows.id = ?", (number,))))

    def page(self, at: int, most: int, *, rising: bool = False, words: str = ""
             ) -> list[sqlite3.Row]:
        order = "flows.id > ? ORDER BY flows.id" if rising else (
            "flows.id < ? ORDER BY flows.id DESC")
        if not words:
            return self._select(f"{_LIGHT}{order} LIMIT ?", (at, most))
        condition = self._words.find(words)
        return [] if condition is None else self._select(
            f"{_LIGHT}{condition[0]} AND {order} LIMIT ?", (*condition[1], at, most))

    def narrow(self, at: int, most: int, columns: Sequence[str], *,
               rising: bool = False) -> list[sqlite3.Row]:
        """As `page`, with the number and these columns of flows alone."""
        order = "id > ? ORDER BY id" if rising else "id < ? ORDER BY id DESC"
        return self._select(f"SELECT id, {', '.join(columns)} FROM flows WHERE {order} "
                            "LIMIT ?", (at, most))

    def lights(self, numbers: Sequence[int]) -> list[sqlite3.Row]:
        """As `light`, of so many as one page has at most; those that are there."""
        return self._select(
            f"{_LIGHT}flows.id IN ({', '.join('?' * len(numbers))})", numbers)

    def light(self, number: int) -> sqlite3.Row | None:
        rows = self._select(f"{_LIGHT}flows.id = ?", (number,))
        return rows[0] if rows else None

    def bodies(self, number: int) -> Sequence[Any]:
        rows = self._select(
            f"SELECT {', '.join((*BODIES, *PACKED.values()))} FROM flows WHERE id = ?",
            (number,))
        row = unpacked(dict(rows[0])) if rows else {}
        return tuple(row.get(name) for name in BODIES)

    def _select(self, statement: str, values: Sequence[Any]) -> list[sqlite3.Row]:
        with explained(self._path):
            try:
                return self._base.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if not str(error).startswith("Could not decode"):
                    raise
            self._base.text_factory = _LENIENT   # a damaged page costs its octets alone
            return self._base.execute(statement, values).fetchall()

    def newest(self) -> int:
        return int(self._select("SELECT max(id) FROM flows", ())[0][0] or 0)

    def resume(self, number: int) -> int:
        """At the begin if no flow has had this number: the file was made anew since."""
        rows = self._select("SELECT seq FROM sqlite_sequence WHERE name = 'flows'", ())
        return number if number <= (rows[0][0] if rows else 0) else 0

    def delete(self, numbers: Sequence[int]) -> int:
        count = 0
        with transaction(self._base, self._path):
            for number in numbers:
                self._words.forget(number, number)
                count += self._base.execute(
                    "DELETE FROM flows WHERE id = ?", (number,)).rowcount
                self._base.execute("DELETE FROM marks WHERE id = ?", (number,))
        return count

    def mark(self, number: int, tag: str | None, comment: str | None) -> bool:
        with transaction(self._base, self._path):
            if self._base.execute(
                    "SELECT 1 FROM flows WHERE id = ?", (number,)).fetchone() is None:
                return False
            self._base.execute("INSERT OR IGNORE INTO marks (id) VALUES (?)", (number,))
            for name, value in (("tag", tag), ("comment", comment)):
                if value is not None:
                    self._base.execute(f"UPDATE marks SET {name} = ? WHERE id = ?",
                                       (value or None, number))
        return True

    def log(self, verb: str, what: str, count: int, client: str = "") -> int:
        with transaction(self._base, self._path):
            entry = self._base.execute("INSERT INTO reads VALUES (?, ?, ?, ?, ?, ?)", (
                time.time_ns() // 1_000_000, os.getuid(), client or None, verb, what,
                count)).lastrowid
            self._base.execute(
                "DELETE FROM reads WHERE rowid <= "
                "(SELECT max(rowid) FROM reads) - ?", (MOST_READS,))
        return entry or 0

    def correct(self, entry: int, count: int) -> None:
        with transaction(self._base, self._path):
            self._base.execute("UPDATE reads SET found = ? WHERE rowid = ?",
                               (count, entry))

    def reads(self) -> list[sqlite3.Row]:
        return self._select("SELECT * FROM reads ORDER BY rowid DESC", ())

    def close(self) -> None:
        self._place.close(self._base)
