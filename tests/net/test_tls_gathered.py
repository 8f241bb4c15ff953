"""Sends of TLS, gathered from pieces that lie apart, and of a batch at its end."""

import errno
import random
import socket
import ssl
from collections.abc import Iterator

import pytest

from cutthrough.net import sends
from cutthrough.net.tls.context import TlsServer
from tests.doors.transport import send_at_end
from tests.net.conftest import Meet
from tests.support.certificates import client_context, localhost
from tests.support.couple import pair_of

SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256",
          "ECDHE-ECDSA-AES256-GCM-SHA384")


@pytest.mark.parametrize("sizes", [(9, 16384, 9, 16384, 9, 16384, 9, 16384),
                                   (0, 1, 0, 40000, 7), (16384, 16384), (90000, 3)])
@pytest.mark.parametrize("suite", SUITES)
def test_pieces_that_lie_apart_arrive_as_one(meet: Meet, suite: str, sizes) -> None:
    """In an empty socket, then in full ones: what is not taken is offered again, cut
    in another way."""
    peer = client_context()
    if not suite.startswith("TLS_"):
        peer.maximum_version = ssl.TLSVersion.TLSv1_2
    couple = meet(TlsServer([pair_of(localhost())], ciphers=suite), peer)
    couple.begin()
    couple.end.send(b"")                # the connection leaves libssl
    data = random.randbytes(sum(sizes))
    pieces = [data[sum(sizes[:i]):sum(sizes[:i + 1])] for i in range(len(sizes))]
    assert couple.end.gather(pieces) == len(data)
    assert couple.peer.recv() == data
    couple.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    arrived, stuck, left = bytearray(), 0, pieces
    while sum(map(len, left)):
        taken = couple.end.gather(left)
        rest = b"".join(left)[taken:]
        left = [rest[:10000], rest[10000:10001], rest[10001:]]
        if not couple.end.can_write:
            stuck += 1
            arrived += couple.peer.recv()
            couple.end.note()
    assert bytes(arrived + couple.peer.recv()) == data
    assert stuck or len(data) < 50000


def test_libssl_takes_no_pieces(meet: Meet) -> None:
    couple = meet()
    assert couple.end.gather([b"a", b"b"]) == -errno.EOPNOTSUPP
    couple.begin()
    couple.end.send(b"")
    couple.end.half_close()
    assert couple.end.gather([b"a", b"b"]) == -errno.EPIPE


@pytest.fixture
def ring() -> Iterator[None]:
    if error := sends.turn_on():
        pytest.skip(f"no io_uring here: {errno.errorcode[error]}")
    yield
    sends.turn_off()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_what_a_batch_says_at_its_end_goes_out_together(meet: Meet, ring, n) -> None:
    """A socket that is full takes a part; the rest is kept, and comes first."""
    couples = [meet() for _ in range(n)]
    for couple in couples:
        couple.begin()
        couple.end.send(b"first ")      # the connection leaves libssl
        couple.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    before = sends.stats()
    data = random.randbytes(9000)
    assert send_at_end([(c.end, data) for c in couples]) == [9000] * n
    after = sends.stats()
    assert after["collected"] - before["collected"] == (n if n > 1 else 0)
    for couple in couples:
        arrived = bytearray()
        while couple.end.send(b"last") == 0:
            arrived += couple.peer.recv()
            couple.end.note()
        couple.end.half_close()
        while couple.end.holds_back:
            arrived += couple.peer.recv()
            couple.end.note()
        assert arrived + couple.peer.recv() == b"first " + data + b"last"
        assert couple.peer.tls.unwrap() is None


def test_a_send_of_a_batch_fails_for_the_next_one_to_see(meet: Meet, ring) -> None:
    couple, other = meet(), meet()
    for one in couple, other:
        one.begin()
        one.end.send(b"x")
    couple.peer.sock.close()
    assert send_at_end([(couple.end, b"lost"), (other.end, b"kept")]) == [4, 4]
    assert couple.end.send(b"more") == -errno.EPIPE
    assert couple.end.can_read
    assert other.peer.recv() == b"xkept"
