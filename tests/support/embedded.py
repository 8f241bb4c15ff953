"""A proxy in a loop of the test's own process."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import cutthrough
from tests.support.client import PASSWORD, USER

SETTINGS = {"user": USER, "password": PASSWORD, "access_log_format": "json"}


def run(loop_name: str, main: Callable[[], Awaitable[None]]) -> None:
    factory = asyncio.new_event_loop
    if loop_name == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


async def settled(proxy) -> None:
    """Waits until every counter is zero; at the deadline names the others."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 10
    while left := {kind: n for kind, n in proxy.worker.leaks().items() if n}:
        assert loop.time() < deadline, f"still held: {left}"
        await asyncio.sleep(0.005)


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_name(request):
    return request.param


def serve_embedded(loop_name, journey, **options):
    """Runs journey(proxy) in a thread beside the proxy's loop."""

    async def main():
        async with cutthrough.serve(**SETTINGS, listen="127.0.0.1:0", **options) as it:
            await asyncio.to_thread(journey, it)

    factory = asyncio.new_event_loop
    if loop_name == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
