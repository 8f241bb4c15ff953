"""More bugs of this proxy's predecessor: descriptors, memory, time, signals."""

import contextlib
import hashlib
import os
import random
import resource
import signal
import threading

import pytest

from tests.support.client import build_request
from tests.support.origin import Origin, echo, stall
from tests.support.sanitized import SANITIZED
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def limit_descriptors(pid: int, highest: int | None = None) -> int:
    """Sets the soft limit, by default to the descriptors in use; returns the last."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    wanted = highest or 1 + max(int(fd) for fd in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (wanted, hard))
    return soft


def test_running_out_of_descriptors_ends_neither_worker_nor_tunnels(
    start_proxy, make_origin, dial, opened
):
    """EMFILE in accept ended the server (R32)."""
    proxy = start_proxy()
    origin = make_origin(echo)
    tunnel = dial(proxy).tunnel(origin.authority)
    worker = proxy.worker.pid
    before = limit_descriptors(worker)
    crowd = [opened.enter_context(proxy.client()) for _ in range(40)]
    for client in crowd[::2]:
        client.send(build_request("CONNECT", origin.authority, host=origin.authority))
    cpu = proxy.worker.cpu_times()
    tunnel.send(b"still here")
    assert tunnel.read_exact(10) == b"still here"
    wait_until(lambda: "accept" in proxy.stderr(), "a line about it")
    for client in crowd:
        client.close()
    limit_descriptors(worker, before)

    assert dial(proxy).tunnel(origin.authority)
    assert proxy.worker.pid == worker
    spent = proxy.worker.cpu_times().user - cpu.user
    assert spent < 2, "the worker spun while it had no descriptors"


@pytest.mark.parametrize(
    "name", ["localhost", "127.0.0.1", "LOCALHOST.", "0x7f.1", "[::ffff:127.0.0.1]"]
)
@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_request_to_the_proxy_itself_is_a_loop(proxy, dial, name, method):
    """`http://localhost:8888/` went round until no descriptor was left (R20)."""
    authority = f"{name}:{proxy.port}"
    target = authority if method == "CONNECT" else f"http://{authority}/"
    reply = dial().ask(method, target, host=authority)
    assert (reply.status, reply.error) == (508, "proxy_loop_detected")
    assert len(proxy.wait_log(1, reason="loop_detected")) == 1, (
        "it went round at least once"
    )


def test_our_own_pseudonym_in_via_is_a_loop(proxy, make_origin, dial):
    """Via was neither sent nor read."""
    origin = make_origin()
    reply = dial().get(origin.url(), "Via: 1.1 somebody, 1.0 TEST-proxy (comment)")
    assert (reply.status, reply.error) == (508, "proxy_loop_detected")
    assert not origin.connections


def test_tunnels_do_not_share_what_is_stuck(proxy, make_origin, opened, dial):
    """One pipe was shared by all tunnels: bytes of one came out of another."""
    size = 4 << 20

    def pour(conn):
        seed = int.from_bytes(conn.read_exact(4), "big")
        conn.send(random.Random(seed).randbytes(size))
        conn.half_close()
        conn.stall()

    origin = make_origin(pour)
    tunnels = [dial(receive_buffer=8192).tunnel(origin.authority) for _ in range(8)]
    for seed, tunnel in enumerate(tunnels):
        tunnel.send(seed.to_bytes(4, "big"))
    sums: dict[int, str] = {}

    def drain(seed, tunnel):
        sums[seed] = hashlib.sha256(tunnel.read_rest()).hexdigest()

    readers = [threading.Thread(target=drain, args=pair) for pair in enumerate(tunnels)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert sums == {
        seed: hashlib.sha256(random.Random(seed).randbytes(size)).hexdigest()
        for seed in range(8)
    }


@pytest.mark.parametrize(
    ("flags", "label"),
    [
        (("--head-timeout", "200ms"), "head_timeout"),
        (("--idle-timeout", "200ms"), "idle_timeout"),
        (("--lifetime", "300ms"), "lifetime"),
    ],
)
def test_no_connection_lives_for_ever(start_proxy, make_origin, dial, flags, label):
    """There was no deadline for connect, head, idle or lifetime (R30). For connect see
    test_deadlines.py."""
    proxy = start_proxy(*flags)
    client = dial(proxy)
    if label == "head_timeout":
        client.send(b"GET http://half.a.head")
        assert client.read_response().status == 408
    else:
        client.tunnel(make_origin(stall).authority)
    assert client.at_eof()
    proxy.wait_reason(label)


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' shadow is memory, too")
def test_an_idle_tunnel_costs_little_memory(start_proxy, opened):
    """Each tunnel owned 256 KiB of buffers from its first byte to its last (R31)."""
    tunnels = 1000
    proxy = start_proxy("--access-log", "off", executed=True)
    with Origin(lambda conn: conn.stall()) as origin, contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(proxy.client()).tunnel(origin.authority)
        before = proxy.private_kib()
        for _ in range(tunnels):
            stack.enter_context(proxy.client()).tunnel(origin.authority)
        each = (proxy.private_kib() - before) / tunnels
    proxy.wait_settled()
    assert each <= 2, f"{each:.2f} KiB for each idle tunnel"


def test_sigterm_lets_a_running_tunnel_finish(start_proxy, make_origin, dial):
    """SIGTERM cut everything at once."""
    proxy = start_proxy()
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    proxy.signal(signal.SIGTERM)
    wait_until(lambda: not accepts(proxy), "new connections refused")
    tunnel.send(b"after the signal")
    assert tunnel.read_exact(16) == b"after the signal"
    tunnel.half_close()
    assert tunnel.read_rest() == b""
    tunnel.close()
    assert proxy.wait_exit() == 0
    proxy.wait_reason("ok")


def accepts(proxy) -> bool:
    try:
        proxy.client().close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_dead_worker_is_replaced(start_proxy, make_origin, dial):
    """A worker that died was not replaced."""
    proxy = start_proxy()
    dead = proxy.worker.pid
    os.kill(dead, signal.SIGKILL)
    assert dial(proxy).get(make_origin().url()).status == 200
    assert proxy.worker.pid != dead
