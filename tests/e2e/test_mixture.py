"""Many clients at once: each gets its own answer, and never another's."""

import hashlib
import random
import threading

from tests.support.client import AUTH, build_request
from tests.support.origin import echo
from tests.support.stream import chunked

CLIENTS = 24
REQUESTS = 30


def digest(conn) -> None:
    """Answers with a digest of the request, framed one way or the other."""
    while True:
        request = conn.read_request()
        text = f"{request.method} {request.target} ".encode()
        body = text + hashlib.sha256(request.body).hexdigest().encode()
        if len(request.body) % 2:
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            conn.send(chunked([body[:10], body[10:]]))
        else:
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            conn.send(body)


def journey(client, origins, seed: int) -> None:
    """Requests to random origins, with bodies of random sizes, some pipelined."""
    chance = random.Random(seed)
    for turn in range(REQUESTS // 3):
        expected = []
        for step in range(3):
            origin = chance.choice(origins)
            path = f"/{seed}/{turn}/{step}"
            data = chance.randbytes(chance.choice((0, 1, 100, 5000, 70_001)))
            framing, body = f"Content-Length: {len(data)}", data
            if data and chance.random() < 0.5:
                half = len(data) // 2
                pieces = filter(None, (data[:half], data[half:]))
                framing, body = "Transfer-Encoding: chunked", chunked(pieces)
            client.send(build_request("POST", origin.url(path), framing, body=body))
            expected.append(f"POST {path} {hashlib.sha256(data).hexdigest()}")
        assert [client.read_response().body.decode() for _ in range(3)] == expected


def tunnel_journey(client, echoing, seed: int) -> None:
    chance = random.Random(seed)
    client.tunnel(echoing.authority)
    for _ in range(REQUESTS):
        data = chance.randbytes(chance.choice((1, 100, 5000, 60_000)))
        client.send(data)
        assert client.read_exact(len(data)) == data


def test_many_clients_get_their_own_answers(start_proxy, make_origin, dial):
    proxy = start_proxy("--workers", "2")
    origins, echoing = [make_origin(digest) for _ in range(3)], make_origin(echo)
    failures = []

    def run(seed: int) -> None:
        try:
            with proxy.client() as client:
                if seed % 3:
                    journey(client, origins, seed)
                else:
                    tunnel_journey(client, echoing, seed)
        except BaseException as failure:
            failures.append((seed, failure))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    records = proxy.wait_log(CLIENTS // 3 + CLIENTS * 2 // 3 * REQUESTS)
    assert {record["reason"] for record in records} <= {"ok", "client_closed"}


def test_connect_may_follow_a_request(proxy, make_origin, dial):
    """In one segment: the tunnel's first bytes are not taken for a request."""
    origin, echoing = make_origin(), make_origin(echo)
    client = dial()
    client.send(
        build_request("GET", origin.url())
        + build_request("CONNECT", echoing.authority, host=echoing.authority)
        + b"GET / HTTP/1.1\r\n\r\n"
    )
    assert client.read_response().body == b"ok"
    assert client.read_response("CONNECT").status == 200
    assert client.read_exact(18) == b"GET / HTTP/1.1\r\n\r\n"


def test_a_client_that_has_sent_its_fin_gets_its_response(proxy, make_origin, dial):
    """`printf … | nc`: the request is whole, only nothing more will come."""
    client = dial()
    client.send(build_request("GET", make_origin().url()))
    client.half_close()
    assert client.read_response().body == b"ok"
    assert client.at_eof()


def test_pipelined_requests_before_a_fin_are_all_answered(proxy, make_origin, dial):
    url = make_origin().url()
    client = dial()
    client.send(f"GET {url} HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode() * 5)
    client.half_close()
    assert [client.read_response().body for _ in range(5)] == [b"ok"] * 5
    assert client.at_eof()
