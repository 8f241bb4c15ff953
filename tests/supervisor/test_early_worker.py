"""The first worker, which starts before the configuration is read."""

import contextlib
import os
import re
import socket
import subprocess
import sys

import psutil

from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until

OPTIONS = """
listen = ["127.0.0.1:0"]
user = "me"
password = "secret"
access_log = "off"
"""


@contextlib.contextmanager
def waiting_for_its_options(directory):
    """A start that reads its configuration from a FIFO, and its first worker."""
    os.mkfifo(directory / "options")
    with subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "serve", "-c", directory / "options"],
            cwd=ROOT, text=True, stderr=subprocess.PIPE, env=clean_environment()
            ) as process:
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
