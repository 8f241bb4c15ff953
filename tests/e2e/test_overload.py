"""More than there is: descriptors, connections, pipes (R31, R32, R35)."""

import contextlib
import os
import resource

import pytest

from tests.support.client import build_request
from tests.support.origin import echo
from tests.support.wait import wait_until


@pytest.fixture
def exhaust(opened):
    """Leaves a worker not one descriptor more than it has."""

    def lower(proxy) -> None:
        pid = proxy.worker.pid
        old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
        # The limit is on the number of a new descriptor: the first free is too high.
        first_free = next(n for n in range(len(used) + 1) if n not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, old[1]))
        opened.callback(restore, pid, old)

    def restore(pid: int, old: tuple[int, int]) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, old)

    return lower


def test_without_descriptors_idle_connections_are_shed(
    start_proxy, make_origin, dial, exhaust
):
    """R32: a newcomer is served by closing those that only wait."""
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


def test_connections_beyond_the_limit_get_a_503(start_proxy, make_origin, dial):
    proxy = start_proxy("--max-connections", "2")
    origin = make_origin()
    first, second = dial(proxy), dial(proxy)
    for client in (first, second):
        assert client.get(origin.url()).status == 200
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
    """R35: no descriptor for a pipe: the bytes are copied."""
    proxy = start_proxy()
    tunnel = dial(proxy).tunnel(nginx.authority)
    exhaust(proxy)
    tunnel.send(b"GET /1m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert tunnel.read_response().body == nginx.payload("1m")
    tunnel.close()
    assert proxy.wait_reason("ok")["path"] == "copy"
