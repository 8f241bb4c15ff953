"""Filters: add a header, block a MIME type, rewrite JSON, inject latency, map local.

A policy names them, on PYTHONPATH:

    [filters.team]
    code = "filters:AddHeader"

    [[rules]]
    action = "allow"
    hosts = [".example.com"]
    filters = ["team"]
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

from cutthrough import Flow


class AddHeader:
    """Tells the origin which team asks."""

    async def on_request_head(self, flow: Flow) -> None:
        flow.request.headers["X-Team"] = ",".join(flow.groups) or "none"


class BlockPrograms:
    """Refuses downloads of programs, by the type that the origin names."""

    blocked = frozenset(("application/x-msdownload", "application/x-executable",
                         "application/vnd.microsoft.portable-executable"))

    async def on_response_head(self, flow: Flow) -> None:
        assert flow.response is not None
        kind = (flow.response.headers.get("Content-Type") or "").split(";")[0]
        if kind.strip().lower() in self.blocked:
            flow.refuse(f"programs are blocked: {kind.strip()}")


class HidePrices:
    """Rewrites JSON. The body comes decoded; length and ETag follow by themselves."""

    async def on_response_body(self, flow: Flow, body: bytes) -> bytes | None:
        assert flow.response is not None
        kind = flow.response.headers.get("Content-Type") or ""
        if not kind.startswith("application/json"):
            return None                 # goes on as it came
        value = json.loads(body)
        if isinstance(value, dict) and "price" in value:
            value["price"] = None
        return json.dumps(value).encode()


class Slow:
    """Waits up to half a second before a request, and before each piece of its answer.
    Give it a `budget` above that. (`faults` can do it without Python.)"""

    async def on_request_head(self, flow: Flow) -> None:
        await asyncio.sleep(random.uniform(0, 0.5))

    async def on_response_body(
            self, flow: Flow, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            await asyncio.sleep(0.01)
            yield piece


class MapLocal:
    """Answers from files, in place of the origin; what there is no file for goes on."""

    folder = Path("/srv/local")

    async def on_request_head(self, flow: Flow) -> None:
        name = flow.request.path.partition("?")[0].lstrip("/") or "index.html"
        path = (self.folder / name).resolve()
        if path.is_relative_to(self.folder.resolve()) and path.is_file():
            body = await asyncio.to_thread(path.read_bytes)
            flow.respond(200, body, {"Content-Type": "text/html"})
