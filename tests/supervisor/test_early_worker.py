"""The first worker, which starts before the configuration is read."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from cutthrough.process.environment import SIGNALS
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until

OPTIONS = """
listen = ["127.0.0.1:0"]
user = "me"
password = "secret"
access_log = "off"
"""


@contextlib.contextmanager
def waiting_for_its_options(directory, pass_fds=()):
    """A start that reads its configuration from a FIFO, and its first worker."""
    os.mkfifo(directory / "options")
    with subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "serve", "-c", directory / "options"],
            cwd=ROOT, text=True, stderr=subprocess.PIPE, env=clean_environment(),
            pass_fds=pass_fds) as process:
        program = psutil.Process(process.pid)
        wait_until(lambda: any("cutthrough.worker.main" in child.cmdline()
                               for child in program.children()), "an early worker")
        (worker,) = program.children()
        try:
            yield process, worker
        finally:
            process.kill()


def test_the_first_worker_loads_while_the_configuration_is_read(tmp_path):
    with waiting_for_its_options(tmp_path) as (process, worker):
        (tmp_path / "options").write_text(OPTIONS + "workers = 2\n")
        line = process.stderr.readline()
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", line)[1])
        assert worker in psutil.Process(process.pid).children()
        assert len(psutil.Process(process.pid).children()) == 2
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET http://127.0.0.1/ HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 407 ")
        process.terminate()
        assert process.wait(60) == 0


def test_of_a_start_that_fails_no_worker_stays(tmp_path):
    with waiting_for_its_options(tmp_path) as (process, worker):
        (tmp_path / "options").write_text("workers = -1\n")
        assert process.wait(60) == 2
        assert not worker.is_running()
        assert "workers" in process.stderr.read()


def test_an_early_worker_that_died_is_replaced(tmp_path):
    with waiting_for_its_options(tmp_path) as (process, worker):
        worker.kill()
        wait_until(lambda: worker.status() == psutil.STATUS_ZOMBIE, "its end")
        (tmp_path / "options").write_text(OPTIONS + "workers = 1\n")
        assert "listening on" in process.stderr.readline()
        process.terminate()
        assert process.wait(60) == 0


def test_an_early_worker_has_no_descriptor_that_its_parent_inherited(tmp_path):
    """A pipe that a shell left open would have no end while the worker lives."""
    theirs, ours = os.pipe()
    with os.fdopen(theirs), waiting_for_its_options(tmp_path, (ours,)) as (
            process, worker):
        os.close(ours)
        pipe = os.readlink(f"/proc/{process.pid}/fd/{ours}")
        folder = f"/proc/{worker.pid}/fd"
        links = {name: os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}
        assert pipe not in links.values()
        assert links["0"] == os.devnull
        status = Path(f"/proc/{worker.pid}/status").read_text()
        blocked = int(re.search(r"^SigBlk:\t(\w+)$", status, re.M)[1], 16)
        assert blocked == sum(1 << number - 1 for number in SIGNALS)
        (tmp_path / "options").write_text("workers = -1\n")
        assert process.wait(60) == 2
