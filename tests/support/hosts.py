"""Hosts with a proxy each, behind HAProxy that hashes clients' addresses consistently.

    clients (127.0.0.2, …) ── HAProxy ── veth ── host 0 (10.8.0.2): a supervisor
    origin                    10.8.0.1 …      ── host 1 (10.8.1.2) …

Clients, HAProxy and the origin are in the network of the test's thread. IPVS, which
would forward the packets themselves, is not in every kernel: `has_ipvs`.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.haproxy import CONFIG, PROGRAM
from tests.support.intercepting import ip
from tests.support.network import CLONE_NEWNET, own_network
from tests.support.nginx import free_port
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

PORT = 3128
NETWORK = "/proc/thread-self/ns/net"         # of this thread
FLEET = """
listen fleet
    bind 127.0.0.1:{port}
    timeout connect 250ms
    timeout check 200ms
    retries 3
    option redispatch 1
    balance source
    hash-type consistent
    default-server inter 200ms fastinter 100ms fall 2 on-marked-down shutdown-sessions
{servers}
"""


def has_ipvs() -> bool:
    return Path("/proc/net/ip_vs").exists()


class Host:
    """A network behind a link, and a proxy in it."""

    def __init__(self, number: int, network: int, front: int) -> None:
        self.name = f"host{number}"
        self.near, self.address = f"10.8.{number}.1", f"10.8.{number}.2"
        self._network, self._front = network, front
        self.proxy: Proxy | None = None

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Processes that this thread starts meanwhile are the host's."""
        libc = ctypes.CDLL(None)
        assert libc.setns(self._network, CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(self._front, CLONE_NEWNET) == 0

    def start(self, directory: Path) -> Proxy:
        with self.within():
            self.proxy = Proxy(directory, config=f"""
listen = ["{self.address}:{PORT}"]
proxy_protocol = ["{self.address}:{PORT}"]
proxy_protocol_from = ["{self.near}"]
address_floor = "off"
via = "{self.name}"
""")
        return self.proxy

    def die(self) -> tuple[float, float]:
        """As without power: no packet says so, and all its processes are gone. Returns
        moments at which it was up and down."""
        assert self.proxy is not None
        up = time.monotonic()
        with self.within():
            ip("link", "set", "eth0", "down")
        down = time.monotonic()
        parent = psutil.Process(self.proxy.process.pid)
        for process in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self.proxy.process.wait()
        return up, down


@contextlib.contextmanager
def hosts(directory: Path, count: int) -> Iterator[list[Host]]:
    """The test's thread is in the front network meanwhile."""
    with own_network(), contextlib.ExitStack() as opened:
        front = os.open(NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, front)
        inside = f"/proc/{os.getpid()}/fd/{front}"
        every: list[Host] = []
        for number in range(count):
            with own_network():
                network = os.open(NETWORK, os.O_RDONLY | os.O_CLOEXEC)
                opened.callback(os.close, network)
                host = Host(number, network, front)
                ip("link", "add", "eth0", "type", "veth", "peer", "name", host.name,
                   "netns", inside)
                ip("addr", "add", f"{host.address}/24", "dev", "eth0")
                ip("link", "set", "eth0", "up")
            ip("addr", "add", f"{host.near}/24", "dev", host.name)
            ip("link", "set", host.name, "up")
            with host.within():
                ip("route", "add", "default", "via", host.near)
            every.append(host)
        for host in every:
            proxy = host.start(directory / host.name)
            opened.callback(_end, proxy)
        yield every


def _answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _end(proxy: Proxy) -> None:
    if proxy.process.poll() is None:
        proxy.process.terminate()
        proxy.process.wait(60)


@contextlib.contextmanager
def balanced(directory: Path, every: list[Host]) -> Iterator[int]:
    """HAProxy in front of them; its port."""
    assert PROGRAM, "haproxy is not installed"
    port = free_port()
    servers = "\n".join(
        f"    server {host.name} {host.address}:{PORT} check send-proxy-v2"
        for host in every)
    config = directory / "haproxy.cfg"
    config.write_text(CONFIG + FLEET.format(port=port, servers=servers))
    with open(directory / "haproxy.log", "wb") as log:
        process = subprocess.Popen([PROGRAM, "-db", "-f", config], stdout=log,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: _answers(port), "haproxy")
        yield port
    finally:
        process.terminate()
        process.wait(60)
