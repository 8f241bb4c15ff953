"""The values that the kernel gave a listener's options are read back, not believed."""

import contextlib
import errno
import json
import socket
import subprocess
import sys

import pytest

from cutthrough.net.listener import (
    BACKLOG,
    listen,
    set_saved_syn,
    set_transparent,
)
from cutthrough.net.options import LISTENER, read_bound, read_options
from tests.support.proxy import ROOT

BACKLOG_IN_FORCE = """
import json
from cutthrough.net.listener import listen
from cutthrough.net.options import read_options
(sock,) = listen(("127.0.0.1", 0))
print(json.dumps([read_options([sock])[0], read_options([sock])[0].granted]))
"""


@contextlib.contextmanager
def listening(host, sockets):
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(one) for one in listen((host, 0), sockets)]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("sockets", [1, 3])
def test_a_listener_has_what_it_asks_for(host, sockets):
    with listening(host, sockets) as group:
        told = {option.name: option for option in read_options(group)}
    v6_only = set() if host == "::1" else {"IPV6_V6ONLY"}
    assert told.keys() == {"backlog", *(row[0] for row in LISTENER)} - v6_only
    for name, option in told.items():
        assert len(option.in_force) == 1, name
        assert option.granted or name == "backlog", name


def test_a_socket_that_somebody_else_opened_is_told_apart():
    with (listening("127.0.0.1", 2) as group,
          socket.create_server(("127.0.0.1", 0), backlog=7) as other):
        told = {option.name: option for option in read_options([*group, other])}
    assert told["SO_REUSEPORT"].in_force == (0, 1) and not told["SO_REUSEPORT"].granted
    assert told["backlog"].in_force == (7, min(BACKLOG, somaxconn()))
    assert told["SO_REUSEADDR"].granted


def test_a_size_is_told_as_the_kernel_has_it():
    """It doubles the requested size, for its own bookkeeping (socket(7))."""
    with listening("127.0.0.1", 1) as group:
        group[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        told = {option.name: option for option in read_options(group)}
    assert told["SO_RCVBUF"].in_force == (65536,)


def somaxconn() -> int:
    with open("/proc/sys/net/core/somaxconn") as file:
        return int(file.read())


def test_the_backlog_is_what_the_kernel_left_of_it():
    with listening("127.0.0.1", 1) as group:
        assert read_bound(group[0]) == min(BACKLOG, somaxconn())


def test_a_backlog_that_somaxconn_cut_is_seen():
    script = (f"ip link set lo up; echo 16 >/proc/sys/net/core/somaxconn; "
              f"exec {sys.executable} -c '{BACKLOG_IN_FORCE}'")
    done = subprocess.run(["unshare", "-n", "sh", "-ec", script], cwd=ROOT,
                          capture_output=True, text=True, timeout=30)
    if done.returncode:
        pytest.skip(f"no network namespace of our own: {done.stderr}")
    assert json.loads(done.stdout) == [["backlog", BACKLOG, [16]], False]


def test_an_option_that_nothing_knows_is_off():
    """A wheel of another architecture did not start under qemu-user, which answers
    ENOPROTOOPT to IP_TRANSPARENT. So does a socket of netlink to options of IP."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as sock:
        for change in set_transparent, set_saved_syn:
            change(sock, False)
            with pytest.raises(OSError) as refused:
                change(sock, True)
            assert refused.value.errno == errno.ENOPROTOOPT
