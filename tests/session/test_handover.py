"""Tunnels that change their worker: two of them in one loop, and the faults of each.

Both are in this process, so that each step can be stopped at: a taker that dies with
packets unread, a giver that dies between two of them. Tests of real processes are in
tests/e2e/test_handover.py.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import threading

import msgspec
import pytest

from cutthrough.generation.generation import Generation
from cutthrough.policy.ledger import Ledger
from cutthrough.policy.source import Policy, Rule
from cutthrough.session.describe import cut
from cutthrough.session.handover import pack, recount, tunnels
from cutthrough.session.handover_record import Answer, Done, Tunnel
from cutthrough.worker.handover import WINDOW
from cutthrough.worker.worker import Worker
from tests.support.origin import Origin
from tests.support.workers import Pair, pair, talk, until

CUTTING = Policy(source="newer", default="deny", rules=(Rule(action="deny", cut=True),))


def test_tunnels_move_and_are_counted_once(run):
    n = 3 * WINDOW + 5

    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, n)
        for client in clients:
            await talk(client)
        before = workers.sum()
        assert before == (n, n, 2 * n)
        await workers.move()
        assert workers.told[0] == (n, 0)
        assert workers.sum() == before
        assert workers.old.parts.ledger.held() == 0
        assert (workers.old.context.live, workers.new.context.live) == (0, n)
        for client in clients:
            await talk(client)
            client.close()
        await until(lambda: workers.new.context.live == 0)
        workers.new.log.flush()
        lines = workers.lines()
        assert len(lines) == n == len({line["id"] for line in lines})
        assert {(line["reason"], line["bytes_up"]) for line in lines} == {("ok", 28)}
        old, new = workers.old.page.read(), workers.new.page.read()
        assert old["accepted"] + new["accepted"] == n
        assert old["tunnels"] + new["tunnels"] == n
        assert workers.sum() == (0, 0, 0)
        assert len(workers.pauses) == n

    run(main)


def test_a_program_that_has_its_own_page_counts_them_there(run):
    async def main(workers: Pair, origin: Origin) -> None:
        workers.new.parts.ledger = Ledger()
        workers.new.swap(workers.new.generation)
        await workers.open(origin, 3)
        await workers.move(holder=-1)
        assert workers.sum() == (0, 0, 0)
        read = workers.new.parts.ledger.read()
        assert (read["connections"], read["of_clients"], read["of_users"]) == (3, 3, 6)

    run(main)


@pytest.mark.parametrize("side", ["client", "origin"])
def test_a_half_closed_tunnel_moves(run, side):
    ended = threading.Event()

    def one_ends(conn) -> None:
        if side == "origin":
            conn.half_close()
        conn.read_rest()
        ended.wait(15)
        if side == "client":
            conn.send(b"last word")

    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        if side == "client":
            client.half_close()
        await until(lambda: workers.old.page.read()["state:HALF_CLOSED"])
        await workers.move()
        page = workers.new.page.read()
        assert (page["state:HALF_CLOSED"], page["state:TUNNEL"]) == (1, 0)
        if side == "client":
            ended.set()
            assert await asyncio.to_thread(client.read_rest) == b"last word"
        else:
            assert await asyncio.to_thread(client.read_rest) == b""
            client.send(b"first word")
            client.half_close()
            ended.set()
        await until(lambda: workers.new.context.live == 0)
        if side == "origin":
            (kept,) = origin.connections    # read by a thread of its own
            await until(lambda: kept.received == b"first word")

    run(main, one_ends)


@pytest.mark.parametrize("splice", [True, False], ids=["pipe", "block"])
def test_bytes_that_are_stuck_go_along_in_order(run, splice):
    """The client reads nothing until the tunnel has moved: the bytes that the worker
    had read off the origin by then are in a pipe, or in a block."""
    data = os.urandom(1 << 20) * 24

    def pour(conn) -> None:
        conn.sock.settimeout(60)
        conn.send(data)
        conn.half_close()

    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        await until(lambda: is_stuck(workers.old, splice))
        await workers.move()
        assert workers.told[0] == (1, 0)
        got = await asyncio.to_thread(client.read_rest)
        assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
        client.close()
        await until(lambda: workers.new.context.live == 0)
        workers.new.log.flush()
        (line,) = workers.lines()
        assert line["bytes_down"] == len(data)

    run(main, pour, splice=splice, policy=None)


def is_stuck(worker: Worker, splice: bool) -> bool:
    leaks = worker.leaks()
    if splice:
        return bool(leaks["pipes"])
    # The rest that the sink left may be little enough for a small block
    return bool(leaks["copy_blocks"] or leaks["head_blocks"])


def packets(sock: socket.socket, n: int) -> list[tuple[Tunnel, list[int]]]:
    """The packets that a taker reads; the descriptors are the test's."""
    found = []
    while len(found) < n:
        data, fds, _, _ = socket.recv_fds(sock, 1 << 18, 8)
        message = msgspec.msgpack.decode(data, type=Tunnel | Done)
        if isinstance(message, Tunnel):
            found.append((message, fds))
    return found


def drop(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("reaped", ["before", "after"])
def test_a_taker_that_dies_leaves_what_it_did_not_take(run, reaped):
    """Of eight it takes three, and dies with the others unread."""
    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, 8)
        ours, theirs = pair()
        workers.give(ours)
        theirs.send(msgspec.msgpack.encode(Answer([], [])))
        taken = await asyncio.to_thread(packets, theirs, 3)
        assert workers.old.in_transit == 8
        assert workers.sum() == (8, 8, 16)
        theirs.send(msgspec.msgpack.encode(
            Answer([message.number for message, _ in taken], [])))
        if reaped == "before":
            workers.old.parts.ledger.reap(1)
        theirs.close()
        await until(lambda: workers.told)
        workers.old.parts.ledger.reap(1)
        assert workers.told == [(3, 5)]
        assert workers.sum() == (5, 5, 10)
        assert workers.old.context.live == 5
        for _, fds in taken:
            drop(fds)
        for client in clients[3:]:
            await talk(client)
            client.close()
        await until(lambda: workers.old.context.live == 0)
        assert workers.sum() == (0, 0, 0)
        workers.old.log.flush()
        assert len(workers.lines()) == 5

    run(main)


def test_what_a_taker_refuses_stays(run):
    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, 3)
        workers.new.context.start_draining()
        await workers.move()
        assert workers.told == [(0, 3)]
        assert workers.sum() == (3, 3, 6)
        assert workers.new.parts.ledger.held() == 0
        for client in clients:
            await talk(client)

    run(main)


def test_a_giver_that_dies_leaves_what_it_has_sent(run):
    """Of three tunnels one was sent, one was counted as the taker's and not sent, and
    one was not touched: the last two end with their worker."""
    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, 3)
        ours, theirs = pair()
        parcels = [pack(client, n, 0, 1) for n, client in enumerate(
            tunnels(workers.old.context)[:2])]
        socket.send_fds(ours, [msgspec.msgpack.encode(parcels[0].record)],
                        parcels[0].fds)
        ours.close()
        for parcel in parcels:               # its end closes all of its descriptors
            parcel.forget()
        workers.old.stop()
        workers.old.parts.ledger.reap(0)
        assert workers.sum() == (2, 2, 4)
        workers.take(theirs)
        await until(lambda: workers.sum() == (1, 1, 2))
        await talk(clients[0])
        for client in clients[1:]:
            assert client.at_eof()

    run(main)


def test_a_recount_finds_what_is_held(run):
    async def main(workers: Pair, origin: Origin) -> None:
        await workers.open(origin, 3)
        before = workers.sum()
        recount(workers.old.context)
        assert workers.sum() == before == (3, 3, 6)

    run(main)


def test_another_format_is_not_understood_and_all_stays(run):
    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        ours, theirs = pair()
        workers.take(theirs)
        parcel = pack(tunnels(workers.old.context)[0], 7, 0, 1)
        parcel.record.format += 1
        socket.send_fds(ours, [msgspec.msgpack.encode(parcel.record)], parcel.fds)
        answers = []

        def read() -> bool:
            with contextlib.suppress(BlockingIOError):
                data = ours.recv(100, socket.MSG_DONTWAIT)
                answers.append(msgspec.msgpack.decode(data, type=Answer))
            return len(answers) == 2
        await until(read)
        assert answers[1].refused == [7]
        parcel.restore()
        await talk(client)
        ours.close()
        ours, theirs = pair()
        workers.take(theirs)
        with ours:
            ours.send(msgspec.msgpack.encode({"type": "other", "words": 1}))
            await until(lambda: theirs.fileno() < 0)

    run(main)


def test_the_new_generation_judges(run):
    """If it would cut a tunnel, the tunnel is cut on arrival, and no other is."""
    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        await workers.move()
        assert workers.told == [(1, 0)]
        with contextlib.suppress(ConnectionResetError):
            assert client.at_eof()
        await until(lambda: workers.new.context.live == 0)
        workers.new.log.flush()
        (line,) = workers.lines()
        assert line["reason"] == "destination_denied"

    run(main, newer=CUTTING)


# Several at once: a worker is replaced, or its program, before all have moved


def live(workers: Pair) -> tuple[int, ...]:
    return tuple(worker.context.live for worker in workers.workers)


def test_a_later_taker_takes_the_place_of_the_one_before(run):
    """Two givers in one worker: each packed tunnels sent by the other; they died."""
    n = 3 * WINDOW + 5

    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, n)
        (ours, theirs), (after, heir) = pair(), pair()
        workers.take(theirs)
        workers.give(ours).on_readable()     # it listens: the first ones are under way
        assert workers.old.in_transit == WINDOW
        workers.take(heir, workers.third)
        workers.give(after, 2)
        await until(lambda: sum(given for given, _ in workers.told) == n)
        assert live(workers) == (0, WINDOW, n - WINDOW)
        assert workers.told[-1][1] == 0
        await until(lambda: theirs.fileno() < 0 and not workers.old.in_transit)
        assert workers.sum() == (n, n, 2 * n)
        for client in clients:
            await talk(client)

    run(main)


@pytest.mark.parametrize("end", ["dies", "refuses", "takes"])
def test_nobody_waits_for_a_taker_that_hangs(run, end):
    """Tunnels sent to that taker are frozen, until its end decides their place."""
    n = 2 * WINDOW

    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, n)
        (ours, theirs), (after, heir) = pair(), pair()
        theirs.send(msgspec.msgpack.encode(Answer([], [])))
        workers.give(ours).on_readable()
        frozen = await asyncio.to_thread(packets, theirs, WINDOW)
        workers.take(heir, workers.third)
        workers.give(after, 2)
        await until(lambda: workers.third.context.live == n - WINDOW)
        await until(lambda: workers.old.in_transit == WINDOW)
        numbers = [message.number for message, _ in frozen]
        if end != "dies":
            theirs.send(msgspec.msgpack.encode(Answer(*(
                (numbers, []) if end == "takes" else ([], numbers)))))
            await until(lambda: ours.fileno() < 0)
        theirs.close()
        left = 0 if end == "takes" else WINDOW
        await until(lambda: workers.third.context.live == n - WINDOW + left)
        await until(lambda: workers.old.in_transit == workers.old.context.live == 0)
        for _, fds in frozen:
            drop(fds)
        workers.old.parts.ledger.reap(1)
        held = n - WINDOW + left
        assert workers.sum() == (held, held, 2 * held)
        for client in clients[WINDOW - left:]:
            await talk(client)

    run(main)


def test_what_is_frozen_is_not_packed_again(run):
    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        (tunnel,) = tunnels(workers.old.context)
        parcel = pack(tunnel, 0, 0, 1)
        assert pack(tunnel, 1, 0, 2) is None
        parcel.restore()
        assert workers.sum() == (1, 1, 2)
        await talk(client)

    run(main)


def test_a_reload_cuts_what_comes_back_after_it(run):
    """It was in no list when the reload looked for tunnels that the new rules cut."""
    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        (tunnel,) = tunnels(workers.old.context)
        parcel = pack(tunnel, 0, 0, 1)
        workers.old.swap(Generation(2, workers.old.config, CUTTING))
        parcel.restore()
        assert client.at_eof()
        assert workers.sum() == (0, 0, 0)

    run(main)


def test_a_cut_leaves_alone_what_is_frozen(run):
    """It was ended there, and used once more when the taker had answered."""
    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        (tunnel,) = tunnels(workers.old.context)
        parcel = pack(tunnel, 0, 0, 1)
        assert not cut(tunnel)
        parcel.restore()
        assert workers.sum() == (1, 1, 2)
        await talk(client)
        assert cut(tunnel) and not cut(tunnel)

    run(main)


@pytest.mark.parametrize("where", ["sent", "packed", "refused"])
def test_a_giver_that_dies_takes_nothing_of_another_s_along(run, where):
    """The taker counted its own tunnels anew, and not those on their way to it. A row
    without a holder was given to another user then, or was divided by, while a tunnel
    used it."""
    async def main(workers: Pair, origin: Origin) -> None:
        (client,) = await workers.open(origin)
        (ours, theirs), (dying, other) = pair(), pair()
        workers.take(theirs)
        taker = workers.take(other)
        parcel = pack(tunnels(workers.old.context)[0], 0, 0, 1)
        if where == "sent":
            socket.send_fds(ours, [msgspec.msgpack.encode(parcel.record)], parcel.fds)
        dying.close()
        taker.on_readable()
        assert workers.sum() == ((1, 1, 2) if where == "sent" else (0, 0, 0))
        if where == "packed":
            socket.send_fds(ours, [msgspec.msgpack.encode(parcel.record)], parcel.fds)
        if where == "refused":
            parcel.restore()
        else:
            await until(lambda: workers.new.context.live == 1)
            parcel.forget()
        assert workers.sum() == (1, 1, 2)
        await talk(client)
        ours.send(msgspec.msgpack.encode(Done(last=True)))
        ours.close()
        client.close()
        await until(lambda: not any(live(workers)))
        assert workers.sum() == (0, 0, 0)

    run(main)


def test_what_is_refused_after_the_giver_s_end_is_held_by_nobody(run):
    """Its last message was that all was well, and the taker counted it for good."""
    async def main(workers: Pair, origin: Origin) -> None:
        await workers.open(origin, 3)
        ours, theirs = pair()
        workers.take(theirs)
        giver = workers.give(ours)
        giver.on_readable()
        workers.new.context.start_draining()
        giver.close()
        await until(lambda: theirs.fileno() < 0)
        assert workers.new.parts.ledger.held() == 0
        assert workers.sum() == (0, 0, 0)

    run(main)
