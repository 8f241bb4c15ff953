"""Credentials known to all workers: one page, bounded, and whole after a crash."""

import os
import time

import bcrypt
import pytest

from cutthrough.policy.auth import Authenticator
from cutthrough.policy.known import (
    GUESSES,
    PLACES,
    STRANGERS,
    Known,
    create,
    page_bytes,
)
from cutthrough.policy.source import User
from tests.doors.policy import check, grab
from tests.policy.credentials import basic

HOUR_US = 3600 * 10**6


def user_of(secret=b"one", name="ann", **more):
    made = bcrypt.hashpw(secret, bcrypt.gensalt(4)).decode()
    return User(name=name, hash=made, **more)


@pytest.fixture
def memory():
    return create()


def worker(memory, user, pid=0, ttl=300.0):
    known = Known(memory, pid)
    return Authenticator({b"me": b"x"}, {user.name: user}, ttl, known=known)


RIGHT = basic(b"ann:one")


def test_who_was_right_at_one_worker_is_known_to_all(memory):
    """Each worker computed every hash for itself, and a new one began with none."""
    user = user_of()
    first, second = worker(memory, user), worker(memory, user)
    assert second.recall(RIGHT) is None
    first.remember(first.key_of(RIGHT), first.find(b"ann"))
    found = second.recall(RIGHT)
    assert found is second.find(b"ann"), "of its own generation, with its groups"
    assert second.remembered == 1
    assert second.recall(basic(b"ann:two")) is None


@pytest.mark.parametrize("changed", [
    {"hash": bcrypt.hashpw(b"two", bcrypt.gensalt(4)).decode()},
    {"hash": bcrypt.hashpw(b"one", bcrypt.gensalt(4)).decode()},
    {"expires": 4102444800.0},
    {"name": "bob"},
])
def test_a_changed_record_is_another_record(memory, changed):
    """R23: hash, expiry and existence; also a new hash of the same password."""
    user = user_of()
    first = worker(memory, user)
    first.remember(first.key_of(RIGHT), first.find(b"ann"))
    fields = {"name": "ann", "hash": user.hash} | changed
    assert worker(memory, User(**fields)).recall(RIGHT) is None
    again = worker(memory, User(name="ann", hash=user.hash, groups=("staff",)))
    assert again.recall(RIGHT).groups == ("staff",), "groups are the new ones"


def test_a_password_of_the_configuration_is_remembered_by_its_record_too(memory):
    first = Authenticator({b"me": b"x"}, known=Known(memory))
    assert check(first, basic(b"me:x")) == b"me"
    assert Authenticator({b"me": b"x"}, known=Known(memory)).recall(basic(b"me:x"))
    assert not Authenticator({b"me": b"y"}, known=Known(memory)).recall(basic(b"me:x"))


def test_how_long_it_is_believed_is_for_the_reader_to_say(memory):
    """A reload that shortens auth_cache_ttl holds for credentials verified before."""
    user = user_of()
    first = worker(memory, user)
    first.remember(first.key_of(RIGHT), first.find(b"ann"), time.monotonic() - 100)
    assert worker(memory, user).recall(RIGHT) is not None
    for ttl in (60.0, 0.0):
        shorter = worker(memory, user, ttl=ttl)
        assert shorter.recall(RIGHT) is None
        assert shorter.proved_us(shorter.key_of(RIGHT)), "it is nobody's guess, though"
    first.remember(first.key_of(RIGHT), first.find(b"ann"), time.monotonic() - 86400)
    assert not first.proved_us(first.key_of(RIGHT))


def test_a_user_with_many_right_passwords_pushes_nobody_out(memory):
    """bcrypt reads 72 bytes: bytes behind them make a new credential of an old one."""
    first = worker(memory, user_of())
    for n in range(1000):
        first.remember(first.key_of(basic(b"ann:%d" % n)), first.find(b"ann"))
    assert first.known.read()["proofs"] == 4
    assert first.known.evicted == 996


def test_the_table_is_bounded_and_says_so():
    memory = create(-1, 64, 64)
    assert len(memory) == page_bytes(64, 64)
    known = Known(memory)
    many = Authenticator({b"u%d" % n: b"p" for n in range(2000)}, known=known)
    for n in range(2000):
        many.remember(many.key_of(basic(b"u%d:p" % n)), many.find(b"u%d" % n))
    assert known.read()["proofs"] == 64 * 8
    assert known.evicted == 2000 - 64 * 8


def test_a_worker_killed_with_the_lock_leaves_it_to_the_next(memory):
    known = Known(memory)
    pid = os.fork()
    if pid == 0:
        grab(known)
        os._exit(0)
    os.waitpid(pid, 0)
    first = worker(memory, user_of())
    first.remember(first.key_of(RIGHT), first.find(b"ann"))
    assert first.recall(RIGHT) is not None
    assert known.read()["repairs"] == 1


def test_memory_of_another_layout_is_refused(memory):
    with pytest.raises(ValueError, match="not hold a page of credentials"):
        Known(bytearray(page_bytes()))
    short = bytearray(memory)[:-1]
    with pytest.raises(ValueError, match="not hold a page of credentials"):
        Known(short)


# Claims

def test_a_hash_is_one_workers_to_compute(memory):
    """Two workers computed the same hash at the same time."""
    one, other = Known(memory, 11), Known(memory, 12)
    key = worker(memory, user_of()).key_of(RIGHT)
    assert one.claim(key, 100) and one.claim(key, 100), "also when it asks again"
    assert not other.claim(key, 100)
    one.disclaim(key)
    assert other.claim(key, 100)


def test_a_claim_ends_with_its_worker_and_with_time(memory):
    one, other = Known(memory, 11), Known(memory, 12)
    first = worker(memory, user_of())
    left, right = first.key_of(RIGHT), first.key_of(basic(b"ann:two"))
    assert one.claim(left, 100) and one.claim(right, 100)
    other.reap(11)
    assert other.claim(left, 100) and other.read()["claims"] == 1
    assert one.claim(left, HOUR_US)


# Marks

def test_marks_count_in_a_row_and_forget(memory):
    known = Known(memory)
    assert known.read_mark(PLACES, b"a") == (0, 0)
    assert [known.mark(PLACES, b"a", us, 1000) for us in (1, 2, 900)] == [1, 2, 3]
    assert Known(memory).read_mark(PLACES, b"a") == (3, 900)
    assert known.mark(PLACES, b"a", 2000, 1000) == 1
    known.unmark(PLACES, b"a")
    assert known.read_mark(PLACES, b"a") == (0, 0)


def test_who_fills_one_table_makes_no_other_forget():
    """Names without a user are without number; guesses at existing names stay."""
    known = Known(create(-1, 64, 64))
    known.mark(GUESSES, b"ann", 5, HOUR_US)
    for n in range(5000):
        known.mark(STRANGERS, b"%d" % n, 10 + n, HOUR_US)
    assert known.read_mark(GUESSES, b"ann") == (1, 5)
    assert known.read()["marks"] == (1, 64 * 8, 0, 0, 0)
    assert known.forgotten == 5000 - 64 * 8
