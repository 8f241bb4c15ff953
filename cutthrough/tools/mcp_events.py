"""Notifications of new captured requests, for clients of `cutthrough mcp` that ask for
them: `notifications/resources/updated` of NEWEST.

    a subscription ──> a thread follows the flows ──> the loop tells, in QUIET_S once

A subscription is a stream of `subscriptions/listen` (MCP of 2026-07-28), or before that
a `resources/subscribe`. While there is none, nothing is asked and no thread runs.
"""

import asyncio
import threading
import time
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ServerEvent,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from cutthrough.tools.console import Unanswered
from cutthrough.tools.flow_source import FlowSource

# The resource that changes: the newest captured requests
NEWEST = "cutthrough://flows/recent"
# At least between two notifications; after a source has not answered
QUIET_S, AGAIN_S = 1.0, 5.0
# Streams of one client, and notifications that one may leave unread
MOST_STREAMS, MOST_UNREAD = 16, 16
# Of a source that refuses: it will go on refusing
REFUSALS = (401, 403)


class NewFlows:
    """Follows a source while somebody wants to know."""

    def __init__(self, source: FlowSource) -> None:
        self._source = source
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(
            self._bus, max_subscriptions=MOST_STREAMS, max_buffered_events=MOST_UNREAD)
        self._session: ServerSession | None = None       # of resources/subscribe
        self._streams = 0
        self._is_followed = False
        self._is_new = False
        self._quiet: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, server: MCPServer[Any]) -> None:
        """Answers the methods of both generations of the protocol."""
        # The SDK's own server has no other place for a method that the newer generation
        # has not, and no bound for its streams
        handlers = server._lowlevel_server
        handlers.add_request_handler("subscriptions/listen",
                                     SubscriptionsListenRequestParams, self.listen)
        handlers.add_request_handler(
            "resources/subscribe", SubscribeRequestParams, self.subscribe)
        handlers.add_request_handler(
            "resources/unsubscribe", UnsubscribeRequestParams, self.unsubscribe)

    async def listen(self, context: ServerRequestContext[Any, Any],
                     params: SubscriptionsListenRequestParams
                     ) -> SubscriptionsListenResult:
        """One stream, until its client ends it."""
        if NEWEST not in (params.notifications.resource_subscriptions or ()):
            return await self._listen(context, params)
        self._streams += 1
        self._begin()
        try:
            return await self._listen(context, params)
        finally:
            self._streams -= 1

    async def subscribe(self, context: ServerRequestContext[Any, Any],
                        params: SubscribeRequestParams) -> EmptyResult:
        if str(params.uri) != NEWEST:
            raise MCPError(INVALID_PARAMS, f"{params.uri} never changes: {NEWEST} does")
        self._session = context.session
        self._begin()
        return EmptyResult()

    async def unsubscribe(self, context: ServerRequestContext[Any, Any],
                          params: UnsubscribeRequestParams) -> EmptyResult:
        if str(params.uri) == NEWEST:
            self._session = None
        return EmptyResult()

    # The thread

    def _begin(self) -> None:
        with self._lock:
            if self._is_followed:            # perhaps by the thread of one before
                return
            self._is_followed = True
        threading.Thread(target=self._follow, args=(asyncio.get_running_loop(),),
                         name="new flows", daemon=True).start()

    def _is_over(self) -> bool:
        with self._lock:
            if self._streams or self._session is not None:
                return False
            self._is_followed = False
            return True

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until nobody wants to know, which is noticed at the source's next sign of
        life."""
        while not self._is_over():
            try:
                for is_new in self._source.follow():
                    if self._is_over():
                        return
                    if is_new:
                        loop.call_soon_threadsafe(self._on_new)
            except Unanswered as error:
                if error.status in REFUSALS:
                    return                   # and no later subscription is followed
            time.sleep(AGAIN_S)              # a thread of its own, and no loop, waits

    # The loop

    def _on_new(self) -> None:
        self._is_new = True
        if self._quiet is None:
            self._tell()

    def _tell(self) -> None:
        """Sends a notification, also about events of the quiet time, at its end."""
        self._quiet = None
        if not self._is_new:
            return
        self._is_new = False
        loop = asyncio.get_running_loop()
        self._quiet = loop.call_later(QUIET_S, self._tell)
        task = loop.create_task(self._send(ResourceUpdated(uri=NEWEST)))
        self._tasks.add(task)                # a loop has weak references alone
        task.add_done_callback(self._tasks.discard)

    async def _send(self, event: ServerEvent) -> None:
        await self._bus.publish(event)
        if self._session is not None:
            await self._session.send_resource_updated(NEWEST)
