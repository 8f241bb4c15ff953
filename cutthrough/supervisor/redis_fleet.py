"""Limits of users over several programs (instances), shared through Redis.

Every `fleet_interval` a script, which Redis runs as one step (fleet_script.py), adds
our users' new usage to sums over all instances, and returns what the others use. That
goes into the rows of the page that all workers share (policy/remote_usage.pyx). Workers
read only that page, so no request and no byte waits for Redis.

An instance publishes everything once for a session, which begins if it starts, or if
Redis does not know its last step: Redis lost data, or others took the instance for
dead. If another instance joins or leaves, nothing is published again.

If Redis cannot be reached, the last usage received stays valid for HOLD times
`fleet_expiry`. After that limits count this program alone. The change is logged once,
and so is its end. The others subtract our usage after `fleet_expiry` already, but only
if they reach Redis: while nobody does, each holds what it knows, and no limit is
exceeded.
"""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from redis import exceptions

from cutthrough.config.config import OPTIONS, SECRETS, Config
from cutthrough.generation.redis_client import PATIENCE_S, Link, explain
from cutthrough.log.stderr import say
from cutthrough.process.fleet_state import FAILURES, FleetState
from cutthrough.supervisor.fleet_script import (
    BATCH,
    SCRIPT,
    Answer,
    Step,
    arguments,
    key_of,
    parse_answer,
    usage_of,
)

if TYPE_CHECKING:
    from cutthrough.policy.remote_usage import RemoteUsage

# Parts of `fleet_expiry`. Redis' clock stands still while nobody reaches it, and its
# first step moves that by a quarter at most (fleet_script.py). Until all others have
# made theirs it goes on by a pause and an attempt, which may connect: 1/4 + 1/8 + 1/2
# is less than 1, so that whoever is back first does not bury the others
PAUSE, CONNECTING, ANSWER = 1 / 8, 1 / 2, 1 / 4
# Longest pause between attempts while Redis cannot be reached
PAUSE_MAX_S = 2.0
# Restarts and fail-overs of a Redis take longer than users should wait for the share of
# a program that died
HOLD = 2.5
DAY_S = 86400
NOTHING = usage_of(0, 0, 0, 0)
# Errors of an exchange; ValueError: bytes that are no text
ERRORS = (exceptions.RedisError, OSError, TimeoutError, ValueError)
# The options of a fleet; another source of the same URL is no change
OF_FLEET = [name for name in OPTIONS
            if name.startswith("fleet_") and name not in SECRETS.values()]


class RedisFleet:
    """This program as a member of a fleet, from `start` to `leave`."""

    def __init__(self, config: Config, remote_usage: "RemoteUsage",
                 instance: str) -> None:
        self._config = config
        self._remote_usage = remote_usage
        self._instance = instance
        self._link = Link(config)
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._ids: dict[bytes, str] = {}     # of users, by tag
        self._tags: dict[str, bytes] = {}
        self._former_ids: dict[bytes, str] = {}  # ids of former users, by tag
        self._published: set[str] = set()    # ids with usage published under our name
        self._unpublished: dict[str, str] = {}  # usage not yet published, by id
        # Tokens that users had spent before this session: no debt of others
        self._spent_before: dict[str, int] = {}
        self._session, self._number = secrets.token_hex(8), 0
        self._position = self._day = 0
        self._is_current = False             # else everything is exchanged again
        self._has_new_users = False          # to this session
        self._is_up = False
        self._instances = 0
        self._logged_reasons: set[str] = set()          # of this outage
        self._answered_at = 0.0
        self._steps = 0
        self._failures = dict.fromkeys(FAILURES, 0)

    def is_configured_by(self, config: Config) -> bool:
        """Whether this is the fleet that `config` names."""
        return all(getattr(config, name) == getattr(self._config, name)
                   for name in OF_FLEET)

    def set_users(self, names: Iterable[str]) -> None:
        """Sets the users. Redis gets no name, only a hash of it.

        The usage of a removed user is published until it is zero, if it ever was
        published. The usage of such a user in other instances is ignored.
        """
        tags = {id_of(name): self._remote_usage.tag(name.encode()) for name in names}
        if tags != self._tags:
            gone = {id: tag for id, tag in self._tags.items() if id not in tags}
            known = self._former_ids | {tag: id for id, tag in gone.items()}
            self._former_ids = {tag: id for tag, id in known.items()
                                if id in self._published and id not in tags}
            self._tags = tags
            self._ids = {tag: id for id, tag in tags.items()}
            now_us, now_s = time.monotonic_ns() // 1000, int(time.time())
            for tag in gone.values():
                self._remote_usage.book(tag, connections=0, tunnels=0, day_bytes=0,
                                        spent=0, now_us=now_us, now_s=now_s)
            self._remote_usage.restart()
            self._has_new_users = True

    def start(self) -> None:
        self._answered_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run())

    def state(self) -> FleetState:
        return FleetState(self._is_up, self._instances, self._steps, self._failures)

    async def leave(self) -> None:
        """Publishes the last usage and leaves, so that others need not wait for the
        expiry."""
        self._over.set()                     # cancelling could interrupt a step
        if self._task is not None:
            await self._task
        if self._is_up:
            with contextlib.suppress(*ERRORS):
                async with asyncio.timeout(PATIENCE_S):
                    while await self._sync() and self._unpublished:
                        pass
                    self._number = 0
                    while (await self._exchange({}, is_leaving=True)).target:
                        pass
        await self._link.close()
        self._remote_usage.forget()

    async def _run(self) -> None:
        pause = self._config.fleet_interval
        while not self._over.is_set():
            try:
                is_complete = await self._sync()
                pause = self._config.fleet_interval if is_complete else 0.0
            except Exception as error:       # on any error local limits stay in force
                await self._on_failure(error)
                pause = min(max(2 * pause, self._config.fleet_interval), PAUSE_MAX_S,
                            PAUSE * self._config.fleet_expiry)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._over.wait()

    async def _sync(self) -> bool:
        """Publishes new usage and receives what others have changed until now. Returns
        False if that has to begin again."""
        if not (self._is_current or await self._join()):
            return False
        now_s = int(time.time())
        if self._has_new_users or now_s // DAY_S != self._day:
            self._position, self._day = 0, now_s // DAY_S       # receives all users
        self._collect(now_s)
        target = await self._step(now_s)
        # Not until nothing is new: many active programs would never pause. Who writes
        # to Redis says how much there is to receive, so a stop does not wait for it
        while self._is_current and not self._over.is_set() and (
                self._unpublished or self._position < target):
            await self._step(now_s)
        return self._is_current

    async def _join(self) -> bool:
        """Makes the exchange that begins a session, or ends an outage. Returns False if
        Redis has not yet subtracted the share of an earlier session."""
        answer = await self._exchange({}, limit=0)
        if answer.number == 0:
            return False
        self._instances = answer.instances
        self._remote_usage.restart()
        self._spent_before.clear()
        self._is_current = self._has_new_users = True
        if not self._is_up:
            self._is_up = True
            self._logged_reasons.clear()
            say(f"fleet: limits are shared through Redis, instances: {self._instances}")
        return True

    def _collect(self, now_s: int) -> None:
        begin = 0
        while True:
            begin, uses = self._remote_usage.collect(begin, now_s)
            for tag, connections, tunnels, moved, spent in uses:
                id = self._ids.get(tag) or self._former_ids.get(tag)
                if id:
                    if self._has_new_users:
                        self._spent_before.setdefault(id, spent)
                    before = self._spent_before.get(id, 0)
                    if spent < before:       # another row, or a charge was undone
                        before = self._spent_before[id] = spent
                    usage = usage_of(connections, tunnels, spent - before, moved)
                    self._unpublished[id] = usage
                    if usage != NOTHING:
                        self._published.add(id)
            if not begin:
                break
        self._has_new_users = False

    async def _step(self, now_s: int) -> int:
        """Makes one exchange of usage. Returns the position to receive until."""
        batch = dict(islice(self._unpublished.items(), BATCH))
        answer = await self._exchange(batch)
        if answer.number == 0:
            self._is_current = False
            return 0
        if answer.target and answer.position <= self._position:
            raise exceptions.InvalidResponse("there is more, but the position stays")
        self._steps += 1
        self._instances = answer.instances
        self._position = answer.position
        for id, usage in batch.items():
            del self._unpublished[id]
            if usage == NOTHING:
                self._published.discard(id)
        now_us = time.monotonic_ns() // 1000
        for use in answer.uses:
            if use.id in self._tags:
                self._remote_usage.book(
                    self._tags[use.id], use.connections, use.tunnels,
                    day_bytes=use.moved, spent=use.spent, now_us=now_us, now_s=now_s)
        return answer.target

    async def _exchange(self, usage: Mapping[str, str], *, limit: int = BATCH,
                        is_leaving: bool = False) -> Answer:
        part = ANSWER if self._link.is_open else CONNECTING
        async with asyncio.timeout(min(PATIENCE_S, part * self._config.fleet_expiry)):
            values = arguments(Step(
                self._instance, self._session, self._number, self._position,
                int(self._config.fleet_expiry * 1000), self._day, limit, is_leaving),
                usage, secrets.token_hex(8))
            reply = await self._link.run(
                SCRIPT, [key_of(self._config.fleet_prefix)], values)
        answer = parse_answer(reply)
        self._answered_at = asyncio.get_running_loop().time()
        if answer.number == 0:               # the next one begins a session
            self._session = secrets.token_hex(8)
        self._number = answer.number
        return answer

    async def _on_failure(self, error: Exception) -> None:
        reason, text = explain(error)
        self._failures[reason] += 1
        await self._link.close()
        silence = asyncio.get_running_loop().time() - self._answered_at
        if (silence < HOLD * self._config.fleet_expiry
                or reason in self._logged_reasons):
            return
        self._logged_reasons.add(reason)
        self._is_up = self._is_current = False
        self._instances = 0
        self._remote_usage.forget()
        say(f"fleet: Redis {text}; until it is back, limits count this program alone")


def id_of(name: str) -> str:
    return hashlib.blake2b(
        name.encode(), digest_size=16, person=b"cutthrough").hexdigest()
