"""Connections of HTTP/2 to origins while the program changes: reloads that replace the
workers, upgrades, a drain, and a worker that is killed, with requests under way."""

import contextlib
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.support.handovers import pids, renew, upgrade
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import ALL, ask, config, enter, send
from tests.support.proxy import Proxy
from tests.support.scripted_http2 import ON, say, speak
from tests.support.stream import Closed
from tests.support.successors import end, end_all
from tests.support.wait import wait_until

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

SERVES = re.compile(r"pid (\d+) serves; this program drains")


class Slow:
    """Answers `/slow` half, and the rest when it is let go; other paths at once."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Semaphore(0), threading.Event()

    def __call__(self, speaker: Speaker, stream: int) -> None:
        if dict(speaker.questions[stream].fields)[":path"] != "/slow":
            say(speaker, stream)
            return
        speaker.h2.send_headers(stream, [(":status", "200"), ("content-length", "8")])
        speaker.h2.send_data(stream, b"half")
        speaker.flush()
        self.begun.release()
        assert self.go.wait(30)
        speaker.h2.send_data(stream, b"rest", end_stream=True)


@pytest.fixture
def start(start_policy):
    return lambda more=ON: start_policy(ALL, config(more))


@pytest.fixture
def slow():
    return Slow()


def refuses(proxy: Proxy) -> bool:
    try:
        socket.create_connection(("127.0.0.1", proxy.port), 5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_drain_lets_a_stream_finish(start, make_origin, dial, slow):
    proxy, origin = start(), make_origin(speak(slow))
    client = enter(proxy, dial(proxy), origin.port)
    send(client, "GET", "/slow")
    assert slow.begun.acquire(timeout=10)
    proxy.process.send_signal(signal.SIGTERM)
    wait_until(lambda: refuses(proxy), "no connection is accepted")
    slow.go.set()
    assert client.read_response().body == b"halfrest"
    assert proxy.process.wait(20) == 0
    assert {one["reason"] for one in proxy.log()} == {"ok"}


def test_a_killed_worker_takes_only_its_own(start, make_origin, dial, slow):
    """A response that is cut does not look whole."""
    proxy, origin = start(f"{ON}workers = 2\n"), make_origin(speak(slow))
    client = enter(proxy, dial(proxy), origin.port)
    send(client, "GET", "/slow")
    assert slow.begun.acquire(timeout=10)
    before = pids(proxy)
    (busy,) = [one for one in proxy.workers() if any(
        link.raddr and link.raddr.port == origin.port
        for link in one.net_connections("tcp") if link.status == "ESTABLISHED")]
    busy.kill()
    slow.go.set()
    with contextlib.suppress(Closed, OSError):
        assert len(client.read_response().body) < 8
    wait_until(lambda: len(pids(proxy) - before) == 1, proxy.stderr)
    for _ in range(8):
        assert ask(enter(proxy, dial(proxy), origin.port), "GET", "/a").body == b"/a"


class Clients:
    """Eight clients, over as many connections as it takes, until `end`. Each request
    must be answered."""

    def __init__(self, proxy: Proxy, port: int) -> None:
        self._proxy, self._port = proxy, port
        self._over = threading.Event()
        self.done = [0] * 8
        self._pool = ThreadPoolExecutor(8)
        self._works = [self._pool.submit(self._work, number) for number in range(8)]

    def _work(self, number: int) -> None:
        while not self._over.is_set():
            client = self._proxy.client()
            try:
                enter(self._proxy, client, self._port)
                # At most 50 a second: new workers need the CPU that more would take
                while not self._over.wait(0.02):
                    path = f"/{number}/{self.done[number]}"
                    got = ask(client, "POST", path, "Content-Length: 3", body=b"abc")
                    assert (got.status, got.body) == (200, path.encode())
                    self.done[number] += 1
                    if (got.get("Connection") or "").lower() == "close":
                        break
            finally:
                client.close()

    def go_on(self) -> None:
        """Until each has been answered ten times more."""
        before = self.done[:]
        wait_until(lambda: any(one.done() for one in self._works) or all(
            now > then + 10 for now, then in zip(self.done, before, strict=True)),
            lambda: f"{before} {self.done}")

    def end(self) -> int:
        """How many requests there were."""
        self._over.set()
        self._pool.shutdown()
        for one in self._works:
            one.result(30)
        return sum(self.done)


@pytest.fixture
def busy(directory, loop_name, opened, make_origin):
    """A proxy of two workers, its configuration, and its clients."""
    folder = directory("renewed")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.toml").write_text(ALL)
    text = f'policy = "{folder / "policy.toml"}"\nworkers = 2\n{config(ON)}'
    proxy = opened.enter_context(Proxy(folder, loop=loop_name, config=text))
    return proxy, text, Clients(proxy, make_origin(speak(say)).port)


def test_reloads_lose_no_request(busy):
    """Eight clients, two workers, four reloads that replace both of them."""
    proxy, text, clients = busy
    try:
        for number in range(4):
            clients.go_on()
            renew(proxy, number + 1, text)
    finally:
        done = clients.end()
    assert {one["reason"] for one in proxy.wait_log(done)} == {"ok"}
    wait_until(lambda: sum(proxy.census()[one.pid]["socket"] for one in proxy.workers())
               < 40, lambda: str(proxy.census()))


def test_upgrades_lose_no_request(busy, opened):
    """Eight clients, and the program makes room for another one, twice."""
    proxy, _, clients = busy
    try:
        clients.go_on()
        second = upgrade(proxy, opened)
        clients.go_on()
        second.send_signal(signal.SIGUSR2)
        wait_until(lambda: len(set(SERVES.findall(proxy.stderr()))) == 2, proxy.stderr)
        third = psutil.Process(int(SERVES.findall(proxy.stderr())[-1]))
        opened.callback(end_all, third)
        wait_until(lambda: not second.is_running()
                   or second.status() == psutil.STATUS_ZOMBIE, proxy.stderr)
        clients.go_on()
    finally:
        done = clients.end()
    assert {one["reason"] for one in proxy.wait_log(done)} == {"ok"}
    end(third)
