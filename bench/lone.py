"""A network with `lo` alone for an attack, and a name server that may not answer.

Callers have addresses of 10.77.0.0/16, all of which are on `lo`: those of loopback are
exempt from some limits.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import threading

import psutil

from bench.children import HERE, BenchError

NETWORK = "10.77.0.0/16"
PROXY, REGULARS, ATTACKER = "10.77.0.1", "10.77.0.2", "10.77.0.3"
NAMES = "127.77.0.53"  # of the name server, whose port is 53
A, RESPONSE = 1, 0x8180


def enter() -> None:
    """Make sure that this program runs there; restart it if necessary."""
    up = [name for name, one in psutil.net_if_stats().items() if one.isup]
    if any(name != "lo" for name in up):
        if shutil.which("unshare") is None:
            raise BenchError("needs a network with lo alone: unshare is not installed")
        flags = "-n" if os.geteuid() == 0 else "-rn"
        os.chdir(HERE.parent)
        os.execvp("unshare", ["unshare", flags, sys.executable, "-m", "bench",
                              *sys.argv[1:]])  # fmt: skip
    for command in ("link set lo up", f"addr replace {PROXY}/16 dev lo"):
        done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"ip {command}: {done.stderr.strip()}")


class NameServer(threading.Thread):
    """Answers queries for names that begin with `ok`, and only counts the others.

    From `with` to its end.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._sock = socket.socket(type=socket.SOCK_DGRAM)
        self._sock.bind((NAMES, 53))
        self.unanswered = 0
        self.ports: set[int] = set()

    def __enter__(self) -> NameServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as last:
            last.sendto(b"", (NAMES, 53))
        self.join()
        self._sock.close()

    def run(self) -> None:
        while True:
            query, peer = self._sock.recvfrom(4096)
            if not query:
                return
            if query[13:15] != b"ok":
                self.unanswered += 1
                self.ports.add(peer[1])
                continue
            end = query.index(0, 12) + 5
            (kind,) = struct.unpack_from("!H", query, end - 4)
            # 127.0.0.1 for a second; no address of another kind
            record = struct.pack("!HHHIH4s", 0xC00C, A, 1, 1, 4, b"\x7f\0\0\1")
            counts = struct.pack("!HHHHH", RESPONSE, 1, int(kind == A), 0, 0)
            self._sock.sendto(query[:2] + counts + query[12:end]
                              + record * (kind == A), peer)  # fmt: skip
