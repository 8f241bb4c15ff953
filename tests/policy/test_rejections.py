"""A client's rejection of our certificate is remembered by network and name (R57)."""

import pytest

from cutthrough.policy.known import Known, create
from cutthrough.policy.rejections import FORGET_US, has_rejected, note_rejection

HERE, THERE = b"\x7f\0\0", b"\x7f\1\0"
A = (b"a.example", b"a.example\x01\xbb")
B = (b"b.example", b"b.example\x01\xbb")


@pytest.fixture
def known():
    return Known()


def test_a_rejection_is_known_to_every_worker(known):
    """R57"""
    note_rejection(known, HERE, *A, 5)
    assert has_rejected(known, HERE, *A, 6)
    assert has_rejected(Known(known.memory), HERE, *A, 6)


@pytest.mark.parametrize("other", [
    (THERE, *A), (HERE, *B), (HERE, A[0], B[1]), (HERE, B[0], A[1]),
    (HERE, A[0], b"a.example\x01\xbc"), (HERE + b"\0" * 5, *A)],
    ids=["network", "both names", "host", "name", "port", "a longer network"])
def test_it_holds_for_nothing_else(known, other):
    """R57"""
    note_rejection(known, HERE, *A, 5)
    assert not has_rejected(known, *other, 6)


def test_it_ends_after_an_hour_and_no_use_extends_it(known):
    note_rejection(known, HERE, *A, 5)
    for at_us in (6, FORGET_US // 2, FORGET_US + 4):
        assert has_rejected(known, HERE, *A, at_us)
    assert not has_rejected(known, HERE, *A, FORGET_US + 5)
    note_rejection(known, HERE, *A, 2 * FORGET_US)
    assert has_rejected(known, HERE, *A, 3 * FORGET_US - 1)


def test_the_table_is_bounded_and_the_oldest_go_first():
    known = Known(create(-1, 64, 64))
    names = [b"n%d" % n for n in range(5000)]
    for at_us, name in enumerate(names, 1):
        note_rejection(known, HERE, name, name, at_us)
    kept = [name for name in names if has_rejected(known, HERE, name, name, 5001)]
    assert len(kept) == known.read()["marks"][-1] == 64 * 8
    assert {*names[-64:]} <= {*kept}, "eight of a set are kept, the newest"
    assert known.forgotten == 5000 - 64 * 8
