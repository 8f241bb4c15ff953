"""Hosts with a proxy each, behind HAProxy that hashes clients' addresses consistently.

    clients (127.0.0.2, …) ── HAProxy ── veth ── host 0 (10.8.0.2): a supervisor
    origin                    10.8.0.1 …      ── host 1 (10.8.1.2) …
                                              ── Redis (10.8.9.2), if they share one

Clients, HAProxy and the origin are in the network of the test's thread, which forwards
packets between the others. IPVS, which would be in HAProxy's place, is not in every
kernel.
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
from typing import Any, TypeVar

import psutil

from tests.support.haproxy import CONFIG, PROGRAM
from tests.support.intercepting import ip
from tests.support.network import CLONE_NEWNET, IPV4, own_network
from tests.support.nginx import free_port
from tests.support.proxy import Proxy
from tests.support.redis import PROGRAM as PROGRAM_OF_REDIS
from tests.support.redis import Redis
from tests.support.wait import wait_until

PORT, STORE = 3128, 9
KEYS = "{cutthrough}:2:"                     # in Redis
OPEN = 'address_floor = "off"'               # for who has no policy
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

N = TypeVar("N", bound="Network")


class Network:
    """A network behind a link to the front network, by which it reaches the others.

    `network`, `front`: descriptors of both."""

    def __init__(self, number: int, network: int, front: int) -> None:
        self.name = f"host{number}"
        self.near, self.address = f"10.8.{number}.1", f"10.8.{number}.2"
        self._network, self._front = network, front

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Processes and sockets that this thread makes meanwhile are in it."""
        libc = ctypes.CDLL(None)
        assert libc.setns(self._network, CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(self._front, CLONE_NEWNET) == 0


class Host(Network):
    """A network with a proxy."""

    def __init__(self, number: int, network: int, front: int) -> None:
        super().__init__(number, network, front)
        self.proxy: Proxy | None = None

    def start(self, directory: Path, options: str) -> Proxy:
        """`options`: further lines of its configuration."""
        with self.within():
            self.proxy = Proxy(directory, config=f"""
listen = ["{self.address}:{PORT}"]
proxy_protocol = ["{self.address}:{PORT}"]
proxy_protocol_from = ["{self.near}"]
via = "{self.name}"
{options}""")
        return self.proxy

    def stderr(self) -> str:
        assert self.proxy is not None
        return self.proxy.stderr()

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


class Store(Network):
    """A network with a Redis, which the test reaches even if no host does."""

    def __init__(self, number: int, network: int, front: int) -> None:
        super().__init__(number, network, front)
        self.redis: Redis | None = None

    def start(self, directory: Path) -> Redis:
        directory.mkdir()
        with self.within():
            self.redis = Redis(directory, PROGRAM_OF_REDIS, "--bind", "0.0.0.0",
                               has_tls=False)
        return self.redis

    @property
    def url(self) -> str:
        assert self.redis is not None
        return self.redis.url.replace("127.0.0.1", self.address)

    def ask(self, *command: object) -> Any:
        assert self.redis is not None
        with self.within():
            return self.redis.ask(*command)

    @contextlib.contextmanager
    def partition(self, *cut: Host) -> Iterator[None]:
        """Packets of these hosts to Redis are lost meanwhile, without an answer."""
        rules = [("from", host.address, "to", self.address, "blackhole")
                 for host in cut]
        for rule in rules:
            ip("rule", "add", *rule)
        try:
            yield
        finally:
            for rule in rules:
                ip("rule", "del", *rule)

    # What Redis has: cutthrough/supervisor/fleet_script.py

    def tunnels(self) -> int:
        """Of all users over all programs that Redis takes for alive."""
        sums = self.ask("HGETALL", f"{KEYS}sums")
        return sum(int(value.split()[1]) for name, value in sums.items()
                   if len(name) == 32)

    def steps(self) -> dict[str, tuple[str, int]]:
        """By program: its session, and the number of its last step in that."""
        prefix = f"{KEYS}{self.ask('HGET', f'{KEYS}sums', 'epoch')}:"
        states = {name: self.ask("HGET", f"{prefix}of:{name}", "#")
                  for name in self.ask("ZRANGE", f"{prefix}alive", 0, -1)}
        return {name: (session, int(number)) for name, state in states.items()
                if state for session, number in [state.split()]}

    def in_step(self, programs: int) -> None:
        """Waits until so many programs have made two steps, and then two more: each of
        them knows what all have used before."""
        for _ in range(2):
            before = self.steps()
            wait_until(lambda seen=before: programs <= sum(
                number >= 2 + (seen[name][1] if name in seen
                               and seen[name][0] == session else 0)
                for name, (session, number) in self.steps().items()), "two more steps")


@contextlib.contextmanager
def front_network() -> Iterator[int]:
    """Moves the test's thread into a network that forwards; its descriptor."""
    with own_network():
        front = os.open(NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            (IPV4 / "ip_forward").write_text("1")
            yield front
        finally:
            os.close(front)


@contextlib.contextmanager
def linked(kind: type[N], number: int, front: int) -> Iterator[N]:
    """A network of this kind, linked to the front one, in which this thread is."""
    inside = f"/proc/{os.getpid()}/fd/{front}"
    with contextlib.ExitStack() as opened:
        with own_network():
            network = os.open(NETWORK, os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, network)
            made = kind(number, network, front)
            ip("link", "add", "eth0", "type", "veth", "peer", "name", made.name,
               "netns", inside)
            ip("addr", "add", f"{made.address}/24", "dev", "eth0")
            ip("link", "set", "eth0", "up")
        ip("addr", "add", f"{made.near}/24", "dev", made.name)
        ip("link", "set", made.name, "up")
        with made.within():
            ip("route", "add", "default", "via", made.near)
        yield made


@contextlib.contextmanager
def store(directory: Path, front: int) -> Iterator[Store]:
    with linked(Store, STORE, front) as made:
        redis = made.start(directory / "redis")
        try:
            yield made
        finally:
            redis.close()


@contextlib.contextmanager
def hosts(directory: Path, count: int, front: int, options: str = OPEN
          ) -> Iterator[list[Host]]:
    """`options`: lines of the configuration of each."""
    with contextlib.ExitStack() as opened:
        every = [opened.enter_context(linked(Host, number, front))
                 for number in range(count)]
        for host in every:
            proxy = host.start(directory / host.name, options)
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
