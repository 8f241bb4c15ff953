"""Two networks: clients in one, and a router in the other that runs proxy and servers.

    clients (far 10.9.0.2, fd09::2) ── veth ── router (near 10.9.0.1, fd09::1)
                                               lo: 198.18.0.1, 2001:db8:9::1, …

The test's thread is in the router's network; `dial` connects from the clients'.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.network import CLONE_NEWNET, own_network
from tests.support.proxy import ROOT

SERVERS = {4: "198.18.0.1", 6: "2001:db8:9::1"}
OTHERS = {4: "198.18.0.2", 6: "2001:db8:9::2"}
CLIENTS = {4: "10.9.0.2", 6: "fd09::2"}
NETWORKS = ["10.9.0.0/24", "fd09::/64"]


class Router:
    def __init__(self, clients: int, here: int) -> None:
        self._clients, self._here = clients, here

    @contextlib.contextmanager
    def among_clients(self) -> Iterator[None]:
        """Sockets and processes that this thread makes meanwhile are the clients'."""
        libc = ctypes.CDLL(None)
        assert libc.setns(self._clients, CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(self._here, CLONE_NEWNET) == 0

    def dial(self, host: str, port: int, timeout: float = 10) -> socket.socket:
        """Connects from the clients' network; the caller closes it."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with self.among_clients():
            sock = socket.socket(family)
        sock.settimeout(timeout)
        try:
            sock.connect((host, port))
        except BaseException:
            sock.close()
            raise
        return sock

    def intercept(self, *words: str) -> None:
        """Runs the commands that tuning/transparent prints. Skips the test if the
        kernel refuses the plainest rule of that kind."""
        script = subprocess.run([ROOT / "tuning" / "transparent", *words], check=True,
                                capture_output=True, text=True).stdout
        refused = refusal_of(words[0])
        if refused:     # a container's host may lack nft_redir or nft_tproxy
            pytest.skip(f"this kernel: {refused}")
        subprocess.run(["sh", "-e"], input=script, check=True, text=True)


PLAINEST = {
    "redirect": "type nat hook prerouting priority dstnat; tcp dport 80 redirect to :1",
    "tproxy": "type filter hook prerouting priority mangle; "
              "meta l4proto tcp tproxy to :1 meta mark set 1 accept"}


def refusal_of(kind: str) -> str:
    """The kernel's message if it knows no rule of this kind; else empty."""
    rule = f"table ip plainest {{ chain c {{ {PLAINEST[kind]}; }}; }}"
    return subprocess.run(["nft", "-c", "-f", "-"], input=rule, check=False,
                          capture_output=True, text=True).stderr


@contextlib.contextmanager
def routed() -> Iterator[Router]:
    with own_network(), contextlib.ExitStack() as opened:
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, here)
        inside = f"/proc/{os.getpid()}/fd/{here}"
        for address in (*SERVERS.values(), *OTHERS.values()):
            ip("addr", "add", address + ("/128" if ":" in address else "/32"), "dev",
               "lo")
        with own_network():
            clients = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, clients)
            # Two networks of this test alone need no duplicate address detection
            Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
            ip("link", "add", "far", "type", "veth", "peer", "name", "near", "netns",
               inside)
            for address in ("10.9.0.2/24", "fd09::2/64"):
                ip("addr", "add", address, "dev", "far")
            ip("link", "set", "far", "up")
        Path("/proc/sys/net/ipv6/conf/near/accept_dad").write_text("0")
        for address in ("10.9.0.1/24", "fd09::1/64"):
            ip("addr", "add", address, "dev", "near")
        ip("link", "set", "near", "up")
        router = Router(clients, here)
        libc = ctypes.CDLL(None)
        assert libc.setns(clients, CLONE_NEWNET) == 0
        try:
            ip("route", "add", "default", "via", "10.9.0.1")
            ip("-6", "route", "add", "default", "via", "fd09::1")
        finally:
            assert libc.setns(here, CLONE_NEWNET) == 0
        yield router


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
