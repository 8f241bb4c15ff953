"""The writer reads most exchanges in place, in the ring. The results are the same as if
it copies each record."""

import mmap
import random

import pytest

from cutthrough.recording.model.masking import Masker, Redaction
from cutthrough.recording.record.row_encoder import RowEncoder
from cutthrough.recording.sessions.directory import VALUES
from cutthrough.tape import assembly
from cutthrough.tape.assembly import (
    DOWN,
    END,
    FRAMES_DOWN,
    HEADS,
    TIMED_DOWN,
    UP,
    Assembly,
)
from cutthrough.tape.batch import Batch
from cutthrough.tape.ring import RING_BYTES, Ring
from cutthrough.tape.ring_room import size_for
from tests.capture.records import HEAD, NOT_COUNTED, end, heads
from tests.doors.capture import put
from tests.support.redaction import redactor

RECORDED = assembly.IS_RECORDED | assembly.NOT_CAPTURED
MASKER = Masker(Redaction(), b"k" * 32)
SHOWN = ("is_intercepted", "user", "host", "port", "reason", "up_head", "down_head",
         "up", "pieces", "down", "times", "up_bytes", "down_bytes", "up_chunked",
         "down_chunked", "was_cut", "begun_us", "head_at_us", "wait_us", "asked",
         "head_asked", "is_unanswered")
LINES = (HEAD, HEAD, b"GET /b?c=%d HTTP/1.1\r\nHost: b\r\n\r\n", b"",
         b"GET / HTTP/1.1\r\nX: \xe4\r\n\r\n")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def timed(data, at_us=1_900_000):
    return TIMED_DOWN, at_us.to_bytes(8, "little") + data


def exchange(draw):
    """Records of one exchange, as (kind, payload)."""
    flags = draw.choice((RECORDED, RECORDED, RECORDED, assembly.IS_RECORDED, 0))
    up = [bytes(draw.randrange(300)) for _ in range(draw.choice((0, 0, 0, 1, 3)))]
    down = [b"%x\r\n%s\r\n" % (n, b"d" * n) for n in (
        draw.randrange(1, 3000) for _ in range(draw.choice((0, 1, 1, 2, 20))))]
    is_chunked = draw.random() < 0.3
    if is_chunked:
        down.append(b"0\r\n\r\n")
        flags |= assembly.DOWN_CHUNKED
    parts = [(UP, one) for one in up]
    parts.insert(draw.choice((len(up), len(up), draw.randrange(len(up) + 1))),
                 (HEADS, heads(CHUNKED) if is_chunked else heads()))
    parts += [timed(one) if flags & assembly.IS_RECORDED else (DOWN, one)
              for one in down]
    if draw.random() < 0.1:
        parts.insert(draw.randrange(len(parts)),
                     (FRAMES_DOWN, bytes(8) + b"\x81\x01a"))
    if draw.random() < 0.1:
        del parts[draw.randrange(len(parts))]
    known = draw.random() < 0.9
    return [*parts, (END, end(
        flags=flags, body_up=sum(map(len, up)) if known else NOT_COUNTED,
        body_down=sum(map(len, down)), head=draw.choice(LINES).replace(
            b"%d", b"%d" % draw.randrange(9))))]


def mixed(draw, count):
    """Yields (kind, request, payload) of many exchanges, most of them in one piece. A
    ring puts exchanges together in places, by their number: at times all have one."""
    open_, step = [], draw.choice((1, 1, 512))
    for number in range(0, count * step, step):
        left = [(kind, number, payload) for kind, payload in exchange(draw)]
        if draw.random() < 0.7:
            yield from left
            continue
        open_.append(left)
        while open_ and draw.random() < 0.9:
            one = draw.choice(open_)
            yield one.pop(0)
            if not one:
                open_.remove(one)
    for one in open_:
        yield from one


def shown(exchange):
    """Its attributes, and its row."""
    batch = Batch(len(VALUES))
    RowEncoder(MASKER, batch).add(exchange)
    return [getattr(exchange, name) for name in SHOWN], list(batch)


def consume(memory, sent, sizes, wholes):
    """Puts the records into a ring, and returns rows and exchanges. `sizes`: for each
    record, the bytes to read after it; 0: none."""
    producer, consumer, assembly = Ring(memory), Ring(memory), Assembly(redactor())
    found = [], []

    def turn(most):
        read = consumer.read(most, wholes)
        found[0].extend(assembly.rows(read))
        found[1].extend(map(shown, assembly.to_record))
        assembly.to_record.clear()
        consumer.release()
        return read

    for (kind, request, payload), most in zip(sent, sizes, strict=True):
        assert put(producer, kind, 3, request, payload)
        if most:
            turn(most)
    while turn(1 << 20):
        pass
    return found


@pytest.mark.parametrize("seed", range(30))
def test_wholes_make_the_same_rows_and_exchanges(seed):
    draw = random.Random(seed)
    sent = list(mixed(draw, 60))
    sizes = [draw.choice((0,) * 40 + (100, 5000, 1 << 20)) for _ in sent]
    apart, whole = (consume(at(draw.randrange(20_000) * 8), sent, sizes, wholes)
                    for wholes in (False, True))
    assert whole == apart and whole[0] and whole[1]


@pytest.mark.parametrize("seed", range(10))
def test_a_consumer_that_was_killed_leaves_wholes_to_the_next(seed):
    draw = random.Random(seed)
    sent, memory = list(mixed(draw, 60)), at(draw.randrange(20_000) * 8)
    every = consume(mmap.mmap(-1, RING_BYTES), sent, [0] * len(sent), True)
    producer, killed = Ring(memory), Ring(memory)
    for kind, request, payload in sent:
        assert put(producer, kind, 3, request, payload)
    first, again = Assembly(redactor()), Assembly(redactor())
    rows = list(first.rows(killed.read(60_000, True)))
    successor, read = Ring(memory), list(again.rows([]))
    while successor.turn < killed.turn:
        read += again.rows(successor.read(1 << 20, True))
    assert read == rows
    assert list(map(shown, again.to_record)) == list(map(shown, first.to_record))
    assert successor.is_again and (rows or again.to_record)
    ended = list(map(shown, again.to_record))
    successor.release()
    again.to_record.clear()
    rows += again.rows(successor.read(RING_BYTES, True))
    assert (rows, ended + list(map(shown, again.to_record))) == every


def at(left):
    """An empty ring, with `left` bytes from its head to its end."""
    memory = mmap.mmap(-1, RING_BYTES)
    position = (RING_BYTES - 65536 - left).to_bytes(8, "little")
    memory[0:8] = memory[64:72] = position       # head and tail
    return memory


def items_of(*records):
    """What a ring returns for these kinds and numbers."""
    ring = Ring(mmap.mmap(-1, RING_BYTES))
    for kind, number in records:
        assert put(ring, kind, 0, number, heads() if kind == HEADS else end())
    items = ring.read(RING_BYTES, wholes=True)
    ring.release()
    return [item[0] if isinstance(item, tuple) else "whole" for item in items]


def test_an_exchange_that_comes_whole_is_one_item_and_others_are_not():
    assert items_of((HEADS, 0), (END, 0), (HEADS, 1), (HEADS, 2), (DOWN, 2), (END, 2),
                    (END, 3)) == [HEADS, "whole", "whole", END]
    assert items_of((HEADS, 0), *[(DOWN, 0)] * 14, (END, 0)) == ["whole"]
    assert items_of((HEADS, 0), *[(DOWN, 0)] * 15, (END, 0)) == [
        HEADS, *[DOWN] * 15, END]


def test_exchanges_that_go_on_at_the_same_time_come_whole():
    """A worker answers several at once: it ends none before it has begun them all."""
    numbers = range(100, 600)
    assert items_of(*[(HEADS, number) for number in numbers],
                    *[(DOWN, number) for number in numbers],
                    *[(END, number) for number in numbers]) == ["whole"] * 500


def test_an_exchange_that_is_open_as_many_others_begin_comes_apart():
    others = [record for number in range(1, 600) for record in (
        (HEADS, number), (END, number))]
    assert items_of((HEADS, 0), *others, (END, 0)) == [
        *["whole"] * 511, HEADS, *["whole"] * 88, END]


def test_a_long_row_of_records_is_looked_at_once():
    """The search for an END begins once, not at each record."""
    ring = Ring(mmap.mmap(-1, RING_BYTES))
    for _ in range(200_000):
        assert put(ring, UP, 0, 1, b"")
    assert len(ring.read(RING_BYTES, wholes=True)) == 200_000


@pytest.mark.parametrize("seed", range(20))
def test_memory_that_holds_no_records_is_not_read_beyond_its_end(seed):
    draw = random.Random(seed)
    for _ in range(50):
        memory = mmap.mmap(-1, RING_BYTES)
        ring, consumer = Ring(memory), Ring(memory)
        for kind, request, payload in mixed(draw, 5):
            put(ring, kind, 0, request, payload)
        for _ in range(draw.randrange(1, 6)):
            place = 65536 + draw.randrange(ring.in_use // 8) * 8 + draw.randrange(8)
            memory[place:place + 1] = bytes([draw.randrange(256)])
        try:
            made = Assembly(redactor())
            made.rows(consumer.read(RING_BYTES, wholes=True))
            for one in made.to_record:
                shown(one)
        except (ValueError, OverflowError):
            pass
        consumer.release()


# Sizes

@pytest.mark.parametrize("workers, mib", [(1, 32), (4, 32), (5, 16), (8, 16), (9, 8),
                                          (64, 8)])
def test_many_workers_have_smaller_rings(workers, mib):
    size = size_for(workers)
    assert size == mib << 20
    memory = mmap.mmap(-1, RING_BYTES)
    consumer, producer = Ring(memory), Ring(memory, size=size)
    assert producer.size == size and Ring(memory, size=1 << 20).size == size
    count = 0
    while put(producer, UP, 0, count, b"x" * 50_000):
        count += 1
    assert size * 0.98 - 100_000 < count * 50_000 < size
    assert len(consumer.read(RING_BYTES)) == count and consumer.size == size
    consumer.release()
    assert put(producer, END, 0, 1, b"y" * 100_000)          # round the end
    assert [one[3] for one in consumer.read(RING_BYTES)] == [b"y" * 100_000]


@pytest.mark.parametrize("said", [1, 12 << 20, 64 << 20, 1 << 63])
def test_a_ring_whose_size_cannot_be_is_taken_as_the_largest(said):
    assert Ring(mmap.mmap(-1, RING_BYTES), size=said).size == RING_BYTES - 65536
