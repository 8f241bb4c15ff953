"""The fleet's script in a real Redis or Valkey: its sums, beside a dictionary's."""

import contextlib
import copy
import random
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from redis import Redis as Client
from redis import exceptions

from cutthrough.supervisor.fleet_script import Use, parse_answer
from tests.support.peer import SUMS, Peer, expire, key, sums
from tests.support.redis import PROGRAMS, Backup, Redis

DAY = 20_000
USERS = [f"{n:032x}" for n in range(3)]


@pytest.fixture(scope="module", params=["redis-server", "valkey-server"])
def server(request: pytest.FixtureRequest,
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    program = PROGRAMS[request.param]
    if program is None:
        pytest.skip(f"{request.param} is not installed")
    with contextlib.closing(Redis(tmp_path_factory.mktemp("redis"), program,
                                  has_tls=False)) as running:
        yield running


@pytest.fixture
def redis(server: Redis) -> Iterator[Client]:
    with Client.from_url(server.url, decode_responses=True) as client:
        client.flushall()
        yield client


def holding(client: Client, name: str, **held: tuple[int, int]) -> Peer:
    peer = Peer(client, name, DAY)
    peer.held = {USERS["uvw".index(user)]: use for user, use in held.items()}
    peer.sync()
    return peer


# All that may happen, in any order


class Twin:
    """What each instance uses, as Redis should know it. By name and user: connections,
    tunnels and spent; by name, user and day: bytes."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, tuple[int, int, int]]] = defaultdict(dict)
        self.moved: dict[tuple[str, str, int], int] = defaultdict(int)
        self.expired: set[str] = set()

    def bury(self) -> None:
        for name in self.expired:
            self.held.pop(name, None)
        self.expired.clear()

    def publish(self, name: str, day: int,
                published: dict[str, tuple[int, int, int, int]]) -> None:
        self.expired.discard(name)
        self.bury()
        for id, (connections, tunnels, spent, moved) in published.items():
            self.held[name][id] = (connections, tunnels, spent)
            if moved:
                at = name, id, day
                self.moved[at] = max(self.moved[at], moved)

    def total(self, id: str) -> tuple[int, ...]:
        each = [use.get(id, (0, 0, 0)) for use in self.held.values()]
        return tuple(map(sum, zip(*each, strict=True))) if each else (0, 0, 0)

    def bytes_of(self, id: str, day: int) -> int:
        return sum(n for (_, user, on), n in self.moved.items()
                   if (user, on) == (id, day))


class Fleet:
    """Instances that change, exchange, lose answers, are cut off, killed, and return;
    and a Redis that loses everything, or its last steps."""

    def __init__(self, server: Redis, client: Client, seed: int) -> None:
        client.flushall()
        self.server, self.client, self.random = server, client, random.Random(seed)
        self.twin = Twin()
        self.peers: list[Peer] = []
        self.gone: list[Peer] = []
        self.backup: tuple[Twin, Backup] | None = None
        self.last_days: dict[str, int] = {}
        self.started = 0

    def run(self, steps: int) -> None:
        acts = [self.change] * 12 + [self.exchange, self.set_a_clock] * 3 + [
            self.end, self.end, self.leap, self.come_back, self.settle,
            self.change_redis]
        for _ in range(steps):
            while len(self.peers) < 2:
                self.start()
            self.random.choice(acts)(self.random.choice(self.peers))
            self.compare()
        self.settle(self.peers[0])

    def start(self) -> None:
        self.started += 1
        self.peers.append(Peer(self.client, f"peer {self.started}", DAY))

    def sync(self, peer: Peer) -> None:
        published = peer.sync()
        self.twin.held[peer.name] = {
            id: (*peer.held.get(id, (0, 0)), peer.spent.get(id, 0))
            for id in (*peer.held, *peer.spent)}
        self.twin.publish(peer.name, peer.day, published)

    def change(self, peer: Peer) -> None:
        """And it exchanges, or exchanges and loses the answer, or waits."""
        id = self.random.choice(USERS)
        peer.held[id] = (self.random.randrange(4), self.random.randrange(4))
        peer.spent[id] += self.random.randrange(3)
        peer.moved[id, peer.day] += self.random.choice((0, 1, 1000, 10**12))
        peer.due.add(id)
        then = self.random.choice((self.exchange, self.lose_an_answer, None))
        if then:
            then(peer)

    def exchange(self, peer: Peer) -> None:
        self.sync(peer)

    def lose_an_answer(self, peer: Peer) -> None:
        before = peer.session, peer.number
        if peer.number:
            published = peer.usage(peer.due)
            if peer.exchange(peer.due).number:
                self.twin.publish(peer.name, peer.day, published)
            peer.session, peer.number = before

    def set_a_clock(self, peer: Peer) -> None:
        """A day back at most, from the last day that it had."""
        last = self.last_days.get(peer.name, DAY)
        peer.set_day(last + self.random.choice((-1, -1, 0, 0, 1, 1, 2)))
        self.last_days[peer.name] = max(last, peer.day)

    def leap(self, peer: Peer) -> None:
        """Its clock is set to a day where it has not been, and back."""
        day = peer.day
        peer.set_day(day + self.random.choice((-1, 1)) * self.random.randrange(9, 9999))
        for _ in range(self.random.randrange(3)):
            peer.moved[self.random.choice(USERS), peer.day] += 1000
        self.sync(peer)
        peer.set_day(day)
        self.sync(peer)

    def end(self, peer: Peer) -> None:
        """Cut off: until it is taken for dead."""
        how = self.random.choice(("cut off", "killed", "killed, noticed", "leaves"))
        if how == "leaves":
            self.sync(peer)
            peer.leave()
            self.twin.held.pop(peer.name, None)
        elif how != "killed":
            expire(self.client, peer.name)
            if self.twin.held.get(peer.name):
                self.twin.expired.add(peer.name)
        if how != "cut off":
            self.peers.remove(peer)
            self.gone.append(peer)

    def come_back(self, _: Peer) -> None:
        """As the same instance: with its session, or with a new one."""
        if self.gone and len(self.peers) < 5:
            peer = self.gone.pop(self.random.randrange(len(self.gone)))
            if self.random.random() < 0.5:
                peer.begin()
            self.peers.append(peer)

    def change_redis(self, _: Peer) -> None:
        """The last steps are lost as by a replica that takes over."""
        how = self.random.choice(("save", "save", "lose steps", "lose everything"))
        if how == "save":
            self.backup = copy.deepcopy(self.twin), self.server.backup()
        elif how == "lose everything":
            self.client.flushall()
            self.twin = Twin()
        elif self.backup is not None:
            self.twin = copy.deepcopy(self.backup[0])
            self.server.restore(self.backup[1])

    def settle(self, _: Peer) -> None:
        """Each knows the use of the others."""
        for peer in [*self.peers, *self.peers]:
            self.sync(peer)
        for peer in self.peers:
            for id in USERS:
                own = self.twin.held[peer.name].get(id, (0, 0, 0))
                connections, tunnels, spent = self.twin.total(id)
                moved = (self.twin.bytes_of(id, peer.day)
                         - self.twin.moved.get((peer.name, id, peer.day), 0))
                assert peer.others.get(id, Use(id, 0, 0, 0, 0)) == Use(
                    id, connections - own[0], tunnels - own[1], moved, spent - own[2])

    def compare(self) -> None:
        if not self.twin.expired:            # else the next step subtracts them
            known = sums(self.client)
            for id in USERS:
                assert known.get(id, (0, 0, 0)) == self.twin.total(id)
        for day in {day for _, _, day in self.twin.moved} | {DAY}:
            moved = self.client.hgetall(key(self.client, f"day:{day}"))
            for id in USERS:
                assert int(moved.get(id, 0)) == self.twin.bytes_of(id, day)


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_exact_whatever_happens(server: Redis, redis: Client, seed: int
                                         ) -> None:
    Fleet(server, redis, seed).run(150)


# One at a time


def test_a_join_and_a_leave_change_no_sum(redis: Client) -> None:
    a, b = holding(redis, "a", u=(1, 1)), holding(redis, "b", u=(2, 0), v=(1, 0))
    a.sync()
    version = redis.hget(SUMS, "version")
    c = Peer(redis, "c", DAY)
    c.sync()
    assert c.others[USERS[0]] == Use(USERS[0], 3, 1, 0, 0)
    assert a.sync() == b.sync() == {} and a.instances == 3
    c.leave()
    assert a.sync() == b.sync() == {} and a.instances == 2
    assert redis.hget(SUMS, "version") == version


def test_a_step_costs_the_same_among_thirty_as_among_three(redis: Client) -> None:
    def calls(peer: Peer) -> int:
        redis.config_resetstat()
        peer.held[USERS[0]] = (peer.number, 0)
        peer.due = {USERS[0]}
        peer.exchange(peer.due)
        return sum(stat["calls"] for name, stat in redis.info("commandstats").items()
                   if name not in ("cmdstat_config|resetstat", "cmdstat_info"))

    peers = [holding(redis, f"peer {n}", u=(1, 0)) for n in range(3)]
    few = calls(peers[0])
    peers += [holding(redis, f"more {n}", u=(1, 0)) for n in range(27)]
    assert calls(peers[1]) == few < 30


def test_the_share_of_a_dead_instance_goes_in_pieces_and_once(redis: Client) -> None:
    users = [f"{n:032x}" for n in range(2000)]
    big, a, b = Peer(redis, "big", DAY), Peer(redis, "a", DAY), Peer(redis, "b", DAY)
    big.held = dict.fromkeys(users, (2, 1))
    a.held = dict.fromkeys(users, (1, 0))
    for peer in (big, a, b):
        peer.sync()
    expire(redis, "big")
    a.exchange()
    part = Counter(sums(redis).values())
    assert set(part) == {(3, 1, 0), (1, 0, 0)}
    big.sync()                               # it is back meanwhile
    assert Counter(sums(redis).values()) == {(3, 1, 0): 2000}
    expire(redis, "big")
    for _ in range(5):
        a.exchange()
        b.exchange()
    assert Counter(sums(redis).values()) == {(1, 0, 0): 2000}
    assert not redis.exists(key(redis, "of:big"))


def test_bytes_of_the_dead_stay_and_the_rest_goes(redis: Client) -> None:
    a, b = holding(redis, "a", u=(1, 1), v=(1, 0)), Peer(redis, "b", DAY)
    a.moved[USERS[0], DAY] = 5000
    a.due = {USERS[0]}
    a.sync()
    b.sync()
    expire(redis, "a")
    b.sync()
    assert b.others[USERS[0]] == Use(USERS[0], 0, 0, 5000, 0)
    assert redis.hgetall(key(redis, "of:a")) == {USERS[0]: f"0 0 0 {DAY} 5000 0"}


def test_time_in_which_nobody_came_does_not_count(redis: Client) -> None:
    """Redis was away, or its host slept: its instances are not dead."""
    a, b = holding(redis, "a", u=(1, 1)), holding(redis, "b", u=(2, 0))
    redis.hincrby(SUMS, "at", -3_600_000)
    number = b.number
    a.sync()
    assert a.instances == 2
    assert b.sync() == {} and b.number > number, "the same session"


def test_a_user_who_has_not_changed_for_a_day_is_forgotten(redis: Client) -> None:
    a = holding(redis, "a", u=(1, 0), v=(1, 0))
    a.held[USERS[1]] = (0, 0)
    a.due = {USERS[1]}
    a.sync()
    for day in (1, 2):
        assert len(sums(redis)) == 2
        redis.hset(SUMS, "day", day)         # it is another one now
        a.sync()
    assert sums(redis) == {USERS[0]: (1, 0, 0)}
    assert redis.zrange(key(redis, "feed"), 0, -1) == USERS[:1]


def test_nothing_stays_for_ever(redis: Client) -> None:
    a = holding(redis, "a", u=(1, 0))
    a.moved[USERS[0], DAY] = 1
    a.due = {USERS[0]}
    a.sync()
    life = {name.rpartition("2:")[2]: redis.pttl(name) for name in redis.keys("*")}
    assert len(life) == 5 and min(life.values()) > 170_000_000
    assert max(life, key=lambda name: life[name]).endswith("of:a")


# Entries that others may write


@pytest.mark.parametrize("text", [
    "", "junk", "-1 0 0", "1 2", "9" * 300 + " 0 0", "1e9 0 0", "\n", "1 0 0 0 0 0 0"])
def test_what_is_no_sum_is_none(redis: Client, text: str) -> None:
    a, b = holding(redis, "a", u=(1, 1)), holding(redis, "b", u=(2, 0))
    redis.hset(SUMS, USERS[0], text)
    redis.hset(key(redis, "of:a"), USERS[0], text)
    redis.hset(key(redis, f"day:{DAY}"), USERS[0], text)
    b.held[USERS[0]] = (3, 0)
    b.due = {USERS[0]}
    b.sync()
    a.sync()
    for number in a.others[USERS[0]][1:]:
        assert 0 <= number < 2**53 + 1


def test_names_that_are_no_users_are_not_received(redis: Client) -> None:
    holding(redis, "a", u=(1, 1))
    redis.zadd(key(redis, "feed"), {"x" * 10_000: 2, "1 " * 16: 3, "a" * 31: 4,
                                    "g" * 32: 5})
    redis.zadd(key(redis, "alive"), {"no such one": 0, "x" * 10_000: 0})
    b = Peer(redis, "b", DAY)
    b.sync()
    assert set(b.others) == {USERS[0]} and b.instances == 2


@pytest.mark.parametrize("reply", [
    None, 7, "OK", [], [1, "0", 0, 1], [1, "0", 0, 1, "u 1 2 3"], ["x", "0", 0, 1, ""],
    [1, "0", 0, 1, "u 1 2 3 many"], [1, "0", 0, 1, None, 2],
    [1, "0", 0, 1, b"u 1 2 3 4"]])
def test_what_is_no_answer_is_an_error_of_redis(reply: object) -> None:
    with pytest.raises(exceptions.InvalidResponse):
        parse_answer(reply)


def test_numbers_that_are_too_large_are_cut() -> None:
    answer = parse_answer([1, "0", 0, 1, f"u {2**70} -5 {10**40} 3"])
    assert answer.uses == [Use("u", 2**32 - 1, 0, 2**53, 3)]
