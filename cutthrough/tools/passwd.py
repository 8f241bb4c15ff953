"""`cutthrough passwd`: makes one line of an htpasswd file, or replaces it in the file.

The password is read twice from the terminal, without echo, or from the first line of
standard input. It is never an argument, because ps shows those to every user (R37).
"""

import argparse
import contextlib
import fcntl
import getpass
import os
import sys
import tempfile
from collections.abc import Iterator

from cutthrough.config.user_names import composed
from cutthrough.generation.policy_files import read_text
from cutthrough.policy.auth import normalized
from cutthrough.policy.source import PolicyError
from cutthrough.policy.users import MOST_SECRET, check_name, make_hash, read_htpasswd


def run(args: argparse.Namespace) -> int:
    """Makes the line, prints it or writes it to the file; returns the exit status."""
    user, file = args.user, args.file
    try:
        check_name(user)
        line = f"{user}:{make_hash(normalized(ask_password()), args.algorithm)}"
        if file is None:
            print(line)
        else:
            put_line(file, user, line)
    except (ValueError, ImportError, PolicyError) as error:
        return say(str(error), 2)
    except OSError as error:
        return say(f"{error.filename or file}: {error.strerror or error}", 1)
    except (KeyboardInterrupt, EOFError):
        return say("no password was given", 1)
    return 0


def say(text: str, status: int) -> int:
    print(f"cutthrough: {text}", file=sys.stderr)
    return status


def ask_password() -> bytes:
    """Raises ValueError if the two passwords differ, EOFError if there is none."""
    if sys.stdin.isatty():
        secret = getpass.getpass("Password: ")
        if getpass.getpass("Password again: ") != secret:
            raise ValueError("the two passwords differ")
        return secret.encode(errors="surrogateescape")
    line = sys.stdin.buffer.readline(MOST_SECRET + 3)
    if not line:
        raise EOFError
    return line.removesuffix(b"\n").removesuffix(b"\r")


def put_line(path: str, user: str, line: str) -> None:
    """Replaces the user's line, or appends it; the rest stays byte for byte.

    The new file replaces the old one atomically, with the same owner and mode, because
    no reader may get a partial file. Raises PolicyError if the file is none of users.
    """
    path = os.path.realpath(path)           # a link is followed, not replaced
    with locked(os.path.dirname(path)):
        _put_line(path, user, line)


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Locks the folder, so that a line which another program adds is not lost."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _put_line(path: str, user: str, line: str) -> None:
    text, old = "", None
    with contextlib.suppress(FileNotFoundError):
        old = os.stat(path)
        text = read_text(path)
    read_htpasswd(text, path)               # refuses a file of another kind
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    at = next((i for i, row in enumerate(lines)
               if composed(row.partition(":")[0]) == composed(user)), None)
    if at is None:
        lines.append(line)
    else:
        lines[at] = line
    _replace(path, "\n".join(lines) + "\n", old)


def _replace(path: str, text: str, old: os.stat_result | None) -> None:
    fd, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".passwd-")
    try:
        with open(fd, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            if old is not None:             # mkstemp's own mode is 0600
                os.fchmod(fd, old.st_mode & 0o7777)
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(fd, old.st_uid, old.st_gid)
            os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
