"""The mode of recordings, as in `cutthrough mode`, by HTTP.

    GET  /mode                                  {"mode": …, "session": …}
    POST /mode?mode=replay&session=NAME         changes both; with the token
    POST /mode?answers=NAME                     the answers before recordings
    POST /settle                                {"unanswered": []}; with the token

All sequences begin anew, unless `answers` alone is named. If there is no
`recording_directory`, /mode is 404. A change is answered when all workers have it, and
exchanges that have ended before are recorded as they were.
/settle is answered when the ended exchanges are in the access log and recorded.
`unanswered`: processes that have not reported it in some seconds.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from cutthrough.admin.recordings_page import Replays
from cutthrough.recording.sessions.modes import MODES, State, read_state, write_state
from cutthrough.recording.sessions.session import is_name


class ModePage:
    def __init__(self, directory: Callable[[], str], replays: Replays) -> None:
        """`directory` returns the one in force now; "": there is none."""
        self._directory = directory
        self._replays = replays

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/mode", self.show), web.post("/mode", self.change),
                web.post("/settle", self.settle)]

    async def show(self, request: web.Request) -> web.StreamResponse:
        return _describe(read_state(self._recording_directory()))

    async def change(self, request: web.Request) -> web.StreamResponse:
        directory = self._recording_directory()
        unknown = request.query.keys() - {"mode", "session", "answers"}
        if unknown or not request.query:
            raise ValueError("give mode=… or session=…, or both" + "".join(
                [f"; {name!r:.40} is unknown" for name in sorted(unknown)]))
        mode = request.query.get("mode", "")
        session = request.query.get("session", "")
        if "mode" in request.query and mode not in MODES:
            raise ValueError(f"mode={mode:.40} is none of {', '.join(MODES)}")
        for name in (session, request.query.get("answers", "")):
            if name and not is_name(name):
                raise ValueError(f"{name!r:.110} is no name of a session")
        unanswered = await self._replays.settle()
        state = msgspec.structs.replace(read_state(directory), **request.query)
        write_state(directory, state, request.query.keys() != {"answers"})
        errors, silent = await self._replays.look()
        return _describe(state, errors=errors,
                         unanswered=sorted({*unanswered, *silent}))

    async def settle(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"unanswered": await self._replays.settle()})

    def _recording_directory(self) -> str:
        directory = self._directory()
        if not directory:
            raise web.HTTPNotFound(reason="no recording_directory is configured")
        return directory


def _describe(state: State, **more: Any) -> web.Response:
    return web.json_response(
        {"mode": state.mode, "session": state.session or None, **more})
