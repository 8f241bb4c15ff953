"""Connections that a program or a worker hands over to its successor."""

import re
import signal

import psutil
import pytest

from tests.support.proxy import Proxy
from tests.support.successors import end_all, end_family, find_successor
from tests.support.wait import wait_until

HANDED = re.compile(r"handed (\d+) tunnels? over, kept (\d+)")
# An option that is fixed when a worker begins, and changes nothing that a test sees
RENEW = "dns_cache_entries = {}\n"


@pytest.fixture
def start(loop_name, directory, opened):
    """A proxy with its configuration file as its only source."""
    def make(text: str = "") -> Proxy:
        proxy = opened.enter_context(
            Proxy(directory("proxy"), loop=loop_name, config=text))
        opened.callback(end_family, str(proxy._config))
        return proxy
    return make


@pytest.fixture
def limited(directory):
    """The text that configures limits for all users."""
    def write(**limits: int) -> str:
        path = directory("policy") / "policy.toml"
        path.write_text('default = "allow"\n[limits.default]\n' + "".join(
            f"{name} = {value}\n" for name, value in limits.items()))
        return f'policy = "{path}"\naddress_floor = "off"\n'
    return write


def pids(proxy) -> set[int]:
    return {worker.pid for worker in proxy.workers()}


def renew(proxy, number: int, text: str = "") -> None:
    """Replaces every worker; returns when the old ones have gone."""
    before = pids(proxy)
    proxy.reload(RENEW.format(number) + text)
    wait_until(lambda: not before & pids(proxy), lambda: f"gone: {proxy.stderr()}")


def handed(proxy) -> list[tuple[int, int]]:
    return [(int(n), int(m)) for n, m in HANDED.findall(proxy.stderr())]


def upgrade(proxy, opened) -> psutil.Process:
    """Starts the next program, and waits for the end of the first one."""
    proxy.signal(signal.SIGUSR2)
    new = find_successor(proxy.stderr)
    opened.callback(end_all, new)
    assert proxy.process.wait(20) == 0, "it has nothing left to wait for"
    return new
