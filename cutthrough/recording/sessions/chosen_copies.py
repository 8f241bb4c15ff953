"""The copies of sessions, if requests choose: of all sessions in a database.

A worker queries no database, and a request names its session when it comes, so each
host has all copies. A single query finds the changed sessions, and only these are read.
Counts of replays here are in the copies' files, and are reported when these files
change.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from cutthrough.recording.sessions.copies import Copy, drop_copy, open_copy
from cutthrough.recording.sessions.directory import SUFFIX
from cutthrough.recording.sessions.modes import mark_of
from cutthrough.recording.sessions.postgres import PostgresSession, PostgresSessions
from cutthrough.recording.sessions.session import NoSession, SessionError
from cutthrough.storage.store import StoreAway, StoreError

log = logging.getLogger("cutthrough")

# Recordings wait meanwhile
TURN_S = 0.1

Head = tuple[str, int]                       # a session's identity, and its last change
_NONE = "", 0


class ChosenCopies:
    """In the database's thread. The session in force is left out because its copy is
    open."""

    def __init__(self, directory: str, on_step: Callable[[], None]) -> None:
        """`on_step`: as of open_copy."""
        self._directory, self._on_step = Path(directory), on_step
        self._copied: dict[str, Head] = {}   # the last followed is the last
        self._marks: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._failed: dict[str, str] = {}
        self._is_first = True

    def follow(self, sessions: PostgresSessions, in_force: str) -> None:
        """Brings copies nearer to their sessions, for TURN_S. Raises StoreError and
        OSError."""
        heads = sessions.heads()
        self._copied.pop(in_force, None)
        self._drop_others(heads, in_force)
        until = time.monotonic() + TURN_S
        waiting = [name for name in heads if name not in self._copied]
        for name in (*waiting, *self._copied):
            if name == in_force or self._copied.get(name) == heads[name]:
                continue
            is_all = self._follow_session(sessions, name, until)
            self._copied.pop(name, None)
            self._copied[name] = heads[name] if is_all else _NONE
            if time.monotonic() > until:
                break

    def _follow_session(self, sessions: PostgresSessions, name: str, until: float
                        ) -> bool:
        """Whether the copy has all, or can have nothing. False: the next turn goes on,
        perhaps because the file was locked, or its disk full."""
        try:
            session = sessions.open(name)
            with contextlib.closing(self._open(name, session)) as copy:
                while copy.follow(session):
                    if time.monotonic() > until:
                        return False
            self._failed.pop(name, None)
        except (StoreAway, NoSession):
            raise
        except StoreError as error:          # such as a session of this host alone
            if self._failed.get(name) != str(error):
                self._failed[name] = str(error)
                log.error("recordings: %s", error)
            return isinstance(error, SessionError)
        return True

    def _open(self, name: str, session: PostgresSession) -> Copy:
        return open_copy(self._directory, name, session, self._on_step)

    def _drop_others(self, heads: dict[str, Head], in_force: str) -> None:
        """Drops copies when their sessions no longer exist."""
        names = set(self._copied)
        if self._is_first:
            names |= {path.name.removesuffix(SUFFIX)
                      for path in self._directory.glob(f"*{SUFFIX}")}
        for name in names - heads.keys() - {in_force}:
            drop_copy(self._directory, name)
            for known in (self._copied, self._marks, self._failed):
                known.pop(name, None)
        self._is_first = False

    def tell_hits(self, sessions: PostgresSessions) -> None:
        """Reports the hits of copies with changed files. Raises StoreError and OSError.
        """
        for name in self._copied:
            if name in self._failed or self._mark(name) == self._marks.get(name):
                continue
            session = sessions.open(name)
            with contextlib.closing(self._open(name, session)) as copy:
                copy.tell_hits(session)
            self._marks[name] = self._mark(name)

    def _mark(self, name: str) -> tuple[tuple[int, ...], ...]:
        path = self._directory / f"{name}{SUFFIX}"
        return mark_of(path), mark_of(path.with_name(f"{path.name}-wal"))
