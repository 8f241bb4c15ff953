"""Authorities for interception, below one with its key in a PKCS#11 token.

The token is asked once a day, by a process of its own (`cutthrough.ca.delegate`). It
gives back a key and a certificate for a week: the signing key of leaves is in memory,
as the key of a file is. While the token cannot be reached, the present one stays in
force.
"""

import logging
import subprocess
import sys
import time
from typing import NamedTuple

log = logging.getLogger("cutthrough")

SCHEME = b"pkcs11:"
DAY_S = 86400.0
WEEK_S = 7 * DAY_S
AGAIN_S = 600.0                              # between two attempts that fail
PATIENCE_S = 20.0                            # until a library that hangs is ended
FIRST = b"-----BEGIN CERTIFICATE-----"


class Delegate(NamedTuple):
    key: bytes                               # PEM
    certificates: bytes                      # PEM, its own first
    made_s: float
    tried_s: float

    def __repr__(self) -> str:               # never the key (R37)
        return "Delegate()"


# Of this process, by directory and the files' content
_held: dict[tuple[str, bytes, bytes], Delegate] = {}


def find_delegate(folder: str, certificate: bytes, uri: bytes) -> Delegate:
    """The delegate of the authority in this directory, whose files hold this. Raises
    ValueError if there is none and none can be made."""
    held = _held.get((folder, certificate, uri))
    age_s = WEEK_S if held is None else time.time() - held.made_s
    if held is not None and 0 <= age_s < WEEK_S - DAY_S:
        return held
    try:
        return renew(folder, certificate, uri)
    except ValueError:
        if held is None or age_s >= WEEK_S:
            raise
        return held


def renew(folder: str, certificate: bytes, uri: bytes) -> Delegate:
    """Asks the token, which takes a while. Raises ValueError."""
    delegate = _ask(folder)
    for key in [key for key in _held if key[0] == folder]:
        del _held[key]                       # of files that have been exchanged
    _held[folder, certificate, uri] = delegate
    return delegate


def renew_old() -> bool:
    """Renews delegates a day old. True: there is a new one."""
    now, renewed = time.time(), False
    for (folder, certificate, uri), delegate in list(_held.items()):
        if not _is_due(delegate, now):
            continue
        _held[folder, certificate, uri] = delegate._replace(tried_s=now)
        try:
            renew(folder, certificate, uri)
            renewed = True
        except ValueError as error:
            log.warning("intercept_ca: %s. What the token has signed holds for %d "
                        "hours more", error, (delegate.made_s + WEEK_S - now) // 3600)
    return renewed


def is_old() -> bool:
    """Whether it is time for renew_old."""
    now = time.time()
    return any(_is_due(delegate, now) for delegate in _held.values())


def _is_due(delegate: Delegate, now: float) -> bool:
    """A clock that was set back makes it too young: it may not be valid yet."""
    return not (0 <= now - delegate.made_s < DAY_S
                or 0 <= now - delegate.tried_s < AGAIN_S)


def _ask(folder: str) -> Delegate:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cutthrough.ca.delegate", folder],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S,
            check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{folder}: the token has not signed within {PATIENCE_S:.0f} s"
                         ) from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise ValueError(f"{folder}: " + (lines[-1] if lines else "the token's library "
                         f"has ended the process ({done.returncode})"))
    at = done.stdout.index(FIRST)
    now = time.time()
    return Delegate(done.stdout[:at], done.stdout[at:], now, now)
