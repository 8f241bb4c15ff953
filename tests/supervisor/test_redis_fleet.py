"""The fleet's exchange with a real Redis: many users, lost answers, other days."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from redis import Redis as Client
from redis import exceptions

import cutthrough
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.settings import load
from cutthrough.generation.redis_client import explain, make_client
from cutthrough.process.fleet_state import FAILURES
from cutthrough.supervisor.fleet_script import BATCH, SCRIPT
from cutthrough.supervisor.redis_fleet import id_of
from tests.support.members import Member, Relay, becomes
from tests.support.peer import Peer, expire, key, sums
from tests.support.proxy import ROOT
from tests.support.redis import PASSWORD, PROGRAM, Redis
from tests.support.wait import PATIENCE

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


@pytest.fixture
def client(redis: Redis) -> Iterator[Client]:
    with Client.from_url(redis.url, decode_responses=True) as made:
        yield made


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


@pytest.fixture
async def relay(redis: Redis) -> AsyncIterator[Relay]:
    between = Relay(redis)
    await between.start()
    yield between
    await between.close()


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


async def test_an_answer_that_is_lost_counts_nothing_twice(relay, join):
    """The step was made, its reply was lost, and it is made again."""
    a, b = join(["u"], relay.url, bytes_per_day=10**9), join(["u"], bytes_per_day=10**9)
    await becomes(lambda: a.fleet.state().instances == 2, "two of them")
    for n in range(1, 6):
        relay.loses.set()
        a.moved("u", 1000)
        await becomes(lambda: not relay.loses.is_set(), "a lost answer")
        steps = a.fleet.state().steps
        await becomes(lambda s=steps: a.fleet.state().steps > s + 1, "two more")
        await becomes(lambda n=n: b.uses("u")[2] >= 1000 * n, "it is known")
        assert b.uses("u")[2] == a.uses("u")[2] == 1000 * n
    assert sum(a.fleet.state().failures.values()) == 5
    await a.fleet.leave()


async def test_a_member_that_was_cut_off_counts_once_when_it_is_back(
    relay, join, capfd
):
    limits = {"connections": 99, "bytes_per_day": 10**9}
    a, b = join(["u"], relay.url, **limits), join(["u"], **limits)
    a.moved("u", 1000)
    b.moved("u", 500)
    held = [a.holder("u")]
    await becomes(lambda: a.uses("u") == b.uses("u") == (1, 0, 1500), "both")
    relay.cut()
    await becomes(lambda: b.uses("u") == (0, 0, 1500), "its connection counts no more")
    await becomes(lambda: a.fleet.state().instances == 0, "it counts alone")
    assert a.uses("u") == (1, 0, 1500)
    assert "this program alone" in capfd.readouterr().err
    a.moved("u", 20)
    held.append(a.holder("u"))
    b.moved("u", 3)
    relay.mend()
    await becomes(lambda: a.uses("u") == b.uses("u") == (2, 0, 1523), "both, once")
    relay.cut()                               # as one that is killed
    c = join(["u"], **limits)                 # and its successor
    await becomes(lambda: b.uses("u") == c.uses("u") == (0, 0, 1523), "the bytes stay")
    c.moved("u", 7)
    await becomes(lambda: b.uses("u") == c.uses("u") == (0, 0, 1530), "the sum")
    for holder in held:
        holder.close()


async def test_whoever_is_back_first_does_not_bury_the_others(redis, join):
    """The others' pauses between attempts were longer than their lease: they were
    subtracted, and had to publish everything again."""
    ways = [Relay(redis) for _ in range(5)]
    for way in ways:
        await way.start()
    members = [join(["u"], way.url, connections=9) for way in ways]
    held = [member.holder("u") for member in members]
    await becomes(lambda: all(m.uses("u")[0] == 5 for m in members), "all are known")
    sessions = [member.fleet._session for member in members]
    for way in ways:
        way.cut()
    await becomes(lambda: not any(m.fleet.state().instances for m in members),
                  "each counts alone")
    failures = [sum(m.fleet.state().failures.values()) for m in members]
    await becomes(lambda: all(sum(m.fleet.state().failures.values()) > n + 2
                              for m, n in zip(members, failures, strict=True)),
                  "pauses of the greatest length")
    ways[0].mend()
    await becomes(lambda: members[0].fleet.state().instances, "the first")
    for way in ways[1:]:
        way.mend()
    await becomes(lambda: all(m.uses("u")[0] == 5 for m in members), "all, again")
    assert [member.fleet._session for member in members] == sessions
    for holder in held:
        holder.close()
    for member, way in zip(members, ways, strict=True):
        await member.fleet.leave()
        await way.close()


async def test_a_member_without_redis_holds_what_it_knows_for_a_while(
    relay, join, capfd
):
    """For longer than the others count it: a Redis that restarts lifts no limit."""
    a, b = join(["u"], relay.url, connections=9), join(["u"], connections=9)
    held = [b.holder("u")]
    await becomes(lambda: a.uses("u")[0] == 1, "it is known")
    await becomes(lambda: b.fleet.state().instances == 2, "to both")
    session = a.fleet._session
    relay.cut()
    await becomes(lambda: b.fleet.state().instances == 1, "it is missed")
    assert a.uses("u")[0] == 1 and a.fleet.state().instances == 2
    relay.mend()
    held.append(a.holder("u"))
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 2, "both")
    assert a.fleet._session != session
    assert "this program alone" not in capfd.readouterr().err
    for holder in held:
        holder.close()


async def test_a_join_and_a_leave_make_nobody_publish_again(join):
    users = [f"user {n}" for n in range(50)]
    a, b = join(users, connections=9), join(users, connections=9)
    held = [a.holder(user) for user in users] + [b.holder(user) for user in users[:20]]
    await becomes(lambda: all(b.uses(user)[0] for user in users), "all are known")
    await becomes(lambda: a.uses(users[19])[0] == 2, "to both")
    before = a.page.reports, b.page.reports
    c = join(users, connections=9)
    await becomes(lambda: all(c.uses(user)[0] for user in users), "and to a third")
    assert c.uses(users[0])[0] == 2 and c.uses(users[-1])[0] == 1
    await becomes(lambda: a.fleet.state().instances == 3, "that joined")
    await c.fleet.leave()
    await becomes(lambda: a.fleet.state().instances == 2, "that left")
    await becomes(lambda: b.fleet.state().instances == 2, "that left")
    assert (a.page.reports, b.page.reports) == before
    for holder in held:
        holder.close()


async def test_a_redis_that_lost_its_data_gets_the_usage_once_more(join, redis, client):
    limits = {"connections": 9, "bytes_per_day": 10**9, "requests_per_second": 99}
    a, b = (join(["u"], **limits) for _ in range(2))
    for member in (a, b):
        await becomes(lambda m=member: m.fleet.state().instances == 2, "two of them")
    held = [a.holder("u"), b.holder("u")]
    a.moved("u", 1000)
    await becomes(lambda: a.uses("u") == b.uses("u") == (2, 0, 1000), "both")
    id = id_of("u")
    assert sums(client)[id] == (2, 0, 3)
    redis.ask("FLUSHALL")
    began = time.monotonic()
    await becomes(lambda: sums(client).get(id, (0,))[0] == 2, "the sum")
    print(f"the sum is exact after {time.monotonic() - began:.3f} s")
    await becomes(lambda: a.uses("u") == b.uses("u") == (2, 0, 1000), "both again")
    assert sums(client)[id] == (2, 0, 0), "former requests are no debt"
    held.append(b.holder("u"))
    await becomes(lambda: sums(client)[id] == (3, 0, 1), "a new one is")
    for holder in held:
        holder.close()


async def test_a_charge_of_a_former_session_that_is_undone_is_no_debt(join, client):
    """The row was taken for another one, and all that its user had spent before was a
    debt of the others: they answered 429 for as long as it takes to earn it."""
    limits = {"requests_per_second": 1, "burst": 1000}
    a, b = join(["u", "v"], **limits), join(["u", "v"], **limits)
    waiting, other = a.holder("u"), b.holder("u")
    for _ in range(300):
        assert waiting.ask(b"u", now=time.monotonic())[0] == "entered"
    await becomes(lambda: b.uses("u")[0] == 2, "what a holds")
    waiting.ask_again(b"v", now=time.monotonic())   # as a hook that names other limits
    await becomes(lambda: b.uses("u")[0] == 1 and b.uses("v")[0] == 1, "its move")
    assert sums(client)[id_of("u")] == (1, 0, 0)
    for holder in (waiting, other):
        holder.close()


async def test_both_add_what_the_other_moved(join):
    a, b = (join(["u"], bytes_per_day=10**9) for _ in range(2))
    a.moved("u", 5000)
    b.moved("u", 700)
    await becomes(lambda: a.uses("u")[2] == b.uses("u")[2] == 5700, "the sum")
    a.moved("u", 1)
    await becomes(lambda: a.uses("u")[2] == b.uses("u")[2] == 5701, "the sum")


async def test_what_the_dead_moved_counts_on_its_day_and_what_they_held_never(
    join, client
):
    id, today = id_of("u"), int(time.time()) // DAY
    for name, day, moved in (("dead", today, 4000), ("dead yesterday", today - 1, 500)):
        peer = Peer(client, name, day)
        peer.held, peer.moved[id, day], peer.due = {id: (3, 2)}, moved, {id}
        peer.sync()
        expire(client, name)
    a = join(["u"], connections=9, bytes_per_day=10**9)
    holder = a.holder("u")
    await becomes(lambda: a.uses("u") == (1, 0, 4000), "the bytes of today")
    assert sums(client)[id][:2] == (1, 0)
    holder.close()


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


async def test_what_a_removed_user_held_is_given_back_at_the_others(join, client):
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
    assert not client.hexists(key(client, "of:member 0"), id_of("u"))
    assert sums(client)[id_of("u")][:2] == (1, 0)
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


class Endless:
    """A Redis that always has more; `stride`: by which its position advances."""

    is_open = True

    def __init__(self, stride: int) -> None:
        self.stride, self.steps = stride, 0

    async def run(self, script: str, keys: list[str], values: list[object]) -> list:
        await asyncio.sleep(0)
        self.steps += 1
        return [self.steps, str(1 + self.steps * self.stride), 2**53, 1, ""]

    async def close(self) -> None: ...


async def test_a_redis_that_always_has_more_delays_no_stop():
    """The stop of the whole program waited for its last position, for ever."""
    member, redis = Member("member", "redis://127.0.0.1:1/0", ["u"]), Endless(1)
    member.fleet._link = redis
    member.fleet.start()
    await becomes(lambda: redis.steps > 9, "steps without a pause")
    async with asyncio.timeout(PATIENCE):
        await member.fleet.leave()


async def test_more_without_a_position_that_advances_is_an_error():
    """The supervisor asked again at once, for ever."""
    member, redis = Member("member", "redis://127.0.0.1:1/0", ["u"]), Endless(0)
    member.fleet._link = redis
    member.fleet.start()
    await becomes(lambda: member.fleet.state().failures["error"], "an error")
    await member.fleet.leave()


async def test_what_redis_lost_unnoticed_is_told_again(join, redis, client):
    """A replica that takes over may lack the last writes."""
    a, b = (join(["u"], connections=9) for _ in range(2))
    held = [a.holder("u"), b.holder("u")]
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 2, "both")
    backup = redis.backup()
    held += [a.holder("u"), b.holder("u"), b.holder("u")]
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 5, "both")
    redis.restore(backup)
    assert sums(client)[id_of("u")][0] < 5
    await becomes(lambda: sums(client)[id_of("u")][0] == 5, "as it was")
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 5, "and read by both")
    for holder in held:
        holder.close()


async def test_the_rights_that_the_manual_names_are_enough(join, redis):
    """docs/limits.md: those of the script, for keys with the prefix."""
    commands = set(re.findall(r"call\('(\w+)'", SCRIPT))
    page = (ROOT / "docs/limits.md").read_text()
    assert set(re.findall(r"\b[A-Z]{4,}\b", page)) >= commands
    redis.ask("ACL", "SETUSER", "fleet", "on", f">{PASSWORD}", "~{cutthrough}:*",
              "+evalsha", "+eval", "+script|load", "+client|setname",
              *(f"+{name}" for name in commands))
    url = redis.url.replace("//:", "//fleet:")
    a, b = join(["u"], url, connections=9), join(["u"], url, connections=9)
    held = [a.holder("u"), b.holder("u")]
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 2, "both")
    await b.fleet.leave()
    await becomes(lambda: a.uses("u")[0] == 1, "it left")
    assert not any(a.fleet.state().failures.values())
    for holder in held:
        holder.close()


async def test_sums_are_exact_soon_after_redis_is_back(join, redis, client):
    a, b = (join(["u"], connections=9) for _ in range(2))
    held = [a.holder("u"), b.holder("u")]
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 2, "both")
    redis.kill()
    await becomes(lambda: a.fleet.state().instances == 0, "it counts alone")
    held.append(b.holder("u"))
    redis.start()
    began = time.monotonic()
    await becomes(lambda: a.uses("u")[0] == b.uses("u")[0] == 3, "both")
    print(f"exact after {time.monotonic() - began:.2f} s")
    assert sums(client)[id_of("u")][0] == 3
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
