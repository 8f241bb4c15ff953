"""A full disk, and a writer that dies under load: the data path goes on (R58)."""

import contextlib
import json
import os
import re
import stat
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.support.admin import Operator
from tests.support.disks import SlowDisk, may_mount
from tests.support.origin import answer
from tests.support.proxy import Proxy, command_of
from tests.support.sanitized import SANITIZED
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
POLICY = '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\ncapture = "full"\n'
ENDS = ("captured", "dropped")
# Serves with a disk of 4 MiB at the directory that is its first argument
ON_SMALL_DISK = """
import ctypes, os, runpy, sys
libc = ctypes.CDLL(None, use_errno=True)
where = sys.argv.pop(1).encode()
NEWNS, PRIVATE, REC = 0x20000, 1 << 18, 1 << 14
for done in (libc.unshare(NEWNS), libc.mount(None, b"/", None, PRIVATE | REC, None),
             libc.mount(b"none", where, b"tmpfs", 0, b"size=4m,mode=700")):
    if done:
        raise OSError(ctypes.get_errno(), "mount")
sys.argv[0] = "cutthrough"
runpy.run_module("cutthrough", run_name="__main__", alter_sys=True)
"""
WRITER = "cutthrough.storage.writer"


@pytest.fixture
def start(tmp_path, loop_name, opened):
    """Starts a proxy; returns it and its database, as this process sees it."""
    def run(
        small_disk: bool = False, env: dict[str, str] | None = None
    ) -> tuple[Proxy, Path]:
        disk = tmp_path / "disk"
        disk.mkdir()
        policy = tmp_path / "policy.toml"
        policy.write_text(POLICY)
        first = ("-c", ON_SMALL_DISK, str(disk)) if small_disk else ("-m", "cutthrough")
        proxy = opened.enter_context(Proxy(
            tmp_path / "proxy", loop=loop_name, command=(*first, "serve"), env=env,
            config=f'policy = "{policy}"\nadmin = "127.0.0.1:0"\n'
                   f'capture_file = "{disk}/flows.db"\ncapture_count = 0\n'))
        return proxy, Path(f"/proc/{proxy.process.pid}/root{disk}/flows.db")
    return run


def ask(database: Path, statement: str) -> list[list]:
    """From inside the proxy's namespace: SQLite follows /proc/PID/root by itself."""
    pid, _, path = str(database).removeprefix("/proc/").partition("/root")
    script = ("import json, sqlite3, sys; print(json.dumps(sqlite3.connect("
              "f'file:{sys.argv[1]}?mode=ro', uri=True).execute(sys.argv[2])"
              ".fetchall()))")
    done = subprocess.run(["nsenter", "-t", pid, "-m", sys.executable, "-c", script,
                           path, statement], capture_output=True, text=True,
                          check=False)
    assert not done.returncode or "OperationalError" in done.stderr, done.stderr
    return json.loads(done.stdout or "[]")   # []: its tables are being made


def urls(database: Path) -> list[str]:
    return [url for (url,) in ask(database, "SELECT url FROM flows ORDER BY id")]


def check(database: Path) -> bool:
    """False: the file is locked at the moment."""
    found = ask(database, "PRAGMA integrity_check")
    assert found in ([["ok"]], [])
    return bool(found)


def writer(proxy) -> psutil.Process:
    def find() -> psutil.Process | None:
        return next((one for one in proxy.workers() if WRITER in command_of(one)), None)
    return wait_until(find, "a writer")


def counted(proxy) -> dict[str, int]:
    port = re.search(r"admin listener on 127\.0\.0\.1:(\d+)", proxy.stderr())[1]
    text = Operator(int(port)).ask("GET", "/metrics")[1]
    return {name: int(float(n)) for name, n in re.findall(
        r'^cutthrough_capture_exchanges_total\{result="(\w+)"\} (\S+)$', text, re.M)}


@pytest.mark.skipif(not may_mount(), reason="no mount namespace may be made here")
def test_a_full_disk_costs_flows_until_it_has_room(
        start, make_origin, dial):
    proxy, database = start(small_disk=True)
    origin = make_origin(answer(REPLY))
    client = dial(proxy)
    assert client.get(origin.url("/before")).status == 200
    wait_until(lambda: len(urls(database)) == 1, "a row")
    ballast = database.with_name("ballast")
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    data = b"x" * 200_000                   # more than is left in the log of changes
    for _ in range(20):
        assert client.ask("POST", origin.url("/full"), f"Content-Length: {len(data)}",
                          body=data).status == 200
    wait_until(lambda: counted(proxy)["unwritten"], lambda: str(counted(proxy)))
    ballast.unlink()

    def is_written() -> bool:
        assert client.get(origin.url("/after")).status == 200
        return any(url.endswith("/after") for url in urls(database))
    wait_until(is_written, proxy.stderr)
    said = proxy.stderr()
    lost = int(re.search(r"written again; (\d+) were lost", said)[1])
    assert said.count("cannot be written") < lost, "not for each"
    wait_until(lambda: counted(proxy)["unwritten"] == lost, lambda: str(counted(proxy)))
    assert wait_until(lambda: check(database), "an answer")
    assert {stat.S_IMODE(path.stat().st_mode)
            for path in database.parent.iterdir()} == {0o600}


@pytest.mark.skipif(not may_mount(), reason="no mount namespace may be entered here")
def test_a_writer_that_is_killed_under_load_leaves_a_whole_database(
        start, make_origin, dial):
    proxy, database = start()
    origin = make_origin(answer(REPLY))
    with proxy.client() as first:
        assert first.get(origin.url()).status == 200
    sent, ended = [1], threading.Event()

    def send() -> None:
        client = dial(proxy)
        while not ended.is_set():
            assert client.get(origin.url()).status == 200
            sent[0] += 1

    load = threading.Thread(target=send)
    load.start()
    try:
        for _ in range(2):
            held = writer(proxy)
            before, wanted = sent[0], sent[0] + 50
            wait_until(lambda n=wanted: sent[0] > n, "requests")
            held.kill()
            wait_until(lambda pid=held.pid: writer(proxy).pid != pid, "another writer")
            assert sent[0] > before
            wait_until(lambda: check(database), "an answer")
    finally:
        ended.set()
        load.join()
    wait_until(lambda: len(urls(database)) + counted(proxy)["dropped"] == sent[0],
               lambda: f"{len(urls(database))} of {sent[0]}: {counted(proxy)}")
    assert wait_until(lambda: check(database), "an answer")
    assert not os.path.exists(f"{database}-journal")


@pytest.mark.skipif(SANITIZED, reason="preloads functions of its own")
@pytest.mark.skipif(not may_mount(), reason="no mount namespace may be entered here")
def test_a_slow_disk_costs_flows_and_no_requests(start, make_origin, dial, tmp_path):
    """40 exchanges fill half of the ring; a disk takes seconds to write a few."""
    slow = SlowDisk(tmp_path, "flows.db", 0.2)
    slow.begin()
    proxy, database = start(env=slow.env)
    data = b"x" * 400_000
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + data))
    client, took = dial(proxy), []
    for _ in range(40):
        began = time.monotonic()
        assert client.get(origin.url()).body == data
        took.append(time.monotonic() - began)
    assert statistics.median(took) < 0.1    # a write takes 0.2 s
    assert len(urls(database)) < 40, "the disk was not slow"
    slow.end()
    wait_until(lambda: sum(counted(proxy)[result] for result in ENDS) == 40,
               lambda: str(counted(proxy)))
    assert counted(proxy)["captured"]        # in the ring: the writer goes on
    wait_until(lambda: len(urls(database)) == counted(proxy)["captured"],
               lambda: str(counted(proxy)))
