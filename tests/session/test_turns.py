"""A turn of the loop is bounded: the rest of a connection's work waits its turn."""

import asyncio
import contextlib
import gc
import itertools

import pytest

import cutthrough
from cutthrough.net.poller import Poller
from cutthrough.session.accept import close_idle
from tests.support.client import PASSWORD, USER, Client, build_request

N = 100
# Answered here, 407, and the connection goes on: each asks to be called again
PIPELINED = build_request("GET", "http://origin.test/", auth=None) * N


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request):
    factory = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def start(main):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return start


@contextlib.asynccontextmanager
async def pipelining():
    options = {"access_log": "off", "user": USER, "password": PASSWORD}
    async with cutthrough.serve(**options) as proxy:
        with Client(proxy.port) as client:
            client.send(PIPELINED)
            yield proxy, client


async def turns(proxy):
    """How many have been answered, after each turn of the loop, until all are."""
    told = 0
    while told < N:
        await asyncio.sleep(0)
        told = proxy.worker.page.read()["outcome:auth_required"]
        yield told


def test_one_connection_does_not_keep_a_turn_to_itself(run):
    """A connection was called again within the turn, as often as it asked. A client
    that pipelined, or a source and a sink that kept up, held up all others."""

    async def main():
        async with pipelining() as (proxy, _):
            told = [0] + [n async for n in turns(proxy)]
            # Some loops take an event and the rest of the work in one go
            assert max(b - a for a, b in itertools.pairwise(told)) <= 2

    run(main)


def test_a_request_that_waits_for_its_turn_keeps_its_connection(run):
    """Only the kernel was asked whether a request waits. A request behind another one
    was here already, and was closed with the idle connections."""

    async def main():
        async with pipelining() as (proxy, client):
            async for n in turns(proxy):
                assert n == N or close_idle(proxy.worker.context) == 0
            for _ in range(N):
                assert (await asyncio.to_thread(client.read_response)).status == 407

    run(main)


def test_a_poller_that_ends_with_work_left_over_is_freed(run):
    """Its list kept the connections, and these kept it: no collector looks there."""

    async def main():
        async with pipelining() as (proxy, _):
            async for n in turns(proxy):
                if n:
                    break

    def pollers():
        gc.collect()
        return sum(isinstance(one, Poller) for one in gc.get_objects())

    before = pollers()
    run(main)
    assert pollers() == before
