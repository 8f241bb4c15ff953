"""The origin of `python -m bench streams`: `python -m bench.echoes DIR`.

Echoes messages of WebSockets at /echo, and calls of gRPC for any method, over TLS with
DIR/origin.pem and DIR/origin.key. Prints both ports.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
from aiohttp import web


async def echo(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is aiohttp.WSMsgType.TEXT:
            await socket.send_str(message.data)
    return socket


class Echo(grpc.GenericRpcHandler):
    """Whatever is called: each message comes back."""

    def service(self, handler_call_details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._echo)

    async def _echo(self, messages: AsyncIterator[bytes], context: Any
                    ) -> AsyncIterator[bytes]:  # fmt: skip
        async for message in messages:
            yield message


async def serve(directory: Path) -> None:
    pem, key = directory / "origin.pem", directory / "origin.key"
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pem, key)
    app = web.Application()
    app.router.add_get("/echo", echo)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    calls = grpc.aio.server()
    calls.add_generic_rpc_handlers((Echo(),))
    port = calls.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(
        [(key.read_bytes(), pem.read_bytes())]))
    await calls.start()
    print(runner.addresses[0][1], port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
