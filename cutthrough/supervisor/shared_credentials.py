"""Verified credentials of other hosts, through Redis (`share_credentials`).

Once a second one script stores what our workers have verified, and returns what others
have. The page of credentials (policy/known.pyx) has the key that the hosts share, so
entries are the same everywhere. Workers read only the page: no request waits for Redis,
and while it is away passwords are hashed as always.

    {PREFIX}:known          "ENTRY TIME MAC", by number
    {PREFIX}:known:number   of the newest

ENTRY is an entry of the page: keyed hashes of the credentials, of the user's record and
of the name. Without the key nobody can try passwords on it, and nobody can make a MAC.
"""

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cutthrough.config.config import Config
from cutthrough.log.stderr import say

if TYPE_CHECKING:
    from cutthrough.generation.redis_client import Link
    from cutthrough.policy.known import Known

EVERY_S = 1.0
# A verification is on the page up to this time after its own time
OVERLAP_US = 15_000_000
BATCH = 512                                  # entries in one step, each way
MOST_ENTRIES = 65536                         # in Redis, 150 bytes each
MOST_BYTES = 256                             # of an entry
CLOCK_S = 60.0                               # hosts' clocks may differ by this
ENTRY_BYTES = 40                             # of Key in policy/known.pxd
# A change of these options begins another exchange
OF_SHARING = ("share_credentials", "fleet_url", "fleet_prefix", "auth_cache_ttl")

# KEYS: entries, number. ARGV: life in ms, position, most entries, longest, entries…
SCRIPT = """
for i = 5, #ARGV do
    redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[2]), ARGV[i])
end
if #ARGV >= 5 then
    redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -65537)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    redis.call('PEXPIRE', KEYS[2], ARGV[1])
end
local newest = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
local position = tonumber(ARGV[2])
if position > newest then position = 0 end
local rows = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', position),
                        string.format('%.0f', newest), 'WITHSCORES',
                        'LIMIT', 0, ARGV[3])
local answer = {}
for i = 1, #rows, 2 do
    if #rows[i] <= tonumber(ARGV[4]) and string.match(rows[i], '^[ -~]+$') then
        answer[#answer + 1] = rows[i]
    end
    position = rows[i + 1]
end
local more = 0
if #rows == 2 * ARGV[3] then more = 1 else position = newest end
return {string.format('%.0f', position), more, answer}
"""


def page_key(secret: str) -> bytes:
    """The key of the page's hashes, 16 octets."""
    return _derive(secret, b"cutthrough credentials page 1")[:16]


def _derive(secret: str, label: bytes) -> bytes:
    return hmac.digest(secret.encode("utf-8", "surrogateescape"), label, hashlib.sha256)


def write_value(key: bytes, prefix: str, entry: bytes, at: float) -> str:
    """A row of Redis. `at`: when it was verified, in seconds of the epoch."""
    text = f"{entry.hex()} {at:.3f}"
    return f"{text} {_sign(key, prefix, text)}"


def read_value(key: bytes, prefix: str, value: str) -> tuple[bytes, float] | None:
    """The entry and its time; None: it is not of a program that has the key."""
    text, _, mac = value.rpartition(" ")
    if not hmac.compare_digest(mac.encode(), _sign(key, prefix, text).encode()):
        return None
    entry, _, at = text.partition(" ")
    try:
        return bytes.fromhex(entry), float(at)
    except ValueError:                       # of another version
        return None


def _sign(key: bytes, prefix: str, text: str) -> str:
    return hmac.new(key, f"{prefix}\0{text}".encode(), hashlib.sha256).hexdigest()


class SharedCredentials:
    """The exchange, from `commit` to `leave`."""

    def __init__(self) -> None:
        self._config: Config | None = None
        self._exchange: Exchange | None = None

    def commit(self, config: Config, known: "Known") -> None:
        """Shares as this configuration says."""
        before, self._config = self._config, config
        if before is not None and all(
                getattr(before, name) == getattr(config, name) for name in OF_SHARING):
            return
        if self._exchange is not None:
            self._exchange.stop()
            self._exchange = None
        if config.share_credentials and config.auth_cache_ttl:
            self._exchange = Exchange(config, known)

    async def leave(self) -> None:
        exchange, self._exchange, self._config = self._exchange, None, None
        if exchange is not None:
            exchange.stop()
            await exchange.over()


class Exchange:
    """A running exchange of one configuration. `steps`: those that succeeded."""

    def __init__(self, config: Config, known: "Known") -> None:
        self._config, self._known = config, known
        self.key = _derive(config.credentials_key, b"cutthrough credentials mac 1")
        self.steps = 0
        self._position = 0                   # of the received entries
        self._after_us, self._proved = 0, -1             # of the sent entries
        self._waiting: list[tuple[bytes, int]] = []      # to be sent
        self._seen: dict[bytes, int] = {}    # sent or received, with its time here
        self._link: Link | None = None
        self.is_away: bool | None = None     # None: not known yet
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self._over.set()                     # cancelling could interrupt a step

    async def over(self) -> None:
        await self._task

    async def _run(self) -> None:
        while not self._over.is_set():
            has_more = False
            try:
                has_more = await self._step()
            except Exception as error:       # on any error passwords are hashed
                await self._on_failure(error)
            if not has_more:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY_S):
                        await self._over.wait()
        await self._disconnect()

    async def _step(self) -> bool:
        """One exchange. Returns whether there is more of it."""
        from cutthrough.generation.redis_client import PATIENCE_S, Link

        self._collect()
        batch = self._waiting[:BATCH]
        config, name = self._config, f"{{{self._config.fleet_prefix}}}:known"
        now, now_us = time.time(), time.monotonic_ns() // 1000
        if self._link is None:
            self._link = Link(config)
        async with asyncio.timeout(PATIENCE_S):
            position, more, rows = await self._link.run(
                SCRIPT, [name, f"{name}:number"],
                [int(config.auth_cache_ttl * 1000), self._position, BATCH, MOST_BYTES,
                 *(write_value(self.key, config.fleet_prefix, entry,
                               now - (now_us - since_us) / 1e6)
                   for entry, since_us in batch)])
        del self._waiting[:len(batch)]
        before, self._position = self._position, int(position)
        self._take(rows, now, now_us)
        self.steps += 1
        if self.is_away is not False:
            say("fleet: verified credentials are shared through Redis"
                + (" again" if self.is_away else ""))
            self.is_away = False
        # If the position stays, there is nothing more, whatever Redis says
        return bool(more and self._position > before) or bool(self._waiting)

    def _collect(self) -> None:
        """Returns new verified credentials of workers that no host has sent."""
        proved, now_us = self._known.proved, time.monotonic_ns() // 1000
        if proved == self._proved:
            return
        self._proved = proved
        valid_us = now_us - int(self._config.auth_cache_ttl * 1e6)
        for entry, since_us in self._known.export(max(self._after_us, valid_us)):
            if self._seen.get(entry) != since_us:
                self._note(entry, since_us)
                self._waiting.append((entry, since_us))
        self._after_us = now_us - OVERLAP_US
        del self._waiting[:-MOST_ENTRIES]

    def _take(self, rows: Iterable[str], now: float, now_us: int) -> None:
        ttl = self._config.auth_cache_ttl
        for row in rows:
            got = read_value(self.key, self._config.fleet_prefix, row)
            if got is None or len(got[0]) != ENTRY_BYTES:
                continue
            entry, age = got[0], max(0.0, now - got[1])
            since_us = now_us - int(age * 1e6)
            if age < ttl and got[1] <= now + CLOCK_S and (
                    self._known.admit(entry, since_us)):
                self._note(entry, since_us)

    def _note(self, entry: bytes, since_us: int) -> None:
        self._seen.pop(entry, None)
        self._seen[entry] = since_us
        if len(self._seen) > MOST_ENTRIES:
            del self._seen[next(iter(self._seen))]

    async def _on_failure(self, error: Exception) -> None:
        from cutthrough.generation.redis_client import explain

        await self._disconnect()
        if not self.is_away:
            self.is_away = True
            say(f"fleet: Redis {explain(error)[1]}; until it is back, each password is "
                "verified here")

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
