"""The key of a directory's hashes, on its way to another machine.

Hashes stand for secrets, and only the same key makes the same ones, so recordings that
were exported match requests with secrets only where their key is. Whoever has both can
guess a short secret, so the key is never in an export: it is a file of its own, if it
is asked for.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.exchange.whole_file import write_file
from cutthrough.recording.model.key import KEY_BYTES, check_of, read_key
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.sessions.directory import SUFFIX

NAME = "key"
_MARK = b"[redacted:"


def check_of_directory(directory: str | Path) -> str:
    """Raises OSError."""
    return check_of(read_key(Path(directory) / NAME)).hex()


def write_key(directory: str | Path, target: Path) -> None:
    """Into a new file, which its owner alone can read. Raises OSError and NotImported.
    """
    key = read_key(Path(directory) / NAME)
    try:
        write_file(target, key)
    except FileExistsError:
        raise NotImported(f"{target}: is there already, and no key is written over it"
                          ) from None


def take_key(directory: str | Path, source: Path) -> None:
    """Has the directory make hashes by the key in this file. Raises OSError, and
    NotImported if the recordings there have another one."""
    with source.open("rb") as file:
        key = file.read(KEY_BYTES + 1)       # of a device, not all
    if len(key) != KEY_BYTES:
        raise NotImported(f"{source}: has not {KEY_BYTES} bytes, so it is no key")
    folder = Path(directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / NAME
    if path.exists() and path.read_bytes() == key:
        return
    if any(folder.glob(f"*{SUFFIX}")):
        raise NotImported(
            f"{folder} has sessions with another key, whose hashes would match no "
            "longer: import into another directory (--directory)")
    write_file(path, key, over=True)


def has_hashes(recordings: Iterable[Recording]) -> bool:
    return any(_MARK in msgspec.msgpack.encode(recording) for recording in recordings)
