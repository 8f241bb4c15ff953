"""How long a guesser waits, and what is known of the network it comes from (R24)."""

from cutthrough.control import backoff as module
from cutthrough.control.backoff import Backoff, Rank, Standing, backoff_of

HOME, AWAY = b"\x7f\0\0\1", b"\x0a\0\0\1"


def test_the_back_off_doubles_to_a_minute():
    assert [backoff_of(n) for n in range(13)] == [
        0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff_of(10_000) == 60


def test_an_address_is_closed_from_its_fifth_failure_for_as_long_as_that_says():
    backoff = Backoff()
    for n in range(5):
        assert not backoff.is_closed(HOME, 100.0)
        backoff.fail(HOME, 100.0 + n)
    assert backoff.is_closed(HOME, 104.9) and not backoff.is_closed(HOME, 105.1)
    assert not backoff.is_closed(AWAY, 104.9)
    backoff.fail(HOME, 106.0)
    assert backoff.is_closed(HOME, 107.9) and not backoff.is_closed(HOME, 108.1)


def test_a_success_and_time_both_forgive():
    backoff = Backoff()
    for _ in range(6):
        backoff.fail(HOME, 0.0)
    backoff.succeed(HOME)
    assert not backoff.is_closed(HOME, 0.0) and len(backoff) == 0
    for _ in range(6):
        backoff.fail(HOME, 0.0)
    backoff.fail(HOME, module.FORGET_AFTER + 1)
    assert not backoff.is_closed(HOME, module.FORGET_AFTER + 1)


def test_the_table_of_addresses_is_bounded():
    backoff = Backoff(most=3)
    for i in range(5):
        backoff.fail(bytes([i]), 0.0)
        backoff.fail(bytes([0]), 0.0)
    assert (len(backoff), backoff.forgotten) == (3, 2)
    assert backoff.is_closed(bytes([0]), 0.5), "who fails on is not the one forgotten"


# Standing

def test_a_network_is_new_until_it_was_right_and_suspect_when_only_wrong():
    standing = Standing()
    assert standing.rank(HOME, 0.0) is Rank.NEW
    for n in range(5):
        assert standing.rank(HOME, 0.0) is Rank.NEW
        standing.fail(b"\x7f\0\0" + bytes([n]), 0.0)
    assert standing.rank(HOME, 0.0) is Rank.SUSPECT
    assert standing.rank(AWAY, 0.0) is Rank.NEW
    standing.succeed(HOME)
    assert standing.rank(b"\x7f\0\0\x63", 0.0) is Rank.KNOWN


def test_who_was_right_before_and_is_wrong_now_is_suspect_until_forgotten():
    standing = Standing()
    standing.succeed(HOME)
    for _ in range(5):
        standing.fail(HOME, 0.0)
    assert standing.rank(HOME, 1.0) is Rank.SUSPECT
    assert standing.rank(HOME, module.FORGET_AFTER + 1) is Rank.KNOWN


def test_a_network_of_ipv6_is_a_site():
    standing = Standing()
    standing.succeed(bytes.fromhex("20010db800010002"))
    assert standing.rank(bytes.fromhex("20010db80001ffff"), 0.0) is Rank.KNOWN
    assert standing.rank(bytes.fromhex("20010db800020002"), 0.0) is Rank.NEW


def test_no_number_of_guessers_pushes_out_who_is_known():
    standing = Standing(most=3)
    standing.succeed(HOME)
    for n in range(50):
        for _ in range(6):
            standing.fail(bytes([10, 0, n, 1]), 0.0)
    assert standing.rank(HOME, 0.0) is Rank.KNOWN
    for n in range(3):
        standing.succeed(bytes([10, 1, n, 1]))
    assert standing.rank(HOME, 0.0) is Rank.NEW, "bounded too"
