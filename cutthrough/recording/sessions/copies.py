"""Files as copies of a database's sessions, so each worker has them at hand.

    database ── changes ──> DIRECTORY/NAME.session ──> players of all workers

A copy has the numbers of its session, and no bounds, because a recording deleted there
is deleted here. Counts of replays go the other way. A copy is whole when it appears,
and while the database is away its last state is replayed. Two programs may follow into
one file: each change is made once. If the database is an earlier one, of a backup
perhaps, the copy begins again.
"""

import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from cutthrough.recording.model.key import read_key
from cutthrough.recording.sessions.counts import (
    drop_counts,
    read_counts,
    take_counts,
)
from cutthrough.recording.sessions.directory import SUFFIX, Session, Sessions
from cutthrough.recording.sessions.postgres import Changes, PostgresSession
from cutthrough.recording.sessions.session import Manifest, SessionError, encode
from cutthrough.storage.sqlite_store import explained, transaction

log = logging.getLogger("cutthrough")

# Recordings of one transaction
STEP = 200
# A copy that is being made is written more often
REMAINS_S = 3600.0
# Hits of one transaction
MOST_HITS = 1000

_TAKE = """
INSERT INTO recordings (number, created_us, hits, method, url, status, tags, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET
    created_us = excluded.created_us, method = excluded.method, url = excluded.url,
    status = excluded.status, tags = excluded.tags, data = excluded.data
"""


class Copy(Session):
    """A file following a session."""

    def __init__(self, path: Path, key: bytes, identity: str = "",
                 session: PostgresSession | None = None) -> None:
        """`session`: of a new file. Raises OSError and StoreError."""
        manifest = None if session is None else msgspec.structs.replace(
            session.manifest, count=0, age_s=0, copy_of=identity, copied=(0, 0))
        super().__init__(path, key, manifest)
        # Deletions in the middle are a transaction of their own
        self._is_sure = False

    def follow(self, session: PostgresSession) -> bool:
        """Takes some of the changes. False: it has all. Raises StoreError."""
        changes = session.changes_behind(self.manifest.copied, STEP)
        if changes.is_back or not self._has(changes.known):
            self._begin_again()
            return True
        is_new = changes.at != self.manifest.copied
        if is_new:
            self._take(changes)
        if changes.is_all and (is_new or not self._is_sure):
            if len(self) != changes.total:   # some in the middle were deleted
                self._keep(session.numbers())
            self._is_sure = True
        return not changes.is_all

    def _has(self, known: tuple[int, int] | None) -> bool:
        return known is None or self._select(
            "SELECT count(*) FROM recordings WHERE number = ? AND created_us = ?",
            known) == [(1,)]

    def _begin_again(self) -> None:
        """The database is another than it was: an earlier one, of a backup or of a
        standby that lacked its last changes, may have given their numbers again."""
        log.warning("recordings: %s: the database has not all that was copied from it, "
                    "and is copied again", self._path)
        self._is_sure = False
        with transaction(self._base, self._path):
            manifest = self._read_manifest()
            if manifest.copied == self.manifest.copied:  # else another program has
                manifest = self._put_manifest(manifest, copied=(0, 0))
        self.manifest = manifest

    def _put_manifest(self, manifest: Manifest, copied: tuple[int, int]) -> Manifest:
        new = msgspec.structs.replace(manifest, copied=copied)
        self._base.execute("UPDATE manifest SET data = ?", (encode(new),))
        return new

    def _take(self, changes: Changes) -> None:
        before = self.manifest.copied
        self._is_sure = False
        with transaction(self._base, self._path):
            self.manifest = self._read_manifest()
            if self.manifest.copied != before:
                return                       # another program has done it
            ((last,),) = self._select("SELECT max(number) FROM recordings", ())
            if last and any(
                    recording.number <= last for recording in changes.recordings):
                self._note_edit()
            self._base.executemany(_TAKE, [
                (recording.number, *self._values(msgspec.structs.replace(
                    recording, number=0, hits=0))) for recording in changes.recordings])
            self._base.execute(
                "DELETE FROM recordings WHERE number < ?", (changes.first,))
            drop_counts(self._base, 0, changes.first - 1)
            manifest = self._put_manifest(self.manifest, changes.at)
        self.manifest = manifest

    def _keep(self, numbers: list[int]) -> None:
        with transaction(self._base, self._path):
            here = {number for (number,) in self._select(
                "SELECT number FROM recordings", ())}
            self._delete(here.difference(numbers))

    def tell_hits(self, session: PostgresSession) -> None:
        """Adds the hits of this host to the session's. Raises StoreError."""
        while hits := self._read_counts():
            session.hit(hits)
            with transaction(self._base, self._path):
                take_counts(self._base, hits)

    def _read_counts(self) -> dict[int, int]:
        with explained(self._path):
            return read_counts(self._base, MOST_HITS)


def nothing() -> None: ...


def open_copy(directory: str | Path, name: str, session: PostgresSession,
              on_step: Callable[[], None] = nothing) -> Copy:
    """The copy of this session; if it is missing, it is made whole. That of a large
    session takes minutes: `on_step` is called after each STEP, and ends it if it
    raises. Raises OSError and StoreError, and SessionError if the file is no copy."""
    folder = Path(directory)
    path, key = folder / f"{name}{SUFFIX}", read_key(folder / "key")
    if path.exists():
        if not is_copy(path, key):
            raise SessionError(
                f"{path}: is a session of this host alone; to have it in the database, "
                "export it, delete it, and import it with --url-file")
        copy = Copy(path, key)
        if copy.manifest.copy_of == session.identity:
            return copy
        copy.close()
        Sessions(folder).delete(name)        # its session was deleted
    drop_remains(folder)
    new = folder / f".new-{secrets.token_hex(8)}"
    try:
        new_copy = Copy(new, key, session.identity, session)
        try:
            while new_copy.follow(session):
                on_step()
        finally:
            new_copy.close()
        with contextlib.suppress(FileExistsError):   # of another program
            path.hardlink_to(new)
    finally:
        new.unlink(missing_ok=True)
    return Copy(path, key)


def drop_remains(folder: Path) -> None:
    """Deletes the remains of copies by programs that were killed."""
    for path in folder.glob(".new-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > REMAINS_S:
                path.unlink()


def drop_copy(directory: str | Path, name: str) -> None:
    """Drops the copy when its session no longer exists. A session of this host alone
    stays. Raises OSError and StoreError."""
    folder = Path(directory)
    path = folder / f"{name}{SUFFIX}"
    if path.exists() and is_copy(path, read_key(folder / "key")):
        Sessions(folder).delete(name)


def is_copy(path: Path, key: bytes) -> bool:
    session = Session(path, key)
    session.close()
    return session.manifest.copy_of != ""
