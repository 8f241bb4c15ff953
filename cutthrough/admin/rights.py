"""The rights of a token over the admin listener.

    no token       GET and HEAD of everything but the following; /events without the
                   paths of opened requests, which `read` has
    read           GET of /flows…, /sessions… and /replays
    flows          other methods there but for /sessions…: mark, delete, import, send,
                   pause capture
    breakpoints    everything of /breakpoints…
    recordings     changes of /sessions… and /mode, and /settle
    operate        POST /reload and /drain, DELETE /connections, and whatever is new

/session needs no right, but its POST a token. `admin_token` has every right. A browser
gives the token once, and then has a session in its place (sessions.py).
"""

import hmac
from collections.abc import Iterable

from aiohttp import web

from cutthrough.admin.cross_site import request_key, watcher_key
from cutthrough.admin.sessions import Sessions
from cutthrough.config.administration import RIGHTS, AdminToken

# Of the token, in a request
NAME = request_key("token")
REALM = 'Bearer realm="cutthrough"'


def right_for(method: str, path: str) -> str:
    """The right that a request needs; "": none."""
    changes = method not in ("GET", "HEAD")
    # `*` and an authority have no slash (R91)
    area = path.partition("/")[2].partition("/")[0].partition(".")[0]
    if area == "breakpoints":
        return area
    if area == "session":
        return ""
    if area in ("flows", "sessions", "replays") and not changes:
        return "read"
    if not changes:
        return ""
    return {"flows": "flows", "sessions": "recordings",
            "mode": "recordings", "settle": "recordings"}.get(area, "operate")


def asker(request: web.Request) -> str:
    """The operator, for the error log: an address, and the name of the token."""
    name: str = request.get(NAME, "")
    where = watcher_key(request)[0]
    return f"{name} at {where}" if name else where


READ_ONLY = "no admin_token is configured: this listener is read-only\n"


class Tokens:
    def __init__(self) -> None:
        self._rows: list[tuple[bytes, str, frozenset[str]]] = []
        self.sessions = Sessions()

    def configure(self, token: str, rows: Iterable[AdminToken]) -> None:
        self._rows = [(row.token.encode(), row.name, frozenset(row.rights))
                      for row in rows]
        if token:
            self._rows.append((token.encode(), "", frozenset(RIGHTS)))

    def has(self, request: web.Request, right: str) -> bool:
        """Does the request carry a token with this right?"""
        row = self._row_of(request)
        return row is not None and right in row[2]

    def _row_of(self, request: web.Request) -> tuple[bytes, str, frozenset[str]] | None:
        scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
        token = credentials.strip().encode("utf-8", "surrogateescape")
        if not scheme and (token := self.sessions.token_of(request)):
            scheme = "bearer"
        # All are compared, because the time must reveal nothing
        rows = [row for row in self._rows if hmac.compare_digest(token, row[0])]
        return rows[0] if rows and scheme.lower() == "bearer" else None

    def refuse(self, request: web.Request) -> web.Response | None:
        """Returns the refusal of a request that lacks the right, else None."""
        right = right_for(request.method, request.path)
        if not right:
            return None
        if not self._rows:
            return web.Response(status=403, text=READ_ONLY)
        row = self._row_of(request)
        if row is None:
            what = "flows" if right == "read" else "changes"
            return web.Response(
                status=401, text=f"{what} require the admin token\n",
                headers={"WWW-Authenticate": REALM})
        _, name, rights = row
        if right not in rights:
            return web.Response(
                status=403, text=f"the token {name} has no right {right}\n")
        request[NAME] = name
        return None

    # Sessions

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/session", self.begin), web.delete("/session", self.end),
                web.get("/session", self.show, allow_head=False)]

    async def begin(self, request: web.Request) -> web.StreamResponse:
        if not self._rows:
            return web.Response(status=403, text=READ_ONLY)
        row = self._row_of(request) if "Authorization" in request.headers else None
        if row is None:
            return web.Response(status=401, text="this is no admin token\n",
                                headers={"WWW-Authenticate": REALM})
        field, key = self.sessions.begin(row[0])
        return web.json_response({**_described(row), "key": key},
                                 headers={"Set-Cookie": field})

    async def show(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({**_described(self._row_of(request)),
                                  "read_only": not self._rows})

    async def end(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ended\n",
                            headers={"Set-Cookie": self.sessions.end(request)})


def _described(row: tuple[bytes, str, frozenset[str]] | None) -> dict[str, object]:
    return {"name": row[1] if row else "", "rights": sorted(row[2]) if row else []}
