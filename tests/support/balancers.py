"""What gives each client of tests/support/hosts.py a host, by a hash of its address.

HAProxy passes connections on, says who its client is by the PROXY protocol, and ends
the connections of a host that fails its checks. IPVS is in the kernel, and passes on
packets: to the host it looks as if the client were a neighbour, and the client hears
nothing of a host that is gone. keepalived tells IPVS which hosts there are, by
deploy/keepalived/keepalived.conf as it stands.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from tests.support.haproxy import CONFIG
from tests.support.haproxy import PROGRAM as HAPROXY
from tests.support.hosts import ADMIN_PORT, DIRECTOR, PORT, SHARED, Host, Network
from tests.support.intercepting import ip
from tests.support.network import IPV4
from tests.support.proxy import ROOT
from tests.support.wait import wait_until

KEEPALIVED = shutil.which(
    "keepalived", path=os.environ.get("PATH", "") + ":/usr/sbin")
KEEPALIVED_CONFIG = ROOT / "deploy/keepalived/keepalived.conf"
# In /proc/net/tcp
LISTEN, TIME_WAIT = "0A", "06"
FLEET = """
listen fleet
    bind {shared}:{port}
    timeout connect 250ms
    timeout check 200ms
    retries 3
    option redispatch 1
    balance source
    hash-type consistent
    default-server inter 200ms fastinter 100ms fall 2 on-marked-down shutdown-sessions
{servers}
"""


class Balancer(ABC):
    """`connect_s`, `answer_s`: what clients of a dead host wait for a connection and an
    answer, before they try again."""

    name: str
    connect_s, answer_s = 10.0, 60.0

    @abstractmethod
    def missing(self) -> str:
        """What this machine lacks for it, or ""."""

    @abstractmethod
    def prepare(self, host: Host) -> str:
        """Makes the host ready; lines of its configuration."""

    @abstractmethod
    def serve(self, director: Network, hosts: list[Host], directory: Path
              ) -> contextlib.AbstractContextManager[None]:
        """Clients can connect to SHARED meanwhile, and every host serves."""

    @abstractmethod
    def wait_checked(self, director: Network, host: Host) -> None:
        """Waits for a moment at which no check of this host is under way, if a check
        without an answer would hold up the balancer."""


class HAProxy(Balancer):
    name = "haproxy"

    def wait_checked(self, director: Network, host: Host) -> None:
        """A check holds nothing up."""

    def missing(self) -> str:
        return "" if HAPROXY else "haproxy is not installed"

    def prepare(self, host: Host) -> str:
        return f"""
listen = ["{host.address}:{PORT}"]
proxy_protocol = ["{host.address}:{PORT}"]
proxy_protocol_from = ["{DIRECTOR}"]
"""

    @contextlib.contextmanager
    def serve(self, director: Network, hosts: list[Host], directory: Path
              ) -> Iterator[None]:
        config = directory / "haproxy.cfg"
        config.write_text(CONFIG + FLEET.format(
            shared=SHARED, port=PORT, servers="\n".join(
                f"    server {host.name} {host.address}:{PORT} check send-proxy-v2"
                for host in hosts)))
        with director.within():
            ip("addr", "add", f"{SHARED}/32", "dev", "eth0")
        with running(director, directory / "haproxy.log",
                     HAPROXY, "-db", "-f", config):
            yield


class Ipvs(Balancer):
    name = "ipvs"
    # keepalived sees a death within 1.7 s, so that 0.3 s are left of the bar of 2 s
    connect_s, answer_s = 0.25, 1.0

    def missing(self) -> str:
        if KEEPALIVED is None:
            return "keepalived is not installed"
        return "" if Path("/proc/net/ip_vs").exists() else (
            "the kernel has no IPVS; `make fleet-ipvs` has one")

    def prepare(self, host: Host) -> str:
        """docs/fleet.md: it has the address, and answers no question about it."""
        with host.within():
            (IPV4 / "conf/all/arp_ignore").write_text("1")
            (IPV4 / "conf/all/arp_announce").write_text("2")
            ip("addr", "add", f"{SHARED}/32", "dev", "lo")
        return f'listen = ["{SHARED}:{PORT}"]\n'

    @contextlib.contextmanager
    def serve(self, director: Network, hosts: list[Host], directory: Path
              ) -> Iterator[None]:
        pids = [f"--{kind}={directory / kind}"
                for kind in ("pid", "vrrp_pid", "checkers_pid")]
        with running(director, directory / "keepalived.log", KEEPALIVED,
                     "--dont-fork", "--log-console", "--no-syslog", *pids,
                     "--use-file", KEEPALIVED_CONFIG):
            wait_until(lambda: weights(director) == [1] * len(hosts),
                       lambda: f"hosts of weight 1: {weights(director)}")
            yield


    def wait_checked(self, director: Network, host: Host) -> None:
        """keepalived waits for as long as 5 s in close(2) until a host has acknowledged
        the end of a check's connection (SO_LINGER, its socket_bind_connect). A check
        takes milliseconds, but on an emulated machine a great part of the time."""
        other = f"{address_word(host.address)}:{ADMIN_PORT:04X}"

        def checks() -> dict[str, bool]:
            """By the director's port: is the check's connection open? A check may come
            and go between two looks, but leaves TIME_WAIT on one side."""
            opened: dict[str, bool] = {}
            for side in (director, host):
                with side.within():
                    table = Path("/proc/thread-self/net/tcp").read_text()
                for row in table.splitlines()[1:]:
                    _, local, remote, state, *_ = row.split()
                    if other in (local, remote) and state != LISTEN:
                        port = remote if local == other else local
                        opened[port] = opened.get(port, False) or state != TIME_WAIT
            return opened

        before = checks().keys()
        begun = wait_until(lambda: checks().keys() - before, "a check",
                           longest_pause=0.002)
        wait_until(lambda: not any(map(checks().get, begun)), "its end",
                   longest_pause=0.002)


BALANCERS: list[Balancer] = [HAProxy(), Ipvs()]


def address_word(address: str) -> str:
    """As in /proc/net/tcp: a word in the machine's order."""
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}"


def weights(director: Network) -> list[int]:
    """Returns the weights of the hosts that IPVS has; 0: no new clients."""
    with director.within():
        table = Path("/proc/thread-self/net/ip_vs").read_text()
    return [int(line.split()[3]) for line in table.splitlines()
            if line.startswith("  ->") and "RemoteAddress" not in line]


@contextlib.contextmanager
def running(director: Network, log: Path, *command: str | Path | None
            ) -> Iterator[None]:
    with director.within(), open(log, "wb") as file:
        process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file,
            stderr=subprocess.STDOUT)
    try:
        wait_until(answers, lambda: f"a connection: {log.read_text()}")
        yield
    finally:
        process.terminate()
        process.wait(60)


def answers() -> bool:
    """Can this network connect to SHARED?"""
    with socket.socket() as sock:
        sock.settimeout(1)
        try:
            sock.connect((SHARED, PORT))
        except OSError:
            return False
    return True
