"""100 MiB each way, in a tunnel and as a plain request: every byte, in flat memory."""

import hashlib
import threading

import pytest

from tests.support.bulk import BLOCK, SIZE, Watch, read_sum
from tests.support.client import build_request
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

#: The most that a worker may grow by while 100 MiB pass through it.
FLAT = 4 << 20


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stands_still(counter: list[int], seconds: float = 0.3) -> bool:
    """True when for so long the counter did not move."""
    before = counter[0]
    threading.Event().wait(seconds)
    return counter[0] == before


def warm(proxy, nginx, dial) -> None:
    """Buffers, pipes and code pages are there before growth is measured."""
    client = dial()
    assert len(client.get(nginx.url("/1m")).body) == 1 << 20
    tunnel = dial().tunnel(nginx.authority)
    tunnel.send(b"GET /1m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert len(tunnel.read_rest()) > 1 << 20
    client.close()
    tunnel.close()


@pytest.mark.parametrize("how", ["plain", "tunnel"])
def test_100_mib_down(proxy, nginx, dial, how):
    expected = sha256(nginx.payload("100m"))
    warm(proxy, nginx, dial)
    client = dial()
    with Watch(proxy) as watch:
        if how == "tunnel":
            client.tunnel(nginx.authority)
            client.send(b"GET /100m HTTP/1.1\r\nHost: x\r\n\r\n")
        else:
            client.send(build_request("GET", nginx.url("/100m")))
        head = client.read_head()
        assert (head.status, head.get("Content-Length")) == (200, str(SIZE))
        assert read_sum(client, SIZE) == expected
    client.close()
    assert watch.growth <= FLAT, f"grew by {watch.growth >> 10} KiB"
    wait_until(
        lambda: any(record["bytes_down"] >= SIZE for record in proxy.log()),
        lambda: f"a record of {SIZE} bytes: {proxy.lines()}",
    )


@pytest.mark.parametrize("how", ["plain", "tunnel"])
def test_100_mib_up(proxy, nginx, make_origin, dial, how):
    data = nginx.payload("100m")
    warm(proxy, nginx, dial)
    sums = []

    def count(conn):
        head = conn.read_head()
        sums.append(read_sum(conn, int(head.get("Content-Length"))))
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        conn.stall()

    origin = make_origin(count)
    client = dial()
    with Watch(proxy) as watch:
        if how == "tunnel":
            client.tunnel(origin.authority)
        auth = {} if how == "plain" else {"auth": None}
        client.send(
            build_request("POST", origin.url("/up"), f"Content-Length: {SIZE}", **auth)
        )
        for at in range(0, SIZE, BLOCK):
            client.send(data[at : at + BLOCK])
        assert client.read_response().body == b"ok"
    assert sums == [sha256(data)]
    assert watch.growth <= FLAT, f"grew by {watch.growth >> 10} KiB"


@pytest.mark.parametrize("how", ["length", "chunked", "tunnel"])
def test_a_slow_reader_stops_the_reading_from_the_other_side(
    proxy, make_origin, dial, how
):
    """R31: memory per connection is fixed; the origin waits."""
    sent = [0]

    def pour(conn):
        if how != "tunnel":
            conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\n")
        conn.send(
            {
                "length": b"Content-Length: %d\r\n\r\n" % (SIZE * 10),
                "chunked": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (SIZE * 10),
                "tunnel": b"\r\n",
            }[how]
        )
        while True:
            conn.send(bytes(BLOCK))
            sent[0] += BLOCK

    origin = make_origin(pour)
    client = dial(receive_buffer=65536)
    with Watch(proxy) as watch:
        if how == "tunnel":
            client.tunnel(origin.authority)
        else:
            client.send(build_request("GET", origin.url()))
        client.read_head()
        wait_until(lambda: stands_still(sent), "the origin's writing stopped")
    assert sent[0] < 64 << 20
    assert watch.growth <= FLAT, f"grew by {watch.growth >> 10} KiB"
    client.close()
    assert proxy.wait_log(1)[0]["reason"] in ("client_closed", "client_reset")
