"""Windows that the peer gets: 64 KiB, and more for a reader that takes all (R31)."""

import random

import pytest

from cutthrough.net import buffers
from tests.http2.requests import POST, read_all

GET = b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n"
FIRST = 65535
MOST = FIRST * 16


@pytest.fixture
def memory():
    """Bounds the octets that requests may hold."""
    yield lambda n: buffers.set_bound(n, "requests")
    buffers.set_bound(512 << 20)


def fill(both, number: int, most: int = 1 << 30) -> bytes:
    """The origin sends all that the windows permit, `most` octets at most."""
    h2, sent = both.origin.h2, b""
    while n := min(h2.local_flow_control_window(number), 16384, most - len(sent)):
        data = random.randbytes(n)
        h2.send_data(number, data)
        both.origin.flush()
        both.hear()
        sent += data
    return sent


def begin(both, *fields: tuple[str, str]):
    """A request, and the head of its answer."""
    number, stream = both.ask(GET)
    both.origin.answer(number, [(":status", "200"), *fields], ends=False)
    both.hear()
    read_all(stream)
    return number, stream


def take(both, stream) -> bytes:
    """All that has come; the origin gets what windows open."""
    text = read_all(stream)
    both.carrier.speak()
    both.look()
    return text


def window_of(both, number: int) -> int:
    return both.origin.h2.local_flow_control_window(number)


def test_a_window_grows_if_its_reader_takes_all(way) -> None:
    """It stayed 64 KiB: 1.4 MB a second from an origin behind 40 ms."""
    both = way()
    number, stream = begin(both, ("content-length", str(MOST * 4)))
    sizes = []
    for _ in range(8):
        sent = fill(both, number)
        sizes.append(len(sent))
        assert take(both, stream) == sent   # in blocks that stand behind each other
    assert sizes[0] == FIRST
    # The library opens a window again when half of it was taken
    assert MOST // 2 < max(sizes) <= MOST


def test_a_window_grows_with_pieces_too(way) -> None:
    both = way()
    number, stream = begin(both, ("content-length", str(MOST)))
    for _ in range(8):
        sent = fill(both, number, 20_000)
        assert take(both, stream) == sent
    assert window_of(both, number) > FIRST


def test_chunks_of_many_blocks_are_whole(way) -> None:
    both = way()
    number, stream = begin(both)
    sent = b""
    for _ in range(3):
        sent += fill(both, number)
        text = read_all(stream, 7001)
        while text:
            size, _, text = text.partition(b"\r\n")
            chunk, end, text = (text[:int(size, 16)], text[int(size, 16):][:2],
                                text[int(size, 16) + 2:])
            assert (sent[:len(chunk)], end) == (chunk, b"\r\n")
            sent = sent[len(chunk):]
    assert not sent


def test_a_window_stays_while_octets_wait(way) -> None:
    both = way()
    number, stream = begin(both, ("content-length", str(MOST)))
    fill(both, number)
    for _ in range(3):
        assert len(stream.recv(FIRST - 100)) == FIRST - 100
        both.carrier.speak()
        both.look()
        assert len(fill(both, number)) <= FIRST
    assert stream.recv(200)
    assert window_of(both, number) < FIRST


def test_windows_share_what_requests_may_hold(way, memory) -> None:
    """A window stays as it is without memory, and one that ends gives its own back."""
    memory(4 * FIRST)
    both = way()
    first, one = begin(both, ("content-length", str(MOST)))
    other, two = begin(both, ("content-length", str(MOST)))
    for number, stream in ((first, one), (other, two)) * 5:
        assert len(fill(both, number)) <= 2 * FIRST
        take(both, stream)
    one.close()
    memory(6 * FIRST)
    sizes = []
    for _ in range(5):
        sizes.append(len(fill(both, other)))
        take(both, two)
    assert 2 * FIRST < max(sizes) <= 4 * FIRST


def test_an_upload_has_the_same_window(couple) -> None:
    both = couple()
    number, stream = both.begin(*POST, ("content-length", str(MOST * 4)), ends=False)
    read_all(stream)
    for _ in range(8):
        left = FIRST * 4
        while sent := both.peer.send(number, bytes(min(left, 32_768))):
            left -= sent
            both.hear()
        read_all(stream)
        both.carrier.speak()
        both.look()
    assert both.peer.h2.local_flow_control_window(number) > FIRST * 2


def test_what_was_kept_is_given_back(way) -> None:
    both = way()
    number, stream = begin(both, ("content-length", str(MOST)))
    fill(both, number)
    take(both, stream)
    before = buffers.stats()["held_by_requests"]
    assert len(fill(both, number)) == 2 * FIRST
    assert buffers.stats()["held_by_requests"] >= before + 2 * FIRST
    stream.close()
    assert buffers.stats()["held_by_requests"] == before


def test_the_first_window_is_named(couple, way) -> None:
    """A client (urllib3-future) takes the window that it gives for one that it gets, if
    no SETTINGS names that: every upload of more than 64 KiB was reset."""
    client, origin = couple(), way()
    client.hear()
    assert client.peer.settings[4] == FIRST
    assert origin.origin.settings[4] == FIRST
