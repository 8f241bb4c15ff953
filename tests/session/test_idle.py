"""Which side closes an idle connection, and when: never with a request unread."""

import asyncio
import contextlib
import gc

import pytest

import cutthrough
from cutthrough.config.settings import from_options
from cutthrough.generation.generation import Generation
from cutthrough.session.accept import close_idle
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.origin import Origin


@pytest.fixture
async def proxy():
    options = {"access_log": "off", "user": USER, "password": PASSWORD}
    async with cutthrough.serve(**options) as running:
        yield running


@pytest.fixture
def origin():
    with Origin() as running:
        yield running


def served_one(proxy, origin: Origin) -> Client:
    client = Client(proxy.port)
    assert client.get(origin.url()).status == 200
    return client


async def test_a_request_that_nobody_has_read_yet_is_answered(proxy, origin):
    """A loop that was late closed it, and the kernel made a reset of that."""
    context = proxy.worker.context
    client = await asyncio.to_thread(served_one, proxy, origin)
    with contextlib.closing(client):
        # The loop does not run between this and the close
        client.send(build_request("GET", origin.url()))
        context.start_draining()
        assert close_idle(context) == 0
        reply = await asyncio.to_thread(client.read_response, "GET")
        assert (reply.status, reply.get("Connection")) == (200, "close")
        assert await asyncio.to_thread(client.at_eof)


async def test_one_that_waits_is_closed_when_its_time_of_grace_is_over(proxy, origin):
    context = proxy.worker.context
    client = await asyncio.to_thread(served_one, proxy, origin)
    with contextlib.closing(client):
        assert close_idle(context, 60) == 0
        assert close_idle(context) == 1
        assert await asyncio.to_thread(client.at_eof)


async def test_a_new_deadline_does_not_end_the_grace(proxy, origin):
    """Its idle time was computed from its deadline and the option's length: if a reload
    had made the option longer meanwhile, that counted as time gone by."""
    worker = proxy.worker
    client = await asyncio.to_thread(served_one, proxy, origin)
    with contextlib.closing(client):
        longer = from_options(worker.config, keepalive_timeout="1h")
        worker.swap(Generation(2, longer, worker.generation.policy))
        assert close_idle(worker.context, 60) == 0


async def test_an_origin_of_which_nothing_is_kept_costs_nothing():
    """R31: with 0 connections kept for each origin its name was kept, and of all."""
    def shelves():
        return sum(type(one).__name__ == "Shelf" for one in gc.get_objects())

    options = {"access_log": "off", "user": USER, "password": PASSWORD}
    gc.collect()                            # those of other tests
    before = shelves()
    async with cutthrough.serve(**options, upstream_idle_per_origin=0) as proxy:
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(contextlib.closing(Client(proxy.port)))
            for _ in range(3):
                url = stack.enter_context(Origin()).url()
                assert (await asyncio.to_thread(client.get, url)).status == 200
            assert shelves() == before
