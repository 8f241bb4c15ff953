"""Sessions in files: a directory of them, each with the recordings of one session.

    DIRECTORY/            0700
      key                 of the hashes that stand for secrets; not in any session
      NAME.session        SQLite, 0600

A file that follows a session of a database (`copies.py`) may only be read: what is
changed here would be changed on this host alone.
"""

import contextlib
import itertools
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import cutthrough
from cutthrough.recording.model.key import read_key
from cutthrough.recording.model.masking import make_masker
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.sessions.counts import add_counts, drop_counts, with_counts
from cutthrough.recording.sessions.offsets import Offset, advance
from cutthrough.recording.sessions.reads import list_reads, log_read
from cutthrough.recording.sessions.session import (
    MOST_PRUNED,
    VERSION,
    AnySession,
    AnySessions,
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
from cutthrough.recording.sessions.wal_size import (
    AUTOCHECKPOINT_PAGES,
    WalSize,
    pages_of,
)
from cutthrough.storage.sqlite_insert import Inserter
from cutthrough.storage.sqlite_place import Place, make_file
from cutthrough.storage.sqlite_store import (
    BUSY_MS,
    MOST_WAL_BYTES,
    PAGE_BYTES,
    explained,
    transaction,
    use_wal,
    version_of,
)
from cutthrough.storage.store import split_words
from cutthrough.tape.batch import Batch

SUFFIX = ".session"
# Of recordings that are read at a time, and one more: some 2 ms
READ_BYTES = 1 << 20
# Of SQLite, between two looks at the clock
STEPS_TO_LOOK = 10_000

_SCHEMA = f"""
CREATE TABLE manifest (data BLOB NOT NULL);
CREATE TABLE recordings (
    number INTEGER PRIMARY KEY AUTOINCREMENT, created_us INTEGER NOT NULL,
    hits INTEGER NOT NULL, method TEXT NOT NULL, url TEXT NOT NULL,
    status INTEGER NOT NULL, tags TEXT NOT NULL, data BLOB NOT NULL);
PRAGMA user_version = {VERSION};
"""
# Of a recording, without its number
VALUES = ("created_us", "hits", "method", "url", "status", "tags", "data")
_INSERT = (f"INSERT INTO recordings ({', '.join(VALUES)}) "
           f"VALUES ({', '.join('?' * len(VALUES))})")
_ROW = "number, created_us, hits, data"
# A failure ends the transaction, so SQLite needs no file with which to undo a statement
_VERB = "INSERT OR FAIL INTO"


class Session(AnySession):
    """One file."""

    def __init__(self, path: Path, key: bytes, manifest: Manifest | None = None
                 ) -> None:
        """`manifest`: of a new file. Raises OSError, StoreError and KeyMistake."""
        self._path = str(path)
        if manifest is not None:
            make_masker(manifest.redaction, key)     # a mistake in it leaves no file
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                             | os.O_CLOEXEC, 0o600))
        make_file(self._path)
        self._place = Place(self._path)
        self._count, self._counted_at = 0, -1        # recordings, and at which version
        self.wal_size = WalSize()
        self._base = self._connect(manifest)
        self._inserter = Inserter(self._base, _VERB, "recordings", VALUES)
        self.manifest = self._read_manifest()
        self.key, self.masker = key, make_masker(self.manifest.redaction, key)

    def _connect(self, manifest: Manifest | None) -> sqlite3.Connection:
        with explained(self._path):
            base = sqlite3.connect(          # one thread after the other
                self._path, timeout=BUSY_MS / 1000, isolation_level=None,
                check_same_thread=False)
            base.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            # Nothing is written before: another program may be copying a file here
            version = version_of(base)
            if version != (VERSION if manifest is None else 0):
                base.close()
                raise SessionError(
                    f"{self._path}: has version {version} of the tables, and this "
                    f"program has {VERSION}" if version else
                    f"{self._path}: is no session")
            use_wal(base)
            base.execute("PRAGMA synchronous = NORMAL")
            base.execute("PRAGMA secure_delete = ON")
            base.execute(f"PRAGMA journal_size_limit = {MOST_WAL_BYTES}")
            base.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
            if manifest is not None:
                base.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
                base.execute("INSERT INTO manifest VALUES (?)", (encode(manifest),))
        return base

    def _read_manifest(self) -> Manifest:
        with explained(self._path):
            row = self._base.execute("SELECT data FROM manifest").fetchone()
        try:
            return read_manifest(row[0] if row else b"")
        except SessionError as error:
            raise SessionError(f"{self._path}: {error}") from None

    @contextlib.contextmanager
    def _changed(self) -> Iterator[None]:
        if self.manifest.copy_of:
            raise SessionError(
                f"{self._path}: follows a session in PostgreSQL: change that one "
                "(--url-file), or delete this file and make a session")
        try:
            with transaction(self._base, self._path):
                yield
        except BaseException:
            self._counted_at = -1
            raise

    def read_bounds(self) -> None:
        """Reads the bounds again, because another program may have set them."""
        self.manifest = self._read_manifest()

    def set_bounds(self, count: int, age_s: float) -> None:
        manifest = msgspec.structs.replace(self.manifest, count=count, age_s=age_s)
        with self._changed():
            self._base.execute("UPDATE manifest SET data = ?", (encode(manifest),))
        self.manifest = manifest

    def add(self, recordings: Iterable[Recording]) -> list[Recording]:
        entries = masked(self.masker, recordings)
        additions = []
        with self._changed():
            for entry in entries:
                number = self._base.execute(_INSERT, self._values(entry)).lastrowid
                additions.append(msgspec.structs.replace(entry, number=number or 0))
            self._count += len(additions)
            self._prune(MOST_PRUNED + len(additions))
        return additions

    def put(self, recordings: Iterable[Recording]) -> None:
        self.put_rows([Batch.of(map(self._values, masked(self.masker, recordings)),
                                len(VALUES))])

    def row(self, recording: Recording) -> tuple[object, ...]:
        """Redacted, for `put_rows`."""
        return self._values(*masked(self.masker, [recording]))

    def put_rows(self, batches: Iterable[Batch], offset: Offset | None = None) -> None:
        """Adds recordings of which rows were made, redacted, for this session, in one
        transaction. `offset`: of their ring, if they are all that this session gets
        before it; if a writer that was killed has added them, nothing is added."""
        batches = filter(len, batches)
        first = next(batches, None)
        if first is None:
            return
        with self._changed():
            if offset is not None and not advance(self._base, offset):
                return
            before, pages = self._count, 0
            for rows in itertools.chain([first], batches):
                self._count += self._inserter.insert(rows)
                pages += pages_of(rows)
            pruned = self._prune_first(MOST_PRUNED + self._count - before)
            self.wal_size.add(pages, pruned > 0)

    def checkpoint(self) -> None:
        """Moves writes from the WAL to the file, unless that is being read."""
        self.wal_size.clear()
        with explained(self._path):
            self._base.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    @staticmethod
    def _values(recording: Recording) -> tuple[object, ...]:
        request = recording.request
        return (recording.created_us, recording.hits, request.method, request.url,
                recording.response.status, " ".join(recording.tags), encode(recording))

    def prune(self) -> int:
        with self._changed():
            return self._prune(MOST_PRUNED)

    def _prune(self, most: int) -> int:
        deletions = self._prune_first(most)
        if self.manifest.age_s:              # others may be older: they were imported
            deletions += self._delete([number for (number,) in self._base.execute(
                "SELECT number FROM recordings WHERE created_us < ? "
                "ORDER BY number LIMIT ?", (limit_us(self.manifest.age_s), most))])
        return deletions

    def _prune_first(self, most: int) -> int:
        """Deletes from the first recording on, until one is within the bounds: without
        reading all of the file."""
        bound, last = self.manifest.count, 0
        if bound and (over := min(self._number() - bound, most)) > 0:
            ((last,),) = self._base.execute(
                "SELECT number FROM recordings ORDER BY number LIMIT 1 OFFSET ?",
                (over - 1,))
        if self.manifest.age_s:
            oldest_us = limit_us(self.manifest.age_s)
            for number, created_us in self._base.execute(
                    "SELECT number, created_us FROM recordings WHERE number > ? "
                    "ORDER BY number LIMIT ?", (last, most)):
                if created_us >= oldest_us:
                    break
                last = number
        if not last:
            return 0
        drop_counts(self._base, 0, last)
        deletions = self._base.execute(
            "DELETE FROM recordings WHERE number <= ?", (last,)).rowcount
        self._count -= deletions
        return deletions

    def _number(self) -> int:
        """As len(), which reads all of the file: only if another connection has
        changed it, or a change has failed."""
        version = self.version()
        if version != self._counted_at:
            self._count, self._counted_at = len(self), version
        return self._count

    def _delete(self, numbers: Iterable[int]) -> int:
        """Readers read the whole session again."""
        deletions = 0
        for number in numbers:
            deletions += self._base.execute(
                "DELETE FROM recordings WHERE number = ?", (number,)).rowcount
            drop_counts(self._base, number, number)
        self._count -= deletions
        if deletions:
            self._note_edit()
        return deletions

    def _note_edit(self) -> None:
        self._base.execute(f"PRAGMA application_id = {self.edits() + 1}")

    def read_behind(self, number: int, most: int) -> list[Recording]:
        recordings, size = list[Recording](), 0
        with explained(self._path):
            for row in self._base.execute(
                    with_counts(self._base, f"SELECT {_ROW} FROM recordings "
                                "WHERE number > ? ORDER BY number LIMIT ?"),
                    (number, most)):
                recordings.append(self._read(row))
                size += len(row[-1])
                if size >= READ_BYTES:
                    break
        return recordings

    def version(self) -> int:
        """Differs from the last one if another program has changed the file."""
        return int(self._select("PRAGMA data_version", ())[0][0])

    def span(self) -> tuple[int, int]:
        """The lowest and the highest number, (0, 0) if there is none. Those below were
        deleted, the oldest first."""
        first, last = self._select(      # each by the index: of both it reads the file
            "SELECT (SELECT min(number) FROM recordings), "
            "(SELECT max(number) FROM recordings)", ())[0]
        return first or 0, last or 0

    def oldest_us(self) -> int | None:
        """When the first of those that are left was recorded. Reads the whole file."""
        created_us: int | None = self._select(
            "SELECT min(created_us) FROM recordings", ())[0][0]
        return created_us

    def get(self, number: int) -> Recording | None:
        rows = self._select(
            f"SELECT {_ROW} FROM recordings WHERE number = ?", (number,))
        return self._read(rows[0]) if rows else None

    def search(self, words: str, most: int = 100, before: int = 0) -> list[Recording]:
        return [self._read(row) for row in self._search(_ROW, words, before, most)]

    def rows(self, words: str, most: int, before: int = 0) -> list[Row]:
        columns = ", ".join(Row._fields).replace("size", "length(data)")
        return [Row(*row) for row in self._search(columns, words, before, most)]

    def _search(self, columns: str, words: str, before: int, most: int
                ) -> list[tuple[Any, ...]]:
        where, values = ["1"], list[object]()
        if before:
            where.append("number < ?")
            values.append(before)
        for word in split_words(words):
            where.append("(method || ' ' || url || ' ' || tags LIKE ? OR "
                         "instr(data, ?))")
            values += [f"%{word}%", word.encode()]
        return self._select(
            f"SELECT {columns} FROM recordings WHERE {' AND '.join(where)} "
            "ORDER BY number DESC LIMIT ?", (*values, most))

    def stop_at(self, deadline: float) -> None:
        self._base.set_progress_handler(
            lambda: time.monotonic() > deadline, STEPS_TO_LOOK)

    def edit(self, recording: Recording) -> bool:
        entry = self.masker.recording(recording)
        with self._changed():
            self._note_edit()
            drop_counts(self._base, recording.number, recording.number)
            return self._base.execute(
                "UPDATE recordings SET created_us = ?, hits = ?, method = ?, url = ?, "
                "status = ?, tags = ?, data = ? WHERE number = ?",
                (*self._values(entry), recording.number)).rowcount == 1

    def edits(self) -> int:
        """How often recordings were changed, or deleted while older ones stayed. It is
        the file's application_id."""
        return int(self._select("PRAGMA application_id", ())[0][0])

    def delete(self, numbers: Iterable[int]) -> int:
        with self._changed():
            return self._delete(numbers)

    def hit(self, hits: dict[int, int]) -> None:
        with transaction(self._base, self._path):
            add_counts(self._base, hits)

    def log(self, verb: str, what: str, count: int) -> None:
        with transaction(self._base, self._path):
            log_read(self._base, verb, what, count)

    def reads(self) -> list[Read]:
        with transaction(self._base, self._path):
            return list_reads(self._base)

    def __len__(self) -> int:
        return int(self._select("SELECT count(*) FROM recordings", ())[0][0])

    def size(self) -> int:
        with explained(self._path):
            return os.stat(self._path).st_size

    def _select(self, statement: str, values: Sequence[object]
                ) -> list[tuple[Any, ...]]:
        with explained(self._path):
            return self._base.execute(
                with_counts(self._base, statement), values).fetchall()

    def _read(self, row: tuple[int, ...]) -> Recording:
        try:
            return read(*row)                # type: ignore[arg-type]
        except SessionError as error:
            raise SessionError(f"{self._path}: {error}") from None

    def wait_for_lock(self, seconds: float) -> None:
        """Sets the longest wait for a lock, from now on."""
        with explained(self._path):
            self._base.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    @property
    def is_there(self) -> bool:
        """False: its file was deleted, or another has its name."""
        return self._place.is_there

    def close(self) -> None:
        self._place.close(self._base)


class Sessions(AnySessions):
    """The sessions of a directory, which is made if it does not exist."""

    def __init__(self, directory: str | Path) -> None:
        """Raises OSError."""
        self._directory = Path(directory)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = read_key(self._directory / "key")

    def names(self) -> list[str]:
        return sorted(path.name.removesuffix(SUFFIX)
                      for path in self._directory.glob(f"*{SUFFIX}"))

    def create(self, name: str, manifest: Manifest | None = None) -> Session:
        path = self._path(name)
        new_manifest = msgspec.structs.replace(
            manifest or Manifest(), version=VERSION, created_us=time.time_ns() // 1000,
            program=f"cutthrough {cutthrough.__version__}")
        # Under another name until its tables are there: other programs look for it
        new = self._directory / f".new-{secrets.token_hex(8)}"
        try:
            Session(new, self._key, new_manifest).close()
            os.link(new, path)
        except FileExistsError:
            raise SessionError(f"there is a session {name!r} already") from None
        finally:
            new.unlink(missing_ok=True)
        return Session(path, self._key)

    def open(self, name: str) -> Session:
        path = self._path(name)
        if not path.exists():
            raise NoSession(f"there is no session {name!r}")
        return Session(path, self._key)

    def delete(self, name: str) -> None:
        path = self._path(name)
        try:
            path.unlink()
        except FileNotFoundError:
            raise NoSession(f"there is no session {name!r}") from None
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)

    def close(self) -> None: ...

    def _path(self, name: str) -> Path:
        check_name(name)
        return self._directory / f"{name}{SUFFIX}"
