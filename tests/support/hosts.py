"""Hosts with a proxy each, on one switch with a balancer that gives each client a host.

    clients (192.0.2.129, …)              ┌── host0 (192.0.2.11): a supervisor
    origin   192.0.2.1     ─── switch ────┼── host1 (192.0.2.12) …
                                          ├── director (192.0.2.2, 192.0.2.100)
                                          └── store (192.0.2.9): Redis, if they share it

Clients, the origin and the switch are in the network of the test's thread, all others
in one of their own. The addresses are those of deploy/keepalived. What is at the
director: tests/support/balancers.py.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.support.admin import TOKEN
from tests.support.intercepting import ip
from tests.support.network import CLONE_NEWNET, own_network, set_link
from tests.support.proxy import Proxy
from tests.support.redis import PROGRAM as PROGRAM_OF_REDIS
from tests.support.redis import Redis
from tests.support.wait import wait_until

HERE, DIRECTOR, STORE = "192.0.2.1", "192.0.2.2", "192.0.2.9"
SHARED, PORT, ADMIN_PORT = "192.0.2.100", 3128, 9128
KEYS = "{cutthrough}:2:"                     # in Redis
OPEN = 'address_floor = "off"'               # for who has no policy
NETWORK = "/proc/thread-self/ns/net"         # of this thread

N = TypeVar("N", bound="Network")


def address_of(host: int) -> str:
    return f"192.0.2.{11 + host}"


def source_of(client: int) -> str:
    return f"192.0.2.{129 + client}"


class Network:
    """A network that is linked to the switch by `eth0`; `name` is the switch's end.

    `network`, `front`: descriptors of it and of the thread's."""

    def __init__(self, name: str, address: str, network: int, front: int) -> None:
        self.name, self.address = name, address
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

    def set_isolated(self, is_isolated: bool) -> None:
        """The switch loses packets between networks that are isolated, silently."""
        ip("link", "set", self.name, "type", "bridge_slave", "isolated",
           "on" if is_isolated else "off")


class Host(Network):
    """A network with a proxy."""

    proxy: Proxy | None = None

    def start(self, directory: Path, options: str) -> Proxy:
        """`options`: further lines of its configuration."""
        with self.within():
            self.proxy = Proxy(directory, config=f"""
via = "{self.name}"
admin = "{self.address}:{ADMIN_PORT}"
admin_token = "{TOKEN}"
{options}""")
        return self.proxy

    def stderr(self) -> str:
        assert self.proxy is not None
        return self.proxy.stderr()

    def die(self) -> tuple[float, float]:
        """As without power: no packet says so, and all its processes are gone. Returns
        moments at which it was up and down."""
        assert self.proxy is not None
        with self.within():
            up = time.monotonic()
            set_link("eth0", is_up=False)
            down = time.monotonic()
        parent = psutil.Process(self.proxy.process.pid)
        for process in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self.proxy.process.wait()
        return up, down


class Store(Network):
    """A network with a Redis, which the test reaches even if no host does."""

    redis: Redis | None = None

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
        """Packets between these hosts and Redis are lost meanwhile, without an
        answer: from one moment on for all of them, because Redis is isolated last."""
        for network in (*cut, self):
            network.set_isolated(True)
        try:
            yield
        finally:
            for network in (self, *cut):
                network.set_isolated(False)

    # What Redis has: cutthrough/supervisor/fleet_script.py

    def tunnels(self) -> int:
        """The tunnels of all users over all programs that Redis takes for alive."""
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
def front_network(clients: int) -> Iterator[int]:
    """Moves the test's thread into a network with a switch, and the addresses of so
    many clients; its descriptor."""
    with own_network():
        front = os.open(NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            ip("link", "add", "switch", "type", "bridge")
            for address in (HERE, *map(source_of, range(clients))):
                ip("addr", "add", f"{address}/24", "dev", "switch")
            ip("link", "set", "switch", "up")
            yield front
        finally:
            os.close(front)


@contextlib.contextmanager
def linked(kind: type[N], name: str, address: str, front: int) -> Iterator[N]:
    """A network of this kind, linked to the front one, in which this thread is."""
    inside = f"/proc/{os.getpid()}/fd/{front}"
    with own_network():
        network = os.open(NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        ip("link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", inside)
        ip("addr", "add", f"{address}/24", "dev", "eth0")
        ip("link", "set", "eth0", "up")
    try:
        ip("link", "set", name, "master", "switch", "up")
        yield kind(name, address, network, front)
    finally:
        os.close(network)


@contextlib.contextmanager
def store(directory: Path, front: int) -> Iterator[Store]:
    with linked(Store, "store", STORE, front) as store:
        redis = store.start(directory / "redis")
        try:
            yield store
        finally:
            redis.close()


@contextlib.contextmanager
def hosts(directory: Path, count: int, front: int, prepare: Callable[[Host], str]
          ) -> Iterator[list[Host]]:
    """`prepare`: makes one ready; lines of its configuration."""
    with contextlib.ExitStack() as opened:
        every = [opened.enter_context(
            linked(Host, f"host{number}", address_of(number), front))
            for number in range(count)]
        for host in every:
            proxy = host.start(directory / host.name, prepare(host))
            opened.callback(_end, proxy)
        yield every


def _end(proxy: Proxy) -> None:
    if proxy.process.poll() is None:
        proxy.process.terminate()
        proxy.process.wait(60)
