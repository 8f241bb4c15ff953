"""Tunnels run on while the worker that has them is replaced; their peers notice
nothing."""

import contextlib
import hashlib
import os
import re
import signal
import socket
import threading
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from cutthrough.session.model.counters import PAGE_BYTES
from tests.support.admin import TOKEN, TOLD, Operator
from tests.support.certificates import localhost
from tests.support.client import AUTH, Client
from tests.support.handovers import RENEW, handed, pids, renew, upgrade
from tests.support.handovers import limited as limited
from tests.support.handovers import start as start
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.stream import Closed
from tests.support.successors import (
    end,
    end_all,
    find_successor,
    successor_of,
)
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import table
from tests.support.wait import wait_until


def pattern(seed: int, n: int) -> bytes:
    return hashlib.shake_128(seed.to_bytes(8, "big")).digest(n)


class Talk(threading.Thread):
    """Sends a pattern through a tunnel to an echo, and compares, until it is told to
    end."""

    def __init__(self, client: Client, seed: int) -> None:
        super().__init__()
        self.client, self.seed = client, seed
        self.sent = 0
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self.over.is_set():
                piece = pattern(self.seed + self.sent, 1 + (self.sent * 7919) % 90_000)
                sender = threading.Thread(target=self.client.send, args=(piece,))
                sender.start()
                assert self.client.read_exact(len(piece)) == piece
                sender.join()
                self.sent += len(piece)
                self.client.received.clear()
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.over.set()
        self.join()
        assert self.error is None, self.error


def test_bytes_run_on_both_ways_while_workers_are_replaced(start, make_origin, dial):
    proxy, origin = start("workers = 2\n"), make_origin(echo)
    talks = [Talk(dial(proxy).tunnel(origin.authority), n << 32) for n in range(6)]
    for number in range(1, 4):
        renew(proxy, number, "workers = 2\n")
        at = [talk.sent for talk in talks]
        wait_until(lambda at=at: all(
            talk.sent > before or talk.error
            for talk, before in zip(talks, at, strict=True)), "they talk on")
    for talk in talks:
        talk.end()
        talk.client.close()
    lines = proxy.wait_log(6, method="CONNECT")
    assert sorted(line["bytes_up"] for line in lines) == sorted(t.sent for t in talks)
    assert len({line["id"] for line in lines}) == 6 and len(lines) == 6
    assert sum(given for given, _ in handed(proxy)) == 18
    assert {stayed for _, stayed in handed(proxy)} == {0}
    assert len(origin.connections) == 6, "nobody was dialled again"


def test_a_tunnel_at_rest_moves_and_its_time_runs_on(start, make_origin, dial):
    text = 'idle_timeout = "3s"\n'
    proxy, origin = start(text), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    client.send(b"a word")
    assert client.read_exact(6) == b"a word"
    assert client.is_silent(1)
    moved_after = time.time()
    renew(proxy, 1, text)
    with contextlib.suppress(ConnectionResetError):
        assert client.at_eof()
    line = proxy.wait_reason("idle_timeout")
    assert line["total_ms"] >= 3000
    # A time that began anew with the move would be over later
    over = datetime.fromisoformat(line["time"]).timestamp()
    assert over - moved_after < 3, "from the last byte on, wherever that was"
    assert (line["bytes_up"], line["bytes_down"]) == (6, 6)


def test_an_upgraded_stream_moves_too(start, make_origin, dial):
    def switch(conn) -> None:
        conn.read_head()
        conn.send(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
        echo(conn)

    proxy, origin = start(), make_origin(switch)
    client = dial(proxy)
    reply = client.get(origin.url("/chat"), "Connection: upgrade", "Upgrade: raw")
    assert reply.status == 101
    renew(proxy, 1)
    client.send(b"raw")
    assert client.read_exact(3) == b"raw"
    client.close()
    line = proxy.wait_log(1)[0]
    assert (line["status"], line["method"], line["bytes_up"]) == (101, "GET", 3)
    assert (line["url"], line["upgrade"]) == (origin.url("/chat"), True)


def test_a_long_path_of_an_upgrade_keeps_no_tunnel_back(start, make_origin, dial):
    """Octets of UTF-8 are three each when they are encoded: the taker refused a record
    of more than 17 KiB, and the giver gave none of the others then."""
    def switch(conn) -> None:
        conn.read_head()
        conn.send(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
        echo(conn)

    proxy, origin, other = start(), make_origin(switch), make_origin(echo)
    client = dial(proxy)
    url = origin.url("/" + "\u00e9" * 3500).encode()
    client.send(b"GET %b HTTP/1.1\r\nHost: %b\r\n%bConnection: upgrade\r\n"
                b"Upgrade: raw\r\n\r\n" % (url, origin.authority.encode(),
                                           AUTH.encode()))
    assert client.read_head().status == 101
    tunnels = [dial(proxy).tunnel(other.authority) for _ in range(40)]
    renew(proxy, 1)
    for each in (client, *tunnels):
        each.send(b"on")
        assert each.read_exact(2) == b"on"
    assert sum(given for given, _ in handed(proxy)) == 41


def test_fewer_workers_take_the_tunnels_of_more(start, make_origin, dial):
    proxy, origin = start("workers = 3\n"), make_origin(echo)
    clients = [dial(proxy).tunnel(origin.authority) for _ in range(12)]
    before = pids(proxy)
    proxy.reload("workers = 1\n")
    wait_until(lambda: not before & pids(proxy), lambda: f"gone: {proxy.stderr()}")
    for client in clients:
        client.send(b"x")
        assert client.read_exact(1) == b"x"
    assert sum(given for given, _ in handed(proxy)) == 12


@pytest.mark.parametrize("how", ["reload", "upgrade"])
def test_they_move_before_a_drain_that_takes_no_time(
        start, make_origin, dial, opened, how):
    """They were cut before the first had been given."""
    text = 'drain_timeout = "0"\n'
    proxy, origin = start(text), make_origin(echo)
    held = [dial(proxy).tunnel(origin.authority) for _ in range(3)]
    new = None
    if how == "reload":
        renew(proxy, 1, text)
    else:
        new = upgrade(proxy, opened)
    for client in held:
        client.send(b"still here")
        assert client.read_exact(10) == b"still here"
        client.close()
    proxy.wait_log(3, reason="ok", method="CONNECT")
    if new is not None:
        end(new)


def test_without_it_tunnels_drain(start, make_origin, dial):
    proxy, origin = start("handover = false\n"), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    before = pids(proxy)
    proxy.reload("handover = false\n" + RENEW.format(1))
    wait_until(lambda: len(pids(proxy)) == 2, "a new worker")
    client.send(b"here")
    assert client.read_exact(4) == b"here"
    assert before < pids(proxy), "its worker waits for it"
    client.close()
    wait_until(lambda: not before & pids(proxy), "and goes")
    assert not handed(proxy)


def test_limits_hold_across_it(start, make_origin, dial, limited):
    """Three tunnels of a user: two were there before, and count once."""
    text = limited(tunnels=3, bytes_per_second=1 << 24)
    proxy, origin = start(text), make_origin(echo)
    held = [dial(proxy).tunnel(origin.authority) for _ in range(2)]
    for number in range(1, 4):
        renew(proxy, number, text)
        third = dial(proxy).tunnel(origin.authority)
        assert dial(proxy).connect(origin.authority).status == 429
        third.close()
        wait_until(lambda: frees_one(proxy, origin), "room for another")
    for client in held:
        client.send(bytes(100_000))
        assert len(client.read_exact(100_000)) == 100_000


def frees_one(proxy: Proxy, origin) -> bool:
    with proxy.client() as client:
        return client.connect(origin.authority).status == 200


def test_a_tunnel_counts_once(start, make_origin, dial):
    proxy, origin = start('admin = "127.0.0.1:0"\n'), make_origin(echo)
    clients = [dial(proxy).tunnel(origin.authority) for _ in range(5)]
    operator = Operator(int(TOLD.findall(proxy.stderr())[-1]))
    before = operator.connections()
    renew(proxy, 1, 'admin = "127.0.0.1:0"\n')
    metrics = operator.metrics()
    accepted = sum(value for name, value in metrics.items()
                   if name.startswith("connections_total{"))
    assert (metrics["tunnels"], accepted) == (5, 5)
    found = operator.connections()
    assert len({about["id"] for about in found}) == 5
    assert {about["id"] for about in found} == {about["id"] for about in before}
    for client in clients:
        client.close()


def test_no_worker_gives_an_identifier_again(start, make_origin, dial):
    """Each began with 0-1: an operator cut two in place of one."""
    text = 'handover = false\nadmin = "127.0.0.1:0"\n'
    proxy, origin = start(text), make_origin(echo)
    stays = dial(proxy).tunnel(origin.authority)
    proxy.reload(RENEW.format(1) + text)
    comes = dial(proxy).tunnel(origin.authority)
    operator = Operator(int(TOLD.findall(proxy.stderr())[-1]))
    found = operator.connections("kind=tunnel")
    assert len(found) == 2 and len({about["id"] for about in found}) == 2
    new = successor_of(proxy)
    last = dial(proxy).tunnel(origin.authority)
    for tunnel in (stays, comes, last):
        tunnel.close()
    assert len({line["id"] for line in proxy.wait_log(3)}) == 3
    end(new)


def test_a_tunnel_that_cannot_move_keeps_no_page_of_later_workers(
        loop_name, directory, opened, make_origin, reach):
    """Its worker kept the page of each: from the nineteenth on reloads were refused,
    and a worker that died was not replaced."""
    text = 'workers = 1\ndrain_timeout = "1h"\n' + table(localhost())
    proxy = opened.enter_context(Proxy(directory("tls"), loop=loop_name, config=text))
    tunnel = reach(proxy).tunnel(make_origin(echo).authority)
    for number in range(8):
        assert "refused" not in proxy.reload(RENEW.format(1 + number) + text)
        wait_until(lambda: len(pids(proxy)) == 2, proxy.stderr)
    # Of the tunnel's worker, the present one, the one before, and perhaps a lent page
    assert pages_of(proxy) <= 4
    serving = max(proxy.workers(), key=psutil.Process.create_time)
    serving.kill()
    wait_until(lambda: len(pids(proxy) - {serving.pid}) == 2, proxy.stderr)
    tunnel.send(b"here")
    assert tunnel.read_exact(4) == b"here"


def pages_of(proxy: Proxy) -> int:
    """How many pages of counters its workers have had."""
    sizes = set()
    for file in Path(f"/proc/{proxy.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):         # closed meanwhile
            if "memfd:cutthrough-counters" in os.readlink(file):
                sizes.add(file.stat().st_size)
    (size,) = sizes
    return size // PAGE_BYTES


@pytest.mark.parametrize("who", ["taker", "giver"])
def test_one_of_them_is_killed_in_the_middle(start, make_origin, dial, limited, who):
    """The dead one's tunnels end with it; the rest runs on, and each counts once."""
    n = 600
    text = limited(connections=n + 1, tunnels=n + 1)
    proxy, origin = start(text), make_origin(echo)
    clients = [dial(proxy).tunnel(origin.authority) for _ in range(n)]
    (old,) = proxy.workers()
    proxy.write_config(RENEW.format(1) + text)
    proxy.signal(signal.SIGHUP)              # and no wait until all of it is over
    new = wait_until(lambda: next(
        (w for w in proxy.workers() if w.pid != old.pid), None), "a new worker")
    deadline = time.monotonic() + 60
    while len(os.listdir(f"/proc/{new.pid}/fd")) < 100:     # no pause: it takes 40 ms
        assert time.monotonic() < deadline, proxy.stderr()
    with contextlib.suppress(psutil.NoSuchProcess):     # it has given all, and ended
        (new if who == "taker" else old).kill()
    alive = [client for client in clients if is_alive(client)]
    wait_until(lambda: pids(proxy) and not {old.pid, new.pid} & pids(proxy)
               if who == "taker" else old.pid not in pids(proxy), proxy.stderr)
    alive = [client for client in alive if is_alive(client)]
    more = 0
    with contextlib.ExitStack() as stack:
        def gets_one() -> bool:
            client = stack.enter_context(proxy.client())
            return client.connect(origin.authority).status == 200

        while gets_one():
            more += 1
        assert more == n + 1 - len(alive)
    assert psutil.pid_exists(proxy.process.pid)


@pytest.mark.parametrize("how", ["reload", "upgrade"])
def test_a_cut_in_the_middle_misses_none(start, make_origin, dial, opened, how):
    """Tunnels that were just between two workers ran on."""
    text = f'admin = "127.0.0.1:{free_port()}"\nadmin_token = "{TOKEN}"\n'
    proxy, origin = start(text), make_origin(echo)
    operator = Operator(int(wait_until(lambda: TOLD.findall(proxy.stderr()), "it")[-1]))
    clients = [dial(proxy).tunnel(origin.authority) for _ in range(600)]
    proxy.write_config(RENEW.format(1) + text)
    (old,) = proxy.workers()
    proxy.signal(signal.SIGHUP if how == "reload" else signal.SIGUSR2)
    deadline = time.monotonic() + 60
    with contextlib.suppress(FileNotFoundError):    # the worker has ended already
        # No pause: it takes 40 ms
        while len(os.listdir(f"/proc/{old.pid}/fd")) > 1100:
            assert time.monotonic() < deadline, proxy.stderr()
    assert operator.cut("all=true") == 600
    assert not any(map(is_alive, clients))
    if how == "upgrade":
        end(psutil.Process(int(re.findall(r"pid (\d+) serves", proxy.stderr())[-1])))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def is_alive(client: Client) -> bool:
    try:
        client.send(b"?")
        return client.read_exact(1) == b"?"
    except (OSError, Closed):
        return False


# To another program


def test_tunnels_go_to_the_program_that_takes_over(start, make_origin, dial, opened):
    proxy, origin = start("workers = 2\n"), make_origin(echo)
    talks = [Talk(dial(proxy).tunnel(origin.authority), n << 32) for n in range(4)]
    resting = dial(proxy).tunnel(origin.authority)
    new = upgrade(proxy, opened)
    at = [talk.sent for talk in talks]
    wait_until(lambda: all(talk.sent > before or talk.error for talk, before in zip(
        talks, at, strict=True)), "they talk on")
    for talk in talks:
        talk.end()
        talk.client.close()
    resting.send(b"awake")
    assert resting.read_exact(5) == b"awake"
    resting.close()
    lines = proxy.wait_log(5, method="CONNECT")
    assert sorted(line["bytes_up"] for line in lines) == sorted(
        [5, *(talk.sent for talk in talks)])
    assert sum(given for given, _ in handed(proxy)) == 5
    assert len(origin.connections) == 5
    end(new)


def test_limits_hold_in_the_next_program(start, make_origin, dial, limited, opened):
    text = limited(tunnels=3)
    proxy, origin = start(text), make_origin(echo)
    held = [dial(proxy).tunnel(origin.authority) for _ in range(2)]
    new = upgrade(proxy, opened)
    third = dial(proxy).tunnel(origin.authority)
    assert dial(proxy).connect(origin.authority).status == 429
    for client in (third, *held):
        client.close()
        wait_until(lambda: frees_one(proxy, origin), "room for another")
    end(new)


@pytest.mark.parametrize("who", ["old", "new"])
def test_one_program_that_wants_none_lets_them_drain(
        start, make_origin, dial, opened, who):
    none = "handover = false\n"
    proxy, origin = start(none if who == "old" else ""), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    proxy.write_config(none if who == "new" else "")
    proxy.signal(signal.SIGUSR2)
    new = find_successor(proxy.stderr)
    opened.callback(end_all, new)
    client.send(b"still here")
    assert client.read_exact(10) == b"still here"
    assert proxy.process.poll() is None, "the old one waits for its tunnel"
    client.close()
    assert proxy.process.wait(60) == 0
    assert not any(given for given, _ in handed(proxy))
    end(new)
