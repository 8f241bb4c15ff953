"""The key of the hashes that stand for secrets in a directory's sessions."""

import hashlib
import os
import secrets
from pathlib import Path

from cutthrough.storage.sqlite_place import make_file

KEY_BYTES = 32


def read_key(path: Path) -> bytes:
    """The key in this file, which is made if it does not exist. Raises OSError."""
    new = path.with_name(f".key-{secrets.token_hex(8)}")
    if not path.exists():
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        try:
            os.link(new, path)               # not over one that another program made
        except FileExistsError:
            pass
        finally:
            new.unlink()
    make_file(str(path))
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(0, f"has not {KEY_BYTES} bytes", str(path))
    return key


def check_of(key: bytes) -> bytes:
    """Tells two keys apart, and nothing else of them."""
    return hashlib.blake2b(b"recordings", key=key, digest_size=16).digest()
