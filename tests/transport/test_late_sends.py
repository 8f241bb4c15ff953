"""Sends over TLS that wait for the end of a batch of events: what arrives, and what the
pumps say, is as if each had been made at once."""

import contextlib
import errno
import random
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from cutthrough.net import sends
from cutthrough.net.tls import transport as tls
from cutthrough.net.tls.certificates import Pair
from cutthrough.net.tls.context import TlsServer
from tests.doors import net
from tests.support.certificates import TlsSocket, localhost
from tests.support.relays import TlsWay

Make = Callable[..., TlsWay]
RESET = struct.pack("ii", 1, 0)


def pass_on(way: TlsWay, data: bytes) -> str:
    """Sends from the client through the pump; returns what that says."""
    moved = way.pump.moved + len(data)
    way.client.sendall(data)
    while (said := way.pump.run()) == "dry" and way.pump.moved < moved:
        pass
    return said


def take(way: TlsWay, n: int) -> bytes:
    """Reads so much from the origin, while the pump goes on with what it has kept."""
    way.origin.settimeout(0.05)         # until the next look for room in the kernel
    data = b""
    while len(data) < n:
        way.pump.note()
        way.pump.run(writable=False)
        with contextlib.suppress(TimeoutError):
            data += way.origin.recv(1 << 16)
    return data


def read(end: TlsSocket, n: int) -> bytes:
    data = b""
    while len(data) < n and (piece := end.recv(n - len(data))):
        data += piece
    return data


@pytest.fixture
def make_way() -> Iterator[Make]:
    if error := sends.turn_on():    # a kernel before 5.19, or a container forbids it
        pytest.skip(f"no io_uring here: {errno.errorcode[error]}")
    ways: list[TlsWay] = []
    number = tls.put(TlsServer([Pair(*localhost().pem)]))

    def make(left: int = -1) -> TlsWay:
        ways.append(TlsWay(number, left, splice=False))
        pass_on(ways[-1], b"first ")            # the connections leave libssl
        assert read(ways[-1].origin, 6) == b"first "
        return ways[-1]

    yield make
    net.end()
    for way in ways:
        way.close()
    tls.remove(number)
    sends.turn_off()


def test_the_sends_of_a_batch_are_made_when_it_ends(make_way: Make) -> None:
    ways = [make_way() for _ in range(5)]
    before = sends.stats()
    net.begin(len(ways))
    for number, way in enumerate(ways):
        assert pass_on(way, b"ping %d" % number) == "dry"
    assert net.end() == [], "a tunnel's pump has nothing more to do"
    assert [read(way.origin, 6) for way in ways] == [b"ping %d" % n for n in range(5)]
    after = sends.stats()
    assert after["submissions"] - before["submissions"] == 1
    assert after["collected"] - before["collected"] == 5


def fill(way: TlsWay) -> bytes:
    """Sends batches until the kernel takes no more of them; returns what was sent."""
    way.outlet.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    data = b""
    while way.pump.run(writable=False) != "stuck":
        net.begin(2)
        data += (piece := random.randbytes(15000))
        assert pass_on(way, piece) == "dry"
        assert net.end() == [], "an EPOLLOUT comes"
    return data


def test_what_the_kernel_does_not_take_comes_first_when_it_has_room(
        make_way: Make) -> None:
    way = make_way()
    data = fill(way)
    assert way.pump.held == (0, None), "it is sealed, and TLS has it"
    net.begin(2)
    assert way.pump.push(b"behind ", b"it")
    net.end()
    arrived = take(way, len(data) + 9)
    assert arrived == data + b"behind it"
    assert way.pump.moved == len(arrived) + 6
    way.pump.note()
    assert way.pump.run(writable=False) == "dry"


def test_a_message_has_ended_when_the_kernel_has_its_last_byte(make_way: Make) -> None:
    way, other = make_way(left=11), make_way()
    net.begin(2)
    assert pass_on(other, b"ping") == "dry"
    assert pass_on(way, b"whole") == "sending"
    assert net.end() == [way.outlet.fileno()], "the owner has to be told"
    assert way.pump.run() == "done"
    assert read(way.origin, 5) == b"whole"


def test_sends_to_one_socket_keep_their_order(make_way: Make) -> None:
    way = make_way()
    net.begin(2)
    assert pass_on(way, b"a,") == "dry"
    assert way.pump.push(b"b,", b"")
    assert pass_on(way, b"c,") == "dry"
    assert way.pump.push(b"", b"d" * 20000), "more than a batch takes"
    assert pass_on(way, b"e") == "dry"
    net.end()
    assert read(way.origin, 20007) == b"a,b,c," + b"d" * 20000 + b"e"


def test_the_end_of_the_stream_comes_behind_a_collected_send(make_way: Make) -> None:
    way = make_way()
    net.begin(2)
    assert pass_on(way, b"bye") == "dry"
    way.pump.half_close()
    net.end()
    assert read(way.origin, 10) == b"bye"


def test_a_pump_that_stops_in_a_batch_has_sent_all(make_way: Make) -> None:
    way = make_way()
    net.begin(2)
    assert pass_on(way, b"last words") == "dry"
    way.pump.stop()
    assert read(way.origin, 10) == b"last words"
    net.end()


def test_a_reset_peer_in_a_batch_costs_its_own_connection_alone(make_way: Make) -> None:
    way, other = make_way(), make_way()
    way.origin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    way.origin.close()
    net.begin(2)
    for each in (way, other):
        assert pass_on(each, b"ping") == "dry"
    assert net.end() == [way.outlet.fileno()]
    assert way.pump.run() == "sink failed"
    assert way.pump.error in (errno.ECONNRESET, errno.EPIPE)
    assert way.pump.moved == 6, "the bytes before"
    assert not way.pump.push(b"more", b"")
    assert read(other.origin, 4) == b"ping"


@pytest.mark.parametrize("seed", range(12))
def test_collected_or_not_the_same_bytes_arrive(make_way: Make, seed: int) -> None:
    rng = random.Random(seed)
    ways = [make_way() for _ in range(3)]
    ways[0].outlet.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    sent = [bytearray() for _ in ways]
    for _ in range(40):
        number = rng.randrange(3)
        way = ways[number]
        data = rng.randbytes(rng.choice((1, 300, 9000, 16384, 30000)))
        net.begin(rng.choice((1, 2)))
        sent[number] += data
        way.client.sendall(data)
        for _ in range(rng.randrange(4)):
            way.pump.note()
            way.pump.run(writable=False)
        if rng.random() < 0.7:
            net.end()
    net.end()
    for number, way in enumerate(ways):
        assert take(way, len(sent[number])) == sent[number]
    assert [way.pump.moved for way in ways] == [len(data) + 6 for data in sent]
