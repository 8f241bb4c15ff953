"""The fleet's exchange with a real Redis: many users, lost answers, other days."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from redis import exceptions

import cutthrough
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.settings import load
from cutthrough.generation.redis_client import explain, make_client
from cutthrough.policy.ledger import Ledger
from cutthrough.policy.limits import Limiter
from cutthrough.policy.remote_usage import RemoteUsage
from cutthrough.policy.shared_table import create
from cutthrough.policy.source import Limits, Policy
from cutthrough.process.fleet_state import FAILURES
from cutthrough.supervisor.redis_fleet import BATCH, RedisFleet, id_of
from tests.doors.policy import Holder, of_user
from tests.support.redis import PASSWORD, PROGRAM, Redis

DAY = 86400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    if PROGRAM is None:
        pytest.skip("redis-server is not installed")
    with contextlib.closing(Redis(tmp_path_factory.mktemp("redis"))) as running:
        yield running


@pytest.fixture
def redis(server: Redis) -> Redis:
    server.ask("FLUSHALL")
    return server


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
        self.fleet = RedisFleet(config, self.away, name)
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


@pytest.fixture
async def join(redis: Redis) -> AsyncIterator:
    members: list[Member] = []

    def start(users: list[str], url: str = redis.url, **limits: float) -> Member:
        members.append(Member(f"member {len(members)}", url, users, **limits))
        members[-1].fleet.start()
        return members[-1]

    yield start
    for member in members:
        await member.fleet.leave()


async def becomes(probe, what: str) -> None:
    deadline = time.monotonic() + 60
    while not probe():
        assert time.monotonic() < deadline, f"still not: {what}"
        await asyncio.sleep(0.005)


async def test_many_users_are_told_in_batches(join, redis):
    users = [f"user {n}: {'long ' * (n % 7)}" for n in range(3 * BATCH + 7)]
    a, b = join(users, connections=9), join(users, connections=9)
    await becomes(lambda: a.fleet.state().instances == 2, "two of them")
    before = a.fleet.state().steps
    held = [a.holder(user) for user in users]
    await becomes(lambda: all(b.uses(user)[0] == 1 for user in users), "all are known")
    assert a.fleet.state().steps >= before + 4
    late = join(users, connections=9)
    await becomes(lambda: all(late.uses(user)[0] == 1 for user in users), "and later")
    for holder in held:
        holder.close()
    await becomes(lambda: not any(b.uses(user)[0] for user in users), "and given back")
    assert b.away.read()["users"] == 0


async def test_an_answer_that_is_lost_counts_nothing_twice(join, redis):
    """The step was made, its reply was lost, and it is made again."""
    lose = asyncio.Event()

    async def between(reader, writer) -> None:
        up, down = await asyncio.open_connection("127.0.0.1", redis.port)

        async def pass_on(source, sink, may_lose: bool) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    if may_lose and lose.is_set():
                        lose.clear()
                        break
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pass_on(reader, down, False), pass_on(up, writer, True))
        for end in (down, writer):
            end.close()

    server = await asyncio.start_server(between, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = redis.url.replace(str(redis.port), str(port))
    a, b = join(["u"], url, bytes_per_day=10**9), join(["u"], bytes_per_day=10**9)
    await becomes(lambda: a.fleet.state().instances == 2, "two of them")
    for n in range(1, 6):
        lose.set()
        a.moved("u", 1000)
        await becomes(lambda: not lose.is_set(), "a lost answer")
        steps = a.fleet.state().steps
        await becomes(lambda s=steps: a.fleet.state().steps > s + 1, "two more")
        await becomes(lambda n=n: b.uses("u")[2] >= 1000 * n, "it is known")
        assert b.uses("u")[2] == a.uses("u")[2] == 1000 * n
    assert sum(a.fleet.state().failures.values()) == 5
    await a.fleet.leave()
    server.close()
    await server.wait_closed()


async def test_both_add_what_the_other_moved(join):
    a, b = (join(["u"], bytes_per_day=10**9) for _ in range(2))
    a.moved("u", 5000)
    b.moved("u", 700)
    await becomes(lambda: a.uses("u")[2] == b.uses("u")[2] == 5700, "the sum")
    a.moved("u", 1)
    await becomes(lambda: a.uses("u")[2] == b.uses("u")[2] == 5701, "the sum")


async def test_what_the_dead_moved_counts_on_its_day_and_what_they_held_never(
    join, redis
):
    today = int(time.time()) // DAY
    key = f"{{cutthrough}}:user:{id_of('u')}"
    redis.ask("HSET", key, "dead", f"3 2 {today} 4000 9",
              "dead yesterday", f"3 2 {today - 1} 500 9",
              "dead long since", f"3 2 {today - 2} 500 9", "junk", "what is this")
    a = join(["u"], connections=9, bytes_per_day=10**9)
    a.holder("u")
    await becomes(lambda: a.uses("u") == (1, 0, 4000), "the bytes of today")
    assert set(redis.ask("HKEYS", key)) == {
        "dead", "dead yesterday", "junk", "member 0"}


async def test_users_of_others_whom_we_do_not_know_are_left_out(join):
    a, b = join(["u", "v"], connections=9), join(["u"], connections=9)
    held = [a.holder("v"), a.holder("u")]
    await becomes(lambda: b.uses("u")[0] == 1, "the one that both know")
    assert b.away.read()["users"] == 1
    b.fleet.set_users(["u", "v"])         # a reload
    c = b.holder("v")
    await becomes(lambda: b.uses("v")[0] == 2, "the other one")
    for holder in (*held, c):
        holder.close()


async def test_what_a_removed_user_held_is_given_back_at_the_others(join, redis):
    """The others counted it for as long as this program lived."""
    a, b = join(["u", "v"], connections=9), join(["u", "v"], connections=9)
    held = [a.holder("u"), a.holder("u"), b.holder("u")]
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 3, "both know")
    a.fleet.set_users(["v"])              # a reload
    assert a.uses("u")[0] == 2, "what others hold is nothing to us any more"
    a.fleet.set_users(["v", "w"])         # and one more
    held.pop(0).close()
    await becomes(lambda: b.uses("u")[0] == 2, "one of them is given back")
    held.pop(0).close()
    await becomes(lambda: b.uses("u")[0] == 1, "and the other")
    key = f"{{cutthrough}}:user:{id_of('u')}"
    assert redis.ask("HKEYS", key) == ["member 1"]
    assert a.away.read()["users"] == 0
    a.fleet.set_users(["u", "v"])         # a user comes back
    held.append(a.holder("u"))
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 2, "as before")
    for holder in held:
        holder.close()


async def test_one_that_goes_lets_go_and_its_bytes_stay(join):
    a, b = (join(["u"], connections=9, bytes_per_day=10**9) for _ in range(2))
    a.moved("u", 5000)
    held = a.holder("u")
    await becomes(lambda: b.uses("u") == (1, 0, 5000), "both")
    await a.fleet.leave()
    await becomes(lambda: b.uses("u") == (0, 0, 5000), "the bytes alone")
    held.close()


async def test_what_redis_lost_unnoticed_is_told_again(join, redis, monkeypatch):
    """A replica that takes over may lack the last writes."""
    monkeypatch.setattr("cutthrough.supervisor.redis_fleet.REPUBLISH_S", 0.2)
    a, b = (join(["u"], connections=9, requests_per_second=9) for _ in range(2))
    held = [a.holder("u"), b.holder("u")]
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 2, "both")
    key = f"{{cutthrough}}:user:{id_of('u')}"
    redis.ask("HSET", key, "member 0", f"5 0 {int(time.time()) // DAY} 0 1")
    await becomes(lambda: redis.ask("HGET", key, "member 0")[0] == "1", "as it was")
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 2, "and read by both")
    for holder in held:
        holder.close()


# Failures, and their messages


@pytest.mark.parametrize(("error", "reason"), [
    (TimeoutError(), "timeout"),
    (exceptions.TimeoutError(PASSWORD), "timeout"),
    (exceptions.AuthenticationError(PASSWORD), "refused"),
    (exceptions.NoPermissionError(PASSWORD), "refused"),
    (exceptions.ConnectionError(PASSWORD), "connection"),
    (ConnectionRefusedError(111, "Connection refused"), "connection"),
    (exceptions.ResponseError(f"unknown command, args beginning with {PASSWORD}"),
     "error"),
    (ValueError(PASSWORD), "error"),
])
def test_a_failure_has_a_reason_and_shows_no_secret(error, reason):
    name, text = explain(error)
    assert name == reason and name in FAILURES and PASSWORD not in text


@pytest.mark.parametrize("url", [
    "redis://:secret@host:port/0", "redis://:secret@host:99999", "rediss://[::1",
    "redis://:secret@host?no_such_option=1", "redis://host?socket_timeout=secret"])
def test_an_address_that_is_none_is_not_repeated(url):
    with pytest.raises(ConfigError) as raised:
        make_client(Config(fleet_url=url))
    assert "secret" not in str(raised.value) and raised.value.key == "fleet_url"


@pytest.mark.parametrize(("flags", "key"), [
    (["--fleet-url", "http://:secret@host/"], "--fleet-url"),
    (["--fleet-prefix", ""], "--fleet-prefix"),
    (["--fleet-prefix", "a b"], "--fleet-prefix"),
    (["--fleet-interval", "1s", "--fleet-expiry", "4s"], "--fleet-expiry"),
])
def test_options_that_cannot_be_are_refused(flags, key):
    with pytest.raises(ConfigError) as raised:
        load(flags)
    assert raised.value.key == key and "secret" not in str(raised.value)


def test_an_embedded_proxy_does_not_pretend():
    with pytest.raises(ConfigError, match="cannot share limits"):
        cutthrough.serve(fleet_url="redis://127.0.0.1/0")
