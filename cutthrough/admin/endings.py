"""A stream of endings: lines of the access log, as server-sent events."""

import asyncio
import re
from typing import Protocol

from aiohttp import web

from cutthrough.admin.rights import Tokens
from cutthrough.admin.streams import HEARTBEAT_S, Streams, write

# Bounds of watchers' cost (R31). A batch is up to 64 KiB, and all watchers share it. A
# watcher is cut off if MOST_WAITING batches wait for it. Eight for each address: a
# browser opens at most six connections to a host.
MOST_WATCHERS = 32
MOST_WATCHERS_EACH = 8
MOST_WAITING = 256
# A quotation mark in a value is escaped, so this is no part of one. Of the value: the
# scheme with host and port, or as of a CONNECT these alone; a refused target is neither
_URL = re.compile(rb',"url":"(https://[^/?#"\\]*|[^/?#"\\@]*:[0-9]{1,5}(?="))?'
                  rb'(?:[^"\\]|\\.)*"')

Queue = asyncio.Queue[bytes]


class Watched(Protocol):
    """Puts batches of JSON lines into queues."""

    def watch(self, queue: Queue) -> None:
        """Puts batches into the queue until `unwatch`."""

    def unwatch(self, queue: Queue) -> None:
        """Does nothing for a queue that is not watched."""


class Endings:
    def __init__(self, connections: Watched, tokens: Tokens) -> None:
        self._connections = connections
        self._tokens = tokens
        self._streams = Streams(MOST_WATCHERS, MOST_WATCHERS_EACH)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Streams endings, one JSON object each, as logged."""
        queue = Queue(MOST_WAITING)

        async def begin(_request: web.Request) -> None:
            self._connections.watch(queue)

        async def follow(request: web.Request, response: web.StreamResponse,
                         _start: None) -> None:
            with_paths = self._tokens.has(request, "read")
            while not queue.full():          # it may reconnect
                await write(response, await next_batch(queue, with_paths))

        try:
            return await self._streams.serve(request, begin, follow)
        finally:
            self._connections.unwatch(queue)


async def next_batch(queue: Queue, with_paths: bool) -> bytes:
    try:
        lines = await asyncio.wait_for(queue.get(), HEARTBEAT_S)
    except TimeoutError:
        return b": keep-alive\n\n"
    return b"".join(b"data: %s\n\n" % (line if with_paths else without_path(line))
                    for line in lines.splitlines())


def without_path(line: bytes) -> bytes:
    """A line of the log; of an opened request the URL has host and port alone (R81)."""
    if b',"intercepted":true' not in line:
        return line
    return _URL.sub(lambda url: b',"url":"%s"' % (url[1] or b"-"), line, count=1)
