"""A computation that takes breaths lets others have its core, and does not change."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

from cutthrough.process import duty_cycle

HASH = bcrypt.hashpw(b"one", bcrypt.gensalt(9))         # 30 ms


@pytest.fixture
def breathing() -> Iterator[None]:
    """On one core, with a handler of SIGALRM that is put back: pytest's is in use."""
    cores = os.sched_getaffinity(0)
    left, before = signal.alarm(0), signal.getsignal(signal.SIGALRM)
    os.sched_setaffinity(0, {min(cores)})
    duty_cycle.start()
    yield
    duty_cycle.stop()
    os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGALRM, before)
    signal.alarm(left)


@pytest.fixture
def crowd() -> Iterator[None]:
    """Another process that wants that core all the time."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", "import os\n"
                                f"os.sched_setaffinity(0, {{{core}}})\nwhile 1: pass"])
    yield
    process.kill()
    process.wait()


def compute(seconds: float) -> tuple[int, int]:
    """Hashes for so long; returns how many breaths and rests that took."""
    breaths, rests = duty_cycle.counts()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert bcrypt.checkpw(b"one", HASH)
        assert not bcrypt.checkpw(b"two", HASH)
    return duty_cycle.counts()[0] - breaths, duty_cycle.counts()[1] - rests


def test_a_hash_is_the_same(breathing):
    breaths = rests = 0
    while breaths <= 30:
        more = compute(0.3)
        breaths, rests = breaths + more[0], rests + more[1]
        assert 0 <= rests <= breaths


def test_a_core_that_somebody_wants_is_given_up_after_each_breath(crowd, breathing):
    compute(0.3)
    spent = time.process_time()
    breaths, rests = compute(1)
    assert rests >= 0.9 * breaths > 0
    # A quarter, and the rest of the last hash; without rests it were a half
    assert time.process_time() - spent < 0.4


def test_what_waits_for_a_descriptor_waits_on(breathing):
    """The signal interrupts system calls: they begin again."""
    ours, theirs = os.pipe()
    try:
        with subprocess.Popen(["sh", "-c", "sleep 0.05; printf x"], stdout=theirs):
            assert os.read(ours, 1) == b"x"
    finally:
        os.close(ours)
        os.close(theirs)


def test_after_the_end_there_is_none(breathing):
    compute(0.05)
    duty_cycle.stop()
    assert compute(0.1)[0] <= 1, "one may have been on its way"


def test_a_breath_that_was_due_at_the_end_is_the_last(breathing):
    """A signal that waits while the timer is stopped comes after, and began it anew."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        until = time.monotonic() + 5
        while signal.SIGALRM not in signal.sigpending():
            assert time.monotonic() < until
        duty_cycle.stop()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_memory_and_errors_are_as_without(breathing, tmp_path):
    """Allocations, files that are not there, exceptions: the handler disturbs none."""
    until, n = time.monotonic() + 0.3, 0
    while time.monotonic() < until or n < 100:
        with pytest.raises(FileNotFoundError):
            os.stat(Path(tmp_path, str(n)))
        assert len(bytes(n % 5000) + b"x") == n % 5000 + 1
        n += 1
