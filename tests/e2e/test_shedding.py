"""At a bound of ours connections at rest are closed, and users are served (R32)."""

import asyncio
import contextlib

import pytest

from cutthrough.net import buffers
from tests.support.client import AUTH, Client, build_request
from tests.support.embedded import SETTINGS, serve_embedded
from tests.support.origin import Origin, echo
from tests.support.sanitized import SANITIZED
from tests.support.shedding import PART, SMALL_BLOCK, be_partial, held, let_time_pass
from tests.support.wait import wait_until

BOUND = 24


def be_mute(client: Client) -> None:
    """Nothing is ever sent."""


def be_asked(client: Client) -> None:
    """Refused, and kept alive."""
    assert client.get("http://127.0.0.1:1/", auth=None).status == 407


def be_partial_behind_another(client: Client) -> None:
    client.send(build_request("GET", "http://127.0.0.1:1/", auth=None) + PART)
    assert client.read_response().status == 407


def be_lingering(client: Client) -> None:
    """Answered for the last time, and never closed."""
    assert client.connect("127.0.0.1:1", auth=None).status == 407


FLOODS = [be_mute, be_asked, be_partial, be_partial_behind_another, be_lingering]


def is_open(client: Client) -> bool:
    """Bytes sent to it before its end are thrown away."""
    client.sock.setblocking(False)
    try:
        while client.sock.recv(4096):
            pass
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        client.sock.settimeout(15)
    return False


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("option", ["--max-connections", "--max-connections-total"])
def test_a_user_gets_in_while_others_hold_every_place(
        start_proxy, make_origin, call, flood, option):
    """R32: all clients were refused for a minute because of 9 900 connections, silent
    after one request without credentials: only a want of descriptors shed them."""
    proxy = start_proxy(option, str(BOUND), "--linger-timeout", "30s",
                        "--head-timeout", "30s")
    origin = make_origin()
    flooders = []
    for n in range(3 * BOUND):
        flooders.append(call(proxy.port, "127.0.0.2"))
        flood(flooders[-1])
        if n % 4 == 0:
            with contextlib.closing(call(proxy.port)) as user:
                assert user.get(origin.url()).status == 200
    assert proxy.sockets() <= BOUND + 64
    assert not is_open(flooders[0])
    assert is_open(flooders[-1]) or flood is be_lingering
    assert not proxy.log(user="user", status=503)


def test_who_never_authenticated_goes_before_who_has(start_proxy, make_origin, call):
    proxy = start_proxy("--max-connections", str(BOUND))
    origin = make_origin()
    guests = [call(proxy.port) for _ in range(BOUND // 2)]
    for guest in guests:
        assert guest.get(origin.url()).status == 200
    strangers = [call(proxy.port, f"127.0.0.{n + 2}") for n in range(BOUND // 2)]
    for stranger in strangers:
        be_asked(stranger)
        let_time_pass()
    newcomers = []
    for n in range(BOUND // 2):
        newcomers.append(call(proxy.port))
        assert newcomers[-1].get(origin.url()).status == 200
        assert [is_open(one) for one in strangers] == [
            number > n for number in range(len(strangers))]
    for guest in guests:
        assert guest.get(origin.url()).status == 200, "the same connection"
    # No stranger is left: the authenticated connection that is idle for longest goes
    assert call(proxy.port).get(origin.url()).status == 200
    wait_until(lambda: not is_open(newcomers[0]), "the oldest one closed")
    assert all(is_open(one) for one in (*newcomers[1:], *guests))


def test_of_strangers_the_address_with_most_goes_first(start_proxy, call):
    proxy = start_proxy("--max-connections", "9", "--head-timeout", "60s")
    held = {address: [call(proxy.port, address) for _ in range(n)]
            for address, n in (("127.0.0.4", 1), ("127.0.0.3", 3), ("127.0.0.2", 5))}
    for clients in held.values():
        for client in clients:
            be_asked(client)
            let_time_pass()

    def still_there() -> list[int]:
        return [sum(map(is_open, clients)) for clients in held.values()]

    assert still_there() == [1, 3, 5]
    for n, expected in enumerate(([1, 3, 4], [1, 3, 3], [1, 2, 3], [1, 2, 2])):
        call(proxy.port, f"127.0.0.{n + 5}")
        wait_until(lambda e=expected: still_there() == e, f"{expected}")
    assert [is_open(one) for one in held["127.0.0.2"]] == [False] * 3 + [True] * 2


def test_who_had_a_request_meanwhile_is_not_the_oldest(start_proxy, make_origin, call):
    proxy = start_proxy("--max-connections", "4")
    origin = make_origin()
    guests = [call(proxy.port) for _ in range(4)]
    for guest in (*guests, guests[0], guests[2]):
        assert guest.get(origin.url()).status == 200
        let_time_pass()
    for gone in ([1], [1, 3], [1, 3, 0]):
        assert call(proxy.port).get(origin.url()).status == 200
        assert {n for n, guest in enumerate(guests) if not is_open(guest)} == set(gone)
        let_time_pass()


def test_an_idle_connection_of_the_same_address_makes_room_for_its_next(
        start_proxy, make_origin, call):
    """Beyond max_connections_per_client a browser was refused by its own idle ones."""
    proxy = start_proxy("--max-connections-per-client", "3")
    origin = make_origin()
    other = call(proxy.port, "127.0.0.2")
    be_asked(other)
    clients = [call(proxy.port) for _ in range(3)]
    for client in clients:
        assert client.get(origin.url()).status == 200
    for n in range(2):
        assert call(proxy.port).get(origin.url()).status == 200
        assert [is_open(one) for one in clients] == [n < 0, n < 1, True]
    assert is_open(other)


def test_strangers_have_the_time_of_a_head(start_proxy, make_origin, call):
    """They had that of a client between two requests: a minute, for one bad request."""
    proxy = start_proxy("--head-timeout", "400ms", "--keepalive-timeout", "60s")
    guest = call(proxy.port)
    assert guest.get(make_origin().url()).status == 200
    stranger = call(proxy.port)
    be_asked(stranger)
    assert stranger.at_eof()
    assert is_open(guest)


def test_without_descriptors_guests_stay_while_there_are_strangers(
        start_proxy, make_origin, call, exhaust):
    """Everything that was idle went, users' connections as well."""
    proxy = start_proxy()
    origin = make_origin()
    guests = [call(proxy.port) for _ in range(4)]
    for guest in guests:
        assert guest.get(origin.url()).status == 200
    strangers = [call(proxy.port, "127.0.0.2") for _ in range(30)]
    for stranger in strangers:
        be_asked(stranger)
    exhaust(proxy)
    for _ in range(8):
        with contextlib.closing(call(proxy.port)) as newcomer:
            assert newcomer.get(origin.url()).status == 200
    assert all(map(is_open, guests))
    assert not any(map(is_open, strangers[:20]))


def in_one_turn(loop_name, journey, **options) -> None:
    """Runs journey(proxy) in the loop: the proxy sees all that it did at once."""
    import cutthrough

    async def main() -> None:
        async with cutthrough.serve(**SETTINGS, access_log="off", **options) as proxy:
            await journey(proxy)

    factory = asyncio.new_event_loop
    if loop_name == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


def test_a_request_that_waits_to_be_read_is_not_reset(loop_name, call):
    async def journey(proxy) -> None:
        with Origin() as origin:
            client = call(proxy.port)
            reply = await asyncio.to_thread(client.get, origin.url())
            assert reply.status == 200
            client.send(build_request("GET", origin.url()))
            newcomer = call(proxy.port)
            refused = await asyncio.to_thread(newcomer.read_response)
            assert refused.status == 503
            reply = await asyncio.to_thread(client.read_response)
            assert reply.status == 200

    in_one_turn(loop_name, journey, max_connections=1)


def test_what_was_closed_to_make_room_is_counted_by_bound_and_kind(loop_name, call):
    def journey(proxy) -> None:
        with Origin() as origin:
            for act in (be_asked, be_partial, be_mute):
                act(call(proxy.port))
            page = proxy.worker.page
            wait_until(lambda: page.read()["state:HEAD"] == 2, "the head's part")
            for _ in range(3):
                assert call(proxy.port).get(origin.url()).status == 200
            counted = page.read()
            assert counted["shed"] == 3 and counted["refused"] == 0
            assert counted["shed:connections stranger"] == 2
            assert counted["shed:connections head"] == 1
            assert call(proxy.port).get(origin.url()).status == 200
            assert page.read()["shed:connections guest"] == 1

    serve_embedded(loop_name, journey, access_log="off", max_connections=3)


# Blocks of memory


def test_a_part_of_a_head_takes_a_small_block(loop_name, call):
    """Each took 17 KiB; 6 600 of them, behind another request, took all blocks."""
    def journey(proxy) -> None:
        before = held("strangers")
        for _ in range(10):
            be_partial(call(proxy.port))
            be_partial_behind_another(call(proxy.port))
        page = proxy.worker.page
        wait_until(lambda: page.read()["state:HEAD"] == 20, "all of them")
        assert held("strangers") - before == 20 * SMALL_BLOCK

    serve_embedded(loop_name, journey, access_log="off")


def test_what_is_left_of_many_requests_moves_into_a_small_block(loop_name, call):
    """Of 60 KB that came at once a part of a head was left, in a block of 80 KiB."""
    def journey(proxy) -> None:
        with Origin() as origin:
            client = call(proxy.port)
            assert client.get(origin.url()).status == 200
            n = 60_000 // len(build_request("GET", origin.url()))
            client.send(build_request("GET", origin.url()) * n + PART)
            for _ in range(n):
                assert client.read_response().status == 200
            wait_until(lambda: held("requests") == SMALL_BLOCK, "a small block")
            assert buffers.stats()["copy_blocks"] == 0

    serve_embedded(loop_name, journey, access_log="off")


def test_at_the_bound_of_memory_the_busiest_address_loses_the_oldest_part(
        loop_name, call, bounds):
    def journey(proxy) -> None:
        bounds(6 * SMALL_BLOCK, "strangers")
        page = proxy.worker.page
        parts = [call(proxy.port, source) for source in
                 ("127.0.0.3", "127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.2",
                  "127.0.0.2")]
        for n, part in enumerate(parts):
            be_partial(part)
            wait_until(lambda n=n: held("strangers") == (n + 1) * SMALL_BLOCK, "it")
        for n, (source, gone) in enumerate((
                ("127.0.0.4", 1), ("127.0.0.5", 2), ("127.0.0.5", 0))):
            be_partial(call(proxy.port, source))
            assert parts[gone].read_response().status == 503
            assert parts[gone].at_eof()
            assert page.read()["shed:memory head"] == n + 1
        assert is_open(parts[3]) and is_open(parts[4]) and is_open(parts[5])

    serve_embedded(loop_name, journey, access_log="off")


def test_a_flood_of_parts_leaves_requests_and_tunnels_their_room(
        loop_name, call, bounds):
    """All blocks were taken, and GETs and CONNECTs with early data were 503 for as long
    as the flood stayed."""
    def journey(proxy) -> None:
        bounds(8 * SMALL_BLOCK, "strangers")
        with Origin(echo) as origin, Origin() as plain:
            user = call(proxy.port)
            assert user.get(plain.url()).status == 200
            for _ in range(24):
                be_partial_behind_another(call(proxy.port, "127.0.0.2"))
                assert user.get(plain.url()).status == 200
                tunnel = call(proxy.port).tunnel(origin.authority, b"early")
                assert tunnel.read_exact(5) == b"early"
                tunnel.close()
                slow = call(proxy.port)             # its head comes in two pieces
                head = build_request("GET", plain.url())
                slow.send(head[:40])
                wait_until(lambda: held("strangers") % SMALL_BLOCK == 0
                           and proxy.worker.page.read()["state:HEAD"], "the first one")
                slow.send(head[40:])
                assert slow.read_response().status == 200
                slow.close()

    serve_embedded(loop_name, journey, access_log="off")


def test_relays_that_are_stuck_leave_heads_their_room(loop_name, call, bounds):
    def journey(proxy) -> None:
        bounds(0, "relays")
        with Origin() as origin:
            client = call(proxy.port)
            head = build_request("GET", origin.url())
            client.send(head[:40])
            wait_until(lambda: held("strangers"), "the first piece")
            client.send(head[40:])
            assert client.read_response().status == 200

    serve_embedded(loop_name, journey, access_log="off")


def test_heads_leave_relays_their_room(loop_name, call, bounds):
    def journey(proxy) -> None:
        with Origin(echo) as origin:
            tunnel = call(proxy.port).tunnel(origin.authority)
            bounds(0, "requests")
            bounds(0, "strangers")
            tunnel.send(b"through")
            assert tunnel.read_exact(7) == b"through"

    serve_embedded(loop_name, journey, access_log="off")


@pytest.mark.skipif(SANITIZED, reason="memory is the sanitizer's")
def test_memory_goes_back_when_a_flood_of_heads_is_over(start_proxy, make_origin, call):
    """Memory was kept: 409 MB, from 35 before, long after the last connection."""
    proxy = start_proxy("--head-timeout", "60s", executed=True)
    assert call(proxy.port).get(make_origin().url()).status == 200
    before = proxy.private_kib()
    n = 2000
    long_part = PART + b"1\r\nX: " + b"y" * 12_000
    callers = []
    for _ in range(n):
        callers.append(call(proxy.port, "127.0.0.2"))
        callers[-1].send(long_part)
    wait_until(lambda: proxy.private_kib() > before + n * 12, "as much memory", 30)
    while callers:
        callers.pop().sock.close()
    wait_until(lambda: proxy.private_kib() < before * 1.1,
               lambda: f"{before} KiB again: {proxy.private_kib()}", 30)


def test_early_bytes_of_a_stranger_are_no_more_than_a_head(loop_name, call):
    """While its password was being verified it had 80 KiB of ours."""
    def journey(proxy) -> None:
        client = call(proxy.port)
        head = f"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n{AUTH}"
        client.send(head.encode() + b"Z: " + b"z" * 60_000)
        assert 400 <= client.read_response().status < 500
        assert held("strangers") <= 2 * 17_408

    serve_embedded(loop_name, journey, access_log="off")
