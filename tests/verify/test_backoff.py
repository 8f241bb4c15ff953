"""How long a guesser waits, and the history of its network (R24)."""

import pytest

from cutthrough.policy.known import Known
from cutthrough.verify import backoff as module
from cutthrough.verify.backoff import (
    Backoff,
    NetworkHistory,
    Rank,
    backoff_of,
    is_exempt,
)

HERE, AWAY = b"\xcb\0\x71\5", b"\x0a\0\0\1"
KEY = bytes(40)


@pytest.fixture
def known():
    return Known()


@pytest.fixture
def backoff(known):
    return Backoff(known)


def fail(backoff, times, client=HERE, name=b"ann", now=100.0, exists=True):
    for n in range(times):
        backoff.fail(client, name, exists, b"%40d" % n, now)


def test_the_back_off_doubles_to_a_minute():
    assert [backoff_of(n) for n in range(13)] == [
        0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff_of(10_000) == 60
    assert [backoff_of(n, 3.0) for n in (4, 5, 6, 7, 99)] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("exists", [True, False])
def test_a_name_waits_at_one_address_and_no_other_name_or_address_does(
        backoff, exists):
    """A wrong password closed the whole address, to all users behind it. A name
    without an account waits like any other (R22)."""
    fail(backoff, 4, exists=exists)
    assert backoff.wait(HERE, b"ann", exists, 100.0) == 0
    fail(backoff, 1, exists=exists)
    assert backoff.wait(HERE, b"ann", exists, 100.25) == 0.75
    assert backoff.wait(HERE, b"ann", exists, 101.5) == 0
    for other in ((HERE, b"bob"), (AWAY, b"ann"), (HERE, b"an"), (HERE, b"")):
        assert backoff.wait(*other, True, 100.0) == 0
    fail(backoff, 2, exists=exists)
    assert backoff.wait(HERE, b"ann", exists, 100.0) == 4


def test_the_wait_is_the_same_for_every_worker(known):
    """Each worker counted for itself, so that four of them were four budgets."""
    for _ in range(5):
        fail(Backoff(known), 1)
    assert Backoff(known).wait(HERE, b"ann", True, 100.0) == 1


def test_a_success_forgives_its_name_only_and_time_forgives_all(backoff):
    fail(backoff, 6)
    fail(backoff, 6, name=b"bob")
    backoff.succeed(HERE, b"ann")
    assert backoff.wait(HERE, b"ann", True, 100.0) == 0
    assert backoff.wait(HERE, b"bob", True, 100.0) == 2
    later = 100.0 + module.FORGET_AFTER + 1
    fail(backoff, 1, name=b"bob", now=later)
    assert backoff.wait(HERE, b"bob", True, later) == 0


def test_an_address_of_many_names_is_refused_late(backoff):
    for n in range(20):
        assert backoff.refusal_delay(HERE, 100.0) == 0
        fail(backoff, 1, name=b"u%d" % n, exists=n % 2 == 0)
    holds = []
    for n in range(4):
        holds.append(backoff.refusal_delay(HERE, 100.0))
        fail(backoff, 1, name=b"v%d" % n)
    assert holds == [1, 2, 4, 4]
    assert backoff.refusal_delay(AWAY, 100.0) == 0
    assert backoff.refusal_delay(HERE, 100.0 + module.FORGET_AFTER + 1) == 0


def test_the_same_wrong_credentials_are_one_guess(backoff):
    backoff.fail(HERE, b"ann", True, KEY, 100.0)
    assert backoff.is_known_wrong(HERE, KEY, 101.0)
    assert not backoff.is_known_wrong(AWAY, KEY, 101.0), "what others tried is not told"
    assert not backoff.is_known_wrong(HERE, b"x" * 40, 101.0)
    assert not backoff.is_known_wrong(HERE, KEY, 101.0 + module.FORGET_AFTER)


@pytest.mark.parametrize("client", [b"\x7f\0\0\1", b"\x7f\1\2\3", bytes(8)])
def test_this_host_is_exempt(backoff, client):
    """Five mistyped passwords on loopback locked their user out for a minute."""
    assert is_exempt(client)
    fail(backoff, 100, client)
    assert backoff.wait(client, b"ann", True, 100.0) == 0
    assert backoff.refusal_delay(client, 100.0) == 0


@pytest.mark.parametrize("client", [HERE, AWAY, b"\x20\1" + bytes(6), b"\0\0\0\1"])
def test_no_other_address_is(client):
    assert not is_exempt(client)


def test_it_can_be_set_and_switched_off(known):
    fail(Backoff(known), 30)
    assert Backoff(known, 3.0).wait(HERE, b"ann", True, 100.0) == 3
    off = Backoff(known, 0.0)
    assert off.wait(HERE, b"ann", True, 100.0) == off.refusal_delay(HERE, 100.0) == 0


def tries_of(longest, seconds, pauses):
    """The tries of one address at one name. After every `pauses` tries, 0 for never,
    the address pauses until it is forgotten; else it tries as soon as it may."""
    known = Known()
    backoff, now, tries = Backoff(known, longest), 1.0, 0
    while now < 1.0 + seconds:
        wait = backoff.wait(HERE, b"ann", True, now)
        if wait:
            now += wait + 1e-6
            continue
        tries += 1
        fail(backoff, 1, now=now)
        if pauses and tries % pauses == 0:
            now += max(module.FORGET_AFTER, 10 * longest) + 1
    return tries


@pytest.mark.parametrize(("longest", "hour", "day"), [
    (60.0, 69, 1449), (600.0, 19, 195), (1.0, 3604, 86404)])
def test_guessing_stays_hopeless(longest, hour, day):
    """The figures of docs/users.md: the tries of one address at one name, however it
    waits; a thousand addresses have a thousand times as many."""
    assert tries_of(longest, 3600, 0) == hour
    pauses = (0, 5, 8, 10, 11, 12, 15, 20)
    assert max(tries_of(longest, 86400, n) for n in pauses) == day
    if longest == module.LONGEST_BACKOFF:
        years = 62 ** 8 / 2 / (1000 * day) / 365
        assert years > 200_000, "eight letters and digits, a thousand addresses"


# NetworkHistory

def test_a_network_is_new_until_it_was_right_and_suspect_when_only_wrong(known):
    standing = NetworkHistory(known)
    assert standing.rank(HERE, 1.0) is Rank.NEW
    for n in range(5):
        assert standing.rank(HERE, 1.0) is Rank.NEW
        standing.fail(b"\xcb\0\x71" + bytes([n]), 1.0)
    assert standing.rank(HERE, 1.0) is Rank.SUSPECT
    assert NetworkHistory(known).rank(HERE, 1.0) is Rank.SUSPECT, "to every worker"
    assert standing.rank(AWAY, 1.0) is Rank.NEW
    standing.succeed(HERE, 1.0)
    assert standing.rank(b"\xcb\0\x71\x63", 1.0) is Rank.KNOWN


def test_who_was_right_before_and_is_wrong_now_is_suspect_until_forgotten(known):
    standing = NetworkHistory(known)
    standing.succeed(HERE, 1.0)
    for _ in range(5):
        standing.fail(HERE, 1.0)
    assert standing.rank(HERE, 2.0) is Rank.SUSPECT
    assert standing.rank(HERE, module.FORGET_AFTER + 2) is Rank.KNOWN


def test_a_network_of_ipv6_is_a_site(known):
    standing = NetworkHistory(known)
    standing.succeed(bytes.fromhex("20010db800010002"), 1.0)
    assert standing.rank(bytes.fromhex("20010db80001ffff"), 1.0) is Rank.KNOWN
    assert standing.rank(bytes.fromhex("20010db800020002"), 1.0) is Rank.NEW


def test_no_number_of_guessers_pushes_out_who_is_known():
    from cutthrough.policy.known import create

    known = Known(create(-1, 2, 2))
    standing = NetworkHistory(known)
    standing.succeed(HERE, 1.0)
    for n in range(256):
        for _ in range(6):
            standing.fail(bytes([10, 0, n, 1]), 1.0)
    assert known.forgotten > 200
    assert standing.rank(HERE, 1.0) is Rank.KNOWN
