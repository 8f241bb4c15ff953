"""The held messages, over HTTP; the page "Traffic" shows it.

    GET  /breakpoints           until when they are armed, and the held messages
    POST /breakpoints/armed     an Arming: {"seconds": N}; 0: not any more
    GET  /breakpoints/ID        one, with its body
    POST /breakpoints/ID        a Decision

All take the admin token, or one with the right `breakpoints`. Arming and decisions are
in the error log.
"""

import math
from typing import Any, Protocol

from aiohttp import web

from cutthrough.admin.bodies import read_body
from cutthrough.admin.flows_page import decode
from cutthrough.admin.rights import asker
from cutthrough.process.breakpoints import (
    MOST_ARMED,
    Arming,
    Chosen,
    Decision,
    read_chosen,
)

# Bytes of a decision, body in base64
MOST_DECISION = 12 << 20


class Breakpoints(Protocol):
    """The supervisor's part."""

    @property
    def armed_s(self) -> float: ...
    @property
    def chosen(self) -> Chosen: ...
    async def arm(self, seconds: float, chosen: Chosen, who: str) -> list[str]: ...
    async def held(self) -> tuple[list[dict[str, Any]], list[str]]: ...
    async def show(self, name: str) -> dict[str, Any] | None: ...
    async def decide(
        self, name: str, decision: Decision, who: str) -> tuple[int, str]: ...


class BreakpointsPage:
    def __init__(self, breakpoints: Breakpoints) -> None:
        self._breakpoints = breakpoints

    def routes(self) -> list[web.RouteDef]:
        path = "/breakpoints/{id:[0-9]+-[0-9]+}"
        return [
            web.get("/breakpoints", self.list, allow_head=False),
            web.post("/breakpoints/armed", self.arm),
            web.get(path, self.show, allow_head=False), web.post(path, self.decide)]

    async def list(self, request: web.Request) -> web.StreamResponse:
        held, unanswered = await self._breakpoints.held()
        return web.json_response({**self._armed(), "held": held,
                                  "unanswered": unanswered})

    async def arm(self, request: web.Request) -> web.StreamResponse:
        arming = decode(await read_body(request, MOST_DECISION), Arming)
        seconds = arming.seconds
        if not (math.isfinite(seconds) and 0 <= seconds <= MOST_ARMED):
            raise ValueError(f"seconds: 0 to {MOST_ARMED:g}")
        read_chosen(arming)                  # a mistake is the operator's to hear
        unanswered = await self._breakpoints.arm(seconds, Chosen(
            arming.hosts, arming.methods, arming.paths), asker(request))
        return web.json_response({**self._armed(), "unanswered": unanswered})

    def _armed(self) -> dict[str, Any]:
        """`armed_for`: absent if all requests of rules with a breakpoint are held."""
        chosen = self._breakpoints.chosen
        names = {name: list(texts) for name in ("hosts", "methods", "paths")
                 if (texts := getattr(chosen, name))}
        return {"armed_s": round(self._breakpoints.armed_s, 1),
                **({"armed_for": names} if names else {})}

    async def show(self, request: web.Request) -> web.StreamResponse:
        message = await self._breakpoints.show(request.match_info["id"])
        if message is None:
            return web.Response(status=404, text="not held any more\n")
        return web.json_response(message)

    async def decide(self, request: web.Request) -> web.StreamResponse:
        decision = decode(await read_body(request, MOST_DECISION), Decision)
        status, text = await self._breakpoints.decide(
            request.match_info["id"], decision, asker(request))
        return web.Response(status=status, text=f"{text}\n")
