"""Sessions of browsers: a page gives the token once, and keeps its rights after F5,
Back and links.

    POST   /session    with the token: begins one; the answer has its key
    GET    /session    the rights that the request has
    DELETE /session    ends it

A session has two secrets, and neither alone opens anything (R39). A cookie (HttpOnly,
SameSite=Strict) has the first: no script can read it. But cookies do not know ports:
every other server of this host gets it too, and a page of one can have it sent. So the
second, the key, is in the page's storage, which this origin alone can read, and comes
in the field X-Cutthrough-Key, which no form and no link can send.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import web

FIELD = "X-Cutthrough-Key"
# The one that began first leaves for a new one
MOST_SESSIONS = 64
LIFE_S = 12 * 3600.0


class Session(NamedTuple):
    """`until`: seconds of the clock."""

    key: bytes
    token: bytes
    until: float


class Sessions:
    """Sessions of browsers, in memory alone: a new program knows none. A session stands
    for its token, so it ends when a reload removes the token."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}    # by the digest of the cookie
        self.name = "cutthrough"

    def begin(self, token: bytes) -> tuple[str, str]:
        """Returns the Set-Cookie field and the key."""
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = Session(
            key.encode(), token, self._clock() + LIFE_S)
        return self._field(cookie), key

    def end(self, request: web.Request) -> str:
        """Ends the request's session; returns the Set-Cookie field."""
        if self.token_of(request):
            self._sessions.pop(_digest(self._cookie_of(request)), None)
        return self._field("") + "; Max-Age=0"

    def token_of(self, request: web.Request) -> bytes:
        """The token of the request's session; b"": it has none."""
        key = request.headers.get(FIELD, "")
        if not key:
            return b""
        digest = _digest(self._cookie_of(request))
        session = self._sessions.get(digest)
        if session is None or not hmac.compare_digest(
                session.key, key.encode("utf-8", "surrogateescape")):
            return b""
        if self._clock() >= session.until:
            del self._sessions[digest]
            return b""
        return session.token

    def _field(self, cookie: str) -> str:
        return f"{self.name}={cookie}; Path=/; HttpOnly; SameSite=Strict"

    def _cookie_of(self, request: web.Request) -> str:
        for field in request.headers.getall("Cookie", ()):
            for pair in field.split(";"):
                name, _, value = pair.strip().partition("=")
                if name == self.name:
                    return value
        return ""


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()
