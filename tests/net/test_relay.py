"""The pump on real sockets: the kernel's effects on a relay (R35, R36)."""

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from cutthrough.net import buffers, pipes
from tests.support.relays import Way, descriptors, send_all_through
from tests.support.relays import make_way as make_way
from tests.support.relays import way as way

FULL = 65536  # one read of the copying path


def fill(way: Way) -> int:
    """Until nothing goes on any more. Returns how many bytes are on their way."""
    way.client.setblocking(False)
    sent, quiet = 0, 0
    while quiet < 5:
        try:
            sent += way.client.send(b"x" * FULL)
            quiet = 0
        except BlockingIOError:
            quiet += 1
        way.pump.run()
    return sent


def test_what_was_read_arrives_and_a_direction_at_rest_holds_nothing(way):
    way.client.sendall(b"hello")
    assert way.pump.run() == "dry"
    assert way.origin.recv(100) == b"hello"
    assert way.pump.moved == 5
    assert way.pump.held == (0, None)


def test_small_messages_are_copied(way):
    for _ in range(20):
        way.client.sendall(b"m" * 1000)
        assert way.pump.run() == "dry"
        assert len(way.origin.recv(2000)) == 1000
    assert not way.pump.spliced


def test_bulk_is_spliced_and_every_byte_arrives_in_order(way):
    data = os.urandom(8 << 20)
    assert send_all_through(way, data) == data
    assert way.pump.spliced
    assert way.pump.run() == "dry"
    assert way.pump.held == (0, None), "a pipe was kept at rest"


def test_without_splice_bulk_is_copied_and_every_byte_arrives(make_way):
    way = make_way(splice=False)
    data = os.urandom(8 << 20)
    assert send_all_through(way, data) == data
    assert not way.pump.spliced


def test_small_messages_after_bulk_are_copied_again(way):
    send_all_through(way, os.urandom(4 << 20))
    assert way.pump.run() == "dry"
    way.client.setblocking(True)
    way.origin.setblocking(True)
    for _ in range(20):
        way.client.sendall(b"m" * 100)
        while way.pump.run() != "dry":
            pass
        assert len(way.origin.recv(2000)) == 100
    free = pipes.stats()["free"]
    pipes.close_free()
    way.client.sendall(b"m" * 100)
    assert way.pump.run() == "dry"
    assert pipes.stats()["free"] == 0 < free, "it still took a pipe for a small message"


def test_a_slow_reader_stops_the_reading_and_memory_stays_within_one_piece(way):
    sent = fill(way)
    block, pipe = way.pump.held
    assert way.pump.run() == "stuck"
    assert block <= FULL and (pipe or 0) <= 1 << 20
    assert not (block and pipe), "held twice"
    way.origin.setblocking(False)
    got = 0
    while got < sent:
        try:
            got += len(way.origin.recv(1 << 20))
        except BlockingIOError:
            way.pump.run()
    assert way.pump.run() == "dry"


def test_no_readiness_no_system_call(way):
    way.client.sendall(b"hello")
    assert way.pump.run(readable=False, writable=False) == "dry"
    assert way.pump.run(readable=True, writable=False) == "stuck"
    assert way.pump.moved == 0
    assert way.pump.run(readable=False, writable=True) == "dry"
    assert way.pump.moved == 5


def test_an_end_comes_after_all_bytes_before_it_also_those_in_the_pipe(way):
    sent = fill(way)
    way.client.close()
    got = 0
    while True:
        how = way.pump.run()
        way.origin.setblocking(False)
        try:
            got += len(way.origin.recv(1 << 20))
        except BlockingIOError:
            pass
        if how == "eof":
            break
    way.outlet.shutdown(socket.SHUT_WR)
    way.origin.setblocking(True)
    while piece := way.origin.recv(1 << 20):
        got += len(piece)
    assert got == sent


def test_behind_a_fin_a_read_that_is_not_filled_is_the_last(way):
    way.client.sendall(b"hello")
    assert way.pump.run(ended=True) == "eof", "it was read for an end that was known"
    assert way.origin.recv(100) == b"hello"


def test_behind_an_urgent_mark_more_is_read_though_the_end_is_there(way):
    way.client.sendall(b"before")
    way.client.send(b"!", socket.MSG_OOB)
    way.client.sendall(b"behind")
    way.client.shutdown(socket.SHUT_WR)
    assert way.pump.run(ended=True, urgent=True) == "eof"
    way.outlet.shutdown(socket.SHUT_WR)
    got = b""
    while piece := way.origin.recv(100):
        got += piece
    assert got == b"beforebehind"


def test_a_message_that_ends_with_its_connection_is_whole(make_way):
    way = make_way(left=5)
    way.client.sendall(b"hello")
    assert way.pump.run(ended=True) == "done"


@pytest.mark.parametrize("left", [0, 1, 999, 1000, FULL, 3 * FULL + 7, 2_000_001])
def test_a_budget_is_kept_to_the_byte_and_what_follows_is_left_unread(make_way, left):
    way = make_way(left=left)
    way.client.setblocking(False)
    data, sent, got, how = os.urandom(left + 500), 0, bytearray(), ""
    way.origin.setblocking(False)
    while how != "done" or len(got) < left or sent < len(data):
        if sent < len(data):
            try:
                sent += way.client.send(data[sent:])
            except BlockingIOError:
                pass
        how = way.pump.run()
        try:
            got += way.origin.recv(1 << 20)
        except BlockingIOError:
            pass
    assert bytes(got) == data[:left]
    way.inlet.setblocking(True)
    rest = b""
    while len(rest) < 500:
        rest += way.inlet.recv(500)
    assert rest == data[left:]


def test_the_source_reset_is_told_with_its_errno(way):
    way.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    way.client.close()
    assert way.pump.run() == "source failed"
    assert os.strerror(way.pump.error) == "Connection reset by peer"


def test_the_sink_reset_is_told_and_a_pipe_with_bytes_is_never_used_again(way):
    fill(way)
    assert way.pump.held[1], "the case needs bytes in a pipe"
    abort = struct.pack("ii", 1, 0)
    way.origin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)
    way.origin.close()
    free = pipes.stats()["free"]
    assert way.pump.run() == "sink failed"
    way.pump.stop()
    assert pipes.stats() == {**pipes.stats(), "in_use": 0, "free": free}


def reset(sock: socket.socket) -> None:
    abort = struct.pack("ii", 1, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)
    sock.close()


def read_all(way: Way, n: int) -> bytes:
    way.origin.setblocking(False)
    got = bytearray()
    while len(got) < n:
        try:
            got += way.origin.recv(1 << 20)
        except BlockingIOError:
            way.pump.run()
    return bytes(got)


def test_a_source_that_is_reset_while_it_is_spliced_is_told(way):
    send_all_through(way, os.urandom(4 << 20))
    assert way.pump.spliced
    reset(way.client)
    assert way.pump.run() == "source failed"
    assert os.strerror(way.pump.error) == "Connection reset by peer"


def test_a_sink_that_is_reset_while_a_block_is_held_is_told(make_way):
    way = make_way(splice=False)
    fill(way)
    assert way.pump.held[0], "the case needs bytes in a block"
    reset(way.origin)
    assert way.pump.run() == "sink failed"
    assert way.pump.error
    assert way.pump.held[0], "what was not taken is not forgotten"


def test_what_is_pushed_stands_before_what_is_read(way):
    way.client.sendall(b"third")
    way.pump.run(readable=False)
    assert way.pump.push(b"first", b"second")
    assert way.pump.run() == "dry"
    assert read_all(way, 16) == b"firstsecondthird"
    assert way.pump.moved == 16


@pytest.mark.parametrize("head", [b"", b"head"])
def test_what_the_sink_does_not_take_is_kept_in_order(make_way, head):
    way = make_way(splice=False)
    way.pump.run(readable=False)        # writable, as far as is known
    way.outlet.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    data = os.urandom(4000)
    pushed = bytearray()
    while not way.pump.held[0]:         # until one is taken in part, or not at all
        assert way.pump.push(head, data)
        pushed += head + data
    assert way.pump.push(head, b"behind what is kept")
    pushed += head + b"behind what is kept"
    assert read_all(way, len(pushed)) == pushed
    assert way.pump.moved == len(pushed)
    assert way.pump.held == (0, None)


def test_no_more_is_pushed_than_one_block_holds(make_way):
    # R31: a peer that takes nothing must not be able to make a pump grow.
    way = make_way(splice=False)
    fill(way)
    pushed = 0
    while way.pump.push(b"h" * 1000, b"b" * 3000):
        pushed += 4000
    assert way.pump.held[0] <= FULL + 32768, "a block is one read and a head"
    assert way.pump.error == 0, "no room is no failure of the sink"
    assert not way.pump.push(b"", b"b" * FULL)
    assert pushed <= way.pump.held[0]


def test_behind_a_small_piece_that_is_stuck_there_is_room_for_a_read(make_way):
    """The block was as large as the first piece needed: if a 103 and a 200 came
    together, the second found no room, and the client was reset."""
    way = make_way(splice=False)
    way.pump.run(readable=False)
    way.outlet.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    pushed, piece = bytearray(), os.urandom(1000)
    while not way.pump.held[0]:
        assert way.pump.push(piece, b"")
        pushed += piece
    head, body = os.urandom(500), os.urandom(FULL)
    assert way.pump.push(head, body)
    assert read_all(way, len(pushed) + len(head) + FULL) == pushed + head + body


def test_nothing_is_pushed_past_bytes_in_a_pipe(way):
    fill(way)
    block, pipe = way.pump.held
    assert pipe and not block, "the case needs bytes in a pipe"
    assert not way.pump.push(b"head", b"body")
    assert way.pump.held == (block, pipe)
    assert way.pump.error == 0


def test_nothing_is_pushed_to_a_sink_that_has_gone(way):
    way.pump.run(readable=False)
    reset(way.origin)
    assert not way.pump.push(b"head", b"body")
    assert way.pump.error


def test_without_a_block_nothing_is_kept(make_way):
    way = make_way(splice=False)
    refused = buffers.stats()["refused"]
    buffers.set_bound(0, "relays")
    try:
        assert not way.pump.push(b"head", b"body")     # not known to be writable
    finally:
        buffers.set_bound(512 << 20)
    assert buffers.stats()["refused"] == refused + 1
    assert way.pump.held == (0, None)


def test_without_a_pipe_to_be_had_bulk_is_copied(way):
    pipes.close_free()
    refused = pipes.stats()["refused"]
    data = os.urandom(4 << 20)
    with descriptors(3):
        assert send_all_through(way, data) == data
    assert not way.pump.spliced
    assert pipes.stats()["refused"] > refused


@pytest.fixture
def no_block() -> Iterator[None]:
    buffers.set_bound(0, "relays")
    yield
    buffers.set_bound(512 << 20)


def test_without_a_block_to_be_had_bytes_arrive_all_the_same(make_way, no_block):
    """Bytes that had been read and found no place were lost, and the tunnel was cut."""
    refused = buffers.stats()["refused"]
    for left in (-1, 2_000_001):
        way = make_way(left, splice=False)
        data = os.urandom(2_000_001)
        assert send_all_through(way, data) == data
        assert way.pump.moved == len(data)
    assert way.pump.run() == "done"
    assert buffers.stats()["refused"] > refused


def test_without_a_block_to_be_had_a_slow_reader_stops_the_reading(make_way, no_block):
    way = make_way(splice=False)
    sent = fill(way)
    assert way.pump.run() == "stuck"
    assert way.pump.held == (0, None)
    way.client.close()
    way.origin.setblocking(False)
    got = 0
    while got < sent or way.pump.run() != "eof":
        try:
            got += len(way.origin.recv(1 << 20))
        except BlockingIOError:
            way.pump.run()
    assert got == sent


def test_without_a_block_to_be_had_a_reset_is_told(make_way, no_block):
    way = make_way(splice=False)
    way.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    way.client.close()
    assert way.pump.run() == "source failed"
    assert os.strerror(way.pump.error) == "Connection reset by peer"


@pytest.mark.parametrize("splice", [True, False])
def test_no_more_is_read_than_the_allowance(make_way, splice):
    way = make_way(splice=splice)
    way.client.sendall(bytes(5 * FULL))
    for allowance in (1, 1000, FULL, 2 * FULL + 1):
        way.pump.allowance = allowance
        before = way.pump.moved
        while way.pump.run() == "dry":
            pass                            # loopback has not brought all of it yet
        assert way.pump.moved - before == allowance
        assert way.pump.allowance == 0
        assert way.pump.held == (0, None), "at rest it owns nothing"
    assert way.pump.run() == "paced"


def test_an_end_waits_for_its_turn_behind_the_allowance(make_way):
    """R36: bytes that have not been read yet come before the end."""
    way = make_way()
    way.client.sendall(b"12345")
    way.client.shutdown(socket.SHUT_WR)
    way.pump.allowance = 3
    while way.pump.run() == "dry":
        pass
    assert way.pump.run() == "paced"
    way.pump.allowance = 10
    while way.pump.run() == "dry":
        pass
    assert way.pump.run() == "eof"
    assert way.origin.recv(10) == b"12345"
