"""Limits of users over several programs (instances), shared through Redis.

Every `fleet_interval` one script, which Redis runs as one step, stores our users' new
usage and returns their usage in other instances. That goes into the rows of the page
that all workers share (policy/remote_usage.pyx). Workers read only that page, so no
request and no byte waits for Redis. Instances publish totals, each under its own name,
so a total that is published twice counts once.

    {PREFIX}:alive          instances, by the time at which they expire (Redis' clock)
    {PREFIX}:user:ID        instance -> "connections tunnels day bytes spent"
    {PREFIX}:feed           ID, by the number of its last change
    {PREFIX}:meta           number of changes; epoch: a random word, lost with the data

Connections and tunnels of an instance count while it is alive, its bytes count all day.
If an instance joins, leaves or sees another epoch, all instances publish everything
again.

If Redis cannot be reached, the last usage received stays valid for `fleet_expiry`, here
as in the other instances. After that limits count this program alone. The change is
logged once, and so is its end.
"""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from redis import exceptions
from redis.asyncio import Redis

from cutthrough.config.config import OPTIONS, SECRETS, Config
from cutthrough.generation.redis_client import PATIENCE_S, explain, make_client
from cutthrough.log.stderr import say
from cutthrough.process.fleet_state import FAILURES, FleetState

if TYPE_CHECKING:
    from cutthrough.policy.remote_usage import RemoteUsage

# Users published and users received in one step: with 20 instances 2 ms of Redis' time
BATCH = 128
# Longest pause between attempts while Redis cannot be reached
PAUSE_MAX_S = 2.0
# Everything is published again this often: a replica that takes over may lack the last
# writes, and nothing shows it
REPUBLISH_S = 60.0
# The options of a fleet; another source of the same URL is no change
OF_FLEET = [name for name in OPTIONS
            if name.startswith("fleet_") and name not in SECRETS.values()]

SCRIPT = """
local alive, feed, meta = KEYS[1], KEYS[2], KEYS[3]
local users, me, today, limit = ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[8])
local two_days = 172800000

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', alive, '-inf', string.format('%.0f', now))
redis.call('ZADD', alive, string.format('%.0f', now + ARGV[3]), me)
redis.call('PEXPIRE', alive, two_days)
local names = redis.call('ZRANGE', alive, 0, -1)
local living = {}
for _, name in ipairs(names) do living[name] = true end
table.sort(names)

redis.call('HSETNX', meta, 'epoch', ARGV[5])
local epoch = redis.call('HGET', meta, 'epoch')
local position = ARGV[7]
if epoch ~= ARGV[6] then position = '0' end

local answer = {}
local function hear(id)
    local key = users .. id
    local all = redis.call('HGETALL', key)
    local sums = {0, 0, 0, 0}
    for i = 1, #all, 2 do
        local c, t, day, bytes, spent =
            string.match(all[i + 1], '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
        if c and all[i] ~= me then
            if living[all[i]] then
                sums[1] = sums[1] + c
                sums[2] = sums[2] + t
            elseif tonumber(day) < today - 1 then
                redis.call('HDEL', key, all[i])
            end
            if tonumber(day) == today then sums[3] = sums[3] + bytes end
            sums[4] = sums[4] + spent
        end
    end
    answer[#answer + 1] = {id, sums[1], sums[2], sums[3], sums[4]}
end

local changed = redis.call('ZRANGEBYSCORE', feed, '(' .. position, '+inf', 'WITHSCORES',
                           'LIMIT', 0, limit)
for i = 1, #changed, 2 do
    hear(changed[i])
    position = changed[i + 1]
end

for i = 9, #ARGV, 2 do
    local id, usage = ARGV[i], ARGV[i + 1]
    local key = users .. id
    if usage ~= (redis.call('HGET', key, me) or '') then
        if usage == '' then
            redis.call('HDEL', key, me)
        else
            redis.call('HSET', key, me, usage)
            redis.call('PEXPIRE', key, two_days)
        end
        redis.call('ZADD', feed, redis.call('HINCRBY', meta, 'version', 1), id)
    end
    hear(id)
end
redis.call('ZREMRANGEBYRANK', feed, 0, -100001)
redis.call('PEXPIRE', feed, two_days)
redis.call('PEXPIRE', meta, two_days)

local more = 0
if #changed == 2 * limit then
    more = 1
else
    position = redis.call('HGET', meta, 'version') or '0'
end
return {epoch, position, more, names, answer}
"""


class RedisFleet:
    """This program as a member of a fleet, from `start` to `leave`."""

    def __init__(self, config: Config, remote_usage: "RemoteUsage",
                 instance: str) -> None:
        self._config = config
        self._remote_usage = remote_usage
        self._instance = instance
        self._client: Redis | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._ids: dict[bytes, str] = {}     # of users, by tag
        self._tags: dict[str, bytes] = {}
        self._former_ids: dict[bytes, str] = {}  # ids of former users, by tag
        self._published: set[str] = set()    # ids with usage published under our name
        self._unpublished: dict[str, str] = {}  # usage not yet published, by id
        self._epoch, self._position = "", "0"
        self._living: list[str] = []
        self._is_up = False
        self._logged_reasons: set[str] = set()          # of this outage
        self._answered_at = self._published_at = 0.0
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

    def start(self) -> None:
        self._remote_usage.restart()
        self._answered_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run())

    def state(self) -> FleetState:
        return FleetState(self._is_up, len(self._living), self._steps, self._failures)

    async def leave(self) -> None:
        """Publishes the last usage and leaves, so that others need not wait for the
        expiry."""
        self._over.set()                     # cancelling could interrupt a step
        if self._task is not None:
            await self._task
        if self._is_up:
            with contextlib.suppress(exceptions.RedisError, OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await self._sync()
                    await self._redis().zrem(self._key("alive"), self._instance)
        await self._disconnect()
        self._remote_usage.forget()

    async def _run(self) -> None:
        pause = self._config.fleet_interval
        while not self._over.is_set():
            try:
                has_more = await self._sync()
                pause = 0.0 if has_more else self._config.fleet_interval
            except Exception as error:       # on any error local limits stay in force
                await self._on_failure(error)
                pause = min(max(2 * pause, self._config.fleet_interval), PAUSE_MAX_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._over.wait()

    async def _sync(self) -> bool:
        """Publishes new usage and receives that of others. Returns whether there is
        more to receive."""
        now_s = int(time.time())
        if time.monotonic() - self._published_at > REPUBLISH_S:
            self._published_at = time.monotonic()
            self._remote_usage.report_all()
        begin = self._collect(0, now_s)
        while begin or len(self._unpublished) > BATCH:
            if begin and len(self._unpublished) < BATCH:
                begin = self._collect(begin, now_s)
            else:
                await self._step(now_s)
        return await self._step(now_s)

    def _collect(self, begin: int, now_s: int) -> int:
        begin, uses = self._remote_usage.collect(begin, now_s)
        for tag, *use in uses:
            id = self._ids.get(tag) or self._former_ids.get(tag)
            if id:
                self._unpublished[id] = encode_usage(now_s, *use)
                if self._unpublished[id]:
                    self._published.add(id)
        return begin

    async def _step(self, now_s: int) -> bool:
        """Makes one exchange with Redis. Returns whether there is more to receive."""
        batch = dict(list(self._unpublished.items())[:BATCH])
        async with asyncio.timeout(min(PATIENCE_S, self._config.fleet_expiry / 4)):
            answer: Any = await self._redis().register_script(SCRIPT)(
                keys=[self._key("alive"), self._key("feed"), self._key("meta")],
                args=[self._key("user:"), self._instance,
                      int(self._config.fleet_expiry * 1000), now_s // 86400,
                      secrets.token_hex(8), self._epoch, self._position, BATCH,
                      *(part for pair in batch.items() for part in pair)])
        for id, use in batch.items():
            del self._unpublished[id]
            if not use:
                self._published.discard(id)
        epoch, self._position, more, living, received = answer
        self._on_answer(epoch, living)
        now_us = time.monotonic_ns() // 1000
        for id, connections, tunnels, moved, spent in received:
            if id in self._tags:
                self._remote_usage.book(
                    self._tags[id], connections, tunnels, day_bytes=moved, spent=spent,
                    now_us=now_us, now_s=now_s)
        return bool(more)

    def _on_answer(self, epoch: str, living: list[str]) -> None:
        self._steps += 1
        self._answered_at = asyncio.get_running_loop().time()
        if not self._is_up or epoch != self._epoch or living != self._living:
            self._remote_usage.restart()
        self._epoch, self._living = epoch, living
        if not self._is_up:
            self._is_up = True
            self._logged_reasons.clear()
            say(f"fleet: limits are shared through Redis, instances: {len(living)}")

    async def _on_failure(self, error: Exception) -> None:
        reason, text = explain(error)
        self._failures[reason] += 1
        await self._disconnect()
        silence = asyncio.get_running_loop().time() - self._answered_at
        if silence < self._config.fleet_expiry or reason in self._logged_reasons:
            return
        self._logged_reasons.add(reason)
        self._is_up, self._living = False, []
        self._remote_usage.forget()
        say(f"fleet: Redis {text}; until it is back, limits count this program alone")

    # Redis

    def _key(self, name: str) -> str:
        # In braces: all keys hash to one slot of a Redis cluster
        return f"{{{self._config.fleet_prefix}}}:{name}"

    def _redis(self) -> Redis:
        if self._client is None:
            self._client = make_client(self._config)
        return self._client

    async def _disconnect(self) -> None:
        """Closes the connection: a late answer must not be taken for the next one."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(exceptions.RedisError, OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await client.aclose()


def id_of(name: str) -> str:
    return hashlib.blake2b(
        name.encode(), digest_size=16, person=b"cutthrough").hexdigest()


def encode_usage(
        now_s: int, connections: int, tunnels: int, moved: int, spent: int) -> str:
    if not (connections or tunnels or moved or spent):
        return ""
    return f"{connections} {tunnels} {now_s // 86400} {moved} {spent}"
