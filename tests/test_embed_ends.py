"""Embedded proxies without a loop of the caller's, and how each begins and ends."""

import asyncio
import errno
import gc
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
import uvloop

import cutthrough
from cutthrough.config.config import Config
from cutthrough.generation.generation import Generation
from cutthrough.net.acceptor import Acceptor
from cutthrough.policy.source import Policy
from cutthrough.worker import worker as worker_module
from tests.support.proxy import ROOT


def closure(closed: str):
    async def inner(request: cutthrough.Request) -> cutthrough.Decision:
        return cutthrough.Decision(request.host != closed)
    return inner


def refused(proxy, host: str) -> str:
    """The reason for which a request is refused."""
    handler = urllib.request.ProxyHandler({"http": proxy.url})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.build_opener(handler).open(f"http://{host}/", timeout=20)
    raised.value.close()
    return raised.value.headers["Proxy-Status"]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_two_proxies_run_beside_a_program_that_blocks():
    with cutthrough.serve(policy_hook=closure("a.test")) as first:
        with cutthrough.serve(policy_hook=closure("b.test")) as second:
            assert "destination_denied" in refused(first, "a.test")
            assert "destination_denied" in refused(second, "b.test")
            assert threads().count("cutthrough") == 1
        assert "destination_denied" in refused(first, "a.test")
    assert "cutthrough" not in threads()
    with cutthrough.serve(policy_hook=closure("a.test")) as again:
        assert "destination_denied" in refused(again, "a.test")


async def test_a_proxy_of_with_may_be_left_in_a_running_loop():
    """As in a cell of a notebook: leaving it was a RuntimeError, and its loop was not
    closed."""
    with cutthrough.serve(policy_hook=closure("a.test")) as proxy:
        assert "destination_denied" in await asyncio.to_thread(refused, proxy, "a.test")
    assert "cutthrough" not in threads()
    async with cutthrough.serve():
        with pytest.raises(RuntimeError, match="another thread"):
            cutthrough.serve().__enter__()
    assert "cutthrough" not in threads()


def test_a_mistake_is_raised_where_the_proxy_is_entered(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        cutthrough.serve(policy=tmp_path / "missing.toml").__enter__()
    assert "cutthrough" not in threads()


async def test_a_proxy_of_with_is_not_beside_one_of_another_thread():
    async with cutthrough.serve():
        with pytest.raises(RuntimeError, match="another thread"):
            await asyncio.to_thread(cutthrough.serve().__enter__)
    assert "cutthrough" not in threads()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_start_that_fails_leaves_no_listener_and_no_handle(monkeypatch, factory):
    """The listeners that were ready went on serving, and uvloop could not be closed."""
    ports: list[int] = []

    def make(poller, sock, sink):
        if ports:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        ports.append(sock.getsockname()[1])
        return Acceptor(poller, sock, sink)

    async def fail() -> None:
        with pytest.raises(OSError, match="Too many open files"):
            async with cutthrough.serve(user="u", password="p",
                                        listen=["127.0.0.1:0", "127.0.0.1:0"]):
                pass
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", ports[0])

    monkeypatch.setattr(worker_module, "Acceptor", make)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(fail())


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("options", [
    {"policy_hook": "no_such_module:decide"}, {"access_log": "/no/such/directory"}])
def test_a_worker_that_cannot_be_made_leaves_no_descriptor(options):
    """Each left an epoll set."""
    def fail() -> None:
        with pytest.raises((ValueError, OSError)), cutthrough.serve(**options):
            pass
    fail()
    before = open_files()
    for _ in range(3):
        fail()
    assert open_files() == before


async def test_a_proxy_is_entered_again_but_not_twice_at_once():
    """A second time was OSError, Bad file descriptor."""
    proxy = cutthrough.serve(policy_hook=closure("a.test"))
    for _ in range(2):
        async with proxy:
            assert "denied" in await asyncio.to_thread(refused, proxy, "a.test")
            with pytest.raises(RuntimeError, match="runs already"):
                await proxy.__aenter__()
    await proxy.__aenter__()
    await asyncio.gather(*(proxy.__aexit__(None, None, None) for _ in range(2)))
    assert cutthrough.embed._running == 0, "left twice at once, counted once"


FORK = """
import os
import sys
import cutthrough

def end_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

with cutthrough.serve() as proxy:
    child = os.fork()
    if child == 0:
        try:
            cutthrough.serve().__enter__()
        except RuntimeError as error:
            sys.exit("is a fork" not in str(error))     # it leaves the block, too
        sys.exit(2)
    status = end_of(child)
    proxy.change(head_timeout="2s")                     # it runs on
child = os.fork()
if child == 0:
    with cutthrough.serve():
        sys.exit(status)
sys.exit(end_of(child))
"""


def test_a_fork_of_a_program_with_a_proxy_can_leave_it_and_run_none():
    """Both waited for a thread that the fork has not."""
    done = subprocess.run([sys.executable, "-c", FORK], cwd=ROOT, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_worker_that_has_not_begun_can_be_stopped(factory):
    """A reload that is refused ends its new workers so: each left a traceback."""
    async def stop() -> None:
        generation = Generation(1, Config(user="u", password="p"), Policy())
        worker = worker_module.Worker(generation, slot=0, listeners=[])
        worker.open()
        assert worker.stop() == 0
        assert worker.stop() == 0

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(stop())


def test_a_proxy_that_is_left_twice_leaves_the_others_alone():
    """The loop of the others was stopped under them."""
    proxy = cutthrough.serve()
    with proxy:
        pass
    with cutthrough.serve(policy_hook=closure("a.test")) as other:
        proxy.__exit__(None, None, None)
        with pytest.raises(RuntimeError, match="only inside"):
            proxy.change(head_timeout="1s")
        assert "destination_denied" in refused(other, "a.test")


def test_a_proxy_of_with_is_drained_from_any_loop():
    """The loop that awaited it worked in the other one's data path."""
    with cutthrough.serve() as proxy:
        drained_by = []
        proxy.worker.at_end.append(lambda: drained_by.append(
            threading.current_thread().name))
        assert asyncio.run(proxy.drain(1)) == 0
        assert drained_by == ["cutthrough"]


@pytest.mark.parametrize("kind", ["exit", "stop", "thread", "task"])
def test_a_with_ends_whatever_a_function_has_begun(kind):
    """It hung: a task's sys.exit ended the thread in which the proxy is left, and a
    thread of asyncio.to_thread was waited for. After a stop no proxy started again."""
    released, tasks = threading.Event(), []

    async def go_on():
        while not released.is_set():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.1)    # longer than a turn, or it would spin

    async def leave():
        sys.exit(3)

    async def decide(request: cutthrough.Request) -> cutthrough.Decision:
        loop = asyncio.get_running_loop()
        if kind in ("exit", "task"):
            tasks.append(loop.create_task(leave() if kind == "exit" else go_on()))
        elif kind == "stop":
            loop.stop()
        else:
            loop.run_in_executor(None, released.wait)
        return cutthrough.Decision(False)

    try:
        with cutthrough.serve(policy_hook=decide) as proxy:
            assert "destination_denied" in refused(proxy, "a.test")
        assert "cutthrough" not in threads()
    finally:
        released.set()
        tasks.clear()
        gc.collect()                         # asyncio reports what is left of them here
    with cutthrough.serve(policy_hook=closure("a.test")) as again:
        assert "destination_denied" in refused(again, "a.test")
