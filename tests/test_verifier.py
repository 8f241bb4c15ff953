"""Hashes beside the loop: bounded, one for each credential, and not for ever (R24)."""

import asyncio
import os
import threading
import time
from base64 import b64encode

import bcrypt
import pytest

from cutthrough.control import verifier as module
from cutthrough.control.verifier import Backoff, Verifier, backoff_of
from cutthrough.policy.auth import Account, Authenticator
from cutthrough.policy.source import User

HOME, AWAY = b"\x7f\0\0\1", b"\x0a\0\0\1"


def basic(pair):
    return b"Basic " + b64encode(pair)


RIGHT, WRONG = basic(b"ann:one"), basic(b"ann:two")


@pytest.fixture(scope="module")
def user():
    # Cost 8: 13 ms, so that what is asked for meanwhile finds it under way
    return User(name="ann", hash=bcrypt.hashpw(b"one", bcrypt.gensalt(8)).decode())


@pytest.fixture
def users(user):
    return Authenticator({}, {"ann": user})


class Asker:
    """Asks a verifier and notes the answers, each by what it was asked for."""

    def __init__(self, verifier, users):
        self.verifier, self.users = verifier, users
        self.answers = []
        self.news = asyncio.Event()

    def ask(self, value, client=HOME):
        self.verifier.verify(self.users, value, client, self.note)

    def note(self, answer):
        name = answer.name if isinstance(answer, Account) else answer
        self.answers.append(name)
        self.news.set()

    async def wait(self, n):
        async with asyncio.timeout(30):
            while len(self.answers) < n:
                self.news.clear()
                await self.news.wait()
        return self.answers


@pytest.fixture
async def asker(users):
    verifier = Verifier(asyncio.get_running_loop(), 1, 4)
    yield Asker(verifier, users)
    verifier.close()
    for thread in verifier._threads:
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
    verifier = Verifier(asyncio.get_running_loop())
    asker = Asker(verifier, Authenticator({b"me": b"one"}))
    asker.ask(basic(b"me:one"))
    assert asker.answers == [b"me"] and asker.users.remembered == 1
    for n in range(5):
        asker.ask(basic(b"me:%d" % n))
    for n in range(5, 10):
        asker.ask(basic(b"nobody:%d" % n), AWAY)
    for client in (HOME, AWAY):
        asker.ask(basic(b"me:one"), client)
    assert asker.answers[1:] == ["auth_failed"] * 10 + ["auth_throttled"] * 2
    asker.ask(basic(b"me:one"), b"\x0a\0\0\2")
    assert asker.answers[-1] == b"me" and not verifier._threads


async def test_a_right_password_of_the_configuration_forgives():
    verifier = Verifier(asyncio.get_running_loop())
    asker = Asker(verifier, Authenticator({b"me": b"one"}))
    for pair in [b"me:x"] * 4 + [b"me:one"] + [b"me:x"] * 4:
        asker.ask(basic(pair))
    assert asker.answers == ["auth_failed"] * 4 + [b"me"] + ["auth_failed"] * 4


async def test_an_expired_user_is_told_so_and_is_not_a_wrong_password(user):
    over = User(name="ann", hash=user.hash, expires=time.time() - 1)
    asker = Asker(Verifier(asyncio.get_running_loop()),
                  Authenticator({}, {"ann": over}))
    asker.ask(RIGHT)
    assert await asker.wait(1) == ["auth_expired"]
    assert len(asker.verifier.backoff) == 0
    asker.verifier.close()


async def test_an_address_that_was_wrong_too_often_waits(asker):
    for i in range(5):
        asker.ask(basic(b"ann:%d" % i))
        await asker.wait(i + 1)
    asker.ask(WRONG)
    assert asker.answers == ["auth_failed"] * 5 + ["auth_throttled"]
    asker.ask(RIGHT)
    assert asker.answers[-1] == "auth_throttled", "the right one is not tried either"
    asker.ask(RIGHT, AWAY)
    assert (await asker.wait(8))[-1] == b"ann", "another address is not"
    assert asker.verifier.throttled == 2


async def test_those_let_in_before_the_first_failure_are_not_all_hashed(users):
    verifier = Verifier(asyncio.get_running_loop(), 1, 100)
    asker = Asker(verifier, users)
    for i in range(50):
        asker.ask(basic(b"ann:%d" % i))
    answers = await asker.wait(50)
    assert answers.count("auth_failed") == 5
    assert answers.count("auth_throttled") == 45
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
    verifier = Verifier(asyncio.get_running_loop(), 1, 4)
    asker = Asker(verifier, users)
    asker.ask(RIGHT)
    asker.ask(WRONG)
    verifier.close()
    for thread in verifier._threads:
        thread.join(10)
    await asyncio.sleep(0)              # what the thread had still said to the loop
    assert (asker.answers, len(verifier)) == ([], 0)
    asker.ask(RIGHT)
    assert asker.answers == ["overloaded"]


async def test_the_threads_are_nicer_than_the_loop(asker, monkeypatch):
    here = os.getpriority(os.PRIO_PROCESS, 0)
    seen = []

    def verify(self, value):
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    asker.users = type("Watched", (), {
        "tag": lambda s, v: v, "verify": verify, "compare": lambda s, v: None,
        "has_table": True})()
    asker.ask(RIGHT)
    await asker.wait(1)
    assert seen == [min(19, here + module.NICENESS)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == here


# Back-off

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
