"""The key of the hashes that stand for secrets in a directory's sessions."""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from cutthrough.storage.sqlite_place import make_file

KEY_BYTES = 32


def read_key(path: Path) -> bytes:
    """The key in this file, which is made if it does not exist. Raises OSError."""
    if not path.exists():
        with contextlib.suppress(FileExistsError):       # another program made one
            write_new(path, secrets.token_bytes(KEY_BYTES))
    make_file(str(path))
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(0, f"has not {KEY_BYTES} bytes", str(path))
    return key


def write_new(path: Path, data: bytes) -> None:
    """Makes a file that its owner alone can read, whole or not at all. Raises OSError;
    FileExistsError: it is there."""
    new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.link(new, path)
    finally:                                 # of a full disk, too: the next try is near
        new.unlink(missing_ok=True)


def check_of(key: bytes) -> bytes:
    """Tells two keys apart, and nothing else of them."""
    return hashlib.blake2b(b"recordings", key=key, digest_size=16).digest()
