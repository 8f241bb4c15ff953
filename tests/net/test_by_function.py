"""The function before the name servers: calls are shared, bounded, cancelled (R31)."""

import asyncio
import itertools

import pytest

from cutthrough.net.address import Addresses
from cutthrough.net.dns.answer import ERROR, TIMEOUT
from cutthrough.net.dns.by_function import FunctionResolver
from cutthrough.net.dns.resolver import Servers
from cutthrough.net.shares import ALL_TAKEN, SHARE_TAKEN
from tests.support.tasks import cancel_others

HERE = "127.0.0.1"


class Asked:
    """A function that waits until it is let go."""

    def __init__(self, answer=(HERE,)):
        self.answer, self.calls, self.cancelled = answer, [], 0
        self.go, self.began, self.ended = (asyncio.Event() for _ in range(3))

    async def __call__(self, host, port, user):
        self.calls.append((host, port, user))
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.ended.set()
        return self.answer


def make(function, timeout=20.0, **more):
    return FunctionResolver(function, asyncio.get_running_loop(),
                            Servers(timeout=timeout),
                            overrides=[("fixed.test", HERE)], **more)


def ask(resolver, host=b"a.test", port=80, user=b"ann", token=None):
    answer = asyncio.get_running_loop().create_future()
    resolver.resolve(host, answer.set_result, user or b"", token, port, user)
    return answer


async def test_requests_of_one_user_for_one_host_and_port_share_a_call():
    function = Asked()
    resolver = make(function)
    answers = [ask(resolver), ask(resolver), ask(resolver, port=81),
               ask(resolver, user=b"bob"), ask(resolver, user=None)]
    await asyncio.sleep(0)
    function.go.set()
    for answer in await asyncio.wait_for(asyncio.gather(*answers), 20):
        assert answer.texts() == [HERE]
    assert sorted(function.calls) == [
        ("a.test", 80, ""), ("a.test", 80, "ann"), ("a.test", 80, "bob"),
        ("a.test", 81, "ann")]
    await asyncio.wait_for(ask(resolver), 20)
    assert len(function.calls) == 5, "nothing was kept"
    assert resolver.stats()["open"] == 0
    await resolver.close()


async def test_a_call_that_is_cancelled_before_it_begins_is_answered():
    """By code of the operator's, which cancels all tasks: nobody could reach the host
    any more."""
    function = Asked()
    function.go.set()
    resolver = make(function)
    answer = ask(resolver)
    cancel_others()
    await asyncio.wait_for(answer, 20)
    assert (await asyncio.wait_for(ask(resolver), 20)).texts() == [HERE]
    ask(resolver, token=1)
    resolver.abandon(1)                      # which is not called
    await resolver.close()
    assert len(function.calls) == 2 and resolver.stats()["open"] == 0


async def test_a_call_ends_with_its_last_request():
    function = Asked()
    resolver = make(function)
    ask(resolver, token=1)
    ask(resolver, token=2)
    await asyncio.wait_for(function.began.wait(), 20)
    resolver.abandon(1)
    assert resolver.stats()["dropped"] == 0
    resolver.abandon(2)
    resolver.abandon(2)
    await asyncio.wait_for(function.ended.wait(), 20)
    assert (function.cancelled, resolver.stats()["dropped"]) == (1, 1)
    await resolver.close()


async def test_calls_are_bounded_and_shared_out():
    function = Asked()
    resolver = make(function, most_calls=4)
    waiting = [ask(resolver, b"%d.test" % n) for n in range(2)]
    assert await asyncio.wait_for(ask(resolver, b"c.test"), 20) == SHARE_TAKEN
    waiting += [ask(resolver, user=user) for user in (b"bob", b"eve")]
    assert await asyncio.wait_for(ask(resolver, user=b"joe"), 20) == ALL_TAKEN
    assert resolver.stats()["refused"] == 2
    function.go.set()
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    await resolver.close()


async def test_of_addresses_without_end_the_first_are_taken():
    """A generator that never ends kept the worker, and took its memory."""
    resolver = make(lambda host, port, user: (
        f"127.0.{n >> 8 & 255}.{n & 255}" for n in itertools.count()))
    answer = await asyncio.wait_for(ask(resolver), 20)
    assert answer.texts() == [f"127.0.0.{n}" for n in range(16)]
    await resolver.close()


async def test_names_without_a_port_are_not_the_functions():
    """Those of parents."""
    function = Asked()
    resolver = make(function)
    answer = await asyncio.wait_for(ask(resolver, b"fixed.test", port=0), 20)
    assert answer.texts() == [HERE] and not function.calls
    await resolver.close()


async def exits(host, port, user):
    raise SystemExit(3)


async def cancels_itself(host, port, user):
    raise asyncio.CancelledError


async def raises(host, port, user):
    raise KeyError(host)


async def hangs(host, port, user):
    await asyncio.Event().wait()


@pytest.mark.parametrize(("function", "label"), [
    (exits, ERROR), (cancels_itself, ERROR), (raises, ERROR), (hangs, TIMEOUT)])
async def test_a_failure_is_an_answer_and_no_flood_of_the_log(caplog, function, label):
    resolver = make(function, timeout=0.001)
    for _ in range(5):
        assert await asyncio.wait_for(ask(resolver), 20) == label
    assert len(caplog.records) == 3, "the 1st, 2nd and 4th"
    assert resolver.stats()[label] == 5
    await resolver.close()


async def test_none_is_the_cache_and_then_the_servers():
    resolver = make(lambda host, port, user: None)
    answer = await asyncio.wait_for(ask(resolver, b"fixed.test"), 20)
    assert isinstance(answer, Addresses) and answer.texts() == [HERE]
    assert resolver.cached(b"fixed.test") is None
    await resolver.close()


async def test_closing_ends_the_calls_under_way():
    function = Asked()
    resolver = make(function)
    answer = ask(resolver)
    await asyncio.wait_for(function.began.wait(), 20)
    await resolver.close()
    assert function.cancelled == 1 and not answer.done()
    assert resolver.stats()["open"] == 0
