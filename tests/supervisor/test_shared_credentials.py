"""Credentials that another host has verified: holders of the key, or of Redis alone."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator

import bcrypt
import pytest

from cutthrough.config.config import Config
from cutthrough.policy.auth import Authenticator
from cutthrough.policy.known import Known, create
from cutthrough.policy.source import User
from cutthrough.supervisor import shared_credentials
from cutthrough.supervisor.shared_credentials import (
    Exchange,
    page_key,
    read_value,
    write_value,
)
from tests.policy.credentials import basic
from tests.support.redis import PROGRAM, Redis
from tests.support.wait import PATIENCE

KEY, OTHER = "k" * 32, "o" * 32
RIGHT, WRONG = basic(b"ann:one"), basic(b"ann:two")
NAME = "{cutthrough}:known"
HASH = bcrypt.hashpw(b"one", bcrypt.gensalt(4)).decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    if PROGRAM is None:
        pytest.skip("redis-server is not installed")
    with contextlib.closing(Redis(tmp_path_factory.mktemp("redis"))) as running:
        yield running


@pytest.fixture
def redis(server: Redis, monkeypatch: pytest.MonkeyPatch) -> Redis:
    monkeypatch.setattr(shared_credentials, "EVERY_S", 0.02)
    if server.process is None:
        server.start()
    server.ask("FLUSHALL")
    return server


class Host:
    """A host without processes: its page, one worker's view of it, its exchange."""

    def __init__(self, url: str, key: str, ttl: float, hash: str) -> None:
        self.known = Known(create(secret=page_key(key)))
        user = User(name="ann", hash=hash)
        self.worker = Authenticator({}, {"ann": user}, ttl, known=self.known)
        self.exchange = Exchange(Config(
            fleet_url=url, share_credentials=True, credentials_key=key,
            auth_cache_ttl=ttl), self.known)

    def verify(self, at: float | None = None) -> bytes:
        """As after a hash; returns the entry."""
        key = self.worker.key_of(RIGHT)
        self.worker.remember(key, self.worker.find(b"ann"), at)
        return bytes(key)


@pytest.fixture
async def join(redis: Redis) -> AsyncIterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def start(key: str = KEY, ttl: float = 300.0, hash: str = HASH) -> Host:
        hosts.append(Host(redis.url, key, ttl, hash))
        return hosts[-1]

    yield start
    for host in hosts:
        host.exchange.stop()
        await host.exchange.over()


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


async def read_all(*hosts: Host) -> None:
    """Each has read all entries that are in Redis now."""
    steps = [host.exchange.steps for host in hosts]
    await until(lambda: all(host.exchange.steps >= n + 2 for host, n in
                            zip(hosts, steps, strict=True)), "two more steps")


async def test_who_was_right_at_one_host_is_known_to_all(join):
    first, second = join(), join()
    first.verify()
    await until(lambda: second.worker.recall(RIGHT), "the other host's proof")
    assert second.worker.recall(RIGHT) is second.worker.find(b"ann")
    assert second.worker.recall(WRONG) is None
    late = join()
    await until(lambda: late.worker.recall(RIGHT), "what was there before it")
    await read_all(first, second, late)
    assert first.known.read()["proofs"] == 1


async def test_what_came_from_others_is_not_sent_again(join, redis):
    first, second = join(), join()
    first.verify()
    await until(lambda: second.worker.recall(RIGHT), "the other host's proof")
    await read_all(first, second)
    assert redis.ask("ZCARD", NAME) == 1
    second.verify()                          # a verification of its own is
    await until(lambda: redis.ask("ZCARD", NAME) == 2, "the newer one")


class Endless:
    """A Redis that always has more, at one position."""

    async def run(self, script: str, keys: list[str], values: list[object]) -> list:
        return ["7", 1, []]

    async def close(self) -> None: ...


async def test_more_at_a_position_that_stays_is_not_asked_for_at_once():
    """The supervisor asked again without a pause, for ever."""
    host = Host("redis://127.0.0.1:1/0", KEY, 300.0, HASH)
    host.exchange._link = Endless()
    assert await host.exchange._step(), "from 0 to 7"
    assert not await host.exchange._step()
    host.exchange.stop()
    await host.exchange.over()


async def test_another_record_is_not_the_same_user(join):
    first = join()
    second = join(hash=bcrypt.hashpw(b"one", bcrypt.gensalt(4)).decode())
    first.verify()
    await read_all(first, second)
    await read_all(second)
    assert second.known.read()["proofs"] == 1
    assert second.worker.recall(RIGHT) is None


async def test_it_ends_with_the_time_of_the_first_verification(join, redis):
    first, second = join(ttl=300.0), join(ttl=300.0)
    first.verify(time.monotonic() - 301)
    await read_all(first, second)
    assert redis.ask("ZCARD", NAME) == 0
    at, third = time.monotonic() - 200, join()
    entry = third.verify(at)                 # before its first step
    await until(lambda: second.worker.recall(RIGHT), "the other host's proof")
    ((key, since_us),) = second.known.export(0)
    assert key == entry and abs(since_us / 1e6 - at) < 5


async def test_a_reader_of_redis_sees_neither_name_nor_password(join, redis):
    first, second = join(), join(key=OTHER)
    first.verify()
    await until(lambda: redis.ask("ZCARD", NAME), "an entry")
    (row,) = redis.ask("ZRANGE", NAME, 0, -1)
    assert "ann" not in row and b"ann".hex() not in row and HASH not in row
    await read_all(second)
    assert second.known.read()["proofs"] == 0
    assert second.worker.key_of(RIGHT) != first.worker.key_of(RIGHT)


async def test_who_can_write_to_redis_lets_nobody_in(join, redis):
    first, second = join(), join()
    entry, now = first.worker.key_of(RIGHT), time.time()
    right = write_value(second.exchange.key, "cutthrough", entry, now)
    rows = [
        right[:-1] + ("0" if right[-1] != "0" else "1"), right.rpartition(" ")[0],
        write_value(bytes(32), "cutthrough", entry, now),
        write_value(second.exchange.key, "other", entry, now),
        write_value(second.exchange.key, "cutthrough", entry, now - 301),
        write_value(second.exchange.key, "cutthrough", entry, now + 3600),
        write_value(second.exchange.key, "cutthrough", entry + b"1", now),
        "", "x" * 5000, b"\xff\xfe", "\u2713 \u2713 \u2713"]
    for row in rows:
        redis.ask("ZADD", NAME, redis.ask("INCR", f"{NAME}:number"), row)
    await read_all(first, second)
    assert second.known.read()["proofs"] == 0
    assert second.worker.recall(RIGHT) is None
    redis.ask("ZADD", NAME, redis.ask("INCR", f"{NAME}:number"), right)
    await until(lambda: second.worker.recall(RIGHT), "the right one is read still")


async def test_keys_of_another_type_are_an_outage(join, redis, capfd):
    redis.ask("SET", NAME, "of another type")
    host = join()
    host.verify()
    await until(lambda: "each password is verified here" in capfd.readouterr().err,
                "a line")
    redis.ask("DEL", NAME)
    await until(lambda: redis.ask("ZCARD", NAME) == 1, "what was waiting")


async def test_redis_goes_and_comes_back(join, redis, capfd):
    first, second = join(), join()
    await read_all(first, second)
    redis.kill()
    first.verify()
    await until(lambda: second.exchange.is_away and first.exchange.is_away, "an outage")
    assert first.worker.recall(RIGHT) is not None
    redis.start()
    await until(lambda: second.worker.recall(RIGHT), "what was verified meanwhile")
    said = capfd.readouterr().err
    assert said.count("each password is verified here") == 2, "once for each"
    assert said.count("shared through Redis again") == 2


def test_a_value_is_read_as_it_was_written():
    value = write_value(bytes(32), "a", bytes(40), 1.5)
    assert read_value(bytes(32), "a", value) == (bytes(40), 1.5)
    assert read_value(bytes(31) + b"1", "a", value) is None
    assert page_key(KEY) != page_key(OTHER) and len(page_key(KEY)) == 16


# The page


def test_a_proof_of_another_host_takes_no_newer_ones_place():
    known = Known(create(proof_sets=1, mark_sets=1, secret=bytes(16)))
    keys = [bytes([n]) * 40 for n in range(1, 10)]
    for n, key in enumerate(keys[:8]):
        assert known.admit(key, 1000 + n)
    assert not known.admit(keys[8], 999)
    assert known.admit(keys[8], 1001) and not known.admit(keys[0], 1000)
    assert not known.admit(keys[8], 1001) and not known.admit(keys[8], -5)
    assert sorted(since for _, since in known.export(1003)) == [1004, 1005, 1006, 1007]
    assert dict(known.export(0))[keys[8]] == 1001
    with pytest.raises(ValueError):
        known.admit(b"short", 1)


def test_the_key_of_a_page_is_of_its_life():
    page = create(secret=page_key(KEY))
    assert Known(page).has_key(page_key(KEY)) and not Known(page).has_key(bytes(16))
    assert not Known(create()).has_key(page_key(KEY))
    with pytest.raises(ValueError, match="16 octets"):
        create(secret=b"short")
