"""More than there is: descriptors, connections, pipes (R31, R32, R35)."""

import contextlib
import resource
import socket

import pytest

from tests.support.certificates import TlsSocket, localhost
from tests.support.client import build_request
from tests.support.dns import NameServer, Reply
from tests.support.inside import ALL, ask, config, over_tls, shake
from tests.support.network import own_network
from tests.support.origin import echo, okay
from tests.support.parents import http, parent
from tests.support.preload import build_preload
from tests.support.proxy import Proxy
from tests.support.socks import NONE, SocksClient
from tests.support.socks_udp import FREE, Association, Echo
from tests.support.tls_listener import table
from tests.support.wait import wait_until


def test_without_descriptors_idle_connections_are_shed(
    start_proxy, make_origin, dial, exhaust
):
    """R32: a newcomer is served by closing connections that only wait."""
    proxy = start_proxy()
    origin = make_origin()
    idle = [dial(proxy) for _ in range(8)]
    for client in idle:
        assert client.get(origin.url()).status == 200
    exhaust(proxy)
    newcomer = dial(proxy)
    assert newcomer.get(origin.url()).status == 200
    assert any(client.at_eof() for client in idle)
    wait_until(lambda: "accept" in proxy.stderr(), "one line that tells")


def test_a_request_without_a_descriptor_to_dial_is_a_503(
    start_proxy, make_origin, dial, exhaust
):
    proxy = start_proxy()
    origin = make_origin(echo)
    tunnel = dial(proxy).tunnel(origin.authority)
    before = proxy.sockets()
    client = dial(proxy)
    wait_until(lambda: proxy.sockets() > before, "the connection accepted")
    exhaust(proxy)
    client.send(build_request("GET", origin.url()))
    reply = client.read_response()
    assert (reply.status, reply.error) == (503, "connection_limit_reached")
    proxy.wait_reason("overloaded")
    tunnel.send(b"unharmed")
    assert tunnel.read_exact(8) == b"unharmed"


@pytest.mark.parametrize("pools", [True, False])
def test_a_request_without_a_descriptor_to_dial_takes_an_idle_one(
    start_proxy, make_origin, dial, exhaust, pools
):
    """R32: pooled connections give way first, then idle clients; and it says so, once.

    An idle client lost its connection although a pooled one had given way."""
    proxy = start_proxy(*([] if pools else ["--upstream-idle", "0"]))
    pooled, other = make_origin(), make_origin()
    clients = [dial(proxy) for _ in range(4)]
    for client in clients:
        assert client.get(pooled.url()).status == 200
    proxy.wait_log(4)
    exhaust(proxy)
    assert clients[0].get(other.url()).status == 200
    for client in clients[1:]:
        assert client.get(other.url()).status == 200 if pools else client.at_eof()
    assert proxy.stderr().count("dial: Too many open files (1 times so far)") == 1
    count = 8 if pools else 5
    assert [r["reason"] for r in proxy.wait_log(count)] == ["ok"] * count


@pytest.fixture
def names(opened):
    zone = {name: Reply(("127.0.0.1",), validated=True)
            for name in ("a.test", "b.test", "parent.test")}
    return opened.enter_context(NameServer(zone))


def test_a_bridge_without_descriptors_takes_those_of_idle_clients(
    start_policy, make_origin, dial, exhaust
):
    """R98: an interception inside TLS was `overloaded` while idle clients held them."""
    proxy = start_policy(ALL, config(table(localhost(), protocols='["http", "tls"]')))
    origin = make_origin(over_tls(okay))
    clients = [dial(proxy) for _ in range(10)]
    for client in clients:
        assert answered_here(client)
    inside = dial(proxy)
    inside.sock = TlsSocket(inside.sock)
    inside.tunnel(f"a.example:{origin.port}")
    exhaust(proxy)
    assert ask(shake(inside)).body == b"ok"


def answered_here(client):
    return client.ask("OPTIONS", "http://a.test/", "Max-Forwards: 0").status == 200


@pytest.mark.parametrize("dnssec", ["off", "required"])
@pytest.mark.parametrize("warm", [False, True])
def test_a_question_without_a_descriptor_takes_an_idle_one(
    start_proxy, make_origin, dial, exhaust, names, dnssec, warm
):
    """R98: dns_error, or dns_timeout, while idle clients held the descriptors. `warm`:
    c-ares has its own already."""
    proxy = start_proxy("--resolvers", names.address, "--dnssec", dnssec,
                        "--upstream-idle", "0")
    origin = make_origin()
    clients = [dial(proxy) for _ in range(10)]
    for client in clients:          # no descriptor but their own, in a row
        assert answered_here(client)
    if warm:
        url = f"http://a.test:{origin.port}/"
        assert clients[0].get(url).status == 200
    exhaust(proxy)
    assert clients[0].get(f"http://b.test:{origin.port}/").status == 200
    assert proxy.stderr().count("dial: Too many open files (1 times so far)") == 1


def test_an_association_without_a_descriptor_takes_an_idle_one(
    directory, opened, loop_name, exhaust
):
    """R98: its own socket for datagrams, and the one towards peers."""
    proxy = opened.enter_context(Proxy(directory("udp"), loop=loop_name, config=FREE))
    echo = opened.enter_context(Echo())
    clients = [opened.enter_context(SocksClient(proxy.port)) for _ in range(12)]
    for client in clients:
        assert client.method(NONE) == NONE
    exhaust(proxy)
    one = Association(clients[0])
    opened.callback(one.sock.close)
    assert one.ask(echo.authority, b"datagram") == b"datagram"


@pytest.mark.parametrize("dnssec", ["off", "required"])
@pytest.mark.parametrize("by_parent", [False, True])
def test_a_question_without_a_descriptor_is_a_503_where_nothing_is_idle(
    start_proxy, make_origin, dial, exhaust, names, dnssec, by_parent
):
    """Nor does it open the circuit of a parent whose name it was: any three did."""
    proxied = make_origin(http if by_parent else okay)
    table = parent(proxied).replace("127.0.0.1", "parent.test")
    proxy = start_proxy(
        "--resolvers", names.address, "--dnssec", dnssec,
        config=f'route = "corp"\n{table}' if by_parent else "")
    client = dial(proxy)
    url = f"http://127.0.0.1:{proxied.port}/" if by_parent else (
        f"http://a.test:{proxied.port}/")
    assert answered_here(client)
    old = resource.prlimit(proxy.worker.pid, resource.RLIMIT_NOFILE)
    exhaust(proxy)
    for _ in range(4):
        reply = client.get(url)
        assert (reply.status, reply.error) == (503, "connection_limit_reached")
    assert len(proxy.wait_log(4, reason="overloaded")) == 4
    resource.prlimit(proxy.worker.pid, resource.RLIMIT_NOFILE, old)
    assert client.get(url).status == 200


@pytest.mark.parametrize("by_parent", [False, True])
def test_a_request_without_a_local_port_takes_that_of_an_idle_connection(
    start_proxy, make_origin, dial, by_parent
):
    """R31: each POST dials, and its connection is pooled: 28 232 in all workers
    together, and whoever came next had a 503. Through a parent, those of one origin
    are as much in the way of another one's."""
    with own_network():
        with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
            file.write("40000 40019")
        origin = make_origin(http if by_parent else okay)
        proxy = start_proxy(
            config=f'route = "corp"\n{parent(origin)}' if by_parent else "")
        client = dial(proxy)
        for n in range(60):
            url = f"http://127.0.0.1:{4700 + n}/" if by_parent else origin.url()
            reply = client.ask("POST", url, "Content-Length: 4", body=b"data")
            assert reply.status == 200
    assert len(origin.connections) == 60


def test_accepting_goes_on_where_nothing_is_idle(
    start_proxy, make_origin, dial, exhaust, opened
):
    """R32: callers wait in the kernel's queue, nothing spins, no caller is lost."""
    proxy = start_proxy()
    origin = make_origin(echo)
    tunnel = dial(proxy).tunnel(origin.authority)
    before = proxy.sockets()
    exhaust(proxy)
    waiting = [dial(proxy) for _ in range(4)]
    for client in waiting:
        client.send(build_request("CONNECT", origin.authority))
    wait_until(lambda: "(4 times so far)" in proxy.stderr(), "three pauses")
    assert sum(proxy.worker.cpu_times()[:2]) < 5 and proxy.sockets() == before
    tunnel.send(b"unharmed")
    assert tunnel.read_exact(8) == b"unharmed"
    soft, hard = resource.prlimit(proxy.worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(proxy.worker.pid, resource.RLIMIT_NOFILE, (soft + 100, hard))
    for client in waiting:
        assert client.read_response("CONNECT").status == 200


# While the file exists, the kernel's policy refuses the call
REFUSED_ACCEPT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int accept4(int fd, struct sockaddr *name, socklen_t *length, int flags) {
    int (*real)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
    if (access("%s", F_OK) != 0)
        return real(fd, name, length, flags);
    errno = EACCES;
    return -1;
}
"""


def test_an_accept_that_is_refused_waits_and_is_reported(
        start_proxy, directory, make_origin, dial):
    """R32: SELinux or a seccomp filter leaves the client in the queue. It was taken for
    gone, so the worker asked again at once, for ever, and nothing was logged."""
    folder = directory("library")
    mark = folder / "refused"
    proxy = start_proxy(env=build_preload(folder, REFUSED_ACCEPT % mark))
    origin = make_origin()
    assert dial(proxy).get(origin.url()).status == 200
    mark.touch()
    waiting = dial(proxy)
    waiting.send(build_request("GET", origin.url()))
    line = "accept: Permission denied (4 times so far)"
    wait_until(lambda: line in proxy.stderr(), proxy.stderr)
    mark.unlink()
    assert waiting.read_response().status == 200


@pytest.mark.parametrize(("option", "reason", "status"), [
    ("--max-connections", "overloaded", 503),
    ("--max-connections-total", "overloaded", 503),
    ("--max-connections-per-client", "client_limit", 429),
])
def test_callers_far_beyond_the_limit_hold_no_descriptor(
    start_proxy, make_origin, dial, option, reason, status
):
    """Each refused caller lingered for seconds, so that there was no limit. That held
    for max_connections first, then for the others: one client address filled the
    worker."""
    proxy = start_proxy(option, "1", "--linger-timeout", "20s")
    dial(proxy).tunnel(make_origin(echo).authority)
    held = proxy.sockets()
    callers = []
    for _ in range(300):
        with contextlib.suppress(ConnectionResetError):  # at once, for most of them
            callers.append(dial(proxy))
    records = proxy.wait_log(300, reason=reason)
    assert proxy.sockets() <= held + 64
    assert sum(record["status"] == status for record in records) == 64
    assert callers[0].read_response().status == status
    while callers:
        callers.pop().close()
    wait_until(lambda: proxy.sockets() <= held, "those gone")
    assert dial(proxy).read_response().status == status, "told so again"


@pytest.mark.parametrize(
    "option", ["--max-connections", "--max-connections-per-client"])
def test_clients_that_linger_give_way_before_idle_ones(
    start_proxy, make_origin, dial, option
):
    """R32: of one address the connection that rested longest was closed, so refused
    callers that did not close took the kept connections of their neighbours."""
    proxy = start_proxy(
        option, "16", "--linger-timeout", "60s", "--connect-ports", "443")
    origin = make_origin()
    kept = [dial(proxy) for _ in range(4)]
    for client in kept:
        assert client.get(origin.url()).status == 200
    for _ in range(40):
        client = dial(proxy)
        client.send(build_request("CONNECT", "127.0.0.1:25"))
        assert client.read_response("CONNECT").status == 403
    for client in kept:
        assert client.get(origin.url()).status == 200


def test_bytes_and_an_end_behind_a_refusal_do_not_undo_it(start_proxy, dial):
    """R1: both sides have ended then; to close with bytes unread would be a reset."""
    proxy = start_proxy()
    before = proxy.sockets()
    client = dial(proxy)
    client.send(build_request("CONNECT", "127.0.0.1:1", auth=None))
    proxy.wait_reason("auth_required")
    client.sock.send(b"x" * 1000, socket.MSG_MORE)  # goes out in one segment with FIN
    client.half_close()
    wait_until(lambda: proxy.sockets() <= before, "the proxy's end closed")
    assert client.read_response().status == 407
    assert client.sock.recv(1) == b""


def test_connections_beyond_the_limit_get_a_503(start_proxy, make_origin, dial):
    proxy = start_proxy("--max-connections", "2")
    origin = make_origin()
    echoing = make_origin(echo)
    first, _ = (dial(proxy).tunnel(echoing.authority) for _ in range(2))
    refused = dial(proxy).read_response()
    assert (refused.status, refused.get("Connection")) == (503, "close")
    record = proxy.wait_reason("overloaded")
    assert record["total_ms"] < 15_000, "counted from the connection's own begin"
    first.close()
    wait_until(lambda: serves(proxy, origin), "room for another")


def serves(proxy, origin) -> bool:
    with proxy.client() as client:
        try:
            return client.get(origin.url()).status == 200
        except OSError:
            return False


@pytest.mark.parametrize("splice", ["true", "false"])
def test_bulk_passes_with_and_without_splice(start_proxy, nginx, dial, splice):
    proxy = start_proxy("--splice", splice)
    client = dial(proxy)
    for _ in range(3):
        assert client.get(nginx.url("/1m")).body == nginx.payload("1m")
    tunnel = dial(proxy).tunnel(nginx.authority)
    tunnel.send(b"GET /1m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert tunnel.read_response().body == nginx.payload("1m")
    tunnel.close()
    paths = {record["path"] for record in proxy.wait_log(4)}
    assert paths <= {"copy", "splice"}
    assert splice == "true" or paths == {"copy"}


def test_bulk_passes_without_a_pipe_to_be_had(start_proxy, nginx, dial, exhaust):
    """R35: no descriptor for a pipe: the bytes are copied; it says so; later it tries
    again."""
    proxy = start_proxy()
    tunnel, later = (dial(proxy).tunnel(nginx.authority) for _ in range(2))
    exhaust(proxy)
    tunnel.send(b"GET /1m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert tunnel.read_response().body == nginx.payload("1m")
    tunnel.close()
    assert proxy.wait_reason("ok")["path"] == "copy"
    wait_until(lambda: "pipe: none to be had" in proxy.stderr(), "a line that tells")
    soft, hard = resource.prlimit(proxy.worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(proxy.worker.pid, resource.RLIMIT_NOFILE, (soft + 100, hard))
    later.send(b"GET /100m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert later.read_response().body == nginx.payload("100m")
    later.close()
    proxy.wait_reason("ok", path="splice")


def test_a_destination_without_ports_leaves_others_their_connections(
        start_proxy, make_origin, dial):
    """R98: each request to it closed the whole pool, though only connections to the
    same address have its ports."""
    with own_network():
        with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
            file.write("40000 40019")
        full, other = make_origin(echo), make_origin()
        proxy = start_proxy()
        user = dial(proxy)
        for _ in range(4):
            assert user.ask("POST", other.url(), "Content-Length: 1",
                            body=b"x").status == 200
        holders = [socket.socket() for _ in range(20)]
        for holder in holders:               # of all ports towards this address
            with contextlib.suppress(OSError):
                holder.connect((full.host, full.port))
        assert user.connect(full.authority).status == 503
        before = len(other.connections)
        assert dial(proxy).get(other.url()).status == 200
        assert len(other.connections) == before, "one of the pool carried it"
        for holder in holders:
            holder.close()
