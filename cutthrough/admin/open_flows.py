"""Captured exchanges that have not ended, over HTTP: a part of flows_page.

    GET    /flows/open?filter=                          those in hand, newest first
    GET    /flows/open/ID                               one; ID is the log's identifier
    GET    /flows/open/ID/request-body /response-body /messages     the part so far
    GET    /flows/open/ID/as/curl|fetch|httpx|json
    GET    /flows/open/ID/live                          its messages, as they come
    GET    /flows/live?open=true                        also this list's changes

Workers and the writer are asked each time; nothing is kept for it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec
from aiohttp import web

from cutthrough.admin.streams import HEARTBEAT_S, Streams, is_there, write
from cutthrough.capture.query import Answer, Query, QueryError
from cutthrough.storage.settings import Settings

# Between two looks at the list, and at one
LIST_S, ONE_S = 1.0, 0.3
# For the row of one that has ended, after each ONE_S
LOOKS = 7

Row = dict[str, Any]


class Ended(msgspec.Struct):
    """The answer about an exchange that was in hand: its number, and further messages.
    """

    id: int
    messages: msgspec.Raw


class OpenFlows(Protocol):
    """The supervisor's part."""

    @property
    def settings(self) -> Settings | None: ...
    async def all(self) -> bytes: ...
    async def flow(self, name: str, known: int = -1) -> tuple[int, bytes] | None: ...


class Page(Protocol):
    """The part of FlowsPage used here."""

    def query(self, asking: web.Request, verb: Any, **fields: Any) -> Query: ...
    async def relay(self, request: web.Request, query: Query, content: Any = None
                    ) -> web.StreamResponse: ...
    async def read(self, query: Query, content: bytes = b"") -> tuple[Answer, bytes]:
        ...


class OpenPage:
    def __init__(self, page: Page, flows: OpenFlows, streams: Streams) -> None:
        self._page = page
        self._flows = flows
        self._streams = streams

    def routes(self) -> list[web.RouteDef]:
        name = "/flows/open/{id:[0-9]{1,5}-[0-9]{1,20}}"
        return [
            web.get("/flows/open", self.all, allow_head=False),
            web.get(name, self.show, allow_head=False),
            web.get(f"{name}/{{side:request|response}}-body", self.show,
                    allow_head=False),
            web.get(f"{name}/{{verb:messages}}", self.show, allow_head=False),
            web.get(f"{name}/as/{{form:curl|fetch|httpx|json}}", self.show,
                    allow_head=False),
            web.get(f"{name}/live", self.live, allow_head=False)]

    async def all(self, request: web.Request) -> web.StreamResponse:
        content = await self._flows.all()
        return await self._page.relay(
            request, self._query(request, "open", content), pieces(content))

    async def show(self, request: web.Request) -> web.StreamResponse:
        """All of it, or the part that the path names."""
        named = request.match_info
        verb = named.get("side") or named.get("verb") or (
            "copy" if "form" in named else "show")
        snapshot = await self._flows.flow(named["id"])
        if snapshot is None:
            return gone(named["id"])
        return await self._page.relay(request, self._query(
            request, verb, snapshot[1], view=request.query.get("view", ""),
            form=named.get("form", "curl")), pieces(snapshot[1]))

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Each event is a list of messages; the last one, "end", has the number of the
        row, which the exchange got when it ended, if it is known."""
        return await self._streams.serve(request, self._begin, self._follow)

    async def _begin(self, request: web.Request) -> Any:
        """The bytes that have come, the number of messages, and these."""
        name = request.match_info["id"]
        snapshot = await self._flows.flow(name)
        if snapshot is None:
            return gone(name)
        return snapshot[0], *await self._tail(request, snapshot[1], None)

    async def _tail(self, request: web.Request, content: bytes, after: int | None
                    ) -> tuple[int, bytes]:
        head, messages = await self._page.read(self._query(
            request, "tail", content, after=after,
            view=request.query.get("view", "")), content)
        if head.status != 200:
            raise QueryError(messages.decode().strip(), head.status)
        return head.last, messages

    async def _follow(self, request: web.Request, response: web.StreamResponse,
                      begun: tuple[int, int, bytes]) -> None:
        known, last, messages = begun
        name, quiet = request.match_info["id"], 0.0
        while is_there(request):
            if messages not in (b"", b"[]") or quiet >= HEARTBEAT_S:
                quiet = 0.0
                await write(response, b"data: %s\n\n" % messages if messages
                            else b": keep-alive\n\n")
            await asyncio.sleep(ONE_S)
            quiet += ONE_S
            snapshot = await self._flows.flow(name, known)
            if snapshot is None:
                await write(response, await self._last(request, last))
                return
            known, messages = snapshot[0], b""
            if snapshot[1]:
                last, messages = await self._tail(request, snapshot[1], last)

    async def _last(self, request: web.Request, last: int) -> bytes:
        """The messages that came just before the end, if its row is written in time."""
        for _ in range(LOOKS):
            head, data = await self._page.read(self._page.query(
                request, "ended", name=request.match_info["id"], after=last,
                view=request.query.get("view", "")))
            if head.status == 200:
                ended = msgspec.json.decode(data, type=Ended)
                return b"data: %s\n\nevent: end\ndata: {\"id\":%d}\n\n" % (
                    ended.messages, ended.id)
            await asyncio.sleep(ONE_S)
        return b"event: end\ndata: {}\n\n"

    def changes(self, request: web.Request) -> "Changes":
        return Changes(self, request)

    async def rows(self, request: web.Request, *, again: bool) -> list[Row]:
        """`again`: the read is logged already."""
        if self._flows.settings is None:
            return []
        content = await self._flows.all()
        head, data = await self._page.read(self._query(
            request, "open", content, after=1 if again else None), content)
        if head.status != 200:
            raise QueryError(data.decode().strip(), head.status)
        rows: list[Row] = msgspec.json.decode(data)
        return rows

    def _query(self, request: web.Request, verb: str, content: bytes, **fields: Any
               ) -> Query:
        settings = self._flows.settings
        if settings is None:
            raise QueryError("nothing is captured now", 404)
        return self._page.query(
            request, verb, size=len(content), settings=settings,
            name=request.match_info.get("id", ""), **fields)


class Changes:
    """The list's changes, for one watcher."""

    def __init__(self, page: OpenPage, request: web.Request) -> None:
        self._page = page
        self._request = request
        self._known: dict[str, Row] = {}
        self._at = 0.0

    async def look(self) -> bytes:
        """An event with new and changed rows, and identifiers of those that are gone;
        b"": nothing has changed, or it is too early. The first one has all rows."""
        now = asyncio.get_running_loop().time()
        if self._at and now - self._at < LIST_S:
            return b""
        is_first, self._at = not self._at, now
        rows = {row["request"]: row for row in await self._page.rows(
            self._request, again=not is_first)}
        changed = [row for name, row in rows.items()
                   if timeless(row) != timeless(self._known.get(name))]
        gone = [name for name in self._known if name not in rows]
        self._known = rows
        if not (is_first or changed or gone):
            return b""
        return b"event: open\ndata: %s\n\n" % msgspec.json.encode(
            {"rows": changed, "gone": gone, "all": is_first})


def timeless(row: Row | None) -> Row | None:
    return None if row is None else {**row, "ms": 0}


def gone(name: str) -> web.Response:
    return web.Response(status=404, text=f"no captured exchange {name} is open\n")


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content
