"""The page "Recordings", and the sessions over HTTP.

    GET    /recordings                the page, which holds no data
    GET    /sessions                  the sessions, and the mode
    GET    /sessions/NAME             ?search=WORDS&limit=&before=: recordings of one
    PUT    /sessions/NAME             makes it; PATCH: sets its bounds
    GET    /sessions/NAME/N           one whole; PUT: replaces it; DELETE
    DELETE /sessions/NAME
    GET    /sessions/NAME/export      POST …/import: session_archives.py
    GET    /replays                   the last misses, with the nearest recordings

All but the page take the admin token, reads included; reads of recordings are in the
error log, as changes are. Files, and PostgreSQL, are asked
in threads, two at a time, each for ANSWER_S at most.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from aiohttp import web

from cutthrough.admin.bodies import read_body
from cutthrough.admin.flows_page import decode, number_of
from cutthrough.admin.rights import asker
from cutthrough.admin.session_archives import MOST_BYTES, read_archive, write_archive
from cutthrough.admin.traffic_page import make_page
from cutthrough.config.redaction import parse_field, parse_key, parse_path
from cutthrough.config.values import COUNT, DAY
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.model.masking import Redaction
from cutthrough.recording.record.session_writer import manifest_of
from cutthrough.recording.sessions import edits
from cutthrough.recording.sessions.folder import pack
from cutthrough.recording.sessions.modes import read_state
from cutthrough.recording.sessions.places import open_sessions
from cutthrough.recording.sessions.session import (
    AnySession,
    AnySessions,
    Manifest,
    SessionError,
    is_name,
)
from cutthrough.storage.settings import Recordings
from cutthrough.storage.store import StoreError

log = logging.getLogger("cutthrough")

ANSWER_S = 5.0
AT_ONCE = 2
MOST_ROWS, MOST_SESSIONS = 1000, 1000
# Bytes of a recording that is shown or replaced
MOST_SHOWN = 16 << 20
MOST_MANIFEST = 64 << 10
MOST_AGE_S = 36_500 * DAY
T = TypeVar("T")


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """0: none. None: as it was."""

    count: Annotated[int, msgspec.Meta(ge=0, le=COUNT.high)] | None = None
    age_s: Annotated[float, msgspec.Meta(ge=0, le=MOST_AGE_S)] | None = None


class NewSession(Bounds, frozen=True, forbid_unknown_fields=True):
    """A request for a new session. Without `redaction` it has the configured one."""

    redaction: Redaction | None = None
    comment: str = ""

    def manifest(self, configured: Manifest) -> Manifest:
        """Raises ValueError."""
        changes: dict[str, Any] = {name: value for name in ("count", "age_s") if (
            value := getattr(self, name)) is not None}
        if redaction := self.redaction:
            changes["redaction"] = Redaction(
                fields=tuple(map(parse_field, redaction.fields)),
                query=tuple(map(parse_key, redaction.query)),
                json=tuple(map(parse_path, redaction.json)), body=redaction.body)
        return msgspec.structs.replace(configured, comment=self.comment, **changes)


class SessionExists(Exception):
    """A session of this name."""


class Replays(Protocol):
    """The supervisor's part."""

    async def misses(self) -> dict[str, Any]: ...
    async def settle(self) -> list[str]: ...
    async def look(self) -> tuple[list[str], list[str]]: ...


class RecordingsPage:
    def __init__(self, directory: Callable[[], str], url: Callable[[], str],
                 session: Callable[[], str], settings: Callable[[], Recordings],
                 replays: Replays) -> None:
        """The functions return what is configured now; "": no directory, or URL.
        `settings`: of a new session."""
        self._directory, self._url, self._session = directory, url, session
        self._settings = settings
        self._replays = replays
        self._places = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> list[web.RouteDef]:
        session = "/sessions/{name}"
        number = f"{session}/{{number:[0-9]{{1,18}}}}"
        return [
            web.get("/recordings", self.page),
            web.get("/sessions", self.sessions, allow_head=False),
            web.get(session, self.recordings, allow_head=False),
            web.put(session, self.create), web.patch(session, self.set_bounds),
            web.delete(session, self.delete_session),
            web.get(number, self.show, allow_head=False),
            web.put(number, self.edit), web.delete(number, self.delete),
            web.get(f"{session}/export", self.export, allow_head=False),
            web.post(f"{session}/import", self.import_),
            web.get("/replays", self.replays, allow_head=False)]

    async def page(self, request: web.Request) -> web.StreamResponse:
        text, policy = make_page(
            "recordings.html", ("session.js", "recordings.js"), "recordings.css")
        return web.Response(text=text, content_type="text/html",
                            headers={"Content-Security-Policy": policy})

    async def replays(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(await self._replays.misses())

    # Reads

    async def sessions(self, request: web.Request) -> web.StreamResponse:
        folder = self._folder()
        state = read_state(folder)
        session = state.session or self._session()
        rows = await self._ask(lambda: list_sessions(folder, self._url()))
        return web.json_response(
            {"mode": state.mode, "session": session, "sessions": rows})

    async def recordings(self, request: web.Request) -> web.StreamResponse:
        limit = number_of(request, "limit", 100)
        if not 1 <= limit <= MOST_ROWS:
            raise ValueError(f"limit: 1 to {MOST_ROWS}")
        words = request.query.get("search", "")
        before = number_of(request, "before", 0)
        rows = await self._of(
            request, lambda session: session.rows(words, limit, before))
        self._log(request, f"read {len(rows)} rows" + (
            f" with {words!r:.100}" if words else "") + " of")
        return web.json_response({
            "recordings": [row._asdict() for row in rows],
            "next": rows[-1].number if len(rows) == limit else None})

    async def show(self, request: web.Request) -> web.StreamResponse:
        number = int(request.match_info["number"])

        def read(session: AnySession) -> dict[str, Any] | None:
            row = session.rows("", 1, number + 1)
            if row and row[0].number == number and row[0].size > MOST_SHOWN:
                raise ValueError(f"it has more than {MOST_SHOWN} bytes: use "
                                 "cutthrough recordings show")
            recording = session.get(number)
            return None if recording is None else {
                "number": number, "created_us": recording.created_us,
                "recording": pack(recording)}

        answer = await self._of(request, read)
        self._log(request, f"read recording {number} of")
        return _missing(number) if answer is None else web.json_response(answer)

    async def export(self, request: web.Request) -> web.StreamResponse:
        folder, name = self._folder(), request.match_info["name"]

        def write(session: AnySession) -> bytes:
            session.log("export", "tar", len(session))
            return write_archive(session, folder)

        data = await self._of(request, write)
        self._log(request, "exported")
        return web.Response(body=data, content_type="application/x-tar", headers={
            "Content-Disposition": f'attachment; filename="{name}.tar"'})

    # Changes

    async def import_(self, request: web.Request) -> web.StreamResponse:
        folder, name = self._folder(), request.match_info["name"]
        if not is_name(name):
            raise ValueError(f"{name!r:.110} is no name of a session")
        data = await read_body(request, MOST_BYTES)

        def run() -> dict[str, Any]:
            with contextlib.closing(open_sessions(folder, self._url())) as sessions:
                return read_archive(sessions, name, folder, data)

        result = await self._ask(run)
        self._log(request, f"imported {result['added']} recordings into")
        return web.json_response(result)

    async def create(self, request: web.Request) -> web.StreamResponse:
        folder, name = self._folder(), request.match_info["name"]
        if not is_name(name):
            raise ValueError(f"{name!r:.110} is no name of a session")
        body = await read_body(request, MOST_MANIFEST) or b"{}"
        new_session = decode(body, NewSession)
        manifest = new_session.manifest(manifest_of(self._settings()))

        def run() -> None:
            with contextlib.closing(open_sessions(folder, self._url())) as sessions:
                if name in sessions.names():
                    raise SessionExists
                sessions.create(name, manifest).close()

        try:
            await self._ask(run)
        except SessionExists:
            return web.Response(
                status=409, text=f"there is a session {name!r} already\n")
        self._log(request, "created")
        return web.json_response({"created": 1})

    async def set_bounds(self, request: web.Request) -> web.StreamResponse:
        bounds = decode(await read_body(request, MOST_MANIFEST), Bounds)
        until = time.monotonic() + ANSWER_S / 2

        def write(session: AnySession) -> dict[str, Any]:
            edits.set_bounds(session, bounds.count, bounds.age_s, until)
            return {"count": session.manifest.count, "age_s": session.manifest.age_s,
                    "recordings": len(session)}

        answer = await self._of(request, write)
        self._log(request, f"set count {answer['count']}, age {answer['age_s']:g} s of")
        return web.json_response(answer)

    async def edit(self, request: web.Request) -> web.StreamResponse:
        number = int(request.match_info["number"])
        table = decode(await read_body(request, MOST_SHOWN), dict[str, Any])

        if not await self._of(request, lambda session: edits.edit(
                session, number, table, "the body")):
            return _missing(number)
        self._log(request, f"edited recording {number} of")
        return web.json_response({"edited": 1})

    async def delete(self, request: web.Request) -> web.StreamResponse:
        number = int(request.match_info["number"])
        if not await self._of(request, lambda session: session.delete([number])):
            return _missing(number)
        self._log(request, f"deleted recording {number} of")
        return web.json_response({"deleted": 1})

    async def delete_session(self, request: web.Request) -> web.StreamResponse:
        folder, name = self._folder(), request.match_info["name"]

        def run() -> None:
            with contextlib.closing(open_sessions(folder, self._url())) as sessions:
                sessions.delete(name)

        await self._ask(run)
        self._log(request, "deleted")
        return web.json_response({"deleted": 1})

    def _log(self, request: web.Request, what: str) -> None:
        log.info("recordings: %s %s session %s", asker(request), what,
                 request.match_info["name"])

    # The files

    def _folder(self) -> str:
        directory = self._directory()
        if not directory:
            raise web.HTTPNotFound(reason="no recording_directory is configured")
        return directory

    async def _of(self, request: web.Request, ask: Callable[[AnySession], T]) -> T:
        folder, name = self._folder(), request.match_info["name"]

        def run() -> T:
            with contextlib.closing(open_sessions(folder, self._url())) as sessions:
                session = sessions.open(name)
                try:
                    session.stop_at(time.monotonic() + ANSWER_S)
                    return ask(session)
                finally:
                    session.close()

        return await self._ask(run)

    async def _ask(self, run: Callable[[], T]) -> T:
        async with self._places:
            try:
                return await asyncio.to_thread(run)
            except SessionError as error:
                raise web.HTTPNotFound(reason=_line(error)) from None
            except (StoreError, OSError) as error:
                raise web.HTTPServiceUnavailable(reason=_line(error)) from None
            except NotImported as error:
                raise ValueError(str(error)) from None


def list_sessions(folder: str, url: str) -> list[dict[str, Any]]:
    if not url and not Path(folder).is_dir():
        return []
    with contextlib.closing(open_sessions(folder, url)) as sessions:
        return [describe(sessions, name) for name in sessions.names()[:MOST_SESSIONS]]


def describe(sessions: AnySessions, name: str) -> dict[str, Any]:
    try:
        session = sessions.open(name)
    except StoreError as error:
        return {"name": name, "error": _line(error)}
    try:
        return {"name": name, "recordings": len(session),
                "created_us": session.manifest.created_us,
                "count": session.manifest.count, "age_s": session.manifest.age_s,
                "comment": session.manifest.comment, "bytes": session.size()}
    except (StoreError, OSError) as error:
        return {"name": name, "error": _line(error)}
    finally:
        session.close()


def _line(error: Exception) -> str:
    """A reason of HTTP is one line."""
    return " ".join(str(error).split())


def _missing(number: int) -> web.Response:
    return web.Response(status=404, text=f"there is no recording {number}\n")
