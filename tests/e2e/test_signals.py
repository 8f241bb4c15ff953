"""SIGTERM drains, a second signal ends, a lost process takes nothing else with it."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.support.client import build_request
from tests.support.origin import OK, echo, stall
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until


class Gate:
    """An origin's script that answers half, and the rest when it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, conn) -> None:
        while True:
            conn.read_request()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
            self.open.wait(20)
            conn.send(b"half")


def accepts(proxy) -> bool:
    try:
        proxy.client().close()
    except (ConnectionRefusedError, ConnectionResetError):
        return False
    return True


def wait_gone(pids) -> None:
    wait_until(lambda: not any(is_running(pid) for pid in pids), f"{pids} gone")


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_drain_lets_a_download_finish(start_proxy, make_origin, dial, number):
    gate = Gate()
    proxy = start_proxy()
    workers = [worker.pid for worker in proxy.workers()]
    idle, busy = dial(proxy), dial(proxy)
    assert idle.get(make_origin().url()).status == 200
    busy.send(build_request("GET", make_origin(gate).url()))
    assert busy.read_head().status == 200
    proxy.signal(number)
    assert idle.at_eof(), "an idle connection is closed at once"
    wait_until(lambda: not accepts(proxy), "new connections refused")
    gate.open.set()
    assert busy.read_exact(8) == b"halfhalf"
    assert busy.at_eof(), "no second request is taken"
    assert proxy.wait_exit() == 0
    wait_gone(workers)
    assert [record["reason"] for record in proxy.log()] == ["ok", "ok"]


def test_a_drain_ends_at_its_deadline(start_proxy, make_origin, dial):
    proxy = start_proxy("--drain-timeout", "300ms")
    waiting, tunnel = dial(proxy), dial(proxy)
    waiting.send(build_request("GET", make_origin(stall).url()))
    tunnel.tunnel(make_origin(echo).authority)
    proxy.signal(signal.SIGTERM)
    reply = waiting.read_response()
    assert (reply.status, reply.error) == (503, "proxy_internal_response")
    assert tunnel.at_eof()
    assert proxy.wait_exit() == 0
    assert [record["reason"] for record in proxy.log()] == ["drained", "drained"]


@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT,),
        (signal.SIGTERM, signal.SIGINT),
    ],
)
def test_now_means_now(start_proxy, make_origin, dial, signals):
    proxy = start_proxy("--drain-timeout", "60s")
    workers = [worker.pid for worker in proxy.workers()]
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    proxy.signal(signals[0])
    if len(signals) > 1:
        wait_until(lambda: not accepts(proxy), "the drain begun")
        proxy.signal(signals[1])
    assert tunnel.at_eof()
    assert proxy.wait_exit(5) == 0
    wait_gone(workers)
    proxy.wait_reason("stopped")


def test_an_idle_proxy_ends_at_once(start_proxy):
    proxy = start_proxy("--workers", "2", "--drain-timeout", "60s")
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit(5) == 0


def test_a_killed_worker_takes_only_its_own_connections(start_proxy, make_origin, dial):
    """Tunnels of the other worker see nothing; a new one accepts within a second."""
    proxy = start_proxy("--workers", "2")
    origin = make_origin(echo)
    tunnels = [dial(proxy) for _ in range(16)]
    for tunnel in tunnels:
        tunnel.tunnel(origin.authority)
    load = Load(proxy, make_origin().url())
    first, second = (worker.pid for worker in proxy.workers())
    os.kill(first, signal.SIGKILL)
    wait_until(
        lambda: (
            len(pids := {w.pid for w in proxy.workers()}) == 2 and first not in pids
        ),
        "a new worker",
        1,
    )
    # Whatever the dead one's queue holds, and whatever comes, is served.
    for _ in range(16):
        assert dial(proxy).get(make_origin().url()).status == 200
    alive = 0
    for tunnel in tunnels:
        try:
            tunnel.send(b"alive")
            alive += tunnel.read_exact(5) == b"alive"
        except (OSError, AssertionError):
            continue
    load.stop()
    assert 0 < alive < 16, "the dead worker's tunnels, and only these, are cut"
    assert second in {worker.pid for worker in proxy.workers()}
    assert load.served > 0
    assert str(first) in proxy.stderr()


class Load:
    """Short requests from four threads until stopped; a cut one is tried again."""

    def __init__(self, proxy, url: str) -> None:
        self.proxy, self.url = proxy, url
        self.ended = threading.Event()
        self.served = 0
        self.threads = [threading.Thread(target=self._run) for _ in range(4)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        while not self.ended.is_set():
            try:
                with self.proxy.client() as client:
                    for _ in range(20):
                        assert client.get(self.url).status == 200
                        self.served += 1
            except (OSError, AssertionError):
                continue

    def stop(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join(20)


def test_queued_connections_survive_their_worker(start_proxy, make_origin, dial):
    """The listening socket lives on in the supervisor, and its queue with it."""
    proxy = start_proxy()
    worker = proxy.worker.pid
    os.kill(worker, signal.SIGSTOP)
    origin = make_origin()
    queued = [dial(proxy) for _ in range(10)]
    for client in queued:
        client.send(build_request("GET", origin.url()))
    os.kill(worker, signal.SIGKILL)
    assert [client.read_response().body for client in queued] == [b"ok"] * 10


def test_a_worker_that_dies_again_and_again_is_replaced_each_time(
    start_proxy, make_origin, dial
):
    proxy = start_proxy()
    for _ in range(3):
        os.kill(proxy.worker.pid, signal.SIGKILL)
        assert dial(proxy).get(make_origin().url()).status == 200


def test_workers_do_not_outlive_their_supervisor(start_proxy, make_origin, dial):
    proxy = start_proxy("--workers", "2")
    workers = [worker.pid for worker in proxy.workers()]
    assert dial(proxy).get(make_origin().url()).status == 200
    proxy.signal(signal.SIGKILL)
    wait_gone(workers)


def test_sighup_does_not_end_the_proxy(start_proxy, make_origin, dial):
    proxy = start_proxy()
    proxy.signal(signal.SIGHUP)
    wait_until(lambda: "generation 2" in proxy.stderr(), "a word about it")
    assert dial(proxy).get(make_origin().url()).status == 200


def test_a_worker_told_to_end_is_replaced(start_proxy, make_origin, dial):
    """SIGTERM to a worker drains this worker: its connections end in their own time."""
    gate = Gate()
    proxy = start_proxy()
    first = proxy.worker.pid
    busy = dial(proxy)
    busy.send(build_request("GET", make_origin(gate).url()))
    assert busy.read_head().status == 200
    os.kill(first, signal.SIGTERM)
    gate.open.set()
    assert busy.read_exact(8) == b"halfhalf"
    wait_gone([first])
    assert dial(proxy).get(make_origin().url()).body == OK[-2:]


def test_a_worker_told_to_end_serves_until_it_is_replaced(
        start_proxy, make_origin, dial):
    """It stopped accepting, and its new connections waited until its last one ended."""
    proxy = start_proxy("--workers", "2", "--handover", "off", "--drain-timeout", "30s")
    origin, url = make_origin(echo), make_origin().url()
    tunnels = [dial(proxy).tunnel(origin.authority) for _ in range(12)]
    first = min(worker.pid for worker in proxy.workers())
    os.kill(first, signal.SIGTERM)
    wait_until(lambda: len(proxy.workers()) == 3, proxy.stderr)
    for _ in range(20):
        assert dial(proxy).get(url).status == 200
    assert is_running(first), "no connection waited for its end"
    for tunnel in tunnels:
        tunnel.send(b"still here")
        assert tunnel.read_exact(10) == b"still here"
        tunnel.close()
    wait_gone([first])


def test_a_second_signal_drains_a_worker_at_once(start_proxy, make_origin, dial):
    """For a supervisor that cannot replace it. Not twice the same signal: it would be
    one, if the worker had not handled the first."""
    proxy = start_proxy()
    first = proxy.worker.pid
    proxy.signal(signal.SIGSTOP)
    try:
        os.kill(first, signal.SIGTERM)
        os.kill(first, signal.SIGQUIT)
        wait_gone([first])
    finally:
        proxy.signal(signal.SIGCONT)
    assert dial(proxy).get(make_origin().url()).status == 200


def test_who_starts_us_may_have_blocked_signals(start_proxy):
    """The supervisor did not notice a worker's death."""
    code = ("import os, signal, sys; "
            "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); "
            "os.execv(sys.executable, [sys.executable, '-m', 'cutthrough', 'serve', "
            "*sys.argv[1:]])")
    proxy = start_proxy(command=("-c", code))
    pid = proxy.worker.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: [one.pid for one in proxy.workers()] not in ([], [pid]),
               "the next one")
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0


def test_signals_that_come_while_it_begins_wait(tmp_path):
    """Sent to the whole service, or at boot, they ended it."""
    file = tmp_path / "cutthrough.toml"
    os.mkfifo(file)
    with subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "serve", "-c", str(file)], cwd=ROOT,
            stderr=subprocess.PIPE, text=True, env=clean_environment()) as process:
        text = 'listen = ["127.0.0.1:0"]\nworkers = 1\naccess_log = "off"\n'
        with open(file, "w") as begins:      # once it reads
            for number in (signal.SIGHUP, signal.SIGUSR1):
                process.send_signal(number)
            file.unlink()
            file.write_text(text + 'head_timeout = "3s"\n')
            begins.write(text)
        assert process.stderr.readline() == (
            "cutthrough: reload postponed until the new program has started\n")
        assert "listening on" in process.stderr.readline()
        assert process.stderr.readline() == (
            "cutthrough: generation 2: head_timeout 10s -> 3s\n")
        process.terminate()
        assert process.wait(60) == 0
