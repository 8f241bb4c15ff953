"""Server-sent events: how many watchers there may be, and how a stream ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from cutthrough.admin.cross_site import PROTECTED, watcher_key
from cutthrough.capture.query import QueryError

# Between two signs of life
HEARTBEAT_S = 15.0
# Seconds within which a client takes a piece
STALLED_S = 10.0

Begin = Callable[[web.Request], Awaitable[Any]]
Follow = Callable[[web.Request, web.StreamResponse, Any], Awaitable[None]]


class Streams:
    """The open streams of some pages, at most `most`, and `most_each` from one address
    or user (R31)."""

    def __init__(self, most: int = 16, most_each: int = 4) -> None:
        self._most = most
        self._most_each = most_each
        self._open: dict[asyncio.Task[Any] | None, web.Request] = {}

    async def serve(self, request: web.Request, begin: Begin, follow: Follow
                    ) -> web.StreamResponse:
        """Events, until the client has gone or `follow` ends. `begin` gives a refusal,
        or the place from which `follow` goes on."""
        refused = self._refuse(request)
        if refused is not None:
            return refused
        response = web.StreamResponse(
            headers={**PROTECTED, "Content-Type": "text/event-stream"})
        task = asyncio.current_task()
        self._open[task] = request
        try:
            start = await begin(request)
            if isinstance(start, web.Response):
                return start
            await response.prepare(request)
            try:
                await follow(request, response, start)
            finally:                         # a clean end would wait for the client
                if request.transport is not None:
                    request.transport.abort()
        except QueryError:
            if not response.prepared:
                raise
        except (TimeoutError, ConnectionError):
            pass                             # stalled, or gone
        finally:
            self._open.pop(task, None)
        return response

    def _refuse(self, request: web.Request) -> web.Response | None:
        """A page that changes its filter closes a stream and opens the next one at
        once. A stream whose client has gone ends here, instead of at its next event,
        and does not count."""
        for task in [key for key, other in self._open.items() if not is_there(other)]:
            del self._open[task]
            if task is not None:
                task.cancel()
        key, kind = watcher_key(request)
        if len(self._open) >= self._most:
            return web.Response(status=503, text=f"too many watchers: {self._most}\n")
        same = [other for other in self._open.values() if watcher_key(other)[0] == key]
        if len(same) >= self._most_each:
            return web.Response(status=503, text="too many watchers: "
                                f"{self._most_each} from this {kind}\n")
        return None


def is_there(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


async def write(response: web.StreamResponse, events: bytes) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(STALLED_S):
        await response.write(events)
