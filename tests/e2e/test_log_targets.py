"""Targets of the access log: syslog, the journal, pipes; no request waits for it."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.support.admin import administered
from tests.support.client import build_request
from tests.support.log_formats import FIELDS, SQUID
from tests.support.loghosts import Receiver, can_run_journald, journald
from tests.support.origin import OK, answer
from tests.support.proxy import ROOT
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

LOCAL = re.compile(
    rb"<(?P<pri>\d+)>(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) "
    rb"cutthrough\[(?P<pid>\d+)\]: (?P<line>.*)", re.S)
NETWORK = re.compile(
    rb"<(?P<pri>\d+)>1 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<host>\S+) "
    rb"cutthrough (?P<pid>\d+) access - (?P<line>.*)", re.S)


def get_many(proxy, dial, url: str, count: int) -> None:
    """So many requests, one after another on one connection."""
    client = dial(proxy)
    for _ in range(count):
        client.send(build_request("GET", url))
        assert client.read_response().status == 200


@pytest.mark.parametrize(("said", "pri"), [
    ("syslog", 3 * 8 + 6), ("syslog:local4.notice", 20 * 8 + 5),
    ("syslog:authpriv", 10 * 8 + 6)])
def test_a_local_syslogd_gets_the_form_of_syslog_3(
        start_proxy, make_origin, dial, opened, directory, said, pri):
    taker = Receiver(directory("syslog") / "log")
    opened.callback(taker.close)
    proxy = start_proxy("--access-log", f"{said}@{taker.target}",
                        "--access-log-format", "squid")
    url = make_origin().url("/page")
    assert dial(proxy).get(url).status == 200
    (message,) = taker.wait(1)
    match = LOCAL.fullmatch(message)
    assert match and int(match["pri"]) == pri, message
    assert int(match["pid"]) == proxy.worker.pid
    line = SQUID.match(match["line"].decode())
    assert line and line["url"] == url


def test_syslog_over_udp_has_the_form_of_rfc_5424(
        start_proxy, make_origin, dial, opened):
    taker = Receiver()
    opened.callback(taker.close)
    proxy = start_proxy("--access-log", f"syslog:local0@{taker.target}")
    assert dial(proxy).get(make_origin().url()).status == 200
    (message,) = taker.wait(1)
    match = NETWORK.fullmatch(message)
    assert match and int(match["pri"]) == 16 * 8 + 6, message
    assert set(FIELDS) <= set(re.findall(r'"(\w+)":', match["line"].decode()))


def test_nobody_at_a_udp_port_is_no_trouble(start_proxy, make_origin, dial, opened):
    """The kernel reports an ICMP error at the next message, and that is sent again."""
    taker = Receiver()
    where = taker.target
    taker.close()
    proxy = start_proxy("--access-log", f"syslog@{where}")
    get_many(proxy, dial, make_origin().url(), 50)
    assert proxy.worker.is_running()


def test_a_syslogd_may_restart(start_proxy, make_origin, dial, opened, directory):
    """Lines logged meanwhile are kept, as far as there is room."""
    path = directory("syslog") / "log"
    taker = Receiver(path)
    proxy = start_proxy("--access-log", f"syslog@{path}")
    url = make_origin().url()
    get_many(proxy, dial, url, 3)
    assert len(taker.wait(3)) == 3
    taker.close()
    get_many(proxy, dial, url, 5)
    taker = Receiver(path)
    opened.callback(taker.close)
    assert len(taker.wait(5)) == 5
    get_many(proxy, dial, url, 2)
    assert len(taker.wait(7)) == 7


def test_more_messages_than_the_kernel_queues_all_arrive(
        start_proxy, make_origin, dial, opened, directory):
    """net.unix.max_dgram_qlen at a time, 10 or 512: the loop reports room."""
    taker = Receiver(directory("syslog") / "log")
    opened.callback(taker.close)
    proxy = start_proxy("--access-log", f"syslog@{taker.target}",
                        "--access-log-format", "squid")
    get_many(proxy, dial, make_origin().url(), 500)
    assert len(taker.wait(500)) == 500
    numbers = [float(LOCAL.fullmatch(m)["line"].split()[0]) for m in taker.messages]
    assert numbers == sorted(numbers), "in order"


def test_a_syslogd_that_hangs_holds_nobody_up(
        directory, loop_name, make_origin, dial, opened):
    """Lines are dropped, counted, reported; lines that had room arrive later, whole."""
    taker = Receiver(directory("syslog") / "log")
    opened.callback(taker.close)
    proxy, operator = administered(
        opened, directory("proxy"), loop_name,
        f'access_log = "syslog@{taker.target}"\n')
    # Of the longest: some 200 of them are all that the buffer and the kernel take
    url = make_origin(answer(OK)).url("/" + "x" * 3000)
    get_many(proxy, dial, url, 700)
    dropped = wait_until(
        lambda: operator.metrics()["log_dropped_total"], "a count of dropped lines")
    wait_until(lambda: re.search(r"access log: \d+ lines dropped", proxy.stderr()),
               proxy.stderr)
    assert dropped < 700
    kept = wait_until(
        lambda: (len(taker.read()) + operator.metrics()["log_dropped_total"] == 700
                 and taker.messages), lambda: f"700: {len(taker.messages)}")
    assert all(message.endswith(b"}") for message in kept)


@pytest.mark.parametrize("workers", [1, 2])
def test_each_line_that_a_full_disk_loses_is_counted(
        start_proxy, make_origin, dial, tmp_path, workers):
    """Of 424 lost lines, "13" and "6" were reported: lines in the buffers of workers
    that stop were in no count. The last line has the sum."""
    path, count = tmp_path / "log", 300
    proxy = start_proxy("--access-log", str(path), "--access-log-format", "json",
                        "--workers", str(workers))
    for worker in proxy.workers():
        worker.rlimit(psutil.RLIMIT_FSIZE, (10_000, -1))   # stands for a full disk
    url = make_origin(answer(OK)).url("/" + "x" * 1000)
    for _ in range(count // 30):
        get_many(proxy, dial, url, 30)       # each connection may have another worker
    proxy.stop()
    kept = [line for line in path.read_text().splitlines()
            if line.startswith("{") and line.endswith("}")]
    assert 0 < len(kept) < 20
    reports = re.findall(r"access log: (\d+) lines dropped .*: File too large",
                         proxy.stderr())
    assert sum(map(int, reports)) == count - len(kept)
    assert proxy.stderr().rstrip().endswith(
        f"; {count - len(kept)} lines of the access log lost")


def test_a_log_that_lags_costs_no_time(
        start_proxy, make_origin, dial, opened, directory):
    """The time to the next try was 0, and the worker's loop never slept."""
    taker = Receiver(directory("syslog") / "log")
    opened.callback(taker.close)
    proxy = start_proxy("--access-log", f"syslog@{taker.target}")
    get_many(proxy, dial, make_origin().url(), 600)      # more than are queued
    before = sum(proxy.worker.cpu_times()[:2])
    time.sleep(1)                            # the second whose CPU time is compared
    assert sum(proxy.worker.cpu_times()[:2]) - before < 0.2


@pytest.mark.skipif(not can_run_journald(), reason="a journald of one's own takes root")
def test_the_journal_by_its_native_protocol(start_proxy, make_origin, dial, opened):
    """A real journald, of a namespace of its own, read by journalctl."""
    journal = opened.enter_context(journald(f"cutthrough{os.getpid()}"))
    proxy = start_proxy("--access-log", f"journal:{journal.path}",
                        "--access-log-format", "squid")
    url = make_origin().url("/page")
    assert dial(proxy).get(url).status == 200
    assert dial(proxy).get(url, auth=None).status == 407
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502
    entries = wait_until(lambda: len(found := journal.entries()) == 3 and found,
                         lambda: f"three entries: {journal.entries()}")
    first = entries[0]
    assert SQUID.match(first["MESSAGE"])
    assert {name: first[name] for name in (
        "PRIORITY", "CUTTHROUGH_LOG", "CUTTHROUGH_USER", "CUTTHROUGH_CLIENT",
        "CUTTHROUGH_METHOD", "CUTTHROUGH_URL", "CUTTHROUGH_STATUS",
        "CUTTHROUGH_REASON", "CUTTHROUGH_HOST", "CUTTHROUGH_WORKER")} == {
        "PRIORITY": "6", "CUTTHROUGH_LOG": "access", "CUTTHROUGH_USER": "user",
        "CUTTHROUGH_CLIENT": "127.0.0.1", "CUTTHROUGH_METHOD": "GET",
        "CUTTHROUGH_URL": url, "CUTTHROUGH_STATUS": "200", "CUTTHROUGH_REASON": "ok",
        "CUTTHROUGH_HOST": "127.0.0.1", "CUTTHROUGH_WORKER": "0"}
    assert int(first["_PID"]) == proxy.worker.pid
    assert [entry["CUTTHROUGH_REASON"] for entry in entries] == [
        "ok", "auth_required", "connection_refused"]
    assert "CUTTHROUGH_USER" not in entries[1]
    assert "CUTTHROUGH_PEER" not in entries[1]
    assert entries[2]["CUTTHROUGH_PEER"] == "127.0.0.1"


def test_a_field_of_the_journal_cannot_be_forged(
        start_proxy, make_origin, dial, opened, directory):
    """R37: each field is one line, whatever stands in it. No journald is needed."""
    taker = Receiver(directory("journal") / "socket")
    opened.callback(taker.close)
    proxy = start_proxy("--access-log", f"journal:{taker.target}",
                        "--access-log-format", "combined")
    origin = make_origin()
    wicked = "/%0aMESSAGE=x\\" + "y" * 5000
    dial(proxy).get(origin.url(wicked), "User-Agent: a=b\tc\xff")
    (message,) = taker.wait(1)
    lines = message.decode().removesuffix("\n").split("\n")
    names = [line.partition("=")[0] for line in lines]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Z][A-Z_]*=[ -~…]*", line) for line in lines)
    assert "CUTTHROUGH_URL" in names and names[-1] == "MESSAGE"
    assert len(lines[-1]) < 4096


def test_a_pipe_that_nobody_reads_holds_nobody_up(
        start_proxy, make_origin, dial, opened, directory):
    pipe = directory("pipe") / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    opened.callback(os.close, reader)
    proxy = start_proxy("--workers", "2", "--access-log", str(pipe))
    url = make_origin().url("/" + "x" * 3000)
    threads = [threading.Thread(target=get_many, args=(proxy, dial, url, 150))
               for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "the proxy waits for its log"
    wait_until(lambda: "lines dropped" in proxy.stderr(), proxy.stderr)
    os.set_blocking(reader, True)
    text = b""
    while text.count(b"\n") < 50:            # the kept lines come now, whole
        text += os.read(reader, 65536)
    assert all(line.startswith(b'{"time"') and line.endswith(b"}")
               for line in text.split(b"\n")[:-1])


def test_standard_output_is_left_as_it_was(start_proxy, make_origin, dial, directory):
    """Not to wait is a property of the open file, shared with our parent."""
    read, write = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "serve", "--listen", "127.0.0.1:0",
             "--workers", "2"], stdout=write, stderr=subprocess.PIPE, cwd=ROOT)
        try:
            assert process.stderr is not None
            assert b"listening" in process.stderr.readline()
            assert os.get_blocking(write)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    finally:
        os.close(read)
        os.close(write)


def test_rotation_under_load_loses_no_line(start_proxy, make_origin, dial):
    """Rename, SIGUSR1, ten times, while four clients ask: each request is one whole
    line in one of the files."""
    proxy = start_proxy("--workers", "2", "--access-log-format", "%ct::worker %rp .")
    origin = make_origin()
    ended = threading.Event()
    asked: list[str] = []

    def ask(name: str) -> None:
        client = dial(proxy)
        number = 0
        while not ended.is_set():
            path = f"/{name}/{number}"
            client.send(build_request("GET", origin.url(path)))
            assert client.read_response().status == 200
            asked.append(path)
            number += 1

    threads = [threading.Thread(target=ask, args=(f"c{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    rotated: list[Path] = []
    try:
        for n in range(10):
            before = len(asked)
            wait_until(lambda b=before: len(asked) > b + 50, "fifty more requests")
            rotated.append(proxy.log_path.with_suffix(f".{n}"))
            proxy.log_path.rename(rotated[-1])
            proxy.signal(signal.SIGUSR1)
            wait_until(proxy.log_path.exists, "a new file")
    finally:
        ended.set()
        for thread in threads:
            thread.join(20)
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0
    found = []
    for path in (*rotated, proxy.log_path):
        for line in path.read_text().splitlines():
            match = re.fullmatch(r"[01] (/c\d/\d+) \.", line)
            assert match, (path, line)
            found.append(match[1])
    assert sorted(found) == sorted(asked)


@pytest.mark.parametrize("kind", ["file", "syslog"])
def test_a_worker_serves_while_its_log_cannot_be_opened(
        start_proxy, directory, make_origin, dial, opened, kind):
    """It died at its start, again and again: no client was served any more."""
    folder = directory("logs")
    path = folder / "log"
    if kind == "syslog":
        opened.callback(Receiver(path).close)
    target = f"syslog@{path}" if kind == "syslog" else str(path)
    proxy = start_proxy("--access-log", target)
    folder.rename(folder.with_suffix(".gone"))
    os.kill(proxy.worker.pid, signal.SIGKILL)
    assert dial(proxy).get(make_origin().url("/meanwhile")).status == 200
    assert f"cannot open {target}, will retry: No such" in proxy.stderr()
    assert "died: status" not in proxy.stderr()
    folder.mkdir()
    if kind == "syslog":
        taker = Receiver(path)
        opened.callback(taker.close)
        assert b"/meanwhile" in taker.wait(1)[0]
    else:
        wait_until(lambda: path.exists() and "/meanwhile" in path.read_text(), "a line")


@pytest.mark.parametrize(("target", "reason"), [
    ("syslog@/nonexistent/log", "No such file or directory"),
    ("journal:/nonexistent/socket", "No such file or directory"),
    ("syslog:daemn", "did you mean daemon"),
    ("syslog:daemon.inf", "did you mean info"),
    ("syslog@log.example:514", "no name"),
    ("syslog@127.0.0.1:0", "no name"),
    ("journal:relative", "path of a unix socket"),
])
def test_a_target_that_cannot_be_is_refused_at_the_start(target, reason):
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "serve", "--listen", "127.0.0.1:0",
         "--access-log", target], capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert done.returncode == 2 and reason in done.stderr
    assert "access" in done.stderr
