"""The level of the error log, by HTTP.

    GET  /log-level                       {"level": "info", "levels": […]}
    POST /log-level?level=debug           with the right `operate`

Answered when all workers have it; `unanswered`: the workers that have not confirmed it
within some seconds.
"""

from typing import Protocol

from aiohttp import web

from cutthrough.admin.rights import asker


class LogLevel(Protocol):
    """The supervisor's part."""

    @property
    def levels(self) -> tuple[str, ...]: ...
    @property
    def level(self) -> str: ...
    async def set(self, level: str, who: str) -> list[str]: ...


class LogLevelPage:
    def __init__(self, log_level: LogLevel) -> None:
        self._log_level = log_level

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/log-level", self.show), web.post("/log-level", self.change)]

    async def show(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"level": self._log_level.level,
                                  "levels": self._log_level.levels})

    async def change(self, request: web.Request) -> web.StreamResponse:
        level = request.query.get("level", "")
        levels = self._log_level.levels
        if request.query.keys() != {"level"} or level not in levels:
            raise ValueError(f"give level=…, one of {', '.join(levels)}")
        unanswered = await self._log_level.set(level, asker(request))
        return web.json_response({"level": level, "unanswered": unanswered})
