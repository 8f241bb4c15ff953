"""Programs that take over from one another, and ends of all that take part."""

import contextlib
import re
import signal

import psutil
import pytest

from tests.support.proxy import Proxy
from tests.support.wait import wait_until


@pytest.fixture
def start(loop_name, directory, opened):
    """Starts a proxy that may have successors, which end with the test."""
    def make(text: str = "", **more) -> Proxy:
        proxy = opened.enter_context(
            Proxy(directory("proxy"), loop=loop_name, config=text, **more))
        opened.callback(end_family, str(proxy._config))
        return proxy
    return make


def end_family(config: str) -> None:
    """Every program of this configuration, also if a failed test has left it."""
    for process in psutil.process_iter(["cmdline"]):
        if config in (process.info["cmdline"] or ()):
            end_all(process)


def end_all(process: psutil.Process) -> None:
    """Also the successor, because its parent may have gone by then."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in [*process.children(recursive=True), process]:
            if each.status() != psutil.STATUS_ZOMBIE:
                each.kill()


def successor_of(proxy: Proxy) -> psutil.Process:
    """Requests an upgrade; returns the new supervisor when it serves."""
    proxy.signal(signal.SIGUSR2)
    return find_successor(proxy.stderr)


def find_successor(told) -> psutil.Process:
    pids = wait_until(
        lambda: re.findall(r"pid (\d+) serves; this program drains", told()), told)
    return psutil.Process(int(pids[-1]))


def end(process: psutil.Process) -> None:
    process.terminate()
    wait_until(lambda: not process.is_running()
               or process.status() == psutil.STATUS_ZOMBIE, "its end")
