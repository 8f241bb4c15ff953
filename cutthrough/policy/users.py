"""Users of an htpasswd file, and their password hashes.

Text in, users out: `generation.policy_files` reads the file. A hash is accepted if it
is salted, made for passwords, and takes a few seconds at most. Libraries compute all
hashes, in a helper process of the worker or, embedded, in threads beside the loop
(R24). No error message repeats a hash (R37).

The libraries are imported when first needed, and so never without a file of users.
"""

import functools
import hmac
import re
import secrets
import string
from typing import Any, NamedTuple

from cutthrough.config.mistake import Mistake, Place, raise_all
from cutthrough.config.user_names import composed
from cutthrough.policy.source import PolicyError, User

MOST_NAME = 255             # bytes; the limit of htpasswd(1)
BCRYPT_BYTES = 72           # the part of a password that bcrypt reads
MOST_SECRET = 1024          # bytes; more than a user types; htpasswd(1) takes 255

ALGORITHMS = ("bcrypt", "argon2", "sha512")


class Kind(NamedTuple):
    """A hash algorithm and its cost. Hashes of one kind take equally long to verify."""

    name: str                           # bcrypt, sha256, sha512, apr1, argon2
    cost: tuple[int, ...] = ()


_64 = "[./0-9A-Za-z]"
_ROUNDS = r"(?:rounds=([1-9][0-9]{3,8})\$)?"
_FORMS = {
    "bcrypt": re.compile(rf"\$2[aby]\$([0-9]{{2}})\${_64}{{53}}"),
    "sha256": re.compile(rf"\$5\${_ROUNDS}{_64}{{1,16}}\${_64}{{43}}"),
    "sha512": re.compile(rf"\$6\${_ROUNDS}{_64}{{1,16}}\${_64}{{86}}"),
    "apr1": re.compile(rf"\$apr1\${_64}{{1,8}}\${_64}{{22}}"),
    "argon2": re.compile(
        r"\$argon2id\$v=19\$m=([1-9][0-9]{0,8}),t=([1-9][0-9]{0,5}),p=([1-9][0-9]?)"
        r"\$[0-9A-Za-z+/]{11,86}\$[0-9A-Za-z+/]{16,86}"),
}

# The highest accepted costs: 2 to 4 s of one core each. A higher cost would occupy a
# helper for longer than clients wait for an answer.
_MOST_BCRYPT = 15
_MOST_ROUNDS = 2_000_000
_MOST_MEMORY = 1 << 20                  # KiB
_MOST_WORK = 1 << 22                    # KiB times passes

_NEW_BCRYPT = 12                        # 0.2 s; bcrypt's own default
_NEW_ROUNDS = 500_000                   # 0.1 s in C; crypt(3)'s 5000 is of 2007

_REFUSED = {
    "{SHA}": "unsalted SHA-1, which one table breaks for every user at once",
    "$1$": "MD5-crypt",
    "$2x$": "bcrypt by an implementation that computed it wrongly",
    "$argon2i$": "argon2i; use argon2id",
    "$argon2d$": "argon2d; use argon2id",
}
_ADVICE = "`cutthrough passwd` creates an accepted hash"


def kind_of(hash: str) -> Kind:
    """Returns the kind of a hash. Raises ValueError with the reason to refuse it."""
    for name, form in _FORMS.items():
        match = form.fullmatch(hash)
        if match is not None:
            kind = Kind(name, tuple(int(text or 5000) for text in match.groups()))
            _judge(kind)
            return kind
    for start, what in _REFUSED.items():
        if hash.startswith(start):
            raise ValueError(f"{what}: not accepted; {_ADVICE}")
    raise ValueError("not a complete bcrypt, argon2id, SHA-crypt or apr1 hash; plain "
                     f"text is not accepted; {_ADVICE}")


def _judge(kind: Kind) -> None:
    if kind.name == "bcrypt" and not 4 <= kind.cost[0] <= _MOST_BCRYPT:
        raise ValueError(f"bcrypt's cost is not within 4 to {_MOST_BCRYPT}")
    if kind.name.startswith("sha") and kind.cost[0] > _MOST_ROUNDS:
        raise ValueError(f"more than {_MOST_ROUNDS} rounds")
    if kind.name == "argon2":
        memory, passes, lanes = kind.cost
        if memory > _MOST_MEMORY or memory * passes > _MOST_WORK:
            raise ValueError(f"m is more than {_MOST_MEMORY}, or m times t is more "
                             f"than {_MOST_WORK}")
        if memory < 8 * lanes:
            raise ValueError("m is less than 8 times p (RFC 9106 section 3.1)")


def read_htpasswd(text: str, source: str) -> dict[str, User]:
    """Reads `name:hash` lines; returns the users by name.

    Empty lines and lines that begin with # are skipped. A third field is ignored; nginx
    allows it as a comment. Raises PolicyError with the number of the line, never with
    the line itself, which may contain a password.
    """
    mistakes: list[Mistake] = []
    users: dict[str, User] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            user = read_line(line)
            if user.name in users:
                raise ValueError(
                    f"{user.name!r} is already defined in line {lines[user.name]}")
        except ValueError as error:
            mistakes.append(PolicyError(source, "", str(error), Place(number)))
            continue
        users[user.name] = user
        lines[user.name] = number
    raise_all(mistakes)
    return users


def read_line(line: str) -> User:
    """Reads one `name:hash`. Raises ValueError with the reason."""
    name, colon, rest = line.partition(":")
    name = composed(name)
    if not colon:
        raise ValueError("the line is not name:hash")
    check_name(name)
    hash = rest.partition(":")[0]
    kind_of(hash)
    return User(name=name, hash=hash)


def check_name(name: str) -> None:
    """Raises ValueError if this cannot be the name of a user with a password."""
    check_identity(name)
    if ":" in name:
        raise ValueError("a user name cannot contain a colon")  # RFC 7617 section 2


def check_identity(name: str) -> None:
    """Raises ValueError if no user can have this name, by a certificate either."""
    if not name:
        raise ValueError("the user name is empty")
    if any(c < " " or c == "\x7f" for c in name):
        raise ValueError("a user name cannot contain a control character")
    if name != name.strip() or name.startswith("#"):
        raise ValueError(
            "a user name cannot begin or end with a space, or begin with #")
    if len(name.encode()) > MOST_NAME:
        raise ValueError(f"a user name cannot exceed {MOST_NAME} bytes")


# Verifying. These run in a helper process or a thread: they share and change nothing.

def check_hash(hash: str, secret: bytes) -> bool:
    """Returns whether the hash is of this password. Raises ValueError as kind_of."""
    if len(secret) > MOST_SECRET or b"\0" in secret:
        return False                    # the libraries stop at a NUL, or refuse it
    name = kind_of(hash).name
    if name == "bcrypt":
        import bcrypt
        # htpasswd(1) truncates silently too, so the stored hash is of these bytes.
        return bool(bcrypt.checkpw(secret[:BCRYPT_BYTES], hash.encode()))
    if name == "argon2":
        return _check_argon2(hash, secret)
    if name == "apr1":
        from passlib.handlers.md5_crypt import apr_md5_crypt
        return bool(apr_md5_crypt.verify(secret, hash))
    hashed = _crypt(secret, hash)
    if hashed is not None:
        return hmac.compare_digest(hashed, hash.encode())
    from passlib.handlers import sha2_crypt
    handler = sha2_crypt.sha256_crypt if name == "sha256" else sha2_crypt.sha512_crypt
    return bool(handler.verify(secret, hash))


def _check_argon2(hash: str, secret: bytes) -> bool:
    # libpass 1.9.4 does not find its argon2 backend: argon2-cffi is called directly.
    from argon2 import low_level
    from argon2.exceptions import Argon2Error
    try:
        return low_level.verify_secret(hash.encode(), secret, low_level.Type.ID)
    except Argon2Error:                 # a wrong password, or invalid base64
        return False


@functools.cache
def _libcrypt() -> Any:
    import ctypes
    try:
        library = ctypes.CDLL("libcrypt.so.1")
        library.crypt_r.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        return None
    return library


def _crypt(secret: bytes, setting: str) -> bytes | None:
    """Returns the result of crypt_r(3), None if the system lacks it. libpass computes
    SHA-crypt in Python, takes ten times as long (10 ms for the usual 5000 rounds), and
    holds the interpreter's lock.
    """
    library = _libcrypt()
    if library is None:
        return None
    import ctypes
    room = ctypes.create_string_buffer(1 << 18)     # struct crypt_data; 131 232 or less
    hashed: bytes | None = library.crypt_r(secret, setting.encode(), room)
    return hashed if hashed is not None and not hashed.startswith(b"*") else None


def make_dummy(hash: str) -> str:
    """Returns a hash of the same kind and cost whose password is unknown.

    An unknown name is verified against it, so that it takes as long (R22).
    """
    digest = 31 if hash.startswith("$2") else len(hash.rpartition("$")[2])
    letters = string.ascii_letters + string.digits
    characters = "".join(secrets.choice(letters) for _ in range(digest - 1))
    return hash[:-digest] + characters + hash[-1]  # the last character has padding bits


def make_hash(secret: bytes, algorithm: str) -> str:
    """Returns a new hash of a password by one of ALGORITHMS. Raises ValueError."""
    if not secret or len(secret) > MOST_SECRET or min(secret) < 32 or 127 in secret:
        raise ValueError("a password has 1 to 1024 bytes and no control characters")
    if algorithm == "bcrypt":
        import bcrypt
        if len(secret) > BCRYPT_BYTES:
            raise ValueError(f"bcrypt takes {BCRYPT_BYTES} bytes at most: use argon2")
        return bcrypt.hashpw(secret, bcrypt.gensalt(_NEW_BCRYPT)).decode()
    if algorithm == "argon2":
        from argon2 import PasswordHasher
        return PasswordHasher().hash(secret)        # RFC 9106 section 4, low memory
    if algorithm == "sha512":
        salt = "".join(secrets.choice(string.ascii_letters) for _ in range(16))
        hashed = _crypt(secret, f"$6$rounds={_NEW_ROUNDS}${salt}")
        if hashed is not None:
            return hashed.decode()
        from passlib.handlers.sha2_crypt import sha512_crypt
        using = sha512_crypt.using(     # type: ignore[no-untyped-call]
            rounds=_NEW_ROUNDS, salt=salt)
        return str(using.hash(secret))
    raise ValueError(f"{algorithm!r} is not one of {', '.join(ALGORITHMS)}")
