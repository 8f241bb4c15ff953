"""Questions without an answer: bounded, shared, dropped; from many ports (R31)."""

import asyncio
import time

import pytest

from cutthrough.net.address import Addresses
from cutthrough.net.dns.answer import TIMEOUT
from cutthrough.net.dns.resolver import MOST_LOST, MOST_OPEN, Resolver, Servers
from cutthrough.net.shares import ALL_TAKEN, SHARE_TAKEN, Shares
from tests.support.dns import NameServer, Silence

PATIENCE = 30
ONE = "127.9.9.9"


@pytest.fixture
def names():
    try:
        server = NameServer(Silence({"a.test": ONE}))
    except PermissionError:  # not root, and no capability in the namespace
        pytest.skip("port 53 of a loopback address may not be bound")
    with server:
        yield server


@pytest.fixture
async def resolver(names):
    resolver = Resolver(asyncio.get_running_loop(), Servers([names.address], 20.0))
    yield resolver
    await resolver.close()


async def wait(probe, what):
    deadline = time.monotonic() + PATIENCE
    while not probe():
        assert time.monotonic() < deadline, f"still not: {what}"
        await asyncio.sleep(0.005)


async def ask(resolver, host, asker=b"", token=None):
    answer = asyncio.get_running_loop().create_future()
    resolver.resolve(host, answer.set_result, asker, token)
    return await asyncio.wait_for(answer, PATIENCE)


def flood(resolver, n, asker, hear=[].append):
    """Asks for n names that no server answers; their tokens."""
    tokens = [(asker, i) for i in range(n)]
    for token in tokens:
        resolver.resolve(b"%s%d.test" % token, hear, asker, token)
    return tokens


# Places.

def test_one_alone_has_half_of_all_places_and_a_latecomer_finds_some():
    shares = Shares(90)
    taken = dict.fromkeys((b"ann", b"bob", b"cyd"), 0)
    for name in taken:
        while not shares.take(name):
            taken[name] += 1
    assert taken == {b"ann": 45, b"bob": 23, b"cyd": 11}
    assert shares.refused == 3
    for _ in range(45):
        shares.give(b"ann")
    assert shares.take(b"bob") == ""
    assert shares.taken == 35


def test_those_who_hold_none_get_a_place_while_there_is_one():
    shares = Shares(3)
    assert [shares.take(name) for name in (b"1", b"2", b"3", b"4")] == [
        "", "", "", ALL_TAKEN]
    assert shares.take(b"1") == SHARE_TAKEN


# Questions.

async def test_one_who_asks_for_names_that_nobody_answers_has_a_share(
        resolver, names):
    """45 000 of them were open at a time, and c-ares searched for a free number."""
    heard: list[object] = []
    flood(resolver, 3 * MOST_OPEN, b"ann", heard.append)
    assert resolver.stats()["open"] == MOST_OPEN // 2
    await wait(lambda: len(heard) == 3 * MOST_OPEN - MOST_OPEN // 2, "the refusals")
    assert set(heard) == {SHARE_TAKEN}
    assert resolver.stats()["refused"] == len(heard)
    answer = await ask(resolver, b"a.test", b"bob")
    assert answer.texts() == [ONE]          # no other client is refused


async def test_a_question_that_nobody_waits_for_gives_its_place(resolver, names):
    """A client that asked and reset left its question to c-ares for up to 12 s."""
    for turn in range(20):
        for token in flood(resolver, 300, b"%d-" % turn):
            resolver.abandon(token)
            resolver.abandon(token)
        assert resolver.stats()["open"] < 2 * MOST_LOST
    assert resolver.stats()["dropped"] == 6_000
    assert resolver.stats()["refused"] == 0
    assert (await ask(resolver, b"a.test", b"0-")).texts() == [ONE]


async def test_lost_questions_are_dropped_though_others_wait_beside_them(
        resolver, names):
    """c-ares cancels a channel and no single question: another channel takes over."""
    heard: list[object] = []
    resolver.resolve(b"slow.test", heard.append, b"bob")
    for turn in range(20):
        for token in flood(resolver, 300, b"%d-" % turn):
            resolver.abandon(token)
    assert resolver.stats()["refused"] == 0
    # Questions that bob waits beside, and questions of the channel that is in use
    assert resolver.stats()["open"] <= 301 + MOST_LOST
    names.zone["slow.test"] = ONE
    await wait(lambda: heard, "an answer to the second try")
    assert heard[0].texts() == [ONE]
    await wait(lambda: resolver.stats()["open"] < MOST_LOST, "the first channel closed")


async def test_a_lost_question_is_taken_up_by_the_next_who_asks(resolver, names):
    resolver.resolve(b"b.test", [].append, b"ann", 1)
    resolver.abandon(1)
    heard: list[object] = []
    resolver.resolve(b"b.test", heard.append, b"bob", 2)
    assert (resolver.queries, resolver.stats()["open"]) == (1, 1)
    names.zone["b.test"] = ONE
    await wait(lambda: heard, "an answer to the second try")
    assert heard[0].texts() == [ONE]
    assert resolver.stats()["open"] == 0


async def test_the_answer_to_a_lost_question_is_kept(resolver, names):
    names.zone["b.test"] = ONE
    resolver.resolve(b"b.test", [].append, b"ann", 1)
    resolver.abandon(1)
    await wait(lambda: resolver.cached(b"b.test"), "the answer in the cache")
    assert resolver.stats()["open"] == 0


async def test_a_question_that_timed_out_has_its_place_until_c_ares_lets_go(names):
    resolver = Resolver(asyncio.get_running_loop(), Servers([names.address], 0.3))
    try:
        assert await ask(resolver, b"b.test", b"ann") == TIMEOUT
        assert resolver.stats()["open"] == 1
        await wait(lambda: resolver.stats()["open"] == 0, "c-ares gives up")
        assert resolver.stats()["dropped"] == 0
    finally:
        await resolver.close()


async def test_an_answer_beyond_its_time_is_given_rather_than_a_refusal(names):
    resolver = Resolver(asyncio.get_running_loop(), Servers([names.address], 20.0),
                        most_open=1)
    try:
        resolver.put(b"b.test", Addresses([ONE]), 0.0)
        resolver.resolve(b"c.test", [].append, b"ann")
        assert (await ask(resolver, b"b.test", b"bob")).texts() == [ONE]
        assert await ask(resolver, b"d.test", b"bob") == ALL_TAKEN
        resolver.refresh(b"e.test")         # no place: it is left
        assert resolver.stats()["open"] == 1
    finally:
        await resolver.close()


async def test_questions_come_from_many_ports_while_one_is_not_answered(
        resolver, names):
    """One unanswered name pinned the source port: 632 questions came from 6 ports."""
    resolver.resolve(b"open.test", [].append)
    names.zone.update({f"n{i}.test": ONE for i in range(320)})
    for i in range(320):
        await ask(resolver, b"n%d.test" % i)
    assert len(names.asked) >= 320
    assert len(names.ports) >= 2 * 320 // 16
