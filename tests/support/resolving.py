"""A resolver whose answers can be awaited, and a name server for it."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

from cutthrough.net.address import Addresses
from cutthrough.net.dns.resolver import Keeping, Resolver, Servers
from tests.support.dns import NameServer

PATIENCE = 10


@pytest.fixture
def names():
    try:
        server = NameServer({})
    except PermissionError:
        pytest.skip("port 53 of a loopback address may not be bound")
    with server:
        yield server


def in_loop(test: Callable) -> Callable:
    @wraps(test)
    def run(*args: object, **more: object) -> None:
        asyncio.run(test(*args, **more))
    return run


class Asking(Resolver):
    """A resolver; its answers can be awaited, as lists of texts or as labels."""

    def __init__(self, *servers: str, timeout: float = 2.0,
                 overrides: Iterable[tuple[str, str]] = (), **keeping: Any) -> None:
        super().__init__(asyncio.get_running_loop(), Servers(servers, timeout),
                         Keeping(**keeping), overrides)

    async def __aenter__(self) -> "Asking":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def ask(self, host: str) -> list[str] | str:
        known = self.cached(host.encode())
        return await self.query(host) if known is None else told(known)

    async def query(self, host: str) -> list[str] | str:
        answer = asyncio.get_running_loop().create_future()
        self.resolve(host.encode(), answer.set_result)
        return told(await asyncio.wait_for(answer, PATIENCE))

    async def wait(self, probe: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not probe():
            assert time.monotonic() < deadline, f"still not: {what}"
            await asyncio.sleep(0.005)

    async def wait_expired(self, host: str) -> None:
        await self.wait(lambda: self.cached(host.encode()) is None, f"{host} expired")


def told(answer: Addresses | str) -> list[str] | str:
    return answer if isinstance(answer, str) else answer.texts()
