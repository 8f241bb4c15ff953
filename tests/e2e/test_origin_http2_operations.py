"""Connections of HTTP/2 to origins while the program changes: reloads that replace the
workers, a drain, and a worker that is killed, with requests under way."""

import contextlib
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.test_handover import pids, renew
from tests.e2e.test_origin_http2 import ON, say, speak, start  # noqa: F401 - a fixture
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import ALL, ask, config, enter, send
from tests.support.proxy import Proxy
from tests.support.stream import Closed
from tests.support.wait import wait_until

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop


class Slow:
    """Answers `/slow` half, and the rest when it is let go; what else at once."""

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
def slow():
    return Slow()


def refuses(proxy: Proxy) -> bool:
    try:
        socket.create_connection(("127.0.0.1", proxy.port), 5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_drain_lets_a_stream_finish(start, make_origin, dial, slow):  # noqa: F811
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


def test_a_killed_worker_takes_only_its_own(start, make_origin, dial, slow):  # noqa: F811
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


def test_reloads_lose_no_request(directory, loop_name, opened, make_origin):
    """Eight clients, two workers, four reloads that replace both of them."""
    folder = directory("renewed")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.toml").write_text(ALL)
    text = f'policy = "{folder / "policy.toml"}"\nworkers = 2\n{config(ON)}'
    proxy = opened.enter_context(Proxy(folder, loop=loop_name, config=text))
    origin, over = make_origin(speak(say)), threading.Event()

    def work(number: int) -> int:
        """How many requests: each is answered, over as many connections as it takes."""
        n = 0
        while not over.is_set():
            client = proxy.client()
            try:
                enter(proxy, client, origin.port)
                while not over.is_set():
                    got = ask(client, "POST", f"/{number}/{n}", "Content-Length: 3",
                              body=b"abc")
                    assert (got.status, got.body) == (200, f"/{number}/{n}".encode())
                    n += 1
                    if (got.get("Connection") or "").lower() == "close":
                        break
            finally:
                client.close()
        return n

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(work, number) for number in range(8)]
        try:
            for number in range(4):
                renew(proxy, number + 1, text)
        finally:
            over.set()
        done = [one.result(30) for one in clients]
    assert min(done) > 10
    assert {one["reason"] for one in proxy.wait_log(sum(done))} == {"ok"}
    wait_until(lambda: sum(proxy.census()[one.pid]["socket"] for one in proxy.workers())
               < 40, lambda: str(proxy.census()))
