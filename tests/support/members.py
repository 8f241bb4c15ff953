"""Members of a fleet without processes, and ways to Redis that may be cut."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from cutthrough.config.config import Config
from cutthrough.policy.ledger import Ledger
from cutthrough.policy.limits import Limiter
from cutthrough.policy.remote_usage import RemoteUsage
from cutthrough.policy.shared_table import create
from cutthrough.policy.source import Limits, Policy
from cutthrough.supervisor.redis_fleet import RedisFleet
from tests.doors.policy import Holder, of_user
from tests.support.redis import Redis


class Watched:
    """A page that counts the users whom it reports."""

    def __init__(self, page: RemoteUsage) -> None:
        self.page, self.reports = page, 0

    def collect(self, begin: int, now_s: int) -> tuple[int, list[Any]]:
        end, uses = self.page.collect(begin, now_s)
        self.reports += len(uses)
        return end, uses

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)


class Member:
    """A fleet's member without processes: its page, one worker's view, its exchange.

    The exchange goes by the clock, so the worker's view does as well: if the day of a
    row seems to be over, the row is given away.
    """

    def __init__(self, name: str, url: str, users: list[str], **limits: float) -> None:
        memory = create(2)
        self.away = RemoteUsage(memory, 0)
        self.limiter = Limiter(
            Ledger(memory, 1), Policy(limits={"default": Limits(**limits)}))
        config = Config(fleet_url=url, fleet_interval=0.02, fleet_expiry=1.0)
        self.page = Watched(self.away)
        self.fleet = RedisFleet(config, self.page, name)
        self.fleet.set_users(users)

    def holder(self, user: str) -> Holder:
        holder = Holder(self.limiter)
        assert holder.ask(user.encode(), now=time.monotonic())[0] == "entered"
        return holder

    def uses(self, user: str) -> tuple[int, int, int]:
        return of_user(self.away, user.encode()) or (0, 0, 0)

    def moved(self, user: str, n: int) -> None:
        holder = self.holder(user)
        while n:
            n -= holder.move(n, now=time.monotonic()) or 0
        holder.close(now=time.monotonic())


class Relay:
    """A way to Redis, which may be cut."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.loses = asyncio.Event()         # the next answer, and the connection
        self.is_cut = False
        self.ends: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._between, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = self.redis.url.replace(str(self.redis.port), str(port))

    async def close(self) -> None:
        self.cut()
        self.server.close()
        await self.server.wait_closed()

    def cut(self) -> None:
        self.is_cut = True
        for end in self.ends:
            end.close()

    def mend(self) -> None:
        self.is_cut = False

    async def _between(self, reader: asyncio.StreamReader,
                       writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.close()
            return
        up, down = await asyncio.open_connection("127.0.0.1", self.redis.port)
        ends = {writer, down}
        self.ends |= ends

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter,
                          may_lose: bool) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    if may_lose and self.loses.is_set():
                        self.loses.clear()
                        break
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pass_on(reader, down, False), pass_on(up, writer, True))
        self.ends -= ends
        for end in ends:
            end.close()


async def becomes(probe: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not probe():
        assert time.monotonic() < deadline, f"still not: {what}"
        await asyncio.sleep(0.005)
