"""Captured exchanges over HTTP; the page "Traffic" shows them.

    GET    /flows?filter=&search=&before=&after=&limit= the list
    GET    /flows/live?filter=&after=                   new ones, as server-sent events
    GET    /flows/N /flows/N/request-body /flows/N/response-body /flows/N/messages
    …?view=json                                         the same as text for a person
    GET    /flows/N/as/curl|fetch|httpx|json            the request as a command
    GET    /flows/N/diff/M                              the lines in which both differ
    GET    /flows/counts                                captured and lost, in numbers
    GET    /flows/capture                               POST: {"paused": true}
    GET    /flows/open… …/live?open=true                those that have not ended
    GET    /flows/reads                                 who has read
    GET    /flows/hosts|slowest|failures|statistics?filter=&before=   summaries
    GET    /flows.har?filter=&after=&limit=             an HTTP Archive, or a page of it
    PATCH  /flows/N                                     {"tag": "…", "comment": "…"}
    DELETE /flows/N /flows?filter=… /flows?all=true
    POST   /flows/send                                  a request through the proxy
    POST   /flows/curl                                  a command, as a request to send
    POST   /flows/import?name=                          a HAR, or mitmproxy's dump

All take the admin token, reads included, and each read is logged in the database
(R59). The supervisor passes bytes on: other processes read.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec
from aiohttp import web

from cutthrough.admin.bodies import read_body, receive
from cutthrough.admin.cross_site import PROTECTED
from cutthrough.admin.metrics import CAPTURE_RESULTS, Reading
from cutthrough.admin.open_flows import OpenFlows, OpenPage
from cutthrough.admin.rights import asker
from cutthrough.admin.streams import HEARTBEAT_S, STALLED_S, Streams, is_there, write
from cutthrough.admin.traffic_page import show_page
from cutthrough.capture.query import (
    MOST_IMPORT,
    MOST_ROWS,
    Answer,
    Query,
    QueryError,
    Request,
)

# Between two looks for new flows
LOOK_S = 0.2
# Bytes of a request to be sent, body in base64, of a mark, and of a command of curl
MOST_REQUEST, MOST_MARK, MOST_COMMAND = 12 << 20, 16 << 10, 4 << 20
# Each has a process of its own: a request that is sent for up to 30 s, a file as long
# as its client sends it
MOST_SENDING, MOST_IMPORTING = 2, 1
# Characters of the name of a file
MOST_NAME = 200

OFF = "neither capture_file nor capture_url is configured"


class Flows(Protocol):
    """The supervisor's part."""

    def capture_database(self) -> str: ...
    def own_proxy(self) -> tuple[str, int] | None: ...
    def authorities(self) -> str: ...
    def ask(self, query: Query, content: AsyncIterator[bytes] | None = None
            ) -> AbstractAsyncContextManager[tuple[Answer, AsyncIterator[bytes]]]: ...


class Mark(msgspec.Struct, forbid_unknown_fields=True):
    """The body of PATCH. Absent: unchanged; "": removed."""

    tag: str | None = None
    comment: str | None = None


class CaptureSwitch(Protocol):
    """The supervisor's part."""

    @property
    def paused(self) -> bool: ...
    async def pause(self, paused: bool, who: str) -> list[str]: ...


class Pause(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /flows/capture."""

    paused: bool


class FlowsPage:
    def __init__(self, flows: Flows, read_counters: Callable[[], Reading],
                 open_flows: OpenFlows, switch: CaptureSwitch) -> None:
        self._flows = flows
        self._switch = switch
        self._read_counters = read_counters
        self._open_flows = open_flows
        self._streams = Streams()
        self._open = OpenPage(self, open_flows, self._streams)
        self._sending = self._importing = 0

    def routes(self) -> list[web.RouteDef]:
        number = "/flows/{id:[0-9]{1,18}}"
        return [
            web.get("/traffic", show_page),
            web.get("/flows", self.list, allow_head=False),
            web.get("/flows/live", self.live, allow_head=False),
            web.get("/flows/counts", self.counts, allow_head=False),
            web.get("/flows/capture", self.capture, allow_head=False),
            web.post("/flows/capture", self.pause),
            web.get("/flows/reads", self.reads, allow_head=False),
            web.get("/flows/{summary:hosts|slowest|failures|statistics}", self.summary,
                    allow_head=False),
            web.get("/flows.har", self.archive, allow_head=False),
            web.get(number, self.show, allow_head=False),
            web.patch(number, self.mark),
            web.delete(number, self.delete),
            web.get(f"{number}/{{side:request|response}}-body", self.body,
                    allow_head=False),
            web.get(f"{number}/messages", self.messages, allow_head=False),
            web.get(f"{number}/as/{{form:curl|fetch|httpx|json}}", self.copy,
                    allow_head=False),
            web.get(f"{number}/diff/{{other:[0-9]{{1,18}}}}", self.diff,
                    allow_head=False),
            web.delete("/flows", self.delete), web.post("/flows/send", self.send),
            web.post("/flows/curl", self.read_curl),
            web.post("/flows/import", self.import_), *self._open.routes()]

    # Reads

    async def list(self, request: web.Request) -> web.StreamResponse:
        after = number_of(request, "after", 0) if "after" in request.query else None
        return await self.relay(request, self.query(
            request, "list", words=request.query.get("search", ""), after=after,
            limit=limit_of(request), before=number_of(request, "before", 0)))

    async def counts(self, request: web.Request) -> web.StreamResponse:
        """Since the program's start, as the metric has them."""
        captures = self._read_counters().captures
        return web.json_response({result: captures.get(result, 0)
                                  for result in CAPTURE_RESULTS})

    async def capture(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"configured": bool(self._flows.capture_database()),
                                  "paused": self._switch.paused})

    async def reads(self, request: web.Request) -> web.StreamResponse:
        return await self.relay(request, self.query(request, "reads"))

    async def summary(self, request: web.Request) -> web.StreamResponse:
        return await self.relay(request, self.query(
            request, request.match_info["summary"], limit=limit_of(request),
            before=number_of(request, "before", 0)))

    async def show(self, request: web.Request) -> web.StreamResponse:
        return await self.relay(request, self.query(
            request, "show", number=int(request.match_info["id"])))

    async def body(self, request: web.Request) -> web.StreamResponse:
        return await self.relay(request, self.query(
            request, request.match_info["side"], number=int(request.match_info["id"]),
            view=request.query.get("view", "")))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        return await self.relay(request, self.query(
            request, "messages", number=int(request.match_info["id"]),
            view=request.query.get("view", "")))

    async def copy(self, request: web.Request) -> web.StreamResponse:
        return await self.relay(request, self.query(
            request, "copy", number=int(request.match_info["id"]),
            form=request.match_info["form"]))

    async def diff(self, request: web.Request) -> web.StreamResponse:
        return await self.relay(request, self.query(
            request, "diff", number=int(request.match_info["id"]),
            other=int(request.match_info["other"])))

    async def archive(self, request: web.Request) -> web.StreamResponse:
        after = number_of(request, "after", 0) if "after" in request.query else None
        return await self.relay(request, self.query(
            request, "har", number=number_of(request, "id", 0), after=after,
            limit=limit_of(request)))

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Streams rows of the list as they are captured, some at a time, each time as
        one event."""
        return await self._streams.serve(request, self._begin, self._follow)

    async def read(self, query: Query, content: bytes = b"") -> tuple[Answer, bytes]:
        """A whole answer, of a stream."""
        async with self._flows.ask(query, whole(content) if content else None) as (
                head, pieces):
            return head, b"".join([piece async for piece in pieces])

    async def _begin(self, request: web.Request) -> web.Response | int:
        head, content = await self.read(self.query(request, "watch"))
        if head.status != 200:
            return answer(head, content)
        return number_of(request, "after", head.last)

    async def _follow(self, request: web.Request, response: web.StreamResponse,
                      last: int) -> None:
        quiet = 0.0
        changes = self._open.changes(request) if (
            request.query.get("open") == "true") else None
        while is_there(request):
            head, rows = await self.read(self.query(request, "watch", after=last))
            if head.status == 404:           # its file was moved: another one will come
                head, rows = Answer(last=last), b""
            elif head.status != 200:         # whoever comes again goes on from there
                raise QueryError(rows.decode().strip(), head.status)
            moved, last = head.last != last, head.last
            # After the rows: an ended exchange has its row before it leaves the list
            events = b"data: %s\n\n" % rows if rows else b""
            if changes is not None:
                events += await changes.look()
            quiet += LOOK_S
            if events or quiet >= HEARTBEAT_S:
                quiet = 0.0
                await write(response, events or b": keep-alive\n\n")
            await asyncio.sleep(0 if moved and head.found == MOST_ROWS else LOOK_S)

    # Changes

    async def mark(self, request: web.Request) -> web.StreamResponse:
        mark = decode(await read_body(request, MOST_MARK), Mark)
        return await self.relay(request, self.query(
            request, "mark", number=int(request.match_info["id"]), tag=mark.tag,
            comment=mark.comment))

    async def pause(self, request: web.Request) -> web.StreamResponse:
        paused = decode(await read_body(request, MOST_MARK), Pause).paused
        unanswered = await self._switch.pause(paused, asker(request))
        return web.json_response({"paused": paused, "unanswered": unanswered})

    async def delete(self, request: web.Request) -> web.StreamResponse:
        number, every = int(request.match_info.get("id", 0)), False
        if not number and "id" in request.match_info:
            raise QueryError("there is no flow 0", 404)
        if not number and not request.query.get("filter", "").strip():
            every = request.query.get("all") == "true"
            if not every:
                raise ValueError("no flows are selected: give a filter; all=true "
                                 "selects all")
        return await self.relay(request, self.query(
            request, "delete", number=number, all=every))

    async def send(self, request: web.Request) -> web.StreamResponse:
        proxy = self._flows.own_proxy()
        if proxy is None:
            return web.Response(
                status=409, text="there is no listener over TCP that speaks plain HTTP "
                "and requires credentials\n")
        if self._sending >= MOST_SENDING:
            return web.Response(status=503, text="too many requests are being sent\n")
        self._sending += 1
        try:
            wanted = decode(await read_body(request, MOST_REQUEST), Request)
            return await self.relay(request, self.query(
                request, "send", request=wanted, proxy=proxy,
                view=request.query.get("view", ""),
                authorities=self._flows.authorities(),
                settings=self._open_flows.settings))
        finally:
            self._sending -= 1

    async def read_curl(self, request: web.Request) -> web.StreamResponse:
        command = (await read_body(request, MOST_COMMAND)).decode()
        return await self.relay(request, self.query(request, "curl", words=command))

    async def import_(self, request: web.Request) -> web.StreamResponse:
        size, name = request.content_length, request.query.get("name", "")
        if size is None:                     # a part of the file would be imported
            return web.Response(status=411, text="the file's length is not given: a "
                                "Content-Length is required\n")
        if size > MOST_IMPORT:
            return web.Response(
                status=413, text=f"the file is longer than {MOST_IMPORT >> 20} MiB: "
                "use cutthrough flows import, which takes more\n")
        if not size:
            raise ValueError("the file is empty")
        if len(name) > MOST_NAME:
            raise ValueError(f"name: longer than {MOST_NAME} characters")
        if self._importing >= MOST_IMPORTING:
            return web.Response(status=503, text="another file is being imported\n")
        self._importing += 1
        try:
            return await self.relay(request, self.query(
                request, "import", size=size, name=name), receive(request))
        finally:
            self._importing -= 1

    # Between both sides

    def query(self, asking: web.Request, verb: Any, **fields: Any) -> Query:
        database = self._flows.capture_database()
        if not database:
            raise QueryError(OFF, 404)
        return Query(verb=verb, database=database, client=asker(asking),
                     filter=asking.query.get("filter", ""), **fields)

    async def relay(self, request: web.Request, query: Query,
                     content: AsyncIterator[bytes] | None = None
                     ) -> web.StreamResponse:
        """Passes an answer on; if it is cut short, its connection is too."""
        async with self._flows.ask(query, content) as (head, pieces):
            response = web.StreamResponse(status=head.status, headers={
                **PROTECTED, **fields_of(head)})
            try:
                await response.prepare(request)
                async for piece in pieces:
                    async with asyncio.timeout(STALLED_S):
                        await response.write(piece)
                await response.write_eof()
            except BaseException as error:
                if request.transport is not None:
                    request.transport.abort()
                if not isinstance(error, TimeoutError | ConnectionError | QueryError):
                    raise
        return response


async def whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


def answer(head: Answer, content: bytes) -> web.Response:
    return web.Response(status=head.status, body=content, headers=fields_of(head))


def fields_of(head: Answer) -> dict[str, str]:
    fields = {"Content-Type": head.kind + (
        "; charset=utf-8" if head.kind != "application/octet-stream" else "")}
    if head.name:
        # A browser saves it, because it is content from the wire; and if it shows it
        # after all, it runs nothing of it and gives it no origin
        fields["Content-Disposition"] = f'attachment; filename="{head.name}"'
        fields["Content-Security-Policy"] = (
            "sandbox; default-src 'none'; frame-ancestors 'none'")
    return fields


def number_of(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return default
    if re.fullmatch("[0-9]{1,18}", text) is None:
        raise ValueError(f"{name}: {text!r} is not a number")
    return int(text)


def limit_of(request: web.Request) -> int:
    limit = number_of(request, "limit", 100)
    if not 1 <= limit <= MOST_ROWS:
        raise ValueError(f"limit: 1 to {MOST_ROWS}")
    return limit


def decode(data: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the body cannot be read: {error}") from None
