"""This program's entry in the registry of a fleet (`fleet_register`).

It is written three times in each lease, by one script; a clean stop removes it, and if
the program dies its lease ends. process/fleet_registry.py has the form. No request
waits for it, and nothing else changes while Redis is away: that is logged once, and so
is its return.
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import cutthrough
from cutthrough.config.config import OPTIONS, SECRETS, TABLES, Config
from cutthrough.config.values import is_loopback, split_address
from cutthrough.exchange.visible import visible
from cutthrough.generation.generation import Generation
from cutthrough.log.stderr import say
from cutthrough.process.fleet_registry import (
    REMOVE,
    WRITE,
    Entry,
    entry_key,
    index_key,
    write_entry,
)
from cutthrough.process.fleet_state import FAILURES, RegistryState

if TYPE_CHECKING:
    from cutthrough.admin.metrics import Reading
    from cutthrough.generation.redis_client import Link

RENEWALS = 3                                 # in each lease
# Options whose change begins another registration
OF_REGISTRY = ("fleet_register", "fleet_url", "fleet_prefix", "fleet_lease",
               "admin_token")
# Options that differ between the hosts of a fleet: no part of its revision. A row of a
# listener is without its address
OF_HOST = frozenset(("listen", "proxy_protocol", "admin", "admin_public", "via",
                     "workers", "pin", "listeners", *SECRETS, *SECRETS.values()))


class Condition(NamedTuple):
    """`shown`: the admin listener's address; "": there is none. `in_force`: the oldest
    generation in force in any worker."""

    state: str
    started: float
    shown: str
    in_force: int
    generation: Generation
    reading: "Reading"


class FleetRegister:
    """The entry, from `begin` to `leave`."""

    def __init__(self, look: Callable[[], Condition]) -> None:
        self._look = look
        self._id = secrets.token_hex(8)
        self._config: Config | None = None
        self._serves = False
        self._task: asyncio.Task[None] | None = None
        self._change: asyncio.Task[None] | None = None
        # Of the registration
        self._key = b""
        self._names: list[str] = []          # keys in Redis
        self._link: Link | None = None
        self._wake = asyncio.Event()
        self._is_over = self._is_written = self._is_away = False
        self._revision: tuple[int, str] = (0, "")      # of which generation
        self._before: tuple[float, int, float] | None = None
        # Of all registrations
        self._programs = self._expired = self._renewals = 0
        self._failures = dict.fromkeys(FAILURES, 0)

    def state(self) -> RegistryState | None:
        """None: it does not register."""
        if self._task is None:
            return None
        return RegistryState(self._is_written and not self._is_away, self._programs,
                             self._expired, self._renewals, self._failures)

    def begin(self) -> None:
        """The program serves from now on."""
        self._serves = True
        if self._config is not None:
            self.commit(self._config)

    def commit(self, config: Config) -> None:
        """Registers as this configuration says, if the program serves."""
        before, self._config = self._config, config
        if not self._serves or (
                self._change is not None and not self._change.done()):
            return                           # the change ends with the newest
        if self._task is None:
            self._start()
        elif before is not None and all(
                getattr(before, name) == getattr(config, name) for name in OF_REGISTRY):
            self._wake.set()                 # the entry has a new revision
        else:
            self._change = asyncio.create_task(self._end())

    async def leave(self) -> None:
        """Removes the entry; none is written from now on."""
        self._serves = False
        if self._change is not None:
            await self._change
        await self._end()

    def _start(self) -> None:
        config = self._config
        if not self._serves or config is None or not config.fleet_register:
            return
        index = index_key(config.fleet_prefix)
        self._names = [index, f"{index}:{self._id}"]
        self._key = entry_key(config.admin_token)
        self._revision = (0, "")
        self._is_over = self._is_written = self._is_away = False
        self._task = asyncio.create_task(self._run(config))

    async def _end(self) -> None:
        """Ends the registration, then begins that of the newest configuration."""
        if self._task is not None:
            self._is_over = True             # cancelling could interrupt a step
            self._wake.set()
            await self._task
            self._task = None
            if self._is_written and not self._is_away:
                with contextlib.suppress(Exception):     # else the lease ends
                    await self._run_script(REMOVE, self._id)
            await self._disconnect()
        self._start()

    async def _run(self, config: Config) -> None:
        while not self._is_over:
            try:
                await self._write(config)
            except Exception as error:       # on any error the program goes on
                await self._on_failure(error)
            else:
                if self._is_away or not self._is_written:
                    say("fleet: registered in Redis"
                        + (" again" if self._is_away else ""))
                self._is_written, self._is_away = True, False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(config.fleet_lease / RENEWALS):
                    await self._wake.wait()
            self._wake.clear()

    async def _write(self, config: Config) -> None:
        from cutthrough.generation.redis_client import Link

        value = write_entry(self._key, config.fleet_prefix, self._id, self._describe())
        if self._link is None:
            self._link = Link(config)
        programs, ended = await self._run_script(
            WRITE, self._id, value, int(config.fleet_lease * 1000))
        self._programs, self._expired = int(programs), self._expired + int(ended)
        self._renewals += 1

    async def _run_script(self, script: str, *values: Any) -> Any:
        from cutthrough.generation.redis_client import PATIENCE_S

        assert self._link is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self._link.run(script, self._names, list(values))

    async def _on_failure(self, error: Exception) -> None:
        from cutthrough.generation.redis_client import explain

        await self._disconnect()
        reason, text = explain(error)
        self._failures[reason] += 1
        self._programs = 0
        if not self._is_away:
            self._is_away = True
            say(f"fleet: Redis {text}; until it is back, `cutthrough fleet` and "
                "--fleet do not know this program")

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    # The entry

    def _describe(self) -> Entry:
        from cutthrough.admin.live_page import open_connections, usage_of

        seen = self._look()
        config, reading = seen.generation.config, seen.reading
        url, why = public_url(config, seen.shown)
        pids = [pid for pid in reading.workers.values() if pid]
        now = time.monotonic()
        requests, cpu = reading.total("requests"), usage_of([os.getpid(), *pids])[0]
        then, requests_then, cpu_then = self._before or (now, requests, cpu)
        self._before = now, requests, cpu
        seconds = max(now - then, 1e-3)
        return Entry(
            host=visible(socket.gethostname(), "").encode(
                "ascii", "replace").decode()[:255],
            pid=os.getpid(), version=cutthrough.__version__, url=url, unreachable=why,
            started=seen.started, at=time.time(), lease=config.fleet_lease,
            state=seen.state, revision=self._revision_of(seen.generation),
            generation=seen.in_force, workers=len(pids),
            connections=open_connections(reading),
            requests=round(max(0, requests - requests_then) / seconds, 1),
            cpu=round(max(0.0, cpu - cpu_then) / seconds, 3))

    def _revision_of(self, generation: Generation) -> str:
        if self._revision[0] != generation.number:
            self._revision = generation.number, revision_of(self._key, generation)
        return self._revision[1]


def revision_of(key: bytes, generation: Generation) -> str:
    """12 hexadecimal digits: the same on hosts with the same policy and, but for
    OF_HOST, the same configuration. Keyed: a reader of Redis can try no guesses."""
    config = generation.config
    parts: dict[str, Any] = {
        name: getattr(config, name) for name in (*OPTIONS, *TABLES)
        if name not in OF_HOST}
    rows = [msgspec.to_builtins(row) for row in config.listeners]
    for row in rows:
        row.pop("address", None)
    data = msgspec.msgpack.encode(
        [parts, rows, generation.policy], order="deterministic")
    return hmac.digest(key, b"revision\0" + data, hashlib.sha256).hex()[:12]


def public_url(config: Config, shown: str) -> tuple[str, str]:
    """The URL by which other hosts reach the admin listener at `shown`, or "" and the
    reason that they do not."""
    if config.admin_public:
        return config.admin_public, ""
    if not shown:
        return "", "it has no admin listener"
    if shown.startswith("unix:"):
        return "", "its admin listener is a unix socket, and it has no admin_public"
    host = split_address(shown)[0]
    if is_loopback(host):
        return "", "its admin listener is on loopback, and it has no admin_public"
    if host in ("0.0.0.0", "::"):
        return "", "its admin listener is on all addresses, and it has no admin_public"
    return f"http://{shown}", ""
