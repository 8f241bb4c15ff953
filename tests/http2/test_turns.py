"""A carrier that takes a part of its streams' bytes: no stream is forgotten (R88)."""

import select
import socket
from collections.abc import Callable
from typing import Any

from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.http2.conftest import Couple
from tests.http2.requests import ESTABLISHED, GET, OKAY, TUNNEL

SMALL, LARGE = 8192, 400_000


class Loop:
    """Batches of events, as a poller delivers them: a carrier's is noted before the
    first of the batch is handled, and comes only if there is something new."""

    def __init__(self, sizes: list[int], room: int = LARGE) -> None:
        """`room`: of the carrier's kernel, for bytes that the client has not read."""
        self.both = Couple()
        self.both.peer.credit = False       # its windows bound nothing
        self.both.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        self.poll = select.poll()
        self.poll.register(self.both.ours, select.POLLIN | select.POLLOUT)
        self.left: dict[Any, int] = {}
        h2 = self.both.peer.h2
        for size in sizes:
            number, stream = self.both.begin(*TUNNEL, ends=False)
            h2.increment_flow_control_window(1 << 24, number)
            stream.send(ESTABLISHED)
            self.left[stream] = size
        h2.increment_flow_control_window(1 << 26)
        self.both.hear()

    def write(self, stream: Any) -> None:
        """As a pump: all that it takes."""
        while self.left[stream] and stream.can_write:
            taken = stream.send(bytes(min(self.left[stream], 65536)))
            assert taken >= 0
            self.left[stream] -= taken

    def serve(self) -> None:
        while due := self.both.carrier.take_due():
            for stream in due:
                self.write(stream)

    def batch(self, streams: list[Any]) -> None:
        """`streams`: their origins have sent something."""
        events = dict(self.poll.poll(0)).get(self.both.ours.fileno(), 0)
        readable = bool(events & select.POLLIN)
        writable = bool(events & select.POLLOUT) and not self.both.carrier.can_write
        self.both.carrier.note(readable, writable)
        for stream in streams:
            self.write(stream)
        if readable or writable:
            self.both.carrier.take_turn()
            self.serve()
            self.both.carrier.speak()
            self.serve()

    def read(self, n: int = 1 << 20) -> bool:
        """The client reads at most so many octets."""
        try:
            return self.both.peer.read(n)
        except BlockingIOError:
            return False

    def drain(self) -> None:
        while self.read():
            pass

    def finish(self) -> None:
        """The client reads all; no origin sends any more."""
        while self.read():
            self.drain()
            self.batch([])


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([SMALL, LARGE]),
       st.lists(st.sampled_from([5, SMALL, LARGE]), min_size=2, max_size=4),
       st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 3), max_size=3)),
                max_size=12))
def test_every_stream_goes_on(room, sizes, plan) -> None:
    loop = Loop(sizes, room)
    try:
        streams = list(loop.left)
        for drains, numbers in [*plan, (False, range(len(streams)))]:
            if drains:
                loop.drain()
            loop.batch([streams[i] for i in numbers if i < len(streams)])
        loop.finish()
        assert [*loop.left.values()] == [0] * len(streams)
    finally:
        loop.both.close()


def test_what_another_stream_sends_wakes_those_that_are_stuck() -> None:
    """A download stood until the client's next SETTINGS: a short answer in the same
    batch emptied the block of frames before the carrier had its turn."""
    loop = Loop([3 * LARGE, 5])
    try:
        large, small = loop.left
        loop.batch([large])
        before = loop.left[large]
        assert before and not large.can_write
        loop.drain()
        loop.batch([small])
        assert loop.left[large] < before
        loop.finish()
        assert loop.left == {large: 0, small: 0}
    finally:
        loop.both.close()


SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 1500\r\n\r\n" + bytes(1500)


def begin_short(couple: Callable[..., Couple], n: int) -> tuple[Couple, list[int]]:
    """So many replies that wait for their windows; their sessions have ended."""
    both = couple()
    both.peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    both.peer.h2.increment_flow_control_window(1 << 24)
    numbers = []
    for _ in range(n):
        number, stream = both.begin(*GET)
        assert stream.send(SHORT) == len(SHORT)
        stream.close()
        numbers.append(number)
    return both, numbers


def open_windows(both: Couple, numbers: list[int]) -> None:
    for number in numbers:
        both.peer.h2.increment_flow_control_window(65535, number)


def count_ended(both: Couple) -> int:
    both.look()
    return sum(answer.ended for answer in both.peer.answers.values())


def test_short_replies_whose_windows_open_together(couple) -> None:
    """Those that the block of frames had no room for hung."""
    both, numbers = begin_short(couple, 90)
    open_windows(both, numbers)
    both.hear()
    assert count_ended(both) == 90


def test_short_replies_whose_windows_open_while_the_carrier_is_full(couple) -> None:
    both, numbers = begin_short(couple, 90)
    both.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    open_windows(both, numbers)
    both.flush()
    assert both.carrier.hear()[0] == "all"
    assert not both.carrier.can_write
    while not both.carrier.can_write:       # the client reads, and an event comes
        both.look()
        both.carrier.hear()
    both.hear()
    assert count_ended(both) == 90


def test_octets_behind_short_replies_that_fill_the_block(couple) -> None:
    both, numbers = begin_short(couple, 90)
    number, stream = both.begin(*TUNNEL, ends=False)
    stream.send(ESTABLISHED)
    open_windows(both, [*numbers, number])
    both.flush()
    both.carrier.hear(speaks=False)
    assert stream.send(bytes(20_000)) == 20_000
    both.hear()
    assert count_ended(both) == 90
    assert len(both.peer.answers[number].body) == 20_000


def test_heads_that_the_carrier_does_not_take_are_not_kept(couple) -> None:
    """An origin may send interim heads in any number: the library kept copies."""
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: %b\r\n\r\n" % (b"x" * 60_000)
    both = couple()
    both.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    number, stream = both.begin(*GET)
    sent = 0
    while stream.can_write:
        taken = stream.send(interim)
        assert taken in (0, len(interim))
        sent += taken > 0
        assert sent < 20
    rest = b"HTTP/1.1 100 Continue\r\n\r\n" + OKAY + b"hello"
    assert stream.send(rest) == 0
    assert stream.send(SHORT) == len(SHORT), "a reply of our own"
    stream.close()
    while not both.peer.answers[number].ended:
        both.look()
        both.carrier.note(False, True)
        both.carrier.take_turn()
    answer = both.peer.answers[number]
    assert [head[":status"] for head in answer.heads] == ["103"] * sent + ["200"]
