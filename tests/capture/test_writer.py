"""The writer's turns: how long records gather, and when the writer reads messages."""

import contextlib
import mmap
import os
import socket
import sqlite3
import threading
import time

import msgspec
import pytest

from cutthrough.recording.record.writer import NICE, RecordingWriter
from cutthrough.storage import writer as writers
from cutthrough.storage.settings import Start
from cutthrough.storage.writer import STOP, Writer
from cutthrough.tape.assembly import END, HEADS
from cutthrough.tape.ring import RING_BYTES, Ring
from cutthrough.tape.ring_room import size_for
from tests.capture.records import end, heads
from tests.capture.settings import SETTINGS
from tests.doors.capture import put
from tests.recording.settings import SETTINGS as RECORDINGS

# Of a writer that has no free moment
MOST_TURNS = 200


class Side:
    """A writer in this process, with the worker's ring and the supervisor's channel."""

    def __init__(self, kind=Writer, workers=1, **settings):
        self.stack = contextlib.ExitStack()
        self.rings = os.memfd_create("rings")
        os.ftruncate(self.rings, RING_BYTES)
        self.wake = os.pipe2(os.O_NONBLOCK)
        self.ring = Ring(mmap.mmap(self.rings, RING_BYTES), self.wake[1],
                         size_for(workers))
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for fd in (self.rings, *self.wake):
            self.stack.callback(os.close, fd)
        self.stack.enter_context(self.channel)
        self.stack.enter_context(theirs)
        self.writer = kind(theirs, Start(
            settings=msgspec.structs.replace(SETTINGS, **settings), rings=self.rings,
            wake=self.wake[0]))
        self.number = 0

    def put(self, size):
        """Some `size` bytes of exchanges."""
        for _ in range(size // 100_000):
            self.number += 1
            assert put(self.ring, HEADS, 0, self.number, heads() + b"x" * 100_000)
            assert put(self.ring, END, 0, self.number, end())

    def gather(self):
        """Returns the seconds of one wait after a turn."""
        self.writer.map_rings()
        began = time.monotonic()
        self.writer.wait(True)
        return time.monotonic() - began


@pytest.fixture
def make():
    with contextlib.ExitStack() as stack:
        def made(*given, **more):
            side = Side(*given, **more)
            stack.enter_context(side.stack)
            return side
        yield made


@pytest.fixture
def slow(monkeypatch):
    """Longer times, so that a busy machine does not blur them."""
    monkeypatch.setattr(writers, "GATHER_S", 0.2)
    monkeypatch.setattr(writers, "MOST_GATHER_S", 1.0)


def test_records_gather_longer_after_many_and_until_half_a_ring_is_full(make, slow):
    side = make()
    assert 0.2 <= side.gather() < 0.9
    side.put(20 << 20)
    while side.writer.turn():
        pass
    side.writer._read_at = time.monotonic() - 0.1        # so they came at 200 MB/s
    assert side.gather() >= 1.0
    side.put(6 << 20)
    while side.writer.turn():
        pass
    side.writer._read_at = time.monotonic() - 0.1
    later = threading.Timer(0.1, side.put, [18 << 20])
    later.start()
    assert 0.1 <= side.gather() < 0.9
    later.join()


def test_a_turn_is_an_eighth_of_a_ring_at_most(make):
    for workers, most in ((1, 4 << 20), (9, 1 << 20)):
        side = make(RecordingWriter, workers=workers)
        side.put(6 << 20)
        side.writer.map_rings()
        side.writer.turn()
        assert abs((6 << 20) - side.ring.in_use - most) < 250_000


def test_a_full_ring_delays_neither_messages_nor_the_work_between_turns(make):
    side = make()
    side.put(24 << 20)
    pauses = []
    side.writer.use_pause = lambda: pauses.append(1)
    side.channel.send(b"settle 1")
    for _ in range(9):
        assert side.writer.turn()
        side.writer.wait(True)
        side.put(2 << 20)
    assert side.writer._asked and len(pauses) == 9
    for _ in range(side.writer._most_turns + 1):
        side.writer.answer(True)
    assert side.channel.recv(100) == b"settle 1"


def test_stop_ends_the_writer_while_records_arrive(make, monkeypatch):
    side = make()
    side.put(8 << 20)
    turn = side.writer.turn
    monkeypatch.setattr(side.writer, "turn", lambda: (side.put(1 << 20), turn())[1])
    side.channel.send(STOP)
    began = time.monotonic()
    side.writer.run()
    assert time.monotonic() - began < 5 and side.ring.in_use


def busy_until(side, monkeypatch, happened):
    """Runs the writer, which finds an exchange in each turn, until this is true after
    one, or for MOST_TURNS. Returns whether it was."""
    turn, turns = side.writer.turn, []

    def put_and_turn():
        turns.append(1)
        assert put(side.ring, HEADS, 0, len(turns), heads())
        assert put(side.ring, END, 0, len(turns), end())
        is_busy = turn()
        if happened() or len(turns) == MOST_TURNS:
            side.channel.send(STOP)
        return is_busy

    monkeypatch.setattr(side.writer, "turn", put_and_turn)
    side.writer.run()
    return len(turns) < MOST_TURNS


def test_words_are_indexed_while_each_turn_has_records(make, tmp_path, monkeypatch):
    """Of 323 281 exchanges, which came within 40 s, 1500 were in the index."""
    path = tmp_path / "flows.db"
    side = make(database=str(path), age=0.0)
    monkeypatch.setattr(side.writer, "keep_house", lambda: None)

    def is_indexed():
        with contextlib.closing(sqlite3.connect(path)) as base:
            return base.execute(
                "SELECT value FROM state WHERE name = 'indexed'").fetchone()[0]

    assert busy_until(side, monkeypatch, is_indexed)


def test_housekeeping_is_done_while_each_turn_has_records(make, monkeypatch):
    """Recordings that waited for a session, for which their requests were refused, were
    not tried again as long as others were captured."""
    monkeypatch.setattr(writers, "HOUSEKEEPING_S", 0.0)
    side, kept = make(), []
    monkeypatch.setattr(side.writer, "keep_house", lambda: kept.append(1))
    assert busy_until(side, monkeypatch, lambda: kept)


@pytest.mark.parametrize("database, nice", [("", NICE), ("flows.db", 0)])
def test_the_writer_has_nice_10_if_it_captures_nothing(
        make, tmp_path, monkeypatch, database, nice):
    given = []
    monkeypatch.setattr(os, "nice", given.append)
    recordings = msgspec.structs.replace(RECORDINGS, directory=str(tmp_path / "r"))
    side = make(RecordingWriter, recordings=recordings,
                database=database and str(tmp_path / database))
    side.channel.send(STOP)
    side.writer.run()
    assert sum(given) == nice


def test_a_filter_of_system_calls_may_refuse_that(make, tmp_path, monkeypatch):
    def refuse(_by):
        raise PermissionError

    monkeypatch.setattr(os, "nice", refuse)
    side = make(RecordingWriter)
    side.channel.send(STOP)
    side.writer.run()
