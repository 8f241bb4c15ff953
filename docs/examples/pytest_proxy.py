"""A pytest fixture: a proxy for a test, and the destinations that the test requested.

Copy this file to conftest.py beside your tests. The hook is a closure: it records each
destination for the test, and refuses those that the test has closed.
"""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from cutthrough import Decision, Embedded, Request, serve


@dataclass
class Seen:
    """What a test can check and change."""

    url: str = ""                            # the proxy's, for a client
    asked: list[tuple[str, int]] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)


def embed(seen: Seen) -> Embedded:
    """Makes a proxy whose hook writes into `seen`."""
    async def decide(request: Request) -> Decision:
        seen.asked.append((request.host, request.port))
        return Decision(request.host not in seen.closed)

    return serve(user="test", password="test", policy_hook=decide)


@pytest.fixture
def proxy() -> Iterator[Seen]:
    """Runs a proxy in a thread of its own, for clients that block."""
    seen, began = Seen(), threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def run() -> None:
        async with embed(seen) as running:
            seen.url = running.url
            began.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert began.wait(10)
    yield seen
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()
