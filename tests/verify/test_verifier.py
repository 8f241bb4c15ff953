"""Hashes beside the loop: bounded, one for each credential, and not for ever (R24)."""

import asyncio
import time
from base64 import b64encode

import bcrypt
import pytest

from cutthrough.policy.auth import Account, Authenticator
from cutthrough.policy.source import User
from cutthrough.verify.hash_pool import LOST, ThreadPool
from cutthrough.verify.verifier import Verifier

# Neither is this host, which never waits
HOME, AWAY = b"\xcb\0\x71\5", b"\x0a\0\0\1"


def basic(pair):
    return b"Basic " + b64encode(pair)


RIGHT, WRONG = basic(b"ann:one"), basic(b"ann:two")


@pytest.fixture(scope="module")
def user():
    # Cost 8: 13 ms, so that the next request finds it under way
    return User(name="ann", hash=bcrypt.hashpw(b"one", bcrypt.gensalt(8)).decode())


@pytest.fixture
def users(user):
    return Authenticator({}, {"ann": user})


class Asker:
    """Sends requests to a verifier and notes the answers."""

    def __init__(self, verifier, users):
        self.verifier, self.users = verifier, users
        self.answers, self.retries = [], []
        self.news = asyncio.Event()

    def ask(self, value, client=HOME):
        self.verifier.verify(self.users, value, client, self.note)

    def note(self, answer, retry_s):
        self.retries.append(retry_s)
        name = answer.name if isinstance(answer, Account) else answer
        self.answers.append(name)
        self.news.set()

    async def wait(self, n):
        async with asyncio.timeout(30):
            while len(self.answers) < n:
                self.news.clear()
                await self.news.wait()
        return self.answers


def make_verifier(most_waiting):
    loop = asyncio.get_running_loop()
    return Verifier(loop, ThreadPool(loop, 1), most_waiting)


@pytest.fixture
async def asker(users):
    verifier = make_verifier(4)
    yield Asker(verifier, users)
    verifier.close()
    for thread in verifier._pool._threads:
        thread.join(10)
        assert not thread.is_alive()


async def test_the_answer_is_an_account_or_a_label(asker, users):
    asker.ask(RIGHT)
    asker.ask(WRONG)
    assert not asker.answers, "never before the caller has returned"
    assert await asker.wait(2) == [b"ann", "auth_failed"]
    assert users.remembered == 1
    assert (asker.verifier.verified, asker.verifier.failed) == (1, 1)
    assert len(asker.verifier) == 0


async def test_one_credential_is_verified_once_however_many_wait(asker):
    for _ in range(20):
        asker.ask(RIGHT)
    assert await asker.wait(20) == [b"ann"] * 20
    assert (asker.verifier.verified, asker.verifier.shared) == (1, 19)


async def test_no_place_in_the_queue_is_an_overload(asker):
    for i in range(10):
        asker.ask(basic(b"u%d:x" % i), bytes([10, 0, 0, i]))
    assert asker.answers == ["overloaded"] * 6
    assert sorted(await asker.wait(10)) == ["auth_failed"] * 4 + ["overloaded"] * 6
    assert asker.verifier.overloaded == 6


async def test_those_who_wait_for_one_credential_are_bounded_too(asker):
    for _ in range(100):
        asker.ask(RIGHT)
    assert asker.answers == ["overloaded"] * (100 - 16 * 4)
    await asker.wait(100)


async def test_a_password_of_the_configuration_is_compared_at_once_and_counts_too():
    """It was compared without an end to guessing (R24)."""
    verifier = make_verifier(4)
    asker = Asker(verifier, Authenticator({b"me": b"one", b"you": b"two"}))
    asker.ask(basic(b"you:two"))
    assert asker.answers == [b"you"] and asker.users.remembered == 1
    for n in range(8):
        asker.ask(basic(b"me:%d" % n))
        asker.ask(basic(b"nobody:%d" % n), AWAY)
    # The sixth of each is held for its second; more of that are refused
    assert asker.answers[1:] == ["auth_failed"] * 10 + ["auth_throttled"] * 4
    assert asker.retries[-1] == 1 and verifier.held == 2
    asker.ask(basic(b"me:one"), b"\x0a\0\0\2")
    assert asker.answers[-1] == b"me" and not verifier._pool._threads
    verifier.close()


async def test_a_right_password_of_the_configuration_forgives():
    asker = Asker(make_verifier(4), Authenticator({b"me": b"one"}))
    for pair in [b"me:x"] * 4 + [b"me:one"] + [b"me:x"] * 4:
        asker.ask(basic(pair))
    assert asker.answers == ["auth_failed"] * 4 + [b"me"] + ["auth_failed"] * 4


async def test_a_right_password_forgives_no_guesses_at_another_name():
    """A user with an account guessed without an end: four wrong passwords for another
    user, then the right one of the account, in a spelling that is not remembered yet,
    then four more."""
    asker = Asker(make_verifier(4), Authenticator({b"me": b"one", b"you": b"two"}))
    for n in range(12):
        asker.ask(basic(b"you:%d" % n))
        if n % 4 == 3:
            asker.ask(basic(b"me:one"))
    # The sixth wrong one is held
    expected = ["auth_failed"] * 4 + [b"me", "auth_failed"] + ["auth_throttled"] * 2
    assert asker.answers == expected + [b"me"] + ["auth_throttled"] * 4 + [b"me"]
    asker.ask(basic(b"you:two"), AWAY)
    assert asker.answers[-1] == b"you", "from elsewhere"
    asker.verifier.close()


async def test_an_expired_user_is_told_so_and_is_not_a_wrong_password(user):
    over = User(name="ann", hash=user.hash, expires=time.time() - 1)
    asker = Asker(make_verifier(4), Authenticator({}, {"ann": over}))
    asker.ask(RIGHT)
    assert await asker.wait(1) == ["auth_expired"]
    assert asker.verifier.backoff.wait(HOME, b"ann", True, time.monotonic()) == 0
    asker.verifier.close()


async def test_those_let_in_before_the_first_failure_are_not_all_hashed(users):
    verifier = make_verifier(100)
    asker = Asker(verifier, users)
    for i in range(50):
        asker.ask(basic(b"ann:%d" % i))
    answers = await asker.wait(49)
    assert answers.count("auth_failed") == 5
    assert answers.count("auth_throttled") == 44 and verifier.held == 1
    verifier.close()


async def test_a_hash_that_fails_is_no_success_and_tells_no_secret(
    asker, monkeypatch, caplog
):
    from cutthrough.policy import users as hashes

    def broken(hash, secret):
        raise RuntimeError(f"cannot check {secret!r}")

    monkeypatch.setattr(hashes, "check_hash", broken)
    user = User(name="ann", hash=bcrypt.hashpw(b"one", bcrypt.gensalt(4)).decode())
    asker.users = Authenticator({}, {"ann": user})
    asker.ask(RIGHT)
    assert await asker.wait(1) == ["auth_failed"]
    assert "RuntimeError" in caplog.text and "one" not in caplog.text


async def test_nobody_is_called_after_the_end(users):
    asker = Asker(make_verifier(4), users)
    asker.ask(RIGHT)
    asker.ask(WRONG)
    asker.verifier.close()
    for thread in asker.verifier._pool._threads:
        thread.join(10)
    await asyncio.sleep(0)              # the last calls from the thread to the loop
    assert (asker.answers, len(asker.verifier)) == ([], 0)
    asker.ask(RIGHT)
    assert asker.answers == ["overloaded"]


class Hand:
    """Computes nothing; the test decides when it answers, and the answer."""

    most = 1

    def __init__(self):
        self.secrets, self.done = [], None

    def compute(self, hash, secret, done):
        assert self.done is None, "more at a time than it takes"
        self.secrets.append(secret)
        self.done = done

    def answer(self, matches, fault=""):
        done, self.done = self.done, None
        done(matches, fault)

    def close(self):
        pass


@pytest.fixture
async def by_hand(users):
    hand = Hand()
    return Asker(Verifier(asyncio.get_running_loop(), hand, 4), users), hand


def from_network(n):
    return bytes([10, 0, n, 1])


async def test_a_lost_hash_is_an_overload_and_nobodys_fault(by_hand):
    asker, hand = by_hand
    for _ in range(9):
        asker.ask(RIGHT)
        hand.answer(None, LOST)
    assert asker.answers == ["overloaded"] * 9
    asker.ask(RIGHT)
    hand.answer(True)
    assert asker.answers[-1] == b"ann"
    assert (asker.verifier.failed, asker.verifier.overloaded) == (0, 9)
    assert len(asker.verifier) == 0


async def test_of_equals_the_newest_is_next_and_in_each_fourth_turn_the_oldest(by_hand):
    """The oldest waited for as long as newer ones came."""
    asker, hand = by_hand
    asker.verifier._most_waiting = 9
    for n in range(9):
        asker.ask(basic(b"ann:%d" % n), from_network(n))
    for _ in range(9):
        hand.answer(False)
    assert hand.secrets == [b"%d" % n for n in (0, 8, 7, 1, 6, 5, 4, 2, 3)]


async def test_a_network_that_was_right_before_is_next_and_one_always_wrong_the_last(
        by_hand):
    asker, hand = by_hand
    asker.ask(RIGHT, from_network(1))
    hand.answer(True)
    for n in range(5):                  # of many addresses: no back-off
        asker.ask(basic(b"ann:%d" % n), bytes([10, 0, 2, n]))
        hand.answer(False)
    del hand.secrets[:]
    asker.ask(basic(b"ann:a"), from_network(9))
    asker.ask(basic(b"ann:b"), bytes([10, 0, 1, 77]))
    asker.ask(basic(b"ann:c"), from_network(3))
    asker.ask(basic(b"ann:d"), bytes([10, 0, 2, 77]))
    for _ in range(4):
        hand.answer(False)
    assert hand.secrets == [b"a", b"b", b"c", b"d"]


async def test_where_there_is_no_place_the_one_of_the_worst_network_gives_way(by_hand):
    asker, hand = by_hand
    for n in range(4):
        asker.ask(basic(b"ann:%d" % n), bytes([10, 0, 2, n]))
    for n in range(4, 8):
        hand.answer(False)
        asker.ask(basic(b"ann:%d" % n), bytes([10, 0, 2, n]))
    assert asker.answers == ["auth_failed"] * 4
    asker.ask(basic(b"ann:x"), bytes([10, 0, 2, 9]))
    assert asker.answers[-1] == "overloaded", "not for one as bad"
    hand.answer(False)                  # the fifth: now the network is suspect
    asker.ask(basic(b"ann:y"), bytes([10, 0, 2, 10]))
    del asker.answers[:]
    asker.ask(RIGHT, AWAY)
    assert asker.answers == ["overloaded"], "of those who waited"
    hand.answer(False)
    assert hand.secrets[-1] == b"one", "and it is next"
    hand.answer(True)
    assert asker.answers[-1] == b"ann"
    while hand.done is not None:
        hand.answer(False)
    assert len(asker.verifier) == 0
