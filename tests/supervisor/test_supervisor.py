"""The supervisor from outside: its sockets, its children, its signals, its one line."""

import errno
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import cutthrough
from cutthrough.net.listener import bound_address, listen
from tests.support.client import CREDENTIALS, PASSWORD, USER, Client
from tests.support.proxy import ROOT, Proxy, clean_environment
from tests.support.wait import wait_until

# Refused at once and without another's help, so an answer shows that a worker is there.
NOWHERE = "http://127.0.0.1:1/"


def answers(port, host="127.0.0.1"):
    with Client(port, host) as client:
        return client.get(NOWHERE).status == 502


def listening(port):
    """How many sockets listen on this port of 127.0.0.1."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table]
    return sum(row[1] == f"0100007F:{port:04X}" and row[3] == "0A" for row in rows)


def deaths(proxy):
    return re.findall(r"worker \d+ \(pid \d+\) died: (.*)\n", proxy.stderr())


def kill_worker(proxy, number=signal.SIGKILL):
    """Kills one worker, and returns its successor once it answers."""
    before = {worker.pid for worker in proxy.workers()}
    os.kill(min(before), number)

    def successor():
        new = {worker.pid for worker in proxy.workers()} - before
        return new and len(proxy.workers()) == len(before) and new.pop()

    pid = wait_until(successor, "another worker")
    assert answers(proxy.port)
    return pid


# The banner

def test_the_banner_tells_addresses_workers_and_loop(tmp_path):
    with Proxy(tmp_path, "--listen", "[::1]:0", "--workers", "2") as proxy:
        first, second = proxy.ports
        import uvloop
        assert proxy.stderr() == (
            f"cutthrough {cutthrough.__version__} listening on 127.0.0.1:{first} and "
            f"[::1]:{second}, 2 workers, uvloop {uvloop.__version__}\n")
        assert answers(first) and answers(second, "::1")


def test_asyncio_serves_where_it_is_asked_for(tmp_path):
    with Proxy(tmp_path, loop="asyncio", user=False) as proxy:
        assert proxy.banner.endswith(
            "1 worker, asyncio, demonstration credentials username:password")


def test_auto_is_one_worker_for_each_usable_cpu(tmp_path):
    with Proxy(tmp_path, "--workers", "auto") as proxy:
        count = len(os.sched_getaffinity(0))
        assert f" {count} worker{'s' * (count > 1)}," in proxy.banner
        assert len(proxy.workers()) == count


# The sockets

def test_every_worker_has_a_socket_of_its_own_on_one_port(tmp_path):
    with Proxy(tmp_path, "--workers", "3") as proxy:
        assert listening(proxy.port) == 3
        kill_worker(proxy)
        assert listening(proxy.port) == 3


def test_a_second_proxy_on_the_same_port_is_refused(tmp_path):
    """With SO_REUSEPORT alone it would start, and take half of the callers."""
    with Proxy(tmp_path) as proxy:
        done = subprocess.run(
            [sys.executable, "-m", "cutthrough", "serve",
             "--listen", f"127.0.0.1:{proxy.port}"],
            cwd=ROOT, env=clean_environment(), capture_output=True, text=True,
            timeout=30)
        assert done.returncode == 1
        assert done.stderr == (f"cutthrough: 127.0.0.1:{proxy.port}: "
                               "Address already in use\n")


def test_a_restart_does_not_wait_for_old_connections(tmp_path):
    with Proxy(tmp_path / "1") as proxy:
        port = proxy.port
        client = Client(port)
        client.send(b"CONNECT / HTTP/1.1\r\n\r\n")      # we close first: TIME_WAIT
        client.read_response("CONNECT")
        proxy.signal(signal.SIGTERM)
        assert proxy.wait_exit() == 0
        client.close()
    with Proxy(tmp_path / "2", "--listen", f"127.0.0.1:{port}") as proxy:
        assert answers(port)


def test_listening_sockets_are_made_for_a_worker():
    group = listen(("127.0.0.1", 0), 3)
    try:
        assert len({bound_address(sock) for sock in group}) == 1
        for sock in group:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not sock.getblocking() and not sock.get_inheritable()
    finally:
        for sock in group:
            sock.close()


def test_a_group_of_listeners_that_fails_leaves_nothing_open():
    held = listen(("127.0.0.1", 0))
    try:
        with pytest.raises(OSError) as caught:
            listen(bound_address(held[0]), 2)
        assert caught.value.errno == errno.EADDRINUSE
    finally:
        held[0].close()


def test_ipv4_and_ipv6_wildcards_are_two_listeners():
    four = listen(("0.0.0.0", 0))
    six = listen(("::", bound_address(four[0])[1]))
    for sock in four + six:
        sock.close()


def test_standard_descriptors_that_are_closed_are_nobody_elses(tmp_path):
    """The program's output was written into the files that had their numbers: a
    listening socket, the workers' counters. And no worker began."""
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", sys.executable, "-m",
         "cutthrough", "serve", "--listen", f"127.0.0.1:{port}", "--workers", "2",
         "--access-log", str(log), "--user", USER, "--password", PASSWORD],
        cwd=ROOT, env=clean_environment())
    try:
        wait_until(lambda: listening(port) == 2 and answers(port), "an answer")
        children = psutil.Process(process.pid).children()
        for pid in (process.pid, *(child.pid for child in children)):
            assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)} == {
                "/dev/null"}
    finally:
        process.terminate()
        assert process.wait(60) == 0


# The children

def test_a_killed_worker_is_replaced_and_one_line_tells(tmp_path):
    with Proxy(tmp_path, "--workers", "2") as proxy:
        kill_worker(proxy)
        assert deaths(proxy) == ["signal SIGKILL; starting a replacement now"]


def test_a_worker_that_is_told_to_end_is_replaced(tmp_path):
    with Proxy(tmp_path) as proxy:
        kill_worker(proxy, signal.SIGTERM)
        assert "has a signal to end; starting a replacement\n" in proxy.stderr()
        assert deaths(proxy) == []


def test_workers_that_die_young_are_started_ever_later(tmp_path):
    with Proxy(tmp_path) as proxy:
        for _ in range(4):
            kill_worker(proxy)
        assert [line.partition("; ")[2] for line in deaths(proxy)] == [
            "starting a replacement now", "starting a replacement in 0.1 s",
            "starting a replacement in 0.2 s", "starting a replacement in 0.4 s"]


def test_one_that_was_replaced_ends_the_row_of_those_that_died(tmp_path):
    """Killed now and then between reloads, workers were started ever later."""
    with Proxy(tmp_path, config="workers = 1\n") as proxy:
        for _ in range(3):
            kill_worker(proxy)
        before = proxy.worker.pid
        proxy.reload("workers = 1\ndns_cache_entries = 7\n")
        wait_until(lambda: [worker.pid for worker in proxy.workers()] not in (
            [], [before]) and len(proxy.workers()) == 1, "another one")
        kill_worker(proxy)
        assert [line.partition("; ")[2] for line in deaths(proxy)] == [
            "starting a replacement now", "starting a replacement in 0.1 s",
            "starting a replacement in 0.2 s", "starting a replacement now"]


def test_a_worker_that_cannot_begin_stops_the_program(tmp_path):
    """Started again and again it would only hide the reason."""
    (tmp_path / "uvloop.py").write_text("raise ImportError('broken')\n")
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "serve", "--listen", "127.0.0.1:0",
         "--workers", "2"], cwd=ROOT, capture_output=True, text=True, timeout=30,
        env=clean_environment(PYTHONPATH=str(tmp_path)))
    assert done.returncode == 1
    # Both write at once, perhaps in pieces
    assert "ImportError" in done.stderr and "broken" in done.stderr
    assert re.search(r"worker \d \(pid \d+\) exited before it was ready: status 1\n",
                     done.stderr)
    assert "listening on" not in done.stderr


def test_a_missing_uvloop_is_told_where_it_is_asked_for(tmp_path):
    code = ("import sys; sys.modules['uvloop'] = None; "
            "from cutthrough.cli.main import main; sys.exit(main())")
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--loop", "uvloop"],
        cwd=ROOT, capture_output=True, text=True, timeout=30, env=clean_environment())
    assert (done.returncode, done.stderr) == (
        2, "cutthrough: command line: --loop: uvloop is not installed\n")


def test_children_that_it_inherited_are_reaped(tmp_path):
    """Process 1 of a container is the parent of all processes."""
    command = [sys.executable, "-m", "cutthrough", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(["sh", "-c", 'sleep 0.01 & exec "$@"', "sh", *command],
                          cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "listening on" in process.stderr.readline()
            supervisor = psutil.Process(process.pid)
            wait_until(lambda: "sleep" not in [each.name() for each in
                                               supervisor.children()], "no zombie")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_no_secret_is_in_arguments_or_environment_of_a_worker(tmp_path):
    environ = {"CUTTHROUGH_USER": "user", "CUTTHROUGH_PASSWORD": "pass:word"}
    with Proxy(tmp_path, user=False, env=environ) as proxy:
        for name in ("cmdline", "environ"):
            with open(f"/proc/{proxy.worker.pid}/{name}", "rb") as file:
                assert b"pass:word" not in file.read()
        assert answers(proxy.port)


def test_workers_may_open_as_many_files_as_the_hard_limit_allows(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        proxy = Proxy(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with proxy:
        assert proxy.worker.rlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_directory_from_which_it_is_started_shadows_no_module(tmp_path):
    (tmp_path / "msgspec.py").write_text("raise SystemExit('shadowed')\n")
    program = "import cutthrough.cli.main, sys; sys.exit(cutthrough.cli.main.main())"
    with subprocess.Popen(
            [sys.executable, "-P", "-c", program, "serve", "--listen", "127.0.0.1:0"],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=clean_environment(PYTHONPATH=str(ROOT))) as process:
        line = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "listening on" in line


# The signals

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT])
def test_told_to_stop_it_exits_0_and_leaves_nobody(tmp_path, number):
    with Proxy(tmp_path, "--workers", "2") as proxy:
        workers = proxy.workers()
        proxy.signal(number)
        assert proxy.wait_exit() == 0
        assert not any(worker.is_running() for worker in workers)
        assert listening(proxy.port) == 0
        assert len(proxy.stderr().splitlines()) == 2, "the banner and the account"


def test_workers_that_are_told_a_moment_before_it_are_not_replaced(tmp_path):
    """systemd signals every process, in any order: the program reported these dead."""
    with Proxy(tmp_path, "--workers", "2") as proxy:
        for worker in proxy.workers():
            worker.terminate()
        proxy.signal(signal.SIGTERM)
        assert proxy.wait_exit() == 0
        assert len(proxy.stderr().splitlines()) == 2, "the banner and the account"


def catches(pid: int, number: int) -> bool:
    """Does the process handle this signal?"""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"\nSigCgt:\t(\w+)", status)[1], 16) >> number - 1 & 1 == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_a_worker_imports_it_exits_0(tmp_path, number):
    """It reported that the worker did not answer, killed it and exited 1."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'cutthrough.worker.main' in sys.orig_argv:\n"
        f"    os.mkfifo({str(tmp_path / 'fifo')!r})\n"
        f"    open({str(tmp_path / 'fifo')!r}).close()\n")       # no process writes
    with subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "serve", "--listen", "127.0.0.1:0",
             "--workers", "1", "--drain-timeout", "1h"], cwd=ROOT, text=True,
            stderr=subprocess.PIPE,
            env=clean_environment(PYTHONPATH=str(tmp_path))) as process:
        wait_until((tmp_path / "fifo").exists, "a worker on its way")
        wait_until(lambda: catches(process.pid, signal.SIGUSR2), "its handlers")
        process.send_signal(number)
        assert process.wait(60) == 0, "it has nobody to finish with"
        assert process.stderr.read() == ""


@pytest.fixture
def origin():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def open_tunnel(proxy, origin):
    """A client with an open tunnel, and the origin's end of it."""
    client = Client(proxy.port)
    port = origin.getsockname()[1]
    client.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                f"Proxy-Authorization: {CREDENTIALS}\r\n\r\n".encode())
    assert client.read_response("CONNECT").status == 200
    return client, origin.accept()[0]


def test_while_draining_callers_are_refused_and_tunnels_run(tmp_path, origin):
    with Proxy(tmp_path, "--workers", "2") as proxy:
        client, far = open_tunnel(proxy, origin)
        with client, far:
            proxy.signal(signal.SIGTERM)
            wait_until(lambda: listening(proxy.port) == 0, "no listening socket")
            with pytest.raises(ConnectionRefusedError):
                Client(proxy.port)
            client.send(b"still here")
            assert far.recv(100) == b"still here"
        assert proxy.wait_exit() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_means_now(tmp_path, origin, second):
    with Proxy(tmp_path, "--drain-timeout", "1h") as proxy:
        client, far = open_tunnel(proxy, origin)
        with client, far:
            proxy.signal(signal.SIGTERM)
            wait_until(lambda: listening(proxy.port) == 0, "the drain's begin")
            proxy.signal(second)
            assert proxy.wait_exit() == 0


def test_a_worker_that_hangs_is_killed_when_the_drain_is_over(tmp_path):
    with Proxy(tmp_path, "--drain-timeout", "100ms") as proxy:
        pid = proxy.worker.pid
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        proxy.signal(signal.SIGTERM)
        assert proxy.wait_exit() == 1
        assert time.monotonic() - began > 2
        assert f"(pid {pid}) does not answer: killed\n" in proxy.stderr()
        assert f"(pid {pid}) ended by signal SIGKILL\n" in proxy.stderr()


def test_a_worker_that_has_ended_as_it_is_to_be_killed_is_seen(tmp_path, origin):
    """The code that killed it reaped it, and the program waited for its end for
    ever."""
    with Proxy(tmp_path, "--drain-timeout", "1s") as proxy:
        client, far = open_tunnel(proxy, origin)
        with client, far:
            pid = proxy.worker.pid
            proxy.signal(signal.SIGTERM)
            wait_until(lambda: listening(proxy.port) == 0, "the drain's begin")
            proxy.signal(signal.SIGSTOP)     # a host that stands still for a while
            os.kill(pid, signal.SIGKILL)
            time.sleep(3.3)                  # beyond the worker's deadline
            proxy.signal(signal.SIGCONT)
            assert proxy.wait_exit() == 1
            assert f"(pid {pid}) ended by signal SIGKILL\n" in proxy.stderr()


def test_the_terminals_interrupt_is_the_supervisors_alone(tmp_path):
    """Ctrl-C reaches the whole group; a worker's traceback would be all one sees."""
    with Proxy(tmp_path) as proxy:
        pid = proxy.worker.pid
        # The last two: systemctl kill, which sends to the whole service
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
            os.kill(pid, number)
        assert answers(proxy.port)
        assert proxy.worker.pid == pid
        assert not deaths(proxy)


def test_sighup_is_answered_by_one_line(tmp_path):
    with Proxy(tmp_path) as proxy:
        proxy.signal(signal.SIGHUP)
        wait_until(lambda: "cutthrough: generation 2: no changes\n"
                   in proxy.stderr(), proxy.stderr)
        assert answers(proxy.port)


def test_sigusr1_opens_the_log_again(tmp_path):
    with Proxy(tmp_path, "--workers", "2") as proxy:
        assert answers(proxy.port)
        wait_until(proxy.log_path.exists, "a log")
        proxy.log_path.rename(tmp_path / "access.log.1")
        proxy.signal(signal.SIGUSR1)
        wait_until(proxy.log_path.exists, "a new log")
        assert proxy.log_path.stat().st_mode & 0o777 == 0o640


def test_when_the_supervisor_dies_the_workers_go_by_themselves(tmp_path):
    with Proxy(tmp_path, "--workers", "2") as proxy:
        workers = proxy.workers()
        proxy.signal(signal.SIGKILL)
        wait_until(lambda: not any(w.is_running() for w in workers), "nobody left")
        assert listening(proxy.port) == 0


# The same worker in a caller's loop

async def test_embedded_it_serves_in_the_callers_loop():
    async with cutthrough.serve(user="a b", password="c:/@") as proxy:
        port = proxy.port
        assert proxy.url == f"http://a%20b:c%3A%2F%40@127.0.0.1:{proxy.port}"
        assert proxy.address == ("127.0.0.1", proxy.port)
        import httpx
        async with httpx.AsyncClient(proxy=proxy.url, trust_env=False) as client:
            assert (await client.get(NOWHERE)).status_code == 502
    assert not any(proxy.worker.leaks().values())
    assert listening(port) == 0
    with pytest.raises(RuntimeError):
        _ = cutthrough.serve().worker
