"""The files of the program: have they been replaced since it began?

A program starts its processes from disk. After an update of the package a new process
would have the next version's messages, rings and tables, and its parent the last one's
(R90). So every process gets the identity of its program's files, and a parent starts
none if the files have another one now. It says so once, and what runs continues to run.
SIGUSR2 then starts the new program.

The same holds for a module that a running process loads late. The next version's module
has other structures in C than what is loaded already, so a process that has begun is
sealed: it loads no module of replaced files.

The identity is made of name, length and time of change of each file that can be
imported: an update writes all of them, and a look at them takes 2 ms. A checksum is
enough against accidents, and hashlib, which would load libcrypto before the first
worker starts, takes another 2 ms.
"""

from __future__ import annotations

import os
import sys
import zlib

import cutthrough

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# Of the environment of children: the identity of the program that they belong to
VARIABLE = "CUTTHROUGH_FILES"
_FOLDER = os.path.dirname(os.path.abspath(cutthrough.__file__))


class FilesReplaced(OSError):
    """No process can be started: it would be of another version."""

    def __init__(self) -> None:
        super().__init__("the program's files were replaced since it started, and no "
                         "process of it can be started: send USR2 to upgrade")


class ModuleReplaced(OSError):
    """A module cannot be loaded: it would be of another version."""

    def __init__(self, name: str) -> None:
        super().__init__("the program's files were replaced since it started, and its "
                         f"module {name} cannot be loaded: send USR2 to upgrade")


def identity() -> str:
    """Returns the identity of the files as they are now."""
    lines = sorted(_stamps(_FOLDER))
    text = "".join(lines).encode(errors="surrogateescape")
    return f"{len(lines)}-{len(text)}-{zlib.crc32(text):08x}-{zlib.adler32(text):08x}"


def _stamps(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _stamps(entry.path)
            elif entry.name.endswith((".py", ".so")):
                about = entry.stat()
                yield f"{entry.path} {about.st_size} {about.st_mtime_ns}\n"


# A process of a program has the program's; the first one takes it when it starts
_expected = os.environ.pop(VARIABLE, "") or identity()


def expected() -> str:
    return _expected


def check_files() -> None:
    """Raises FilesReplaced, and OSError if the files cannot be looked at."""
    try:
        now = identity()
    except FileNotFoundError:                # a file went away at the look
        now = ""
    if now != _expected:
        raise FilesReplaced


class Seal:
    """Finds no module, but refuses those of replaced files before others find them."""

    def find_spec(self, name: str, path: Sequence[str] | None,
                  target: ModuleType | None = None, /) -> ModuleSpec | None:
        if name.startswith(f"{cutthrough.__name__}."):
            try:
                check_files()
            except FilesReplaced:
                raise ModuleReplaced(name) from None
        return None


_seal = Seal()


def seal() -> None:
    """From now on this process raises ModuleReplaced at an import of a module of this
    program if the files are no longer those with which the program began. A look at
    them for each import takes too long while all modules are loaded."""
    if _seal not in sys.meta_path:
        sys.meta_path.insert(0, _seal)
