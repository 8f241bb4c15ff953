"""The kernel gives up a connection whose peer is gone: nothing that was sent to it is
acknowledged. That is a timeout, not a reset."""

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.client import Client, build_request
from tests.support.network import own_network
from tests.support.origin import Connection, Origin
from tests.support.proxy import Proxy

RETRIES = Path("/proc/sys/net/ipv4/tcp_retries2")
GONE = """
    table ip gone {{
        chain input {{
            type filter hook input priority 0;
            tcp dport {port} {verdict}
        }}
    }}
"""
Ends = tuple[Client, Connection]


@pytest.fixture
def short_patience() -> Iterator[None]:
    with own_network():
        RETRIES.write_text("1")             # after 0.6 s
        yield


@contextlib.contextmanager
def unreachable(port: int, verdict: str = "drop") -> Iterator[None]:
    """Loses what is sent to this port."""
    subprocess.run(["nft", "-f", "-"], text=True, check=True,
                   input=GONE.format(port=port, verdict=verdict))
    yield
    subprocess.run(["nft", "delete", "table", "ip", "gone"], check=True)


class Held:
    """An origin that gives its connection to the test after the first bytes."""

    def __init__(self, make_origin: Callable[..., Origin], *first: bytes) -> None:
        self._begun = threading.Event()
        self._first = first
        self.origin = make_origin(self._script)

    def _script(self, conn: Connection) -> None:
        conn.fill()
        conn.send(*self._first)
        self.conn = conn
        self._begun.set()
        self.origin.closing.wait()

    def wait(self) -> Connection:
        assert self._begun.wait(10)
        return self.conn


def port_of(client: Client) -> int:
    return int(client.sock.getsockname()[1])


def test_an_origin_that_is_gone_before_its_response_is_no_reset(
        short_patience, start_proxy, make_origin, dial) -> None:
    """ICMP, or ARP, says why nothing is acknowledged: it was `origin_reset`, with 502,
    where the silence alone was `response_timeout`."""
    proxy, held = start_proxy(), Held(make_origin)
    client = dial(proxy)
    client.send(build_request("POST", held.origin.url(), "Content-Length: 9"))
    held.wait()
    with unreachable(held.origin.port, "reject with icmp host-unreachable"):
        client.send(b"body")                # nobody acknowledges it
        reply = client.read_response("POST")
        assert (reply.status, reply.error) == (504, "http_response_timeout")
        proxy.wait_reason("response_timeout")


def open_tunnel(proxy: Proxy, held: Held, dial: Callable[..., Client]) -> Client:
    client: Client = dial(proxy).tunnel(held.origin.authority, b"hello")
    assert client.read_exact(2) == b"hi"
    held.wait()
    return client


@pytest.mark.parametrize("half", [False, True])
def test_a_tunnel_whose_origin_is_gone_has_not_been_reset(
        short_patience, start_proxy, make_origin, dial, half) -> None:
    """It was `origin_reset`."""
    proxy, held = start_proxy(), Held(make_origin, b"hi")
    client = open_tunnel(proxy, held, dial)
    with unreachable(held.origin.port):
        client.send(b"more")
        if half:
            client.half_close()
        with pytest.raises(ConnectionResetError):
            client.read_rest()
        proxy.wait_reason("write_timeout", kind="tunnel")


@pytest.mark.parametrize("half", [False, True])
def test_a_tunnel_whose_client_is_gone_has_not_been_reset(
        short_patience, start_proxy, make_origin, dial, half) -> None:
    """It was `client_reset`."""
    proxy, held = start_proxy(), Held(make_origin, b"hi")
    client = open_tunnel(proxy, held, dial)
    with unreachable(port_of(client)):
        held.conn.send(b"more")
        if half:
            held.conn.half_close()
        proxy.wait_reason("write_timeout", kind="tunnel")


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf"


def test_a_client_that_is_gone_in_a_response_has_not_been_reset(
        short_patience, start_proxy, make_origin, dial) -> None:
    """It was `client_reset`."""
    proxy, held = start_proxy(), Held(make_origin, ANSWER)
    client = dial(proxy)
    client.send(build_request("GET", held.origin.url()))
    client.read_until(b"half")
    with unreachable(port_of(client)):
        held.wait().send(b"more")
        proxy.wait_reason("write_timeout")


def test_an_origin_that_is_gone_in_its_response_has_not_been_reset(
        short_patience, start_proxy, make_origin, dial) -> None:
    """It answers before it has read the request's body, and was `origin_reset`."""
    proxy, held = start_proxy(), Held(make_origin, ANSWER)
    client = dial(proxy)
    client.send(build_request("POST", held.origin.url(), "Content-Length: 9"))
    client.read_until(b"half")
    with unreachable(held.origin.port):
        client.send(b"body")
        assert client.read_rest() == b""
        proxy.wait_reason("response_timeout")
