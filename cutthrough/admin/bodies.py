"""Bodies over the admin listener: how much memory they take, and for how long (R31).

All requests' bodies together have MOST_HELD, until their answers are made. An answer
goes in pieces, and its connection ends if a piece is not taken within STALLED_S.
"""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from cutthrough.admin.streams import STALLED_S
from cutthrough.capture.query import QueryError

# Three sessions of recordings, which are the longest
MOST_HELD = 192 << 20
PIECE = 64 << 10


class Room:
    """The bytes that requests hold, at most `most`: a connection has one in hand."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._left = most
        self._held: dict[object, int] = {}   # by connection

    def take(self, request: web.Request, size: int) -> None:
        """Raises QueryError if there is no room."""
        if size > self._left:
            raise QueryError("other requests hold too much: try again later", 503)
        self._left -= size
        self._held[request.protocol] = self._held.get(request.protocol, 0) + size

    def give(self, request: web.Request) -> None:
        """Gives back the room of a request that has its answer. Idempotent."""
        self._left += self._held.pop(request.protocol, 0)


room = Room()


async def receive(request: web.Request) -> AsyncIterator[bytes]:
    """The pieces of a body as they come. Raises QueryError."""
    while True:
        try:
            async with asyncio.timeout(STALLED_S):
                piece = await request.content.readany()
        except TimeoutError:
            raise QueryError("the body stopped coming", 408) from None
        except web.RequestPayloadError:
            raise QueryError("the body is malformed", 400) from None
        except ConnectionError:
            raise QueryError("the client has gone", 400) from None
        if not piece:
            return
        yield piece


async def read_body(request: web.Request, most: int) -> bytes:
    """A whole body. Raises QueryError, and ValueError if it is longer."""
    data = bytearray()
    async for piece in receive(request):
        room.take(request, len(piece))
        data += piece
        if len(data) > most:
            raise ValueError(f"the body is longer than {most} bytes")
    return bytes(data)


async def send(request: web.Request, response: web.StreamResponse
               ) -> web.StreamResponse:
    """Sends a long answer: aiohttp would hold it as long as its client reads nothing.
    Returns what aiohttp is to end, or to send."""
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= PIECE or request.method == "HEAD":
        return response
    stream = web.StreamResponse(status=response.status, headers=response.headers)
    stream.content_length = len(body)
    if response.keep_alive is False:
        stream.force_close()
    try:
        await stream.prepare(request)
        for at in range(0, len(body), PIECE):
            async with asyncio.timeout(STALLED_S):
                await stream.write(body[at:at + PIECE])
        await stream.write_eof()
    except (TimeoutError, ConnectionError):  # stalled, or gone
        if request.transport is not None:
            request.transport.abort()
    return stream
