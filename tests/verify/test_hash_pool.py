"""Helpers and threads: the same answers, none twice, no process left behind (R24)."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import bcrypt
import psutil
import pytest

from cutthrough.process import hang_watch
from cutthrough.verify import hash_pool as module
from cutthrough.verify import hash_process
from cutthrough.verify.hash_pool import LOST, HelperPool, ThreadPool
from tests.support.processes import children_of
from tests.support.wait import wait_until

QUICK = bcrypt.hashpw(b"one", bcrypt.gensalt(4)).decode()
#: A second and more, so that what happens meanwhile happens in the middle of it.
SLOW = bcrypt.hashpw(b"one", bcrypt.gensalt(14)).decode()
SECRET = b"a-secret-that-nobody-is-told"


class Asker:
    """Asks for hashes, and notes the answers."""

    def __init__(self, hashers):
        self.hashers = hashers
        self.answers = []
        self.news = asyncio.Event()

    def ask(self, hash=QUICK, secret=b"one"):
        self.hashers.compute(hash, secret, self.note)

    def note(self, matches, fault):
        self.answers.append(fault or matches)
        self.news.set()

    async def wait(self, n=1):
        async with asyncio.timeout(60):
            while len(self.answers) < n:
                self.news.clear()
                await self.news.wait()
        return self.answers

    async def get(self, hash=QUICK, secret=b"one"):
        self.ask(hash, secret)
        return (await self.wait(len(self.answers) + 1))[-1]


def is_gone(process: psutil.Process) -> bool:
    """Ended, if not reaped: its parent reaps it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def children() -> list[psutil.Process]:
    return [child for child in children_of(os.getpid()) if not is_gone(child)]


others: set[psutil.Process] = set()     # children of other tests in this process


@pytest.fixture(autouse=True, scope="module")
def note_others() -> None:
    others.update(children())


def mine() -> list[psutil.Process]:
    return [child for child in children() if child not in others]


def read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def reap(hashers: HelperPool) -> None:
    for process in hashers._ended:
        process.wait(60)


@pytest.fixture
async def helpers():
    hashers = HelperPool(asyncio.get_running_loop(), 2)
    yield Asker(hashers)
    hashers.close()
    reap(hashers)
    assert not mine()


@pytest.fixture
async def threads():
    hashers = ThreadPool(asyncio.get_running_loop(), 2)
    yield Asker(hashers)
    hashers.close()
    for thread in hashers._threads:
        thread.join(10)
        assert not thread.is_alive()


def program(text: str) -> tuple[str, ...]:
    """A helper that does this with its end of the pair, `sock`."""
    return (sys.executable, "-c", "import os, socket, sys\n"
            f"sock = socket.socket(fileno=int(sys.argv[1]))\n{text}")


@pytest.mark.parametrize("kind", ["helpers", "threads"])
async def test_an_answer_is_right_wrong_or_what_went_wrong(kind, helpers, threads):
    asker = helpers if kind == "helpers" else threads
    assert await asker.get() is True
    assert await asker.get(secret=b"two") is False
    assert await asker.get(secret=b"one\0") is False
    assert await asker.get(secret=b"") is False
    assert await asker.get(secret=b"x" * 3000) is False
    assert await asker.get(hash="no hash", secret=SECRET) == "ValueError"
    assert await asker.get() is True, "and it goes on"


async def test_helpers_are_made_when_needed_and_kept(helpers):
    assert not mine()
    assert await helpers.get() is True
    first = mine()
    assert len(first) == 1
    assert await helpers.get() is True
    assert mine() == first
    helpers.ask()
    helpers.ask()
    await helpers.wait(4)
    assert len(mine()) == 2


async def test_a_helper_is_nicer_than_its_maker(helpers):
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    await helpers.get()
    (helper,) = mine()
    assert os.sched_getscheduler(helper.pid) == os.SCHED_BATCH
    assert helper.nice() == min(19, before[1] + hash_process.NICENESS)
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


async def test_a_secret_is_in_neither_arguments_nor_environment(helpers):
    """R37."""
    helpers.ask(SLOW, SECRET)
    (helper,) = mine()
    for name in ("cmdline", "environ"):
        seen = read(helper.pid, name)
        assert SECRET not in seen and SLOW.encode() not in seen
    assert await helpers.wait() == [False]


async def test_a_helper_holds_one_end_and_nothing_else_of_ours(helpers):
    listener = socket.create_server(("127.0.0.1", 0))
    try:
        await helpers.get()
        kinds = [os.readlink(f"/proc/{mine()[0].pid}/fd/{fd}").partition(":")[0]
                 for fd in os.listdir(f"/proc/{mine()[0].pid}/fd")]
        assert kinds.count("socket") == 1 and "anon_inode" not in kinds
    finally:
        listener.close()


async def test_a_helper_that_is_killed_in_the_middle_loses_its_question_only(
        helpers, caplog):
    await helpers.get()
    (first,) = mine()
    helpers.ask(SLOW)
    first.kill()
    assert (await helpers.wait(2))[-1] == LOST
    assert await helpers.get() is True
    assert mine() != [first] and len(mine()) == 1
    await asyncio.to_thread(wait_until, lambda: is_gone(first), "its end")
    assert await helpers.get() is True
    everybody = set(children_of(os.getpid())) - others
    assert len(everybody) == 1, "the first is reaped"
    assert f"(pid {first.pid}) ended" in caplog.text


async def test_a_helper_that_is_killed_at_rest_is_replaced(helpers):
    await helpers.get()
    (first,) = mine()
    first.kill()
    await asyncio.to_thread(wait_until, lambda: is_gone(first), "its end")
    # Asked before or after the loop has seen its end: at most this one is lost
    assert await helpers.get() in (True, LOST)
    assert await helpers.get() is True


async def test_a_helper_that_hangs_is_killed_and_replaced(
        helpers, monkeypatch, caplog):
    """R30. A helper that was stopped kept its place, and each user whose password was
    not known yet was refused after 10 s."""
    monkeypatch.setattr(hang_watch, "LOOK_S", 0.01)
    assert await helpers.get() is True
    (process,) = mine()
    process.suspend()
    await asyncio.to_thread(
        wait_until, lambda: process.status() == psutil.STATUS_STOPPED, "its stop")
    assert await helpers.get() == LOST
    assert "does not answer: killed" in caplog.text
    monkeypatch.undo()                       # a new one may take longer
    assert await helpers.get() is True
    assert process not in mine()


async def test_what_tells_a_whole_group_to_end_does_not_end_a_helper(helpers):
    await helpers.get()
    helpers.ask(SLOW)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        mine()[0].send_signal(number)
    assert await helpers.wait(2) == [True, True]


@pytest.mark.parametrize("says", ["b'2'", "b'certainly'", "b'\\xff' * 9000"])
async def test_a_helper_that_says_nonsense_is_not_believed_and_not_kept(says):
    asker = Asker(HelperPool(asyncio.get_running_loop(), 1, program(
        f"while sock.recv(9999): sock.send({says})")))
    assert await asker.get() == LOST
    reap(asker.hashers)
    assert not mine()
    asker.hashers.close()


async def test_a_helper_that_answers_unasked_is_not_kept():
    asker = Asker(HelperPool(asyncio.get_running_loop(), 1, program(
        "sock.recv(9999)\nsock.send(b'0')\nsock.send(b'1')\nsock.recv(9999)")))
    assert await asker.get() is False
    (helper,) = mine()
    await asyncio.to_thread(wait_until, lambda: is_gone(helper), "its end")
    asker.hashers.close()
    reap(asker.hashers)
    assert asker.answers == [False]


async def test_a_helper_that_cannot_begin_is_tried_again_later_and_not_at_once(
        monkeypatch, tmp_path):
    count = tmp_path / "count"
    asker = Asker(HelperPool(asyncio.get_running_loop(), 1, program(
        f"open({str(count)!r}, 'a').write('x')\nsys.exit(3)")))
    for _ in range(20):
        assert await asker.get() == LOST
    assert count.read_text() == "x"
    asker.hashers._not_before = 0.0
    assert await asker.get() == LOST
    assert count.read_text() == "xx"
    asker.hashers.close()
    reap(asker.hashers)


async def test_a_program_that_is_not_there_is_no_answer(caplog):
    asker = Asker(HelperPool(asyncio.get_running_loop(), 1, ("/nonexistent",)))
    assert await asker.get() == LOST
    assert "cannot start a helper" in caplog.text
    asker.hashers.close()


@pytest.mark.parametrize("make", [HelperPool, ThreadPool])
async def test_nobody_is_answered_after_the_end(make):
    asker = Asker(make(asyncio.get_running_loop(), 1))
    await asker.get()
    asker.ask(SLOW)
    asker.hashers.close()
    if make is HelperPool:
        reap(asker.hashers)                 # not after its hash: now
        assert not mine()
    else:
        for thread in asker.hashers._threads:
            thread.join(30)
    await asyncio.sleep(0)
    assert asker.answers == [True]


async def test_the_threads_are_nicer_than_the_loop(threads):
    here = os.getpriority(os.PRIO_PROCESS, 0)
    await threads.get()
    nice = [os.getpriority(os.PRIO_PROCESS, thread.native_id)
            for thread in threads.hashers._threads]
    assert nice == [min(19, here + module.NICENESS)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == here


async def test_threads_are_made_when_needed(threads):
    assert not threads.hashers._threads
    await threads.get()
    await threads.get()
    assert len(threads.hashers._threads) == 1
    threads.ask()
    threads.ask()
    await threads.wait(4)
    assert len(threads.hashers._threads) == 2


# The helper's program itself

def test_a_question_is_a_hash_and_a_secret():
    def ask(secret, hash=QUICK):
        return hash_process.answer(hash.encode() + b"\0" + secret)

    assert ask(b"one") == b"1"
    assert ask(b"two") == ask(b"") == ask(b"\0one") == b"0"
    assert ask(SECRET, "plain") == b"!ValueError"
    assert hash_process.answer(b"\xff\0" + SECRET) == b"!UnicodeDecodeError"


def test_a_helper_ends_with_the_other_side():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.send(QUICK.encode() + b"\0one")
        ours.shutdown(socket.SHUT_WR)
        hash_process.serve(theirs)
        assert ours.recv(99) == b"1"
