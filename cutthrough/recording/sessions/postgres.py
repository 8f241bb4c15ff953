"""Sessions in a PostgreSQL database, which several hosts record and replay.

    change:  announce ── number ── rows ── (deletions) ── sums ── commit

A change has a number, which every row has that it added or edited; of deleted rows the
session's `count` tells. Hosts that record wait for none: who asks for what changed
behind the last change that it has seen ends at the horizon (storage/horizon.py), and
misses none. Edits and deletions of a session wait for each other.

The key of the hashes that stand for secrets is not in the database, and all hosts must
have the same: `state.key_check` is a hash by which another one is noticed.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import cutthrough
from cutthrough.recording.model.key import check_of, read_key
from cutthrough.recording.model.masking import make_masker
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.sessions.postgres_change import Change, Cursor
from cutthrough.recording.sessions.postgres_tables import (
    ADD,
    BEGIN,
    COPY,
    FOLD,
    HEADS,
    HORIZON,
    NEXT,
    OF,
    PAGE,
    SESSION_LOCK,
    TABLES,
)
from cutthrough.recording.sessions.session import (
    MOST_PRUNED,
    MOST_READS,
    VERSION,
    AnySession,
    AnySessions,
    Attempt,
    Manifest,
    NoSession,
    Read,
    Row,
    SessionError,
    check_name,
    encode,
    limit_us,
    masked,
    read,
    read_manifest,
)
from cutthrough.storage.postgres import ANSWER_S, Base
from cutthrough.storage.postgres_rows import clean
from cutthrough.storage.store import split_words

# Bytes of recordings in one answer; a longer recording comes alone
MOST_ANSWERED = 8 << 20
LAST = (1 << 63) - 1
# Searches for old recordings within a session's age: each reads the whole session
LOOKS = 100
# Rows of a session in `changes` that are made one
MOST_CHANGES = 64

class Changes(NamedTuple):
    """The changes that a copy lacks. `at`: the last change that it has then, and the
    last recording of it; `is_all`: that is all there was. `first`: the lowest number;
    `total`: how many recordings there are. `is_back`: the database has not got as far
    as the copy. `known`: a recording of the copy's last change, as number and
    created_us, if there are more changes."""

    recordings: list[Recording]
    at: tuple[int, int]
    is_all: bool
    first: int
    total: int
    is_back: bool = False
    known: tuple[int, int] | None = None


class PostgresSession(AnySession):
    """One session. `close` leaves the connection to the others of its PostgresSessions,
    and so the attempts, by session. Raises SessionError and KeyMistake."""

    def __init__(self, base: Base, where: str, key: bytes, row: dict[str, Any],
                 attempts: dict[int, Attempt]) -> None:
        self._base, self._number, self._attempts = base, int(row["id"]), attempts
        self._where = f"{where}: session {row['name']!r}"
        self.identity = f"{row['base']}/{self._number}"
        with self._explained():
            self.manifest = read_manifest(row["manifest"])
        self.masker = make_masker(self.manifest.redaction, key)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SessionError as error:
            raise SessionError(f"{self._where}: {error}") from None

    @contextlib.contextmanager
    def _changed(self, additions: int = 0) -> Iterator[Change]:
        """A change that adds so many recordings; 0: that edits or deletes some."""
        with self._base.transaction() as cursor:
            if not additions:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)",
                               (SESSION_LOCK + self._number,))
            if cursor.execute(BEGIN, (self._number,)).fetchone() is None:
                raise NoSession(f"{self._where}: it has been deleted")
            row = cursor.execute(NEXT, (additions,)).fetchone()
            assert row is not None
            change = Change(cursor, self._number, row["change"], row["numbers"] or [])
            yield change
            if not change.is_copied:
                return
            row = cursor.execute(ADD, (
                self._number, change.number, change.count, change.bytes, self._number
                )).fetchone()
            if row is not None and row["rows"] > MOST_CHANGES and (
                    change.may_delete()):
                cursor.execute(FOLD, (self._number,))

    def set_bounds(self, count: int, age_s: float) -> None:
        manifest = msgspec.structs.replace(self.manifest, count=count, age_s=age_s)
        with self._changed() as change:
            change.cursor.execute(
                "UPDATE cutthrough_recordings.sessions SET manifest = %s WHERE id = %s",
                (encode(manifest), self._number))
        self.manifest = manifest

    def add(self, recordings: Iterable[Recording]) -> list[Recording]:
        return self._add(list(recordings), is_whole=True)

    def _add(self, recordings: list[Recording], *, is_whole: bool) -> list[Recording]:
        entries = masked(self.masker, recordings)
        with self._changed(len(entries)) as change:
            additions = [msgspec.structs.replace(entry, number=number)
                         for number, entry in zip(change.numbers, entries, strict=True)]
            with change.cursor.copy(COPY) as copy:
                for recording in additions:
                    data = encode(msgspec.structs.replace(recording, number=0))
                    copy.write_row((self._number, recording.number, change.number,
                                    *_values(recording, data)))
                    change.bytes += len(data)
            change.count += len(additions)
            self._prune(change, MOST_PRUNED + len(additions), is_whole=is_whole)
            self._attempts[self._number] = Attempt(change.number, recordings)
        del self._attempts[self._number]
        return additions

    def put(self, recordings: Iterable[Recording]) -> None:
        """If the connection broke at a commit, it is unknown whether the commit took
        place. If the same recordings are put again, none is added twice."""
        remaining, attempt = list(recordings), self._attempts.get(self._number)
        count = 0 if attempt is None else len(attempt.recordings)
        if attempt and remaining[:count] == attempt.recordings and self._select(
                f"SELECT {OF} AND changed = %s AND created_us = %s",
                (self._number, attempt.change, attempt.recordings[-1].created_us)):
            remaining = remaining[count:]
        self._attempts.pop(self._number, None)
        if remaining:                        # batch after batch: none reads all
            self._add(remaining, is_whole=False)

    def prune(self) -> int:
        if not self.manifest.age_s and not self.manifest.count:
            return 0
        with self._changed() as change:
            deletions = self._prune(change, MOST_PRUNED, is_whole=True)
            change.is_copied = deletions > 0
        return deletions

    def _prune(self, change: Change, most: int, *, is_whole: bool) -> int:
        """`is_whole`: also old ones behind younger ones, as of imports."""
        deletions, (count, age_s) = 0, (self.manifest.count, self.manifest.age_s)
        if not (count or age_s) or not change.may_delete():
            return 0
        if count and (over := self._sums(change.cursor)["count"]
                      + change.count - count) > 0:
            deletions += change.delete(
                f"number IN (SELECT number {OF} ORDER BY number LIMIT %s)",
                (self._number, min(most, over)))
        if age_s:
            delete = change.delete_old if is_whole else change.delete_first_old
            deletions += delete(limit_us(age_s), most)
        return deletions

    def read_behind(self, number: int, most: int) -> list[Recording]:
        rows = self._select(PAGE.format(
            order="number", of=OF, where="number > %s"),
            (self._number, number, most, MOST_ANSWERED))
        return [self._read(row) for row in rows]

    def get(self, number: int) -> Recording | None:
        rows = self._select(f"SELECT number, created_us, hits, data {OF} AND "
                            "number = %s", (self._number, number))
        return self._read(rows[0]) if rows else None

    def search(self, words: str, most: int = 100, before: int = 0) -> list[Recording]:
        return list(map(self._read, self._search(
            "number, created_us, hits, data", words, before, most)))

    def rows(self, words: str, most: int, before: int = 0) -> list[Row]:
        columns = ", ".join(Row._fields).replace("size", "length(data) AS size")
        return [Row(**row) for row in self._search(columns, words, before, most)]

    def _search(self, columns: str, words: str, before: int, most: int
                ) -> list[dict[str, Any]]:
        where, values = [""], list[object]([self._number])
        if before:
            where.append("number < %s")
            values.append(before)
        for word in split_words(words):
            where.append("(strpos(lower(method || ' ' || url || ' ' || tags), %s) > 0 "
                         "OR position(%s::bytea IN data) > 0)")
            values += [clean(word).lower(), word.encode()]
        return self._select(f"SELECT {columns} {OF}{' AND '.join(where)} "
                            "ORDER BY number DESC LIMIT %s", (*values, most))

    def stop_at(self, deadline: float) -> None:
        self._base.answer_within(max(0.1, deadline - time.monotonic()))

    def edit(self, recording: Recording) -> bool:
        data = encode(msgspec.structs.replace(
            self.masker.recording(recording), number=0))
        with self._changed() as change:
            row = change.cursor.execute(
                f"SELECT length(data) AS size {OF} AND number = %s",
                (self._number, recording.number)).fetchone()
            change.is_copied = row is not None
            if row is not None:
                change.bytes += len(data) - row["size"]
                change.cursor.execute(
                    "UPDATE cutthrough_recordings.recordings SET changed = %s, "
                    "created_us = %s, hits = %s, method = %s, url = %s, status = %s, "
                    "tags = %s, data = %s WHERE session = %s AND number = %s",
                    (change.number, *_values(recording, data), self._number,
                     recording.number))
        return change.is_copied

    def delete(self, numbers: Iterable[int]) -> int:
        with self._changed() as change:
            return change.delete("number = ANY(%s)", (list(numbers),))

    def hit(self, hits: dict[int, int]) -> None:
        with self._changed() as change:
            change.is_copied = False
            change.cursor.execute(
                "UPDATE cutthrough_recordings.recordings AS one SET "
                "hits = one.hits + new.hits FROM unnest(%s::bigint[], %s::bigint[]) "
                "AS new(number, hits) WHERE session = %s AND one.number = new.number",
                (list(hits), list(hits.values()), self._number))

    def size(self) -> int:
        with self._base.cursor() as cursor:
            return int(self._sums(cursor)["bytes"])

    def log(self, verb: str, what: str, count: int) -> None:
        with self._base.transaction() as cursor:
            cursor.execute(
                "INSERT INTO cutthrough_recordings.reads (session, at_ms, uid, host, "
                "verb, what, found) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (self._number, time.time_ns() // 1_000_000, os.getuid(),
                 socket.gethostname(), verb, clean(what), count))
            cursor.execute("DELETE FROM cutthrough_recordings.reads WHERE id <= ("
                           "SELECT max(id) FROM cutthrough_recordings.reads) - %s",
                           (MOST_READS,))

    def reads(self) -> list[Read]:
        return [Read(**row) for row in self._select(
            f"SELECT {', '.join(Read._fields)} FROM cutthrough_recordings.reads "
            "WHERE session = %s ORDER BY id DESC", (self._number,))]

    def __len__(self) -> int:
        with self._base.cursor() as cursor:
            return int(self._sums(cursor)["count"])

    def _sums(self, cursor: Cursor, horizon: int = LAST) -> dict[str, Any]:
        """The session's row of HEADS."""
        row = cursor.execute(HEADS.format(where="id = %s"),
                             (horizon, self._number)).fetchone()
        if row is None:
            raise NoSession(f"{self._where}: it has been deleted")
        return row

    def changes_behind(self, at: tuple[int, int], most: int) -> Changes:
        """The changes that a copy with all until `at` lacks, and no more than `most`
        recordings of it."""
        with self._base.cursor() as cursor:
            horizon = HORIZON.read(cursor)
        with self._base.transaction() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            sums = self._sums(cursor, horizon)
            if at[0] >= sums["changes"] and at[1] == LAST:
                # The horizon may have gone back a little
                is_back = at[0] > sums["changes"] and (
                    at[0] > self._sums(cursor)["changes"])
                return Changes([], at, True, 0, sums["count"], is_back)
            known = cursor.execute(
                f"SELECT number, created_us {OF} AND changed = %s AND number <= %s "
                "ORDER BY number LIMIT 1", (self._number, *at)).fetchone()
            cursor.execute(PAGE.format(
                order="changed, number", of=OF,
                where="(changed, number) > (%s, %s) AND changed <= %s"),
                (self._number, *at, horizon, most, MOST_ANSWERED))
            rows = cursor.fetchall()
            cursor.execute(f"SELECT min(number) AS first {OF}", (self._number,))
            first_row = cursor.fetchone()
        is_all = not rows or len(rows) == rows[0]["rows"] < most
        last = (max(at[0], sums["changes"]), LAST) if is_all else (
            rows[-1]["changed"], rows[-1]["number"])
        return Changes([self._read(row) for row in rows], last, is_all,
                       (first_row and first_row["first"]) or LAST, sums["count"],
                       known=(known["number"], known["created_us"]) if known else None)

    def numbers(self) -> list[int]:
        return [row["number"] for row in self._select(
            f"SELECT number {OF} ORDER BY number", (self._number,))]

    def _select(self, statement: str, values: Sequence[object]) -> list[dict[str, Any]]:
        with self._base.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()

    def _read(self, row: dict[str, Any]) -> Recording:
        with self._explained():
            return read(row["number"], row["created_us"], row["hits"], row["data"])

    def close(self) -> None: ...


def _values(recording: Recording, data: bytes) -> tuple[object, ...]:
    request = recording.request
    return (recording.created_us, recording.hits, clean(request.method),
            clean(request.url), recording.response.status,
            clean(" ".join(recording.tags)), data)


class PostgresSessions(AnySessions):
    """The sessions of a database. It connects at the first call, and makes the tables
    if there are none and it may; else NoStore is raised."""

    def __init__(self, url: str, directory: str | Path, *, may_make: bool = True
                 ) -> None:
        """`directory`: of the key, which is made if it does not exist. Raises
        OSError."""
        folder = Path(directory)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key, self._key_path = read_key(folder / "key"), folder / "key"
        self._base = Base(url, TABLES, ANSWER_S, may_make=may_make)
        self._where = self._base.where
        self._attempts: dict[int, Attempt] = {}
        self._due: dict[str, float] = {}     # times of searches for old recordings

    def names(self) -> list[str]:
        return sorted(self.heads())

    def heads(self) -> dict[str, tuple[str, int]]:
        """Returns, by name, the identity of each session and its last change."""
        with self._base.cursor() as cursor:
            cursor.execute(HEADS.format(where="true"), (HORIZON.read(cursor),))
            return {row["name"]: (f"{row['base']}/{row['id']}", row["changes"])
                    for row in cursor}

    def create(self, name: str, manifest: Manifest | None = None) -> PostgresSession:
        new_manifest = msgspec.structs.replace(
            manifest or Manifest(), version=VERSION, created_us=time.time_ns() // 1000,
            program=f"cutthrough {cutthrough.__version__}", copy_of="", copied=(0, 0))
        make_masker(new_manifest.redaction, self._key)
        with self._base.transaction() as cursor:
            cursor.execute("UPDATE cutthrough_recordings.state SET key_check = %s "
                           "WHERE key_check IS NULL", (check_of(self._key),))
            cursor.execute("SELECT key_check FROM cutthrough_recordings.state")
            self._check_key(cursor.fetchone())
            cursor.execute(
                "INSERT INTO cutthrough_recordings.sessions (name, manifest) "
                "VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (check_name(name), encode(new_manifest)))
            is_new = cursor.rowcount == 1
        if not is_new:
            raise SessionError(f"there is a session {name!r} already")
        return self.open(name)

    def open(self, name: str) -> PostgresSession:
        with self._base.cursor() as cursor:
            row = cursor.execute(HEADS.format(where="sessions.name = %s"),
                                 (LAST, check_name(name))).fetchone()
        if row is None:
            raise NoSession(f"there is no session {name!r}")
        self._check_key(row)
        return PostgresSession(self._base, self._where, self._key, row, self._attempts)

    def prune(self) -> None:
        """Deletes recordings beyond the bounds, of each session that is due."""
        now = time.monotonic()
        with self._base.cursor() as cursor:
            rows = cursor.execute(HEADS.format(where="true"), (LAST,)).fetchall()
        for row in rows:
            bounds, name = read_manifest(row["manifest"]), row["name"]
            is_due = bounds.age_s and now >= self._due.get(name, 0)
            if is_due or (bounds.count and row["count"] > bounds.count):
                self._due[name] = now + bounds.age_s / LOOKS
                with contextlib.suppress(SessionError):
                    self.open(name).prune()
        self._due = {row["name"]: self._due[row["name"]] for row in rows
                     if row["name"] in self._due}

    def _check_key(self, row: dict[str, Any] | None) -> None:
        if row is None or row["key_check"] != check_of(self._key):
            raise SessionError(
                f"{self._where}: its recordings have been made with another key: copy "
                f"{self._key_path.name} of recording_directory from a host that makes "
                f"them to {self._key_path}")

    def delete(self, name: str) -> None:
        with self._base.transaction() as cursor:
            cursor.execute("DELETE FROM cutthrough_recordings.sessions WHERE name = %s",
                           (check_name(name),))
            is_gone = cursor.rowcount == 1
        if not is_gone:
            raise NoSession(f"there is no session {name!r}")

    def close(self) -> None:
        self._base.close()
