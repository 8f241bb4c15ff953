"""Server-sent events about captured exchanges: how many watchers there may be, and how
a stream ends."""

import asyncio
import collections
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from cutthrough.admin.cross_site import PROTECTED, watcher_key
from cutthrough.capture.query import QueryError

MOST_WATCHERS, MOST_WATCHERS_EACH = 16, 4
# Between two signs of life
HEARTBEAT_S = 15.0
# Seconds within which a client takes a piece
STALLED_S = 10.0

Begin = Callable[[web.Request], Awaitable[Any]]
Follow = Callable[[web.Request, web.StreamResponse, Any], Awaitable[None]]


class Streams:
    """Those that are open; all count together."""

    def __init__(self) -> None:
        self._watchers: collections.Counter[str] = collections.Counter()

    async def serve(self, request: web.Request, begin: Begin, follow: Follow
                    ) -> web.StreamResponse:
        """Events, until the client has gone or `follow` ends. `begin` gives a refusal,
        or the place from which `follow` goes on."""
        key, kind = watcher_key(request)
        if self._watchers[key] >= MOST_WATCHERS_EACH or (
                self._watchers.total() >= MOST_WATCHERS):
            return web.Response(status=503, text="too many watchers, in all or "
                                f"from this {kind}\n")
        response = web.StreamResponse(
            headers={**PROTECTED, "Content-Type": "text/event-stream"})
        self._watchers[key] += 1
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
            self._watchers[key] -= 1
            self._watchers += collections.Counter()      # drops keys with count 0
        return response


def is_there(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


async def write(response: web.StreamResponse, events: bytes) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(STALLED_S):
        await response.write(events)
