"""Sends that wait for the end of a batch of events: after it all is as if each had been
made at once."""

import errno
import os
import random
import select
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.net import sends
from tests.doors import net
from tests.support.relays import Way, descriptors
from tests.support.relays import make_way as make_way
from tests.support.relays import way as way

RESET = struct.pack("ii", 1, 0)
Make = Callable[..., Way]


@pytest.fixture(autouse=True)
def ring() -> Iterator[None]:
    if error := sends.turn_on():    # a kernel before 5.19, or a container forbids it
        pytest.skip(f"no io_uring here: {errno.errorcode[error]}")
    yield
    net.end()
    sends.turn_off()


def is_silent(sock: socket.socket) -> bool:
    return not select.select([sock], [], [], 0)[0]


def read(sock: socket.socket, n: int) -> bytes:
    got = b""
    while len(got) < n and (piece := sock.recv(n - len(got))):
        got += piece
    return got


def narrow(way: Way, left: int = -1) -> None:
    """Gives it an outlet that takes some thousand bytes, until they are read."""
    way.pump.stop()
    way.outlet.close()
    way.origin.close()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        server.bind(("127.0.0.1", 0))
        server.listen()
        way.outlet = socket.create_connection(server.getsockname())
        way.origin, _ = server.accept()
    way.origin.settimeout(5)
    way.outlet.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    way.outlet.setblocking(False)
    way.pump = net.OneWay(way.inlet.fileno(), way.outlet.fileno(), left, False)


def cut_off(way: Way) -> None:
    """The origin has reset the connection."""
    way.origin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    way.origin.close()


def test_the_sends_of_a_batch_are_made_when_it_ends(make_way: Make) -> None:
    ways = [make_way() for _ in range(5)]
    before = sends.stats()
    net.begin(len(ways))
    for n, one in enumerate(ways):
        one.client.sendall(b"ping %d" % n)
        assert one.pump.run() == "dry"
    assert all(is_silent(way.origin) for way in ways)
    assert net.end() == [], "a tunnel's pump has nothing more to do"
    assert [read(way.origin, 6) for way in ways] == [b"ping %d" % n for n in range(5)]
    after = sends.stats()
    assert after["submissions"] - before["submissions"] == 1
    assert after["collected"] - before["collected"] == 5


def test_one_event_alone_is_answered_at_once(way: Way) -> None:
    net.begin(1)
    way.client.sendall(b"ping")
    assert way.pump.run() == "dry"
    assert read(way.origin, 4) == b"ping"


def test_more_than_a_submission_holds_is_sent_in_several(make_way: Make) -> None:
    ways = [make_way() for _ in range(20)]
    net.begin(len(ways))
    for one in ways:
        one.client.sendall(b"b" * 16000)
        assert one.pump.run() == "dry"
    net.end()
    assert all(read(way.origin, 16000) == b"b" * 16000 for way in ways)


def test_two_sends_to_one_socket_keep_their_order(way: Way) -> None:
    net.begin(2)
    for n in range(3):
        way.client.sendall(b"part %d," % n)
        assert way.pump.run() == "dry"
    net.end()
    assert read(way.origin, 21) == b"part 0,part 1,part 2,"
    assert way.pump.moved == 21


def test_bytes_pushed_behind_a_collected_send_come_behind_it(way: Way) -> None:
    net.begin(2)
    way.client.sendall(b"first,")
    assert way.pump.run() == "dry"
    assert way.pump.push(b"second", b"")
    net.end()
    assert read(way.origin, 12) == b"first,second"


def test_large_sends_are_made_at_once(way: Way) -> None:
    net.begin(2)
    way.client.sendall(b"l" * 24000)
    while way.pump.moved < 24000:
        way.pump.run()
    assert read(way.origin, 24000) == b"l" * 24000


def test_a_message_has_ended_when_the_kernel_has_its_last_byte(make_way: Make) -> None:
    way = make_way(left=5)
    net.begin(2)
    way.client.sendall(b"whole")
    assert way.pump.run() == "sending"
    assert is_silent(way.origin)
    assert net.end() == [way.outlet.fileno()], "the owner has to be told"
    assert way.pump.run() == "done"
    assert read(way.origin, 5) == b"whole"


@pytest.mark.parametrize("left", [-1, 16000])
def test_what_falls_short_is_kept_and_goes_on_when_the_sink_is_writable(
        make_way: Make, left: int) -> None:
    way, other = make_way(), make_way()
    narrow(way, left)
    before = sends.stats()["short"]
    data = random.randbytes(16000)
    other.client.sendall(b"small")
    way.client.sendall(data)
    net.begin(2)
    assert way.pump.run() == ("dry" if left < 0 else "sending")
    assert other.pump.run() == "dry"
    assert net.end() == [], "an EPOLLOUT comes"
    assert sends.stats()["short"] == before + 1
    held, _ = way.pump.held
    assert 0 < held < 16000
    assert way.pump.moved == 16000 - held
    assert way.pump.run(writable=False) == "stuck"
    got = b""
    while len(got) < 16000:
        way.pump.run()
        got += way.origin.recv(16000)
    assert got == data
    assert way.pump.moved == 16000
    assert way.pump.run() == ("dry" if left < 0 else "done")
    assert read(other.origin, 5) == b"small"


def test_nothing_is_taken_by_a_socket_that_is_full(make_way: Make) -> None:
    way, other = make_way(), make_way()
    narrow(way)
    try:
        while way.outlet.send(b"x" * 4096):
            pass
    except BlockingIOError:
        pass
    net.begin(2)
    for one in (way, other):
        one.client.sendall(b"ping")
        assert one.pump.run() == "dry"
    net.end()
    assert way.pump.held == (4, None)
    assert (way.pump.moved, other.pump.moved) == (0, 4)


def test_what_does_not_know_of_the_batch_finds_all_as_after_a_direct_send(
        way: Way) -> None:
    narrow(way)
    way.client.sendall(b"a" * 10000)
    net.begin(2)
    assert way.pump.run() == "dry"
    assert way.pump.push(b"b" * 10000, b""), "held behind what fell short"
    held, _ = way.pump.held
    assert way.pump.moved + held == 20000
    net.end()


def test_a_reset_peer_in_a_batch_costs_its_own_connection_alone(make_way: Make) -> None:
    way, other = make_way(), make_way()
    cut_off(way)
    net.begin(2)
    for one in (way, other):
        one.client.sendall(b"ping")
        assert one.pump.run() == "dry"
    assert net.end() == [way.outlet.fileno()]
    assert way.pump.run() == "sink failed"
    assert way.pump.error == errno.ECONNRESET
    assert way.pump.moved == 0
    assert not way.pump.push(b"more", b"")
    assert way.pump.error == errno.ECONNRESET
    assert read(other.origin, 4) == b"ping"


def test_behind_the_end_of_the_origins_stream_a_send_gets_epipe(
        make_way: Make) -> None:
    """The relay knows by it that the origin has sent all: as of a direct send."""
    def error_of(collected: bool) -> int:
        way = make_way()
        way.origin.close()
        way.outlet.send(b"x")           # answered with a reset, behind the FIN
        net.begin(2 if collected else 1)
        for _ in range(2):              # two, so that there is a submission
            other = make_way()
            other.client.sendall(b"ping")
            other.pump.run()
        way.client.sendall(b"ping")
        how = way.pump.run()
        net.end()
        assert (way.pump.run() if collected else how) == "sink failed"
        return int(way.pump.error)

    assert error_of(True) == error_of(False)


def test_a_pump_that_stops_in_a_batch_has_sent_all(way: Way) -> None:
    net.begin(2)
    way.client.sendall(b"last words")
    assert way.pump.run() == "dry"
    way.pump.stop()
    way.outlet.close()
    assert read(way.origin, 20) == b"last words"
    net.end()


def test_the_end_of_the_stream_comes_behind_a_collected_send(way: Way) -> None:
    net.begin(2)
    way.client.sendall(b"bye")
    assert way.pump.run() == "dry"
    way.client.shutdown(socket.SHUT_WR)
    assert way.pump.run() == "eof"
    way.outlet.shutdown(socket.SHUT_WR)
    assert read(way.origin, 10) == b"bye"
    net.end()


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 17000), st.booleans()),
                max_size=10), st.integers(0, 1 << 32))
def test_collected_or_not_the_same_bytes_arrive(
        steps: list[tuple[int, int, bool]], seed: int) -> None:
    rng = random.Random(seed)
    ways = [Way(splice=False) for _ in range(3)]
    narrow(ways[0])
    sent, got = [bytearray() for _ in ways], [bytearray() for _ in ways]

    def drain(n: int, least: int = 0) -> None:
        ways[n].origin.setblocking(False)
        while len(got[n]) < least:
            ways[n].pump.run()
            try:
                got[n].extend(ways[n].origin.recv(1 << 16))
            except BlockingIOError:
                pass

    try:
        for n, size, ends in steps:
            net.begin(2)
            data = rng.randbytes(size)
            sent[n] += data
            ways[n].client.sendall(data)
            # The readiness is known from the last run, as it is in a poller
            ways[n].pump.run(writable=rng.random() < 0.5)
            if ends:
                net.end()
                drain(n, rng.randrange(len(got[n]), len(sent[n]) + 1))
        net.end()
        for n in range(3):
            drain(n, len(sent[n]))
        assert got == sent
        assert [way.pump.moved for way in ways] == [len(data) for data in sent]
        assert [way.pump.held for way in ways] == [(0, None)] * 3
    finally:
        net.end()
        for one in ways:
            one.close()


def test_a_send_to_a_broken_socket_is_made_at_once(way: Way) -> None:
    """The tunnel of a client that had reset it ended as "ok"."""
    way.origin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    way.origin.close()
    way.client.sendall(b"too late")
    net.begin(2)
    assert way.pump.run(broken=True) == "sink failed"
    net.end()


def test_without_a_ring_each_send_is_made_at_once(way: Way) -> None:
    sends.turn_off()
    with descriptors(limit=3):
        assert sends.turn_on() == errno.EMFILE
    assert not sends.is_on()
    net.begin(2)
    way.client.sendall(b"ping")
    assert way.pump.run() == "dry"
    assert read(way.origin, 4) == b"ping"
    net.end()


def test_the_ring_is_closed_when_a_program_is_executed() -> None:
    rings = [fd for fd in os.listdir("/proc/self/fd")
             if "io_uring" in _target_of(fd)]
    assert len(rings) == 1
    assert not os.get_inheritable(int(rings[0]))
    sends.turn_off()
    assert not any("io_uring" in _target_of(fd) for fd in os.listdir("/proc/self/fd"))


def _target_of(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
