"""Failures on our own side: faults, and resources that are the host's (R34)."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading

import pytest

from cutthrough.net import buffers, pipes
from cutthrough.worker import worker as worker_module
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.compiled import build_module
from tests.support.embedded import serve_embedded
from tests.support.lines import read_line
from tests.support.network import IPV4, IPV6, own_network
from tests.support.origin import Origin, echo
from tests.support.proxy import ADDRESS, ROOT, clean_environment, seen_labels
from tests.support.relays import Way, descriptors, send_all_through
from tests.support.stream import Stream
from tests.support.wait import wait_until

SMALL_BLOCK = 512 - 32           # of net.buffers


def fill(fd: int) -> None:
    """To the last byte, as if its reader has stopped."""
    ours = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(ours, b"x" * size)
    os.close(ours)


def test_a_standard_error_that_nobody_reads_holds_nobody_up(
        loop_name, make_origin, opened):
    """The line about the first bad ending stopped the worker, that about a reload the
    supervisor."""
    read, write = os.pipe()
    opened.callback(os.close, read)
    opened.callback(os.close, write)
    process = subprocess.Popen(
        [sys.executable, "-m", "cutthrough", "serve", "--listen", "127.0.0.1:0",
         "--workers", "1", "--loop", loop_name, "--access-log", "off", "--user", USER,
         "--password", PASSWORD],
        stderr=write, cwd=ROOT, env=clean_environment())
    try:
        said = b""
        while b"\n" not in said:
            said += os.read(read, 4096)
        port = int(ADDRESS.findall(said.decode())[0][1])
        fill(write)
        url = make_origin(lambda conn: conn.read_request()).url()
        for _ in range(4):
            client = Client(port)
            assert client.get(url).status == 502
            client.close()
            process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert not os.read(read, 1 << 20).strip(b"x"), "what had no room is dropped"
    finally:
        process.kill()
        process.wait()


def test_a_fault_of_ours_is_a_500_and_ends_nothing_else(loop_name, tmp_path):
    """R34: for any exception inside: here the resolver, which is Python, was spoilt."""
    log = tmp_path / "log"

    def journey(proxy):
        with Origin(echo) as origin, Client(proxy.port) as tunnel:
            tunnel.tunnel(origin.authority)
            whole = proxy.worker.resolver.cached
            proxy.worker.resolver.cached = None  # not callable: a TypeError
            with Client(proxy.port) as client:
                reply = client.get(f"http://localhost:{origin.port}/")
                assert (reply.status, reply.error) == (500, "proxy_internal_error")
                assert client.at_eof()
            proxy.worker.resolver.cached = whole
            tunnel.send(b"unharmed")
            assert tunnel.read_exact(8) == b"unharmed"
            assert proxy.worker.page.read()["faults"] == 1

    serve_embedded(loop_name, journey, access_log=str(log))
    labels = [read_line(line)["reason"] for line in log.read_text().splitlines()]
    assert "internal_error" in labels
    seen_labels.update(labels)


def test_an_idle_connection_that_is_closed_is_counted(loop_name):
    """It has no request and so no line: only the counter shows it."""

    def journey(proxy):
        with Origin() as origin, Client(proxy.port) as kept, Client(proxy.port) as mute:
            assert kept.get(origin.url()).status == 200
            assert kept.at_eof() and mute.at_eof()
        counted = proxy.worker.page.read()
        assert counted["outcome:keepalive_timeout"] == 2
        assert (counted["outcome:ok"], counted["requests"]) == (1, 1)

    options = {"keepalive_timeout": "200ms", "head_timeout": "300ms"}
    serve_embedded(loop_name, journey, access_log="off", **options)
    seen_labels.add("keepalive_timeout")


@contextlib.contextmanager
def free_descriptors(n):
    """This process can open n more descriptors: no number below the limit is free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as fill:
        while (fd := os.open(os.devnull, os.O_RDONLY)) <= highest:
            fill.callback(os.close, fd)
        os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (fd + n, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_was_not_to_be_had_and_what_gave_way_is_counted(loop_name):
    """R32: at accept, in this process, when its descriptors are all taken. A pooled
    connection gives way, and no client for as long as there is one."""

    def journey(proxy):
        with contextlib.ExitStack() as stack:
            origin = stack.enter_context(Origin())
            idle = [stack.enter_context(Client(proxy.port)) for _ in range(4)]
            for client in idle:
                assert client.get(origin.url()).status == 200
            late = Client.__new__(Client)
            Stream.__init__(late, stack.enter_context(socket.socket()))
            with free_descriptors(0):
                late.sock.connect(("127.0.0.1", proxy.port))
                assert late.get(origin.url(), auth=None).status == 407
            for client in idle:
                assert client.get(origin.url()).status == 200
            counted = proxy.worker.page.read()
            assert (counted["starved"], counted["shed"]) == (1, 1)
            assert late.get(origin.url()).status == 200

    serve_embedded(loop_name, journey, access_log="off")


def test_who_gets_the_last_descriptor_keeps_it(loop_name):
    """R32: accept4 reports EMFILE before it finds that no other client waits."""

    def journey(proxy):
        with contextlib.ExitStack() as stack:
            origin = stack.enter_context(Origin())
            idle = stack.enter_context(Client(proxy.port))
            assert idle.get(origin.url()).status == 200
            late = Client.__new__(Client)
            Stream.__init__(late, stack.enter_context(socket.socket()))
            with free_descriptors(1):
                late.sock.connect(("127.0.0.1", proxy.port))
                page = proxy.worker.page
                wait_until(lambda: page.read()["accepted"] == 2, "both are accepted")
                assert late.get(origin.url(), auth=None).status == 407
            counted = proxy.worker.page.read()
            assert (counted["starved"], counted["shed"]) == (0, 0)
            assert idle.get(origin.url()).status == 200

    serve_embedded(loop_name, journey, access_log="off")


def test_what_was_missing_before_a_proxy_began_is_not_counted_by_it(loop_name):
    """The second proxy of a process counted the pipes that the first had not got."""
    pipes.close_free()
    with contextlib.closing(Way()) as way, descriptors(3):
        send_all_through(way, bytes(4 << 20))
    assert pipes.stats()["refused"]

    def journey(proxy):
        with Origin() as origin, Client(proxy.port) as client:
            assert client.get(origin.url()).status == 200
            assert proxy.worker.page.read()["starved"] == 0

    serve_embedded(loop_name, journey, access_log="off")


HOSTILE = """
# cython: language_level=3
from cutthrough.net.connector cimport Upstream
from cutthrough.session.model.idle_pool cimport IdlePool

cdef class Hostile(IdlePool):
    cdef int on_upstream(self, Upstream upstream) except -1:
        raise RuntimeError("a fault in the pool")
"""


@pytest.fixture(scope="module")
def hostile_pool(tmp_path_factory):
    base = tmp_path_factory.mktemp("hostile")
    return build_module(base, "hostile_pool", HOSTILE).Hostile


def test_a_fault_at_a_pooled_connection_takes_it_out_of_the_pool(
    loop_name, hostile_pool, monkeypatch
):
    """It was closed and stayed in the list: a request could be sent to descriptor -1,
    and its place was never free again."""
    monkeypatch.setattr(worker_module, "IdlePool", hostile_pool)

    def journey(proxy):
        idle_pool = proxy.worker.idle_pool
        with Origin() as origin, Client(proxy.port) as client:
            for n in (1, 2):
                assert client.get(origin.url()).status == 200
                wait_until(lambda: idle_pool.idle == 1, "a pooled connection")
                origin.connections[-1].sock.shutdown(socket.SHUT_RDWR)
                poller = proxy.worker.poller
                wait_until(lambda n=n: poller.faults == n, "the fault")  # noqa: B023
                wait_until(lambda: idle_pool.idle == 0, "its place free again")
            assert len(origin.connections) == 2

    serve_embedded(loop_name, journey, access_log="off")


def test_chunks_wait_for_memory_and_none_is_lost(loop_name):
    """R31: if all blocks are at their bound, a stuck client waits, and is not cut."""
    go, size, n = threading.Event(), 4 << 20, 6
    block = b"%x\r\n" % 4096 + bytes(4096) + b"\r\n"

    def answer(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        go.wait(20)
        conn.send(block * (size // 4096) + b"0\r\n\r\n")
        conn.stall()

    def journey(proxy):
        with contextlib.ExitStack() as stack:
            origin = stack.enter_context(Origin(answer))
            clients = [
                stack.enter_context(Client(proxy.port, receive_buffer=4096))
                for _ in range(n)
            ]
            for client in clients:
                client.send(build_request("GET", origin.url()))
            heads = [client.read_head() for client in clients]
            assert [head.status for head in heads] == [200] * n
            base = buffers.stats()["held_by_relays"]
            buffers.set_bound(base + 100_000, "relays")     # a block, or small ones
            refused = buffers.stats()["refused"]
            go.set()
            wait_until(lambda: buffers.stats()["refused"] > refused + 20, "starving")
            assert base < buffers.stats()["held_by_relays"] <= base + 100_000
            bodies: list[int] = []
            readers = [
                threading.Thread(target=lambda c=c: bodies.append(read_body(c)))
                for c in clients
            ]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            assert bodies == [size] * n

    def read_body(client):
        body, _ = client._read_chunks()
        return len(body)

    try:
        serve_embedded(loop_name, journey, access_log="off")
    finally:
        buffers.set_bound(512 << 20)


@pytest.mark.parametrize(("request_", "strangers"), [
    (("GET",), 0),                              # no block for bytes behind it
    (("POST", "Transfer-Encoding: chunked"), 1),    # no block for bytes behind its body
])
def test_what_found_no_memory_is_not_the_beginning_of_a_request(
    loop_name, request_, strangers
):
    """R6: bytes behind a request were lost for want of a block, the answer was a 503,
    and their rest was read as the next request: here the content of a body."""

    def journey(proxy):
        method, *fields = request_
        with Origin() as origin, Client(proxy.port) as client:
            inside = build_request("GET", origin.url("/smuggled"))
            first = build_request(method, origin.url(), *fields,
                                  body=b"0\r\n\r\n" if fields else b"")
            length = f"Content-Length: {len(inside)}"
            second = build_request("POST", origin.url(), length)
            held = buffers.stats()["held_by_requests"]
            buffers.set_bound(held + SMALL_BLOCK, "requests")   # the head that goes up
            buffers.set_bound(strangers * SMALL_BLOCK, "strangers")
            client.send(first + second)
            reply = client.read_response()
            buffers.set_bound(512 << 20)
            assert (reply.status, reply.get("Connection")) == (503, "close")
            client.send(inside)
            assert client.at_eof()
            assert b"/smuggled" not in origin.received

    try:
        serve_embedded(loop_name, journey, access_log="off")
    finally:
        buffers.set_bound(512 << 20)


def test_a_connection_reset_while_it_was_being_made_is_a_502(start_proxy, dial):
    """The handshake ends and the reset comes before we look: held up by a stopped
    worker, as by a busy one."""
    proxy = start_proxy("--connect-timeout", "20s")
    client = dial(proxy)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server(("127.0.0.1", 0), backlog=0)
        )
        listener.settimeout(15)
        address = listener.getsockname()
        stack.enter_context(socket.create_connection(address))
        client.send(build_request("GET", f"http://127.0.0.1:{address[1]}/"))
        wait_until(
            lambda: any(c.status == "SYN_SENT" for c in proxy.worker.net_connections()),
            "a dial that waits",
        )
        proxy.worker.send_signal(signal.SIGSTOP)
        try:
            for _ in range(2):  # the filler, and then the one that sends its SYN again
                peer, _ = listener.accept()
                peer.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
                )
                peer.close()
        finally:
            proxy.worker.send_signal(signal.SIGCONT)
        reply = client.read_response()
    assert (reply.status, reply.error) == (502, "connection_terminated")
    proxy.wait_reason("connection_reset")


@pytest.fixture
def network():
    with own_network():
        yield


def test_no_port_left_towards_an_origin_is_a_503(
    network, start_proxy, make_origin, dial
):
    """Our resource is used up; the origin does not fail."""
    proxy = start_proxy()
    origin = make_origin(echo)
    clients = [dial(proxy) for _ in range(3)]
    (IPV4 / "ip_local_port_range").write_text("20000 20001")
    for client in clients[:2]:
        client.tunnel(origin.authority)
    reply = clients[2].connect(origin.authority)
    assert (reply.status, reply.error) == (503, "connection_limit_reached")
    proxy.wait_reason("overloaded")


def test_no_address_to_come_from_is_no_overload(network, start_proxy, dial):
    """The same errno: a host without IPv6 and an origin with nothing else."""
    proxy = start_proxy()
    (IPV6 / "disable_ipv6").write_text("1")
    reply = dial(proxy).connect("[2001:db8::1]:443")
    assert (reply.status, reply.error) == (502, "destination_ip_unroutable")
    proxy.wait_reason("unreachable")


def test_no_address_to_come_from_is_no_overload_beside_another_family(
    network, start_proxy, dial
):
    """It was one if the name had an IPv4 address too, however that failed."""
    names = "two.test=2001:db8::1,two.test=192.0.2.1"
    proxy = start_proxy("--dns-overrides", names)
    (IPV6 / "disable_ipv6").write_text("1")
    reply = dial(proxy).connect("two.test:443")
    assert (reply.status, reply.error) == (502, "destination_ip_unroutable")
