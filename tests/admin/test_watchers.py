"""Watchers: the key by which watchers are counted and named."""

import asyncio
import socket

from aiohttp import web

from cutthrough.admin.cross_site import watcher_key
from cutthrough.admin.rights import asker


async def keys_of_one_that_leaves() -> tuple[str, str]:
    """The key while the client is there, and behind its end."""
    left = asyncio.get_running_loop().create_future()

    async def answer(request: web.Request) -> web.Response:
        first = watcher_key(request)[0]
        assert request.transport is not None
        request.transport.abort()
        left.set_result((request, first))
        await asyncio.Event().wait()         # it is cancelled, or ends with the runner
        return web.Response()

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listening).start()
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    try:
        request, first = await left
        await reader.read()                  # the other side has closed
        await asyncio.sleep(0)
        assert request.transport is None
        return first, asker(request)
    finally:
        writer.close()
        await runner.cleanup()


def test_a_watcher_that_has_left_keeps_its_name():
    """The stream of flows asked for it in its next round: a traceback."""
    assert asyncio.run(keys_of_one_that_leaves()) == ("127.0.0.1", "127.0.0.1")
