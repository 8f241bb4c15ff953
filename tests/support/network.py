"""A network of the test's own: nothing but loopback, and settings nobody else sees."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

CLONE_NEWNET = 0x40000000
IPV4, IPV6 = Path("/proc/sys/net/ipv4"), Path("/proc/sys/net/ipv6/conf/all")


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """This thread, and what it starts, live there; skips where that is not allowed.

    Sockets stay in the network in which they were made.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.ExitStack() as stack:
        old = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, old)
        if libc.unshare(CLONE_NEWNET):
            pytest.skip(f"unshare: {os.strerror(ctypes.get_errno())}")
        stack.callback(libc.setns, old, CLONE_NEWNET)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield
