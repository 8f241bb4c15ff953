"""uvloop sleeps in the worker's own epoll set: what the loop itself waits for still
comes, in time, whether requests come or not."""

import asyncio
import signal
import time

import pytest

import cutthrough
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.origin import echo
from tests.support.policies import LOCAL
from tests.support.wait import wait_until

#: Each way in which a hook waits: the loop's timer, a descriptor that the hook itself
#: opened within a batch of the set, a thread, a child's end
WAITS = """
    import asyncio, cutthrough

    async def decide(request):
        way = request.method
        loop = asyncio.get_running_loop()
        began = loop.time()
        if way == "TIMER":
            await asyncio.sleep(0.3)
            print(loop.time() - began, flush=True)
        elif way == "DESCRIPTOR":
            server = await asyncio.start_server(
                lambda r, w: w.write(b"x") or w.close(), "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.read()
            writer.close()
            server.close()
        elif way == "THREAD":
            await asyncio.to_thread(sum, range(100000))
        elif way == "CHILD":
            child = await asyncio.create_subprocess_exec("/bin/true")
            await child.wait()
        return cutthrough.Decision(True)
"""


@pytest.mark.parametrize("way", ["TIMER", "DESCRIPTOR", "THREAD", "CHILD"])
@pytest.mark.parametrize("busy", [False, True], ids=["alone", "beside tunnels"])
def test_what_a_hook_waits_for_comes(start_policy, make_origin, dial, way, busy):
    proxy, origin = start_policy(LOCAL, hook=WAITS), make_origin()
    pings = [dial(proxy).tunnel(make_origin(echo).authority)] if busy else []
    client = dial(proxy)
    for _ in range(3):
        client.send(build_request(way, origin.url()))
        for ping in pings:
            ping.send(b"ping")
            assert ping.read_exact(4) == b"ping"
        assert client.read_response().status == 200


def test_a_timer_that_a_batch_sets_after_a_long_sleep_is_not_early(
        start_policy, make_origin, dial):
    """The loop's clock stands still while the loop sleeps."""
    proxy, origin = start_policy(LOCAL, hook=WAITS), make_origin()
    client = dial(proxy)
    for _ in range(3):
        time.sleep(0.35)                     # longer than the timer: the worker sleeps
        assert client.ask("TIMER", origin.url()).status == 200
    lines = (proxy.log_path.parent / "stdout").read_text().splitlines()
    assert len(lines) == 3 and min(map(float, lines)) >= 0.29


def test_no_sleep_is_short_of_a_part_of_a_millisecond():
    """The loop's clock has whole ones: two of three sleeps of 5 ms took 4.1 to 4.99."""
    uvloop = pytest.importorskip("uvloop", reason="extra: only uvloop has libuv inside")
    options = {"access_log": "off", "user": USER, "password": PASSWORD}

    async def shortest():
        async with cutthrough.serve(**options) as proxy:
            assert proxy.worker.poller.holds_loop
            slept = []
            for _ in range(50):
                while time.monotonic() % 0.001 < 0.0008:
                    pass
                began = time.monotonic()
                await asyncio.sleep(0.005)
                slept.append(time.monotonic() - began)
            return min(slept)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(shortest()) >= 0.005


def test_a_worker_that_was_stopped_goes_on(start_proxy, make_origin, dial):
    """SIGCONT ends epoll_wait with EINTR, and nothing else is ready."""
    proxy, origin = start_proxy(), make_origin()
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    proxy.worker.send_signal(signal.SIGSTOP)
    wait_until(lambda: proxy.worker.status() == "stopped", "stopped")
    proxy.worker.send_signal(signal.SIGCONT)
    assert client.get(origin.url()).status == 200


def test_a_worker_at_rest_uses_no_time(start_proxy, make_origin, dial):
    """A loop that does not sleep where it should turns for ever."""
    proxy, origin = start_proxy(), make_origin()
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    workers = proxy.workers()
    before = [sum(worker.cpu_times()[:2]) for worker in workers]
    time.sleep(1)                            # in which nothing comes
    used = [sum(worker.cpu_times()[:2]) - seconds
            for worker, seconds in zip(workers, before, strict=True)]
    assert max(used) < 0.2


def test_one_set_holds_a_loop_and_another_is_watched():
    """Of two proxies of one program: both serve, and the first end frees the loop."""
    uvloop = pytest.importorskip("uvloop", reason="extra: only uvloop has libuv inside")
    options = {"access_log": "off", "user": USER, "password": PASSWORD}

    async def main():
        async with cutthrough.serve(**options) as first:
            async with cutthrough.serve(**options) as second:
                assert first.worker.poller.holds_loop
                assert not second.worker.poller.holds_loop
                for proxy in (first, second):
                    with Client(proxy.port) as client:
                        reply = await asyncio.to_thread(
                            client.ask, "GET", "http://origin.test/", auth=None)
                        assert reply.status == 407
        async with cutthrough.serve(**options) as third:
            assert third.worker.poller.holds_loop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
