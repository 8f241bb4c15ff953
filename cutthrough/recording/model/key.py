"""The key of the hashes that stand for secrets in a directory's sessions."""

import contextlib
import hashlib
import secrets
from pathlib import Path

from cutthrough.exchange.whole_file import write_file
from cutthrough.storage.sqlite_place import make_file

KEY_BYTES = 32


def read_key(path: Path) -> bytes:
    """The key in this file, which is made if it does not exist. Raises OSError."""
    if not path.exists():
        with contextlib.suppress(FileExistsError):       # another program made one
            write_file(path, secrets.token_bytes(KEY_BYTES))
    make_file(str(path))
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(0, f"has not {KEY_BYTES} bytes", str(path))
    return key


def check_of(key: bytes) -> bytes:
    """Tells two keys apart, and nothing else of them."""
    return hashlib.blake2b(b"recordings", key=key, digest_size=16).digest()
