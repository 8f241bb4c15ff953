"""The mode of recordings: what `cutthrough mode` shows and changes, by HTTP.

    GET  /mode                                  {"mode": …, "session": …}
    POST /mode?mode=replay&session=NAME         changes what is named; with the token

All sequences begin anew. Without `recording_directory` it is 404.
"""

from collections.abc import Callable

import msgspec
from aiohttp import web

from cutthrough.recording.modes import MODES, State, read_state, write_state
from cutthrough.recording.session import is_name


class ModePage:
    def __init__(self, directory: Callable[[], str]) -> None:
        """`directory` returns the one in force now; "": there is none."""
        self._directory = directory

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/mode", self.show), web.post("/mode", self.change)]

    async def show(self, request: web.Request) -> web.StreamResponse:
        return _describe(read_state(self._found()))

    async def change(self, request: web.Request) -> web.StreamResponse:
        directory = self._found()
        unknown = request.query.keys() - {"mode", "session"}
        if unknown or not request.query:
            raise ValueError("give mode=… or session=…, or both" + "".join(
                [f"; {name!r:.40} is unknown" for name in sorted(unknown)]))
        state = read_state(directory)
        mode = request.query.get("mode", state.mode)
        session = request.query.get("session", state.session)
        if mode not in MODES:
            raise ValueError(f"mode={mode:.40} is none of {', '.join(MODES)}")
        if session and not is_name(session):
            raise ValueError(f"{session!r:.110} is no name of a session")
        state = msgspec.structs.replace(state, mode=mode, session=session)
        write_state(directory, state)
        return _describe(state)

    def _found(self) -> str:
        directory = self._directory()
        if not directory:
            raise web.HTTPNotFound(reason="no recording_directory is configured")
        return directory


def _describe(state: State) -> web.Response:
    return web.json_response({"mode": state.mode, "session": state.session or None})
