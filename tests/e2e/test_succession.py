"""One program takes over from another; sockets of the tests stand in for systemd's."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.support.admin import AUTHORIZED, TOKEN, Operator
from tests.support.client import build_request
from tests.support.flow_verbs import following
from tests.support.nginx import free_port
from tests.support.origin import echo
from tests.support.proxy import BANNER, ROOT, clean_environment
from tests.support.successors import (
    end,
    end_all,
    find_successor,
    successor_of,
)
from tests.support.successors import start as start
from tests.support.wait import wait_until


def test_a_new_program_takes_the_door_and_the_old_one_finishes(
        start, make_origin, dial, opened):
    proxy, origin = start("handover = false\n"), make_origin(echo)
    plain = make_origin()
    tunnel = dial(proxy).tunnel(origin.authority)
    new = successor_of(proxy)
    opened.callback(end_all, new)
    assert dial(proxy).get(plain.url()).status == 200, "the same port"
    tunnel.send(b"still here")
    assert tunnel.read_exact(10) == b"still here"
    assert proxy.process.poll() is None, "the old one waits for its tunnel"
    tunnel.close()
    assert proxy.process.wait(60) == 0
    assert dial(proxy).get(plain.url()).status == 200
    end(new)


def test_it_is_ready_all_the_time(start, opened):
    """A question that the old program accepted last was answered "not serving"."""
    port, answers, is_over = free_port(), set(), threading.Event()
    proxy, operator = start(f'admin = "127.0.0.1:{port}"\n'), Operator(port)

    def ask() -> None:
        while not is_over.is_set():
            # One may come between the last accept and the close
            with contextlib.suppress(ConnectionResetError):
                answers.add(operator.ask("GET", "/readyz")[0])

    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            opened.callback(end_all, successor_of(proxy))
        finally:
            is_over.set()
        for each in asking:
            each.result()
    assert answers == {200}


def test_flows_are_followed_from_one_program_to_the_next(
        start, make_origin, dial, opened, directory, tmp_path):
    where = f"{directory('admin')}/socket"
    (tmp_path / "policy.toml").write_text(
        '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\ncapture = "head"\n')
    (tmp_path / "token").write_text(TOKEN)
    proxy = start(f'admin = "unix:{where}"\nadmin_token = "{TOKEN}"\n'
                  f'policy = "{tmp_path}/policy.toml"\n'
                  f'capture_file = "{tmp_path}/flows.db"\n')
    origin, operator = make_origin(), Operator(where)
    assert dial(proxy).get(origin.url("/first")).status == 200
    wait_until(lambda: "first" in operator.ask("GET", "/flows", **AUTHORIZED)[1],
               "the first flow")
    with following(Operator(f"unix:{where}"), tmp_path) as (lines, process):
        wait_until(lambda: len(lines) == 2, lambda: process.poll())
        new = successor_of(proxy)
        opened.callback(end_all, new)
        assert proxy.process.wait(60) == 0
        assert dial(proxy).get(origin.url("/second")).status == 200
        wait_until(lambda: len(lines) == 3, lambda: str(lines))
    assert [line[-1] for line in lines[1:]] == [
        origin.url("/first"), origin.url("/second")]
    end(new)


def test_nobody_is_refused_while_programs_follow_one_another(
        start, make_origin, dial, opened):
    proxy, origin = start(), make_origin()
    over, failures, served = threading.Event(), [], []

    def ask() -> None:
        while not over.is_set():
            try:
                with proxy.client() as client:
                    client.send(build_request("GET", origin.url(), "Connection: close"))
                    served.append(client.read_response().status)
            except OSError as error:
                failures.append(error)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    try:
        new = successor_of(proxy)
        opened.callback(end_all, new)
        assert proxy.process.wait(60) == 0
        before = len(served)
        wait_until(lambda: len(served) > before + 20, "the new one serves")
    finally:
        over.set()
        for asker in askers:
            asker.join()
    assert not failures and set(served) == {200}
    end(new)


@pytest.mark.any_loop
def test_a_successor_that_cannot_begin_changes_nothing(start, make_origin, dial):
    proxy, origin = start(), make_origin()
    proxy.write_config('head_timeut = "1s"\n')
    proxy.signal(signal.SIGUSR2)
    wait_until(lambda: "upgrade failed, this program continues" in proxy.stderr(),
               proxy.stderr)
    assert "did you mean head_timeout?" in proxy.stderr()
    assert dial(proxy).get(origin.url()).status == 200
    proxy.write_config("")
    assert successor_of(proxy).is_running(), "and the next try may succeed"


@pytest.mark.any_loop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_while_a_successor_starts_neither_stays(
        start, directory, opened, number):
    """The old program reported that the new one serves, and the new one served on."""
    folder = directory("slow")
    # Of the second program alone: its workers wait for a writer that never comes
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if ('cutthrough.worker.main' in sys.orig_argv\n"
        f"        and os.path.exists({str(folder / 'wait')!r})):\n"
        f"    os.mkfifo({str(folder / 'fifo')!r})\n"
        f"    open({str(folder / 'fifo')!r}).close()\n")
    proxy = start(env={"PYTHONPATH": str(folder)})
    (folder / "wait").touch()
    proxy.signal(signal.SIGUSR2)
    wait_until((folder / "fifo").exists, "the successor's worker")
    old = {worker.pid for worker in proxy.workers()}
    (new,) = [child for child in psutil.Process(proxy.process.pid).children()
              if "serve" in child.cmdline()]
    assert len(old) == 2, "one worker, and the successor"
    opened.callback(end_all, new)
    proxy.signal(number)
    assert proxy.wait_exit() == 0
    wait_until(lambda: not new.is_running() or new.status() == psutil.STATUS_ZOMBIE,
               "the successor's end")
    assert "serves; this program drains" not in proxy.stderr()
    assert "does not answer" not in proxy.stderr()


@pytest.mark.any_loop
@pytest.mark.parametrize("begins", ["", "nonsense"])
def test_a_reload_that_is_asked_for_in_an_upgrade_is_done_by_who_serves_then(
        start, directory, begins):
    """The reload was refused, and no operator repeated it."""
    where = directory("admin") / "socket"
    text = f'admin = "unix:{where}"\nadmin_token = "{TOKEN}"\n'
    proxy = start(text)
    wait_until(Operator(str(where)).answers, "the admin listener")
    answers: list[tuple[int, str]] = []
    asker = threading.Thread(target=lambda: answers.append(
        Operator(str(where)).ask("POST", "/reload", **AUTHORIZED)))
    old = proxy._config.read_text()
    proxy._config.unlink()
    os.mkfifo(proxy._config)
    proxy.signal(signal.SIGUSR2)
    with open(proxy._config, "w") as file:   # the successor reads
        proxy._config.unlink()
        proxy.write_config(text + 'head_timeout = "3s"\n')
        # As if a sender signals the whole service
        (new,) = [child for child in psutil.Process(proxy.process.pid).children()
                  if "serve" in child.cmdline()]
        new.send_signal(signal.SIGUSR1)
        asker.start()
        wait_until(lambda: "reload postponed" in proxy.stderr(), proxy.stderr)
        proxy.signal(signal.SIGHUP)
        file.write(begins or old)
    line = "generation 2: head_timeout 10s -> 3s"
    wait_until(lambda: f"cutthrough: {line}\n" in proxy.stderr(), proxy.stderr)
    asker.join()
    assert proxy.stderr().count("reload postponed") == 1
    if begins:
        assert answers == [(200, f"{line}\n")]
        assert "upgrade failed, this program continues" in proxy.stderr()
    else:
        assert answers == [
            (202, f"pid {new.pid} serves; the reload was passed on to it\n")]
        assert proxy.process.wait(60) == 0
        end(new)


def test_told_to_end_after_an_upgrade_the_old_program_drains(start, make_origin, dial):
    """systemd signals all processes of a service: for the old program it was the second
    signal, and its running connections were cut."""
    proxy, origin = start("handover = false\n"), make_origin(echo)
    tunnel = dial(proxy).tunnel(origin.authority)
    new = successor_of(proxy)
    proxy.write_config('handover = false\nhead_timeout = "3s"\n')
    proxy.signal(signal.SIGHUP)
    wait_until(lambda: "generation 2: head_timeout" in proxy.stderr(), proxy.stderr)
    for process in (proxy.process, new):
        process.send_signal(signal.SIGTERM)
    wait_until(lambda: not new.is_running() or new.status() == psutil.STATUS_ZOMBIE,
               "the new one's end")
    tunnel.send(b"still here")
    assert tunnel.read_exact(10) == b"still here"
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0
    with pytest.raises(ConnectionResetError):
        tunnel.sock.recv(1)


def test_operators_reach_every_program_that_drains(
        start, make_origin, dial, opened, directory):
    """The program in the middle ended before the first one, and with it the only way to
    that one's connections: no list had them, and no cut met them."""
    where = f"{directory('admin')}/socket"
    proxy = start(f'handover = false\nadmin = "unix:{where}"\n'
                  f'admin_token = "{TOKEN}"\n')
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    second = successor_of(proxy)
    opened.callback(end_all, second)
    second.send_signal(signal.SIGUSR2)
    wait_until(lambda: proxy.stderr().count("serves; this program drains") == 2,
               proxy.stderr)
    third = find_successor(proxy.stderr)
    opened.callback(end_all, third)
    wait_until(lambda: second.children() == [third], proxy.stderr)
    assert Operator(where).cut("all=true") == 1
    assert tunnel.at_eof()
    assert proxy.process.wait(60) == 0
    wait_until(lambda: not second.is_running()
               or second.status() == psutil.STATUS_ZOMBIE, "its end, too")
    end(third)


@pytest.fixture
def manager(tmp_path):
    """The socket that systemd gives a service for its messages, line by line."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(15)
        yield sock


def heard(sock: socket.socket, wanted: str) -> list[str]:
    """Everything up to the datagram in which `wanted` stands."""
    lines: list[str] = []
    end = time.monotonic() + 60
    while not any(line.startswith(wanted) for line in lines):
        assert time.monotonic() < end, f"{wanted} was not said"
        lines += sock.recv(4096).decode().split("\n")
    return lines


@pytest.mark.any_loop
def test_a_manager_that_does_not_listen_stops_nothing(
        start, manager, make_origin, dial):
    """Its queue is full after ten datagrams (net.unix.max_dgram_qlen)."""
    proxy = start(env={"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "2000"})
    assert dial(proxy).get(make_origin().url()).status == 200
    proxy.signal(signal.SIGTERM)
    assert proxy.process.wait(60) == 0


@pytest.mark.any_loop
def test_the_service_manager_is_told(start, manager):
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "1000000"}
    proxy = start(env=environment)
    said = heard(manager, "READY=1")
    assert f"MAINPID={proxy.process.pid}" in said
    heard(manager, "WATCHDOG=1")
    proxy.signal(signal.SIGHUP)
    said = heard(manager, "RELOADING=1")
    assert any(line.startswith("MONOTONIC_USEC=") for line in said)
    heard(manager, "READY=1")
    new = successor_of(proxy)
    assert f"MAINPID={new.pid}" in heard(manager, "MAINPID=")
    assert proxy.process.wait(60) == 0
    end(new)
    heard(manager, "STOPPING=1")


@pytest.mark.any_loop
def test_a_successor_feeds_the_watchdog(start, manager):
    """systemd killed it: WATCHDOG_PID named the program before it."""
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "1000000"}
    code = ("import os, sys; os.environ['WATCHDOG_PID'] = str(os.getpid()); "
            "os.execv(sys.executable, [sys.executable, '-m', 'cutthrough', 'serve', "
            "*sys.argv[1:]])")
    proxy = start(command=("-c", code), env=environment)
    heard(manager, "WATCHDOG=1")
    # The queue has room for ten datagrams: if nobody reads meanwhile, one is lost
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(heard, manager, "MAINPID=")
        new = successor_of(proxy)
        assert proxy.process.wait(60) == 0
        assert f"MAINPID={new.pid}" in said.result()
    heard(manager, "WATCHDOG=1")
    heard(manager, "WATCHDOG=1")             # the first may be the old one's
    end(new)


@pytest.mark.any_loop
def test_an_abstract_socket_is_told_too(start):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("")
        sock.settimeout(15)
        name = "@" + sock.getsockname()[1:].decode()
        start(env={"NOTIFY_SOCKET": name})
        heard(sock, "READY=1")


@pytest.mark.any_loop
def test_sockets_of_the_service_manager_are_the_listeners(
        tmp_path, make_origin, dial, loop_name):
    """Descriptor 3, and LISTEN_PID is the process that is started."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        code = ("import os; os.environ['LISTEN_PID'] = str(os.getpid()); "
                "os.environ['LISTEN_FDS'] = '1'; "
                f"os.dup2({listening.fileno()}, 3, inheritable=True); "
                "os.execv(os.sys.executable, [os.sys.executable, '-m', 'cutthrough', "
                f"'serve', '--workers', '2', '--loop', '{loop_name}', "
                "'--access-log', 'off', '--user', 'user', '--password', 'pass:word'])")
        with open(tmp_path / "err", "wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-c", code], cwd=ROOT, stderr=err,
                pass_fds=(listening.fileno(),),
                env=clean_environment(CUTTHROUGH_LISTEN="127.0.0.1:1"))
    try:
        wait_until(lambda: BANNER.search((tmp_path / "err").read_text()), "a banner")
        # It was ignored without a word
        assert (tmp_path / "err").read_text().count(
            "environment: CUTTHROUGH_LISTEN is ignored: the service manager has opened "
            f"127.0.0.1:{port}\n") == 1
        assert f"listening on 127.0.0.1:{port}," in (tmp_path / "err").read_text()
        origin = make_origin()
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port), 10) as sock:
                sock.sendall(build_request("GET", origin.url()))
                assert sock.recv(12) == b"HTTP/1.1 200"
        for worker in psutil.Process(process.pid).children():
            names = worker.environ()
            assert "LISTEN_FDS" not in names and "LISTEN_PID" not in names
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.any_loop
def test_an_upgrade_keeps_the_service_managers_sockets(tmp_path, loop_name, opened):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        code = ("import os; os.environ['LISTEN_PID'] = str(os.getpid()); "
                "os.environ['LISTEN_FDS'] = '1'; "
                f"os.dup2({listening.fileno()}, 3, inheritable=True); "
                "os.execv(os.sys.executable, [os.sys.executable, '-m', 'cutthrough', "
                f"'serve', '--workers', '1', '--loop', '{loop_name}'])")
        with open(tmp_path / "err", "wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-c", code], cwd=ROOT, stderr=err,
                pass_fds=(listening.fileno(),), env=clean_environment())
    opened.callback(process.wait)
    opened.callback(end_all, psutil.Process(process.pid))
    told = (tmp_path / "err").read_text
    wait_until(lambda: BANNER.search(told()), "a banner")
    os.kill(process.pid, signal.SIGUSR2)
    new = find_successor(told)
    opened.callback(end_all, new)
    assert process.wait(60) == 0
    assert told().count(f"listening on 127.0.0.1:{port},") == 2
    end(new)


MANY = """
import asyncio, resource, socket, sys
from cutthrough.supervisor.upgrade import Predecessor, Served, Successor

def many() -> None:
    low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(high, 8192), high))

async def old() -> None:
    over = asyncio.get_running_loop().create_future()
    listeners = [socket.socket() for _ in range(3000)]
    successor = Successor(listeners, False, lambda: over.set_result("serves"),
                          over.set_result, None, {}, Served((), False, False))
    successor._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    print(await over, successor.process.wait())

many()
predecessor = Predecessor.find()
if predecessor is None:
    asyncio.run(old())
else:
    taken = predecessor.take_listeners()
    async def new() -> None:
        predecessor.report_serving(None, print)
    asyncio.run(new())
    sys.exit(len(taken) != 3000)
"""


def test_sockets_that_do_not_fit_at_once_follow(tmp_path):
    """When the buffer was full in the middle, the rest was never sent."""
    (tmp_path / "many.py").write_text(MANY)
    done = subprocess.run(
        [sys.executable, tmp_path / "many.py"], capture_output=True, text=True,
        timeout=30, env={**clean_environment(), "PYTHONPATH": str(ROOT)})
    assert done.stdout == "serves 0\n", done.stderr
