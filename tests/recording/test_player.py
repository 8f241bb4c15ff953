"""A worker's player follows the session's file, which others write."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from functools import partial
from unittest import mock

import pytest

from cutthrough.contained import drive
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.routes import Route
from cutthrough.recording.play.player import Player, Settings
from cutthrough.recording.play.request import CACHES
from cutthrough.recording.play.stubs import write_stubs
from cutthrough.recording.sessions import directory as sessions
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from cutthrough.recording.sessions.session import Manifest
from cutthrough.session.replay.answer_cache import AnswerCache
from tests.recording.answers import recording, request
from tests.support.wait import PATIENCE, wait_until


def some_of(count, path="/a"):
    return [recording(0, request(path)) for _ in range(count)]


def test_the_oldest_go_without_reading_the_others_again(tmp_path):
    session = Sessions(tmp_path).create("one", Manifest(count=5))
    session.put(some_of(5))
    write_state(tmp_path, State("cache", "one"))
    answers = AnswerCache()

    async def run():
        player = Player(lambda _mode: None, answers)
        player.configure(Settings(directory=str(tmp_path), session="one"))
        assert await player.look() == ""
        matcher = player.matcher
        session.put(some_of(2) + some_of(1, "/b"))
        await player.look()
        assert player.matcher is matcher and matcher.numbers() == [4, 5, 6, 7, 8]
        assert matcher.match(request("/b")).recording.number == 8
        session.delete([6])                  # in the middle: all are read again
        await player.look()
        assert player.matcher is not matcher
        assert player.matcher.numbers() == [4, 5, 7, 8]
        session.delete([4, 5, 7, 8])
        await player.look()
        assert player.matcher.numbers() == []
        player.close()
    asyncio.run(run())
    session.close()


@pytest.mark.parametrize("mode", ["cache", "replay"])
def test_recordings_that_come_faster_than_they_are_read_do_not_keep_a_look(
        tmp_path, mode):
    """In `cache` under a load that began cold nothing was ever replayed."""
    session = Sessions(tmp_path).create("one")
    session.put(some_of(1))
    write_state(tmp_path, State(mode, "one"))
    read = sessions.Session.read_behind

    def read_beside_a_load(self, number, most):
        other = Sessions(tmp_path).open("one")
        other.put(some_of(2))
        other.close()
        return read(self, number, most)[:1]

    async def run():
        player = Player(lambda _mode: None, AnswerCache())
        player.configure(Settings(directory=str(tmp_path), session="one"))
        for least in (1, 3):
            assert await asyncio.wait_for(player.look(), PATIENCE) == ""
            assert len(player.matcher) >= least
        player.close()
    with mock.patch.object(sessions.Session, "read_behind", read_beside_a_load):
        asyncio.run(run())
    session.close()


def test_hits_that_others_count_do_not_have_a_session_read(tmp_path):
    """They change the file: each look counted its recordings, 36 ms of 100 000."""
    session = Sessions(tmp_path).create("one")
    session.put(some_of(50))
    write_state(tmp_path, State("replay", "one"))

    async def run():
        player = Player(lambda _mode: None, AnswerCache())
        player.configure(Settings(directory=str(tmp_path), session="one"))
        await player.look()
        matcher = player.matcher
        session.hit({1: 1})
        await player.look()
        assert player.matcher is matcher and len(matcher) == 50
        player.close()
    asyncio.run(run())
    session.close()


def test_large_recordings_are_read_a_few_at_a_time(tmp_path):
    """100 of 1 MiB were read at once: the worker served no client for 144 ms."""
    session = Sessions(tmp_path).create("one")
    session.put([recording(0, request(f"/{number}", bytes(600_000)))
                 for number in range(7)])
    assert [one.number for one in session.read_behind(2, 100)] == [3, 4]
    write_state(tmp_path, State("replay", "one"))

    async def run():
        player = Player(lambda _mode: None, AnswerCache())
        player.configure(Settings(directory=str(tmp_path), session="one"))
        await player.look()
        assert player.matcher.numbers() == [*range(1, 8)]
        session.put([recording(0, request(f"/{number}", bytes(600_000)))
                     for number in range(7, 12)])
        await player.look()
        assert player.matcher.numbers() == [*range(1, 13)]
        player.close()
    asyncio.run(run())
    assert len(list(session.recordings())) == 12
    session.close()


def test_hits_are_written_while_the_worker_serves(tmp_path):
    """Of 20 000 recordings it took 130 ms, and a file that is locked up to 5 s."""
    session = Sessions(tmp_path).create("one")
    session.put(some_of(3))
    write_state(tmp_path, State("replay", "one"))
    answers, longest = AnswerCache(), 0.0

    def get(number):                         # in another thread
        with contextlib.closing(Sessions(tmp_path).open("one")) as found:
            return found.get(number)

    async def run():
        nonlocal longest
        player = Player(lambda _mode: None, answers)
        player.configure(Settings(directory=str(tmp_path), session="one"))
        await player.look()
        answers.count(2)
        answers.count(2)
        with session._changed():             # another program writes
            ended = time.monotonic() + 3
            while (now := time.monotonic()) < ended:
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - now)
        await asyncio.to_thread(wait_until, lambda: get(2).hits == 2, "two hits")
        answers.count(3)
        player.close()
    asyncio.run(run())
    assert longest < 0.5
    assert [one.hits for one in session.recordings()] == [0, 2, 1]
    session.close()


@pytest.mark.parametrize("after", ["repeat", "miss"])
def test_a_sequence_begins_anew_when_its_first_recordings_go(after):
    matcher = Matcher([Route(after=after)])
    for number in range(1, 5):
        matcher.add(recording(number, request("/a")))
    found = [matcher.match(request("/a")).recording.number for _ in range(3)]
    assert found == [1, 2, 3]
    assert not matcher.remove_below(1)
    assert matcher.match(request("/a")).recording.number == 4
    assert matcher.remove_below(3) and len(matcher) == 2
    assert [matcher.match(request("/a")).recording.number for _ in range(2)] == [3, 4]
    assert matcher.remove_below(9) and len(matcher) == 0


@pytest.mark.parametrize("is_of_test", [False, True])
def test_a_test_gets_what_its_cassette_had_in_order(tmp_path, is_of_test):
    """With `new_episodes` it got the last answer each time, and in place of an origin's
    third answer the second, if that was written quickly enough."""
    session = Sessions(tmp_path).create("one")
    session.put(some_of(2))
    if is_of_test:
        write_stubs(tmp_path, "mine", [])
    write_state(tmp_path, State("cache", "one", answers="mine" * is_of_test))
    values = CACHES, "GET /a HTTP/1.1\r\n\r\n", "a.test", 80, "http", 1, False, False
    asked = request("/a")

    async def run():
        player = Player(lambda _mode: None, AnswerCache())
        player.configure(Settings(directory=str(tmp_path), session="one"))
        assert await player.look() == ""
        play = player.begin(mock.Mock(has_filters=False), values, ("me", "", False))
        results = [player.matcher.match(asked, reader=play.reader) for _ in range(3)]
        assert [result.recording.number for result in results] == (
            [1, 2, 2] if is_of_test else [2, 2, 2])
        session.put(some_of(1))
        await player.look()
        assert player.matcher.numbers() == ([1, 2] if is_of_test else [1, 2, 3])
        player.close()
    asyncio.run(run())
    session.close()


@pytest.mark.parametrize("mode", ["record", "off", "rules"])
def test_nothing_is_read_while_nothing_is_replayed(tmp_path, mode):
    """The file of a session appears with its first recording. A worker then read all
    that was recorded behind it, for as long as that went on: a recorded request cost
    66 µs in place of 38."""
    write_state(tmp_path, State(mode, "one"))

    async def run():
        player = Player(lambda _mode: None, AnswerCache())
        player.configure(Settings(directory=str(tmp_path), session="one", plays=False))
        assert await player.look() == ""
        session = Sessions(tmp_path).create("one")
        session.put(some_of(3))
        await player.look()
        assert len(player.matcher) == 0
        write_state(tmp_path, State("replay", "one"))
        await player.look()
        assert player.matcher.numbers() == [1, 2, 3]
        write_state(tmp_path, State(mode, "one"))
        await player.look()
        session.put(some_of(1))
        await player.look()
        assert player.matcher.numbers() == [1, 2, 3]     # of the work under way
        session.close()
        player.close()
    asyncio.run(run())


def test_no_file_of_a_session_is_touched_in_the_loop(tmp_path, monkeypatch):
    """R64: a slow disk, or another program's lock, held up requests that are of no
    recording by 0.8 s."""
    loops, touched = set(), list[str]()

    class Connection(sqlite3.Connection):
        def execute(self, statement, *values):
            note(statement)
            return super().execute(statement, *values)

        def close(self):
            note("close")
            super().close()

    def note(what):
        if threading.get_ident() in loops:
            touched.append(what)

    monkeypatch.setattr(sessions, "sqlite3", mock.Mock(
        wraps=sqlite3, connect=partial(sqlite3.connect, factory=Connection)))
    session = Sessions(tmp_path).create("one")
    session.put(some_of(3))
    write_state(tmp_path, State("replay", "one"))
    answers = AnswerCache()

    async def run():
        loops.add(threading.get_ident())
        player = Player(lambda _mode: None, answers)
        player.configure(Settings(directory=str(tmp_path), session="one"))
        await player.look()
        await asyncio.to_thread(session.put, some_of(2))
        await player.look()
        await asyncio.to_thread(session.delete, [3])
        await player.look()
        assert player.matcher.numbers() == [1, 2, 4, 5]
        answers.count(2)
        write_state(tmp_path, State("record", "one"))
        await player.look()
        write_state(tmp_path, State("replay", "other"))
        await player.look()
        assert touched == []
        loops.clear()
        player.close()
    asyncio.run(run())
    assert session.get(2).hits == 1
    session.close()


def test_a_filter_that_cancels_all_tasks_leaves_the_mode_looked_at(tmp_path):
    """The mode in force stayed that of the last look, without a word."""
    session = Sessions(tmp_path).create("one", Manifest(count=5))
    write_state(tmp_path, State("off", "one"))
    loop, modes = asyncio.new_event_loop(), []

    async def run():
        player = Player(modes.append, AnswerCache())
        player.configure(Settings(directory=str(tmp_path), session="one"))
        await player.look()
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(0)
        write_state(tmp_path, State("replay", "one"))
        await asyncio.to_thread(
            wait_until, lambda: modes[-1:] == ["replay"], lambda: str(modes))
        player.close()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=1)
    drive(loop, run())
    loop.close()
    session.close()
