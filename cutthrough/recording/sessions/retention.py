"""Deletes recordings beyond the bounds of sessions in files, in force or not.

A directory may have a thousand sessions: the file of one is opened when its oldest
recording has become too old, or when the file has changed.
"""

import contextlib
import logging
import math
import os
import time
from pathlib import Path

from cutthrough.recording.sessions.directory import SUFFIX, Session, Sessions
from cutthrough.recording.sessions.session import MOST_PRUNED

log = logging.getLogger("cutthrough")

# Between two looks at the directory: 1000 files take 4 ms
LOOK_S = 2.0
# Sessions that are opened at a time, at 1 ms each
AT_ONCE = 4
# Until one that could not be opened is opened again
AGAIN_S = 60.0
# Of the time, for a session that changes all the time: a look may read the whole file
SHARE = 50

Mark = tuple[tuple[int, int, int], ...]


class Retention:
    def __init__(self, directory: str) -> None:
        self._folder = Path(directory)
        self._marks: dict[str, Mark] = {}
        self._due: dict[str, float] = {}     # by time.time()
        self._looked = -math.inf

    def prune(self) -> None:
        """Looks into some sessions, if it is time. Raises OSError."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._look()
        due = [name for name, at in self._due.items() if at <= time.time()]
        for name in due[:AT_ONCE]:
            begun = time.time()
            at = self._prune(name)
            ended = time.time()
            self._due[name] = max(at, ended + SHARE * max(0.0, ended - begun))

    def _look(self) -> None:
        """New and changed sessions are due."""
        files = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as scan:
            for entry in scan:
                if entry.name.endswith((SUFFIX, f"{SUFFIX}-wal")):
                    with contextlib.suppress(FileNotFoundError):
                        files[entry.name] = entry.stat(follow_symlinks=False)
        marks: dict[str, Mark] = {}
        for file in files:
            if file.endswith(SUFFIX):
                marks[file.removesuffix(SUFFIX)] = tuple(
                    (status.st_ino, status.st_mtime_ns, status.st_size)
                    for status in (files[file], files.get(f"{file}-wal")) if status)
        now = time.time()
        self._due = {
            name: self._due[name] if mark == self._marks.get(name) else
            min(now, self._due.get(name, now)) for name, mark in marks.items()}
        self._marks = marks

    def _prune(self, name: str) -> float:
        """Returns when it is due again."""
        try:
            with contextlib.closing(Sessions(self._folder).open(name)) as session:
                return prune(session)
        except Exception as error:           # whatever it is: of this session (R71)
            log.debug("session %s is not pruned: %s", name, error)
            return time.time() + AGAIN_S     # another program may have locked it


def prune(session: Session) -> float:
    """Deletes recordings beyond the session's bounds; returns when that is to be done
    again. Raises StoreError."""
    bounds = session.manifest
    if bounds.copy_of:
        return math.inf
    oldest = session.oldest_us() if bounds.age_s else None
    if (bounds.count and len(session) > bounds.count) or (
            oldest is not None and oldest / 1e6 + bounds.age_s <= time.time()):
        if session.prune() >= MOST_PRUNED:
            return time.time()               # there may be more
        oldest = session.oldest_us() if bounds.age_s else None
    return math.inf if oldest is None else oldest / 1e6 + bounds.age_s
