"""The file of captured requests: whether it can be written, read by its owner alone,
and filled up to its bound.

Of its content only the head of SQLite's format is read, because a read of requests
would have to be logged in it (R59).
"""

import errno
import os
import stat
from collections.abc import Iterator
from shlex import quote

from cutthrough.doctor.finding import Case, Finding
from cutthrough.storage.sqlite_store import MOST_WAL_BYTES, VERSION

NAME, ROOM = "capture_file", "room for captures"
# sqlite.org/fileformat2.html: the first bytes, and where the user version is
MAGIC, VERSION_AT = b"SQLite format 3\0", 60
# SQLite's own files have their requests, too
BESIDE = ("", "-wal", "-shm")
MIB = 1 << 20


def check_capture_file(case: Case) -> Iterator[Finding]:
    path = case.config.capture_file
    if not path:
        if not case.config.capture_url:
            yield Finding("capture", "ok", "no database is named: nothing is kept")
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        yield Finding(NAME, "fail", f"no directory {folder}", "", "install -d -m 700 -o"
                      f" USER {folder}, or LogsDirectory= in the unit")
        return
    try:
        yield from judge_file(path, folder)
    except OSError as error:
        yield Finding(NAME, "fail", f"{path}: {error.strerror}", "", "check again as "
                      "the proxy's user" if error.errno == errno.EACCES else "")
    yield check_room_for_captures(case.config.capture_bytes, path, folder)


def judge_file(path: str, folder: str) -> Iterator[Finding]:
    """Raises OSError."""
    # SQLite makes its log of changes beside the file
    for place, wanted in ((folder, os.W_OK | os.X_OK), (path, os.R_OK | os.W_OK)):
        if os.path.lexists(place) and not os.access(place, wanted):
            yield Finding(NAME, "fail", f"{place} cannot be written by this user", "",
                          f"chown USER {quote(place)}; check again as the proxy's "
                          "user")
            return
    if not os.path.lexists(path):
        yield Finding(NAME, "ok", f"{path} is made when a rule captures")
        return
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        is_link = stat.S_ISLNK(mode)
        yield Finding(NAME, "fail", f"{path} is "
                      f"{'a symbolic link' if is_link else 'no regular file'}",
                      "a regular file", "name the file itself" if is_link else
                      "name another file")
        return
    if reason := read_fault(path):
        yield Finding(NAME, "fail", f"{path} {reason}", "", "move the file away: the "
                      "writer makes another one")
        return
    yield judge_modes(path)


def read_fault(path: str) -> str:
    """The reason if the writer would refuse the file, else "". Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(VERSION_AT + 4)
    if not head:
        return ""                            # it is made, and has no tables yet
    if not head.startswith(MAGIC):
        return "is no database of SQLite"
    version = int.from_bytes(head[VERSION_AT:], "big")
    if version not in (0, VERSION):          # 0: its tables are in the log of changes
        return f"has version {version} of the tables, and this program has {VERSION}"
    return ""


def judge_modes(path: str) -> Finding:
    for name in (path + end for end in BESIDE):
        if not os.path.lexists(name):
            continue
        mode = stat.S_IMODE(os.lstat(name).st_mode)
        if mode & 0o077:
            return Finding(NAME, "warn", f"{name}, mode {mode:03o}", "mode 600",
                           f"chmod 600 {quote(name)}  # others can read the requests "
                           "in it until the writer starts")
    return Finding(NAME, "ok", f"{path}, mode {stat.S_IMODE(os.lstat(path).st_mode):o}")


def check_room_for_captures(bound: int, path: str, folder: str) -> Finding:
    """Whether the disk has room for the bytes that the bound still allows. This is the
    least, because the index of words comes on top."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    state = f"{free // MIB} MiB free"
    if not bound:
        return Finding(ROOM, "warn", f"{state}, and no bound", "a bound of bytes",
                       "set capture_bytes: a full disk loses captured requests, and "
                       "whatever else is written there")
    wanted = max(bound - size, 0) + MOST_WAL_BYTES
    return Finding(ROOM, "warn" if free < wanted else "ok", state,
                   f"{-(-wanted // MIB)} MiB", "lower capture_bytes, or use a larger "
                   "disk: on a full one captured requests are dropped and counted"
                   if free < wanted else "")
