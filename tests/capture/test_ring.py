"""The ring between a worker and the writer: order, room, kills, wake-ups (R58)."""

import mmap
import os
import random

import pytest

from cutthrough.tape.ring import RING_BYTES, Ring
from tests.doors.capture import put

UP, END = 2, 4


@pytest.fixture
def memory():
    return mmap.mmap(-1, RING_BYTES)


def test_records_come_out_in_order_and_whole(memory):
    ring = Ring(memory)
    for number in range(100):
        assert put(ring, UP, 3, number, bytes([number]) * number)
    records = ring.read(RING_BYTES)
    assert records == [(UP, 3, n, bytes([n]) * n) for n in range(100)]
    assert ring.read(RING_BYTES) == []


def test_records_survive_many_turns_around_the_ring(memory):
    """Against a list, with records of all sizes."""
    ring, source = Ring(memory), random.Random(7)
    sent, got = [], []
    for number in range(3000):
        payload = bytes([number % 256]) * source.randrange(0, 70_000)
        if put(ring, UP, 0, number, payload):
            sent.append((number, payload))
        if source.random() < 0.2:
            got += [(request, data) for _, _, request, data in ring.read(1 << 20)]
            ring.release()
    while records := ring.read(1 << 20):
        got += [(request, data) for _, _, request, data in records]
    assert got == sent and len(sent) > 1000


def test_a_full_ring_takes_nothing_and_loses_nothing(memory):
    ring = Ring(memory)
    count = 0
    while put(ring, UP, 0, count, b"x" * 50_000):
        count += 1
    assert count * 50_000 > RING_BYTES * 0.98 - 200_000
    assert not put(ring, UP, 0, 0, b"x" * 50_000)
    assert len(ring.read(RING_BYTES)) == count
    assert not put(ring, UP, 0, 0, b"x" * 50_000), "the room is not released yet"
    ring.release()
    assert put(ring, UP, 0, 0, b"x" * 50_000)


def test_a_record_longer_than_the_ring_is_refused(memory):
    assert not put(Ring(memory), UP, 0, 0, bytes(RING_BYTES))


def test_a_consumer_that_was_killed_leaves_its_records_to_the_next(memory):
    producer, first = Ring(memory), Ring(memory)
    put(producer, END, 0, 1, b"one")
    assert first.read(RING_BYTES)
    first.release()
    put(producer, END, 0, 2, b"two")
    assert first.read(RING_BYTES), "read, and not released"
    assert Ring(memory).read(RING_BYTES) == [(END, 0, 2, b"two")]


def test_what_was_released_is_erased_and_reads_as_nothing(memory):
    """R59, and a kill after the erasure and before the room is given back."""
    producer, consumer = Ring(memory), Ring(memory)
    for number in range(300):               # once around, padding included
        put(producer, END, 0, number, b"s3cret" * 9_999)
        assert consumer.read(RING_BYTES)
        tail = memory[64:72]
        consumer.release()
    assert memory.find(b"s3cret") == -1
    put(producer, END, 0, 300, b"s3cret")
    assert memory.find(b"s3cret") > 0
    memory[64:72] = tail                    # as if the last release had ended early
    assert Ring(memory).read(RING_BYTES) == [(END, 0, 300, b"s3cret")]


def test_an_exchange_without_an_end_is_left_to_the_next_consumer_whole(memory):
    producer, consumer = Ring(memory), Ring(memory)
    for number in range(20):
        put(producer, UP, 0, number, b"up of %d" % number)
    for number in range(0, 20, 2):
        put(producer, END, 0, number, b"end of %d" % number)
    assert len(consumer.read(RING_BYTES)) == 30
    consumer.release()
    put(producer, END, 0, 1, b"end of 1")
    assert consumer.read(RING_BYTES) == [(END, 0, 1, b"end of 1")]
    records = Ring(memory).read(RING_BYTES)
    assert records == [(UP, 0, n, b"up of %d" % n) for n in range(1, 20, 2)] + [
        (END, 0, 1, b"end of 1")]
    assert memory.find(b"up of 2") == memory.find(b"end of 2") == -1
    consumer.release()
    assert memory.find(b"up of 1\0") == -1
    for number in range(100, 400):          # room is given back all the same
        assert put(producer, UP, 0, number, b"x" * 50_000)
        assert consumer.read(RING_BYTES)
        consumer.release()
    assert consumer.in_use < RING_BYTES // 8 + 60_000


def test_a_producer_that_was_killed_is_continued_by_the_next(memory):
    put(Ring(memory), END, 0, 1, b"one")
    put(Ring(memory), END, 0, 2, b"two")
    assert [record[2] for record in Ring(memory).read(RING_BYTES)] == [1, 2]


def test_only_a_consumer_that_sleeps_is_woken(memory):
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK)
    producer, consumer = Ring(memory, write_fd), Ring(memory)
    put(producer, UP, 0, 1, b"")
    with pytest.raises(BlockingIOError):
        os.read(read_fd, 1)
    assert not consumer.sleep(), "there is a record"
    consumer.wake()
    consumer.read(RING_BYTES)
    assert consumer.sleep()
    put(producer, UP, 0, 2, b"")
    put(producer, UP, 0, 3, b"")
    assert os.read(read_fd, 10) == b"w", "once"
    consumer.read(RING_BYTES)
    assert consumer.sleep(1000), "until there are so many bytes"
    put(producer, END, 0, 4, b"x" * 500)
    with pytest.raises(BlockingIOError):
        os.read(read_fd, 1)
    put(producer, END, 0, 5, b"x" * 500)
    assert os.read(read_fd, 10) == b"w"
    assert not consumer.sleep(1000) and consumer.sleep(2000)
    os.close(read_fd)
    os.close(write_fd)


def test_memory_that_holds_no_records_ends_the_reading(memory):
    ring = Ring(memory)
    put(ring, UP, 0, 1, b"x" * 100)
    memory[65536:65540] = b"\xff\xff\xff\x07"
    assert ring.read(RING_BYTES) == []
    put(ring, UP, 0, 2, b"y")
    assert [record[2] for record in ring.read(RING_BYTES)] == [2]


def test_a_page_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="has"):
        Ring(bytearray(100))


def test_records_that_must_not_be_lost_wait_in_memory_and_keep_their_order(memory):
    ring, reader = Ring(memory), Ring(memory)
    assert not put(ring, UP, 0, 0, bytes(RING_BYTES), True), "longer than the ring"
    ring.hold(3_000_000)
    count = 0
    while put(ring, UP, 0, count, b"x" * 50_000, True):
        count += 1
    assert count * 50_000 > RING_BYTES * 0.98 + 2_700_000
    assert not ring.settle()
    assert not put(ring, UP, 1, 0, b"y" * 50_000), "others do not wait"
    numbers = []
    while records := reader.read(1 << 20):
        numbers += [request for _, worker, request, _ in records if worker == 0]
        reader.release()
        if len(numbers) < 100:                # behind those that wait
            assert put(ring, UP, 0, count, b"x" * 10, True)
            count += 1
        ring.settle()
    assert ring.settle() and numbers == [*range(count)]


def test_after_a_kill_the_next_consumer_first_takes_the_same_turn(memory):
    """A store knows it again, and no part of it is there twice."""
    producer, killed = Ring(memory), Ring(memory)
    for number in range(10):
        put(producer, END, 0, number, bytes(1000))
    assert len(killed.read(4000)) == 4 and not killed.is_again
    killed.release()
    assert len(killed.read(3000)) == 3       # and it is killed before it releases them
    put(producer, END, 0, 10, bytes(1000))
    successor = Ring(memory)
    for number in (4, 5, 6):                 # one of them may have killed it
        assert [record[2] for record in successor.read(RING_BYTES)] == [number]
        assert successor.is_again and not successor.is_deadly
    assert successor.turn == killed.turn
    assert successor.name == killed.name != Ring(mmap.mmap(-1, RING_BYTES)).name
    successor.release()
    assert len(successor.read(RING_BYTES)) == 4 and not successor.is_again
    successor.release()
    assert not Ring(memory).read(RING_BYTES)


def test_an_exchange_at_which_two_consumers_have_died_is_deadly(memory):
    """R71: each successor read it again first, and died."""
    producer = Ring(memory)
    for number in range(4):
        put(producer, END, 0, number, b"x")

    def numbers(ring, count=1):
        read = []
        while len(read) < count:
            read += [record[2] for record in ring.read(RING_BYTES)]
            if len(read) < count:
                ring.release()
        return read

    assert numbers(Ring(memory), 4) == [0, 1, 2, 3]
    second = Ring(memory)
    assert numbers(second, 2) == [0, 1] and second.reads_alone
    third = Ring(memory)
    assert numbers(third) == [1] and not third.is_deadly, "one has died there alone"
    fourth = Ring(memory)
    assert numbers(fourth) == [1] and fourth.is_deadly
    fourth.release()
    assert numbers(fourth, 2) == [2, 3] and not fourth.is_deadly
    fourth.release()
    assert not fourth.reads_alone and fourth.read(RING_BYTES) == []
    put(producer, END, 0, 4, b"x")
    put(producer, END, 0, 5, b"x")
    assert [record[2] for record in Ring(memory).read(RING_BYTES)] == [4, 5]


def test_a_consumer_that_leaves_in_order_is_no_death(memory):
    producer = Ring(memory)
    for number in range(3):
        put(producer, END, 0, number, b"x")
    for _ in range(5):
        ring = Ring(memory)
        assert len(ring.read(RING_BYTES)) == 3 and not ring.is_deadly
        ring.leave()


def test_what_is_left_is_counted_by_its_ends(memory):
    producer = Ring(memory)
    for number in range(40):                # once around
        put(producer, UP, 0, number, b"x" * 1_000_000)
        put(producer, END, 0, number, b"x")
        consumer = Ring(memory)
        assert consumer.count_left() == 1
        while consumer.read(RING_BYTES):
            consumer.release()
    assert producer.count_left() == 0
    put(producer, UP, 0, 41, b"x")
    assert producer.count_left() == 0


def test_what_was_handed_on_is_known_to_the_next_consumer(memory):
    ring = Ring(memory)
    for number in range(4):
        assert put(ring, END, 0, number, b"x" * 100)
    assert len(ring.read(256)) == 2
    assert ring.hand()
    after = Ring(memory)                     # the first one was killed
    records = after.read(RING_BYTES)
    while after.is_again:
        assert not after.hand()
        after.release()
        records += after.read(RING_BYTES)
    assert [number for _, _, number, _ in records] == [0, 1, 2, 3]
    assert after.hand()
