"""The gate of work on content: memory of bodies, and work outside of the loop."""

import asyncio
import gc
import json
import os
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange import work
from cutthrough.exchange.work import (
    MOST_OF_ASKER,
    MOST_US,
    Busy,
    Gate,
    Memory,
    Unread,
    cost_us,
    is_costly,
)
from cutthrough.process import work_process
from cutthrough.process.work_pool import ProcessPool, ThreadPool, make_pool
from cutthrough.recording.match.keys import KeyReader
from cutthrough.recording.match.routes import Key
from cutthrough.recording.model.masking import Masker, Redaction
from cutthrough.recording.model.recording import Request
from tests.support.processes import children_of
from tests.support.sanitized import SANITIZED
from tests.support.wait import wait_until

MIB = 1 << 20
measured = pytest.mark.skipif(
    SANITIZED, reason="sanitizers take several times the memory and the time")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A process that starts beside other programs may take seconds."""
    monkeypatch.setattr(work, "RUN_S", 60.0)


def children():
    return [one for one in children_of(os.getpid())
            if one.status() != psutil.STATUS_ZOMBIE]


def run(test, pool=None, wait_s=100.0):
    """With a gate, which leaves no process behind. Its processes may start late."""
    async def go():
        gate = Gate(pool or ProcessPool())
        gate.lines.wait_s = wait_s
        try:
            async with asyncio.timeout(120):
                await test(gate)
        finally:
            gate.close()
            await asyncio.sleep(0)
    asyncio.run(go())
    wait_until(lambda: not children(), "no process")


def pid_of(_given=None):
    return os.getpid()


def wait(path):
    """Waits until the file is there: the test makes it."""
    while not os.path.exists(path):
        time.sleep(0.01)
    return path


def touch(path):
    with open(path, "w"):
        pass


def eat(mib):
    return len(bytearray(b"x") * (mib * MIB))


def fail(text):
    raise ValueError(text)


# Memory

def test_one_asker_alone_gets_half_of_the_memory_and_others_still_find_some():
    # R69
    memory = Memory(12 * MIB)
    assert [memory.take("ann", 2 * MIB) for _ in range(4)] == [True] * 3 + [False]
    assert [memory.take("bob", MIB) for _ in range(4)] == [True] * 3 + [False]
    assert memory.take("eve", MIB)
    assert (memory.taken, memory.refused) == (10 * MIB, 2)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60)), max_size=60))
def test_what_is_taken_is_never_more_than_there_is_and_all_of_it_goes_back(asked):
    memory, bodies = Memory(100), []
    for asker, size in asked:
        body = memory.open(asker)
        body.add(bytes(size))
        bodies.append((asker, body))
        has = {name: sum(len(one) for at, one in bodies if at == name)
               for name in "abc"}
        assert sum(has.values()) == memory.taken <= memory.most
        assert max(has.values()) <= memory.most / 2
    for _, body in bodies:
        body.close()
        body.close()
    assert memory.taken == 0 and memory._by_asker == {}


def test_a_body_counts_until_it_is_closed_or_forgotten():
    memory = Memory(100)
    body = memory.open("ann")
    assert body.add(b"abc") and body.add(b"def") and not body.add(bytes(50))
    assert body.whole() == b"abcdef" and memory.taken == 6
    del body
    gc.collect()
    assert memory.taken == 0


# Time

@measured
def test_work_runs_in_another_process_which_is_used_again():
    async def test(gate):
        first = await gate.run("ann", pid_of)
        assert first != os.getpid() and await gate.run("bob", pid_of) == first
    run(test)


def test_what_a_function_raises_is_raised_here():
    async def test(gate):
        with pytest.raises(ValueError, match="why"):
            await gate.run("ann", fail, "why")
        assert gate.waiting == 0
    run(test)


def test_a_call_that_takes_too_long_is_killed_and_the_next_one_is_answered(
        monkeypatch, tmp_path):
    # R64: a GraphQL document of 60 KB took 8 s of the loop
    monkeypatch.setattr(work, "RUN_S", 1.0)

    async def test(gate):
        with pytest.raises(Unread, match="longer than 1 s"):
            await gate.run("ann", wait, str(tmp_path / "never"))
        monkeypatch.setattr(work, "RUN_S", 60.0)
        assert await gate.run("ann", pid_of) != os.getpid()
        assert gate.late == 1
    run(test)


def test_one_asker_has_one_call_at_work_and_delays_nobody_else(tmp_path):
    # R64
    flag = str(tmp_path / "flag")

    async def test(gate):
        calls = [asyncio.ensure_future(gate.run("eve", wait, flag))
                 for _ in range(MOST_OF_ASKER)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await gate.run("eve", pid_of)
        for asker in ("ann", "bob"):
            assert await gate.run(asker, pid_of) != os.getpid()
        assert len(children()) == 2 and not any(call.done() for call in calls)
        touch(flag)
        assert await asyncio.gather(*calls) == [flag] * MOST_OF_ASKER
        assert gate.waiting == 0 and gate.lines._lines == {} and gate.refused == 1
    run(test)


def test_a_call_that_is_cancelled_before_it_begins_leaves_its_line():
    """By code of the operator's, which cancels all tasks: the asker had no place any
    more."""
    async def test(gate):
        for _ in range(MOST_OF_ASKER + 1):
            call = asyncio.ensure_future(gate.run("eve", pid_of))
            await asyncio.sleep(0)
            for task in gate._tasks:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert gate.waiting == 0 and gate.lines._lines == {}
    run(test)


def test_all_askers_together_have_a_bounded_line(monkeypatch, tmp_path):
    monkeypatch.setattr(work, "MOST_WAITING", 5)
    flag = str(tmp_path / "flag")

    async def test(gate):
        calls = [asyncio.ensure_future(gate.run(f"user{n}", wait, flag))
                 for n in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await gate.run("ann", pid_of)
        touch(flag)
        await asyncio.gather(*calls)
    run(test)


def test_who_gets_no_place_in_time_is_told_so(tmp_path):
    flag = str(tmp_path / "flag")

    async def test(gate):
        call = asyncio.ensure_future(gate.run("eve", wait, flag))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await gate.run("eve", pid_of)
        touch(flag)
        await call
    run(test, wait_s=0.05)


@measured
def test_a_client_that_leaves_does_not_have_the_process_start_again(tmp_path):
    flag = str(tmp_path / "flag")

    async def test(gate):
        pid = await gate.run("ann", pid_of)
        call = asyncio.ensure_future(gate.run("ann", wait, flag))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert gate.waiting == 1
        touch(flag)
        assert await gate.run("ann", pid_of) == pid
    run(test)


def test_a_process_that_dies_costs_one_call():
    async def test(gate):
        with pytest.raises(Unread, match="has ended"):
            await gate.run("ann", os._exit, 1)
        assert await gate.run("ann", pid_of) != os.getpid()
    run(test)


@measured
def test_memory_of_a_call_is_bounded_and_goes_back():
    # R69
    async def test(gate):
        with pytest.raises(Unread, match="too large"):
            await gate.run("ann", eat, 1000)
        first = await gate.run("ann", pid_of)
        assert await gate.run("ann", eat, 100) == 100 * MIB
        assert await gate.run("ann", pid_of) == first        # it was freed there
    run(test)


def test_a_process_that_keeps_memory_ends(monkeypatch):
    async def test(gate):
        first = await gate.run("ann", pid_of)
        await gate.run("ann", keep, 80)
        assert await gate.run("ann", pid_of) != first
    run(test)


KEPT = []


def keep(mib):
    KEPT.append(bytearray(b"x") * (mib * MIB))


def test_large_questions_and_answers_pass():
    async def test(gate):
        data = os.urandom(5 * MIB)
        assert await gate.run("ann", bytes, data) == data
    run(test)


def test_threads_do_the_same_in_an_embedded_worker(monkeypatch, tmp_path):
    monkeypatch.setattr(work, "RUN_S", 0.1)
    flag = tmp_path / "flag"

    async def test(gate):
        assert await gate.run("ann", pid_of) == os.getpid()
        call = asyncio.ensure_future(gate.run("ann", wait, str(flag)))
        await asyncio.sleep(0.3)
        flag.touch()                         # its place is taken until then
        with pytest.raises(Unread):
            await call
    run(test, ThreadPool())
    assert isinstance(make_pool(False), ThreadPool)
    assert isinstance(make_pool(True), ProcessPool)


def test_an_answer_that_cannot_be_pickled_is_an_error_and_no_end():
    question = work_process.pack((compile, ("lambda: 0", "x", "eval")))
    returned, _ = work_process.unpack(work_process.answer(question))
    assert not returned


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 5 * MIB])
def test_large_bytes_go_beside_the_pickle_both_ways(size):
    value = (bytes(size), ["text", b"b" * size], {"again": bytes(size)})
    parts = work_process.pack(value)
    assert work_process.unpack(parts) == value
    assert len(parts[0]) < 4 * 65_536
    assert len(parts) == (4 if size >= work_process.LARGE else 1)

    async def test(gate):
        assert await gate.run("ann", bytes.upper, b"a" * size) == b"A" * size
    run(test)


# Costly work

WORST = {
    "lists": lambda n: b"[" + b"[]," * n + b"[]]",
    "numbers": lambda n: b"[" + b"1," * n + b"1]",
    "exponents": lambda n: b"[" + b"1e9," * n + b"1]",
    "objects": lambda n: b"[" + b'{"a":1},' * n + b"1]",
    "keys": lambda n: b"{%b}" % b",".join(b'"%x":1' % i for i in range(n)),
    "string": lambda n: json.dumps("x" * n).encode(),
    "escapes": lambda n: b'"' + b"\\u00e9" * n + b'"',
    "pairs": lambda n: b"&".join(b"%x=1" % i for i in range(n)),
    "octets": lambda n: b"a=" + b"%e9" * n,
    "elements": lambda n: b"<a>" + b"<b/>" * n + b"</a>",
    "attributes": lambda n: b"<a>" + b'<b c="1"/>' * n + b"</a>",
}
KEYS = {
    "json": Key(body="json"), "form": Key(body="form"), "xml": Key(body="xml"),
    "ignored": Key(body="json", ignored_paths=("$..id",)),
    "jsonpath": Key(body="jsonpath", paths=("$..id",)),
    "partial": Key(body="partial_json"), "graphql": Key(body="graphql"),
    "regex": Key(body="regex", regexes=("a.*b",)),
    "xpath": Key(body="xpath", paths=("//id",))}


def largest_in_the_loop(make):
    low, high = 1, 1 << 20
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_costly(make(middle)) else (middle, high)
    return make(low)


def least_ms(function, *given, **more):
    """Of this thread's time, so that other load does not count."""
    found = []
    for _ in range(5):
        begun = time.thread_time()
        function(*given, **more)
        found.append(1e3 * (time.thread_time() - begun))
    return min(found)


@measured
@pytest.mark.parametrize("worst", WORST)
def test_the_worst_text_that_is_read_in_the_loop_takes_a_few_milliseconds(worst):
    # R63, R64
    body = largest_in_the_loop(WORST[worst])
    mask = Masker(Redaction(json=("$..password",), query=("apikey",),
                            body=("sk-[a-z]+",)), bytes(16)).request
    for name, key in KEYS.items():
        kind = {"form": "application/x-www-form-urlencoded", "xml": "text/xml",
                "xpath": "text/xml"}.get(name, "application/json")
        asked = Request(method="POST", scheme="http", host="a", port=80, path="/",
                        query="", body=body, fields=(("Content-Type", kind),))
        assert least_ms(KeyReader(key).read, asked, recorded=False) < 5, name
        assert least_ms(mask, asked) < 5, name


def test_text_of_few_values_is_read_in_the_loop_and_what_has_a_coding_is_not():
    question = json.dumps({"model": "m", "messages": [
        {"role": "user", "content": "What is it? " * 2000}]}).encode()
    assert len(question) > 20_000 and not is_costly(question)
    assert not is_costly(b"[]" * 512) and is_costly(b"[]" * 4000)
    assert is_costly(b"x", "gzip")
    assert cost_us(bytes(MIB)) > MOST_US
