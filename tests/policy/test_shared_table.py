"""The shared page when a process dies in the middle of it."""

import mmap
import os
import random
import signal
import subprocess
import sys

import pytest

from cutthrough.policy import source
from cutthrough.policy.ledger import Ledger
from cutthrough.policy.limits import Limiter
from cutthrough.policy.shared_table import create, page_bytes
from cutthrough.supervisor.limits_page import FIRST_HOLDER, LimitsPage
from tests.doors.policy import Holder, of_user
from tests.support.proxy import ROOT

CHILD = """
import mmap, os, random, sys
from cutthrough.policy.ledger import Ledger
from cutthrough.policy.limits import Limiter
from tests.doors.policy import Holder, grab
from cutthrough.policy.source import Limits, Policy

ledger = Ledger(mmap.mmap(int(sys.argv[1]), 0), 1)
what = sys.argv[2]
policy = Policy(limits={"default": Limits(connections=9, tunnels=5)})
limiter = Limiter(ledger, policy, most=100000, most_of_client=100000)
held = []
if what == "hold":
    for n in range(10):
        held.append(Holder(limiter))
        held[-1].enter(bytes([192, 0, 2, n]))
        held[-1].ask(b"user %d" % n, True)
    grab(ledger)
print(what, flush=True)
while what == "churn":
    holder = Holder(limiter)
    holder.enter(bytes([192, 0, 2, random.randrange(256)]))
    holder.ask(b"user %d" % random.randrange(200), True)
    held.append(holder)
    if len(held) > 100:
        held.pop(random.randrange(100)).close()
sys.stdin.read()
"""


@pytest.fixture
def page():
    fd = os.memfd_create("test-limits")
    memory = create(2, fd)
    yield fd, memory
    os.close(fd)


def start(fd: int, what: str) -> subprocess.Popen:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(fd), what],
        cwd=ROOT,
        pass_fds=[fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == f"{what}\n"
    return child


def kill(child: subprocess.Popen) -> None:
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert child.returncode == -signal.SIGKILL


def test_a_worker_killed_with_the_lock_does_not_stop_the_others(page):
    fd, memory = page
    kill(start(fd, "hold"))
    limiter = Limiter(Ledger(memory, 0), most=11)
    one, other = Holder(limiter), Holder(limiter)
    assert one.enter(bytes(4)) == "entered", "the lock was to be had"
    assert limiter.ledger.read()["repairs"] == 1
    assert other.enter(bytes(4)) == "over all", "ten are held until the slot is reaped"
    limiter.ledger.reap(1)
    assert limiter.ledger.read()["connections"] == 1
    assert other.enter(bytes(4)) == "entered"


def test_a_worker_killed_at_any_moment_leaves_the_page_whole(page):
    """Twelve of them, each in the middle of making and dropping rows."""
    fd, memory = page
    limiter = Limiter(
        Ledger(memory, 0),
        source.Policy(limits={"default": source.Limits(connections=9)}),
        most=100_000,
        most_of_client=100_000,
    )
    mine = [Holder(limiter) for _ in range(50)]
    for n, holder in enumerate(mine):
        assert holder.enter(bytes([192, 0, 2, n])) == "entered"
        assert holder.ask(b"user %d" % n) == ("entered", 0)
    for _ in range(12):
        child = start(fd, "churn")
        for _ in range(random.randrange(2000)):
            mine[0].ask(b"user 0")
        kill(child)
        limiter.ledger.reap(1)
        counted = limiter.ledger.read()
        assert (
            counted["connections"],
            counted["of_clients"],
            counted["of_users"],
            counted["clients"],
        ) == (50, 50, 50, 50)
        for n in range(50):
            assert of_user(limiter.ledger, b"user %d" % n) == (1, 0, 0)
    for holder in mine:
        holder.close()
    end = limiter.ledger.read()
    assert (end["connections"], end["clients"], end["users"], end["underflows"]) == (
        0,
        0,
        0,
        0,
    )


def test_a_page_is_told_from_other_memory():
    with pytest.raises(ValueError, match="not hold a shared table"):
        Ledger(memoryview(bytearray(1 << 16)), 0)
    with pytest.raises(ValueError, match="no slot 2: the page has 2"):
        Ledger(create(2), 2)
    with pytest.raises(ValueError, match="power of two"):
        create(1, capacity=100)


def test_only_rows_that_were_used_cost_memory():
    fd = os.memfd_create("test-limits")
    create(8, fd).close()
    status = os.fstat(fd)
    os.close(fd)
    assert status.st_size == page_bytes(8)
    assert status.st_blocks * 512 <= 16384


def test_a_page_has_places_for_more_workers_than_it_began_with():
    """Each beside an old one that drains, and each with an account of its own."""
    page = LimitsPage()
    page.open(2)
    try:
        with pytest.raises(OSError, match="22 processes; restart"):
            page.check(22)
        page.check(21)
        memory = mmap.mmap(page.fd, 0)
        old, new = (Limiter(Ledger(memory, FIRST_HOLDER + n), most=2) for n in (0, 21))
        first, second, third = Holder(old), Holder(new), Holder(new)
        assert first.enter(bytes(4)) == second.enter(bytes(4)) == "entered"
        assert third.enter(bytes(4)) == "over all"
        page.reap(0)
        assert third.enter(bytes(4)) == "entered"
    finally:
        page.close()
