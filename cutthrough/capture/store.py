"""The database of captured exchanges: SQLite, one writer, any number of readers.

A file of mode 0600, bounded by exchanges, bytes and age (R58): rows beyond a bound
are deleted, oldest first, in the transaction that adds rows. The words of URLs, heads
and text bodies are indexed (FTS5) after the rows are in, when there is time for it.

Readers use `Reader`; each of them is logged in the table `reads` (R59).
"""

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Any

from cutthrough.capture.records import COLUMNS

VERSION = 2
# Milliseconds that a reader, or the writer of an earlier program, may hold the lock
BUSY_MS = 5000
MOST_WAL_BYTES = 64 << 20
# Of a new file. A row of two heads fills a third of SQLite's usual 4096, and its insert
# and deletion take 17 µs of CPU there, 9.5 µs here
PAGE_BYTES = 16384
# Reads that are remembered
MOST_READS = 10_000

_TEXT = ("request", "kind", "method", "host", "url", "reason", "rule", "user", "client",
         "peer", "parent", "protocol", "sni", "alpn", "ja4", "request_body_state",
         "response_body_state", "request_head", "response_head")
_ANY = ("request_body", "response_body")
_WORDS = ("url", "request_head", "response_head", "request_body", "response_body")

_SCHEMA = f"""
CREATE TABLE flows (id INTEGER PRIMARY KEY AUTOINCREMENT, {", ".join(
    f"{name} {'TEXT' if name in _TEXT else 'BLOB' if name in _ANY else 'INTEGER'}"
    for name in COLUMNS)});
CREATE UNIQUE INDEX flows_by_request ON flows (begun_us, request);
CREATE VIEW texts AS SELECT id, url, request_head, response_head,
    CASE typeof(request_body) WHEN 'text' THEN request_body END AS request_body,
    CASE typeof(response_body) WHEN 'text' THEN response_body END AS response_body
    FROM flows;
CREATE VIRTUAL TABLE words USING fts5(
    {", ".join(_WORDS)}, content='texts', content_rowid='id');
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER);
CREATE TABLE marks (id INTEGER PRIMARY KEY, tag TEXT, comment TEXT);
CREATE TABLE reads (
    at_ms INTEGER, uid INTEGER, client TEXT, verb TEXT, what TEXT, found INTEGER);
INSERT INTO state VALUES ('indexed', 0);
PRAGMA user_version = {VERSION};
"""
_INSERT = (f"INSERT OR IGNORE INTO flows ({', '.join(COLUMNS)}) "
           f"VALUES ({', '.join('?' * len(COLUMNS))})")
_INDEX = (f"INSERT INTO words (rowid, {', '.join(_WORDS)}) "
          f"SELECT id, {', '.join(_WORDS)} FROM texts WHERE id > ? AND id <= ?")
_FORGET = (f"INSERT INTO words (words, rowid, {', '.join(_WORDS)}) "
           f"SELECT 'delete', id, {', '.join(_WORDS)} FROM texts WHERE id <= ?")
_FORGET_ONE = f"{_FORGET} AND id = ?"


class StoreError(Exception):
    """A file that cannot be used, with the reason."""


def make_file(path: str) -> None:
    """Makes the file, or checks that only its owner may read it. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "is not a regular file", path)
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def connect(path: str) -> sqlite3.Connection:
    """Opens the database; makes its tables if it is empty. Raises StoreError."""
    try:
        base = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
        base.execute(f"PRAGMA page_size = {PAGE_BYTES}")     # before the first table
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute(f"PRAGMA journal_size_limit = {MOST_WAL_BYTES}")
        base.execute("PRAGMA temp_store = MEMORY")
        (version,) = base.execute("PRAGMA user_version").fetchone()
        if version == 0:
            base.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        elif version != VERSION:
            raise StoreError(f"{path}: has version {version} of the tables, and this "
                             f"program has {VERSION}; move the file away")
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from None
    return base


def indexed_up_to(base: sqlite3.Connection) -> int:
    """The last flow whose words are indexed."""
    (number,) = base.execute(
        "SELECT value FROM state WHERE name = 'indexed'").fetchone()
    return int(number)


class Store:
    """The writer's side. Bounds of 0 are none."""

    def __init__(self, path: str, count: int, most_bytes: int, age_s: float) -> None:
        """Raises OSError and StoreError."""
        make_file(path)
        self._base = connect(path)
        self._count, self._most_bytes, self._age_us = count, most_bytes, age_s * 1e6
        self._bytes = 0
        self.measure()

    def measure(self) -> None:
        """Reads the sum of all rows' bytes: another program may write here, too."""
        (self._bytes,) = self._base.execute(
            "SELECT coalesce(sum(bytes), 0) FROM flows").fetchone()

    def write(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """Adds rows and deletes those beyond the bounds, as one transaction. Returns
        how many were not there already. Raises sqlite3.Error, and then nothing has
        changed."""
        if self._count and len(rows) > self._count:
            rows = rows[-self._count:]
        before = self._bytes
        try:
            self._base.execute("BEGIN IMMEDIATE")
            added = self._base.executemany(_INSERT, rows).rowcount
            self._bytes += sum(row[_BYTES] for row in rows)
            self._prune()
            self._base.execute("COMMIT")
        except sqlite3.Error:
            self._bytes = before
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise
        return max(0, added)                 # -1 without rows

    def prune(self) -> None:
        """Deletes rows that have become too old. Raises sqlite3.Error."""
        self.write(())

    def _prune(self) -> None:
        (newest,) = self._base.execute("SELECT max(id) FROM flows").fetchone()
        oldest_us = time.time_ns() // 1000 - self._age_us if self._age_us else 0
        last = 0
        for number, size, ended_us in self._base.execute(
                "SELECT id, bytes, ended_us FROM flows ORDER BY id"):
            if not ((self._count and number <= newest - self._count)
                    or (self._most_bytes and self._bytes > self._most_bytes)
                    or ended_us < oldest_us):
                break
            last = number
            self._bytes -= size
        if last:
            indexed = indexed_up_to(self._base)
            self._base.execute(_FORGET, (min(last, indexed),))
            self._base.execute("DELETE FROM flows WHERE id <= ?", (last,))
            self._base.execute("DELETE FROM marks WHERE id <= ?", (last,))

    def index(self, most: int) -> bool:
        """Indexes the words of the next `most` rows. False: there are no more. Raises
        sqlite3.Error."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            indexed = indexed_up_to(self._base)
            (last,) = self._base.execute(
                "SELECT max(id) FROM (SELECT id FROM flows WHERE id > ? ORDER BY id "
                "LIMIT ?)", (indexed, most)).fetchone()
            if last is not None:
                self._base.execute(_INDEX, (indexed, last))
                self._base.execute("UPDATE state SET value = ? WHERE name = 'indexed'",
                                   (last,))
            self._base.execute("COMMIT")
        except sqlite3.Error:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise
        return last is not None

    def close(self) -> None:
        self._base.close()


_BYTES = COLUMNS.index("bytes")


class Reader:
    """An operator's side: reads, and logs that it has. Raises StoreError."""

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):
            raise StoreError(f"{path}: {os.strerror(2)}")
        self._path = path
        self._base = connect(path)
        self._base.row_factory = sqlite3.Row

    def flows(self, words: str = "", number: int = 0) -> Iterator[sqlite3.Row]:
        """Rows, newest first: those with these words, or the one of this number."""
        where = ""
        values: tuple[object, ...] = ()
        if words:
            where = "WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?)"
            values = (words,)
        elif number:
            where, values = "WHERE id = ?", (number,)
        try:
            numbers = [row[0] for row in self._base.execute(
                f"SELECT id FROM flows {where} ORDER BY id DESC", values)]
            # Row by row: a long read would keep the log of changes from being emptied
            for one in numbers:
                row = self._base.execute(
                    "SELECT flows.*, marks.tag, marks.comment FROM flows LEFT JOIN "
                    "marks ON marks.id = flows.id WHERE flows.id = ?",
                    (one,)).fetchone()
                if row is not None:
                    yield row
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from None

    def select(self, statement: str, values: Sequence[Any]) -> list[sqlite3.Row]:
        """The rows of one SELECT."""
        try:
            return self._base.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from None

    def newest(self) -> int:
        """The number of the newest flow; 0: there is none."""
        return int(self.select("SELECT max(id) FROM flows", ())[0][0] or 0)

    def delete(self, numbers: Sequence[int]) -> int:
        """Deletes these flows, their words and marks; returns how many there were."""
        found = 0
        with self._transaction():
            indexed = indexed_up_to(self._base)
            for number in numbers:
                self._base.execute(_FORGET_ONE, (indexed, number))
                found += self._base.execute(
                    "DELETE FROM flows WHERE id = ?", (number,)).rowcount
                self._base.execute("DELETE FROM marks WHERE id = ?", (number,))
        return found

    def mark(self, number: int, tag: str | None, comment: str | None) -> bool:
        """Sets tag and comment of a flow; None leaves one as it is, "" removes it.
        False: there is no such flow."""
        with self._transaction():
            if self._base.execute(
                    "SELECT 1 FROM flows WHERE id = ?", (number,)).fetchone() is None:
                return False
            self._base.execute("INSERT OR IGNORE INTO marks (id) VALUES (?)", (number,))
            for name, value in (("tag", tag), ("comment", comment)):
                if value is not None:
                    self._base.execute(f"UPDATE marks SET {name} = ? WHERE id = ?",
                                       (value or None, number))
        return True

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._base.execute("COMMIT")
            finally:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from None

    def log(self, verb: str, what: str, found: int, client: str = "") -> None:
        """Logs a read of this program's user, or of a client of the admin listener."""
        with self._transaction():
            self._base.execute("INSERT INTO reads VALUES (?, ?, ?, ?, ?, ?)", (
                time.time_ns() // 1_000_000, os.getuid(), client or None, verb, what,
                found))
            self._base.execute(
                "DELETE FROM reads WHERE rowid <= "
                "(SELECT max(rowid) FROM reads) - ?", (MOST_READS,))

    def reads(self) -> list[sqlite3.Row]:
        return self._base.execute("SELECT * FROM reads ORDER BY rowid DESC").fetchall()

    def close(self) -> None:
        self._base.close()
