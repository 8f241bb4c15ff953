"""The operator's function beside the loop: bounded, and nobody's fault if it fails."""

import asyncio
from base64 import b64encode

import pytest

from cutthrough.policy.auth import Account, AuthenticatorByFunction
from cutthrough.verify.call_pool import MOST_CALLS, CallPool
from cutthrough.verify.hash_pool import ThreadPool
from cutthrough.verify.verifier import Verifier
from tests.support.tasks import cancel_others

CLIENT = b"\xcb\0\x71\5"


class Function:
    """Waits until it is let go, and notes how many calls are under way."""

    def __init__(self, answer=True):
        self.answer, self.open, self.most, self.names = answer, 0, 0, []
        self.go, self.news = asyncio.Event(), asyncio.Event()

    async def __call__(self, name, password):
        self.names.append(name)
        self.count(1)
        try:
            await self.go.wait()
        finally:
            self.count(-1)
        return self.answer

    def count(self, change):
        self.open += change
        self.most = max(self.most, self.open)
        self.news.set()

    async def reach(self, n):
        async with asyncio.timeout(20):
            while self.open != n:
                self.news.clear()
                await self.news.wait()


def basic(pair):
    return b"Basic " + b64encode(pair)


@pytest.fixture
async def verifier():
    loop = asyncio.get_running_loop()
    verifier = Verifier(loop, ThreadPool(loop, 1), 200)
    yield verifier
    verifier.close()


def ask(verifier, users, pair, client=CLIENT):
    answer = asyncio.get_running_loop().create_future()
    verifier.verify(users, basic(pair), client, lambda *words: answer.set_result(words))
    return answer


async def gathered(answers):
    found = await asyncio.wait_for(asyncio.gather(*answers), 20)
    return [(one.name if isinstance(one, Account) else one) for one, _ in found]


async def test_so_many_calls_at_a_time_and_the_others_wait(verifier):
    function = Function()
    users = AuthenticatorByFunction(function, b"1", {})
    names = [b"u%d" % n for n in range(MOST_CALLS + 9)]
    answers = [ask(verifier, users, name + b":x") for name in names]
    answers += [ask(verifier, users, b"u0:x") for _ in range(3)]
    await function.reach(MOST_CALLS)
    function.go.set()
    assert await gathered(answers) == [*names, b"u0", b"u0", b"u0"]
    assert function.most == MOST_CALLS
    assert len(function.names) == len(names), "one for each credential"
    assert len(verifier) == 0


async def test_no_answer_is_no_wrong_password(verifier, caplog):
    async def fails(name, password):
        raise ValueError(password)

    users = AuthenticatorByFunction(fails, b"1", {})
    for _ in range(9):
        answers = [ask(verifier, users, b"ann:secret")]
        assert await gathered(answers) == ["policy_unavailable"]
    assert (verifier.failed, verifier.throttled) == (0, 0)
    assert len(caplog.records) == 4, "the 1st, 2nd, 4th and 8th"
    assert "secret" not in caplog.text


class NoException(BaseException):
    pass


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit, NoException])
async def test_what_is_no_exception_gives_its_place_back(verifier, raised):
    """A library cancels a task of its own, and awaits it: nobody could log in later."""
    async def verify(name, password):
        if password == "wrong":
            raise raised
        return True

    users = AuthenticatorByFunction(verify, b"1", {})
    answers = [ask(verifier, users, b"u%d:wrong" % n) for n in range(MOST_CALLS + 1)]
    assert set(await gathered(answers)) == {"policy_unavailable"}
    assert await gathered([ask(verifier, users, b"ann:x")]) == [b"ann"]
    assert len(verifier) == 0


async def test_a_call_that_is_cancelled_before_it_begins_is_answered(verifier):
    """By code of the operator's, which cancels all tasks: the client waited, and its
    place was lost."""
    async def verify(name, password):
        return True

    users = AuthenticatorByFunction(verify, b"1", {})
    for _ in range(MOST_CALLS + 1):
        answer = ask(verifier, users, b"ann:x")
        cancel_others()
        assert len(await gathered([answer])) == 1
    assert await gathered([ask(verifier, users, b"ann:x")]) == [b"ann"]
    assert len(verifier) == 0


async def test_wrong_credentials_are_verified_again_after_a_while():
    """A directory may have a new user at any time, and no record that has changed."""
    now, right = [1000.0], []
    loop = asyncio.get_running_loop()
    verifier = Verifier(loop, ThreadPool(loop, 1), clock=lambda: now[0])

    async def verify(name, password):
        return name in right

    users = AuthenticatorByFunction(verify, b"1", {})
    assert await gathered([ask(verifier, users, b"ann:x")]) == ["auth_failed"]
    right.append("ann")
    assert await gathered([ask(verifier, users, b"ann:x")]) == ["auth_failed"]
    now[0] += 11
    assert await gathered([ask(verifier, users, b"ann:x")]) == [b"ann"]
    verifier.close()


async def test_after_the_close_no_answer_comes():
    function, answers = Function(), []
    pool = CallPool(asyncio.get_running_loop())
    pool.call(function, "ann", b"x", answers.append)
    await function.reach(1)
    pool.close()
    await function.reach(0)
    assert answers == []


async def test_a_call_has_a_time(caplog):
    pool, loop = CallPool(asyncio.get_running_loop(), 0.001), asyncio.get_running_loop()
    answer = loop.create_future()
    pool.call(Function(), "ann", b"x", answer.set_result)
    assert await asyncio.wait_for(answer, 20) is None
    assert "no answer in time" in caplog.text
