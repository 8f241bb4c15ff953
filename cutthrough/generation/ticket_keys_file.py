"""The file of `ticket_keys_file`: keys of session tickets that several hosts share.

The newest key is the first, and makes tickets; the others open them. A key has 48 or 80
octets, as for nginx and HAProxy: a name of 16, and the secrets. The file has a key a
line in base64 (HAProxy), or the octets one behind the other (nginx).
"""

import binascii
import hashlib
import hmac
import os
import stat

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import FileError, read_file
from cutthrough.generation.tls_files import is_private

# Of the page (net/tls/ticket_keys.pxd): name, AES-256, HMAC-SHA256
NAME, SECRET = 16, 64
MOST_KEYS = 3
SIZES = (48, 80)


def read_ticket_keys(config: Config) -> tuple[bytes, ...]:
    """Returns the keys in the page's form, 80 octets each, the newest first; (): the
    option is not set. Raises ConfigError."""
    path = config.ticket_keys_file
    if not path:
        return ()
    try:
        data = read_file(path)
        about = os.stat(path)
        if stat.S_ISREG(about.st_mode) and not is_private(about, os.geteuid()):
            raise FileError("has keys that open recorded connections, and others than "
                            "its owner may read it: chmod 600")
        return parse_ticket_keys(data)
    except (OSError, FileError) as error:
        raise ConfigError("", "ticket_keys_file", f"{path}: "
                          f"{getattr(error, 'strerror', None) or error}") from None


def parse_ticket_keys(data: bytes) -> tuple[bytes, ...]:
    """Raises FileError."""
    keys = _split(data)
    if not 1 <= len(keys) <= MOST_KEYS:
        raise FileError(f"has {len(keys)} keys, and not 1 to {MOST_KEYS}")
    names = [key[:NAME] for key in keys]
    if len({*names}) < len(names):
        raise FileError("has two keys of one name")
    if bytes(NAME) in names:
        raise FileError("has a key whose name is all zeros")
    return tuple(map(_widened, keys))


def _split(data: bytes) -> list[bytes]:
    lines = [_decoded(line) for line in data.split()]
    if lines and all(lines):
        return lines
    for size in SIZES:                       # no multiple of both is this short
        if data and len(data) % size == 0 and len(data) // size <= MOST_KEYS:
            return [data[i:i + size] for i in range(0, len(data), size)]
    raise FileError("is neither keys of 48 or 80 octets nor lines of base64: make a "
                    "line with `openssl rand 80 | openssl base64 -A`")


def _decoded(line: bytes) -> bytes:
    """b"": it is no key."""
    try:
        key = binascii.a2b_base64(line, strict_mode=True)
    except binascii.Error:
        return b""
    return key if len(key) in SIZES else b""


def _widened(key: bytes) -> bytes:
    """A key of 48 octets is for AES-128; here every ticket has AES-256."""
    if len(key) == NAME + SECRET:
        return key
    secret = key[NAME:]
    return key[:NAME] + b"".join(
        hmac.digest(secret, label, hashlib.sha256) for label in (b"cipher", b"mac"))
