"""Hosts that record into one session of a database at once: none waits for another one,
and copies miss nothing."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cutthrough.recording.sessions.copies import open_copy
from cutthrough.recording.sessions.postgres import MOST_CHANGES, PostgresSessions
from cutthrough.recording.sessions.postgres_tables import SESSION_LOCK, TABLES
from cutthrough.recording.sessions.session import Manifest
from cutthrough.storage.store import StoreAway
from tests.recording.answers import recording, request
from tests.support.wait import wait_until

#: The tables of version 2
OLD = """
ALTER TABLE cutthrough_recordings.sessions ADD changes bigint NOT NULL DEFAULT 0,
    ADD last bigint NOT NULL DEFAULT 0, ADD count bigint NOT NULL DEFAULT 0,
    ADD bytes bigint NOT NULL DEFAULT 0;
UPDATE cutthrough_recordings.sessions SET
    changes = (SELECT max(number) FROM cutthrough_recordings.changes
        WHERE session = id),
    last = (SELECT max(number) FROM cutthrough_recordings.recordings
        WHERE session = id),
    count = (SELECT sum(count) FROM cutthrough_recordings.changes WHERE session = id),
    bytes = (SELECT sum(bytes) FROM cutthrough_recordings.changes WHERE session = id);
DROP TABLE cutthrough_recordings.changes;
DROP SEQUENCE cutthrough_recordings.recording_numbers;
DROP SEQUENCE cutthrough_recordings.change_numbers;
UPDATE cutthrough_recordings.state SET version = 2;
"""


def some_of(path, count):
    return [recording(0, request(f"/{path}/{n}")) for n in range(count)]


def follow(copy, session):
    while copy.follow(session):
        pass


class Slow:
    """A host that adds recordings in steps: it waits before its commit."""

    def __init__(self, sessions):
        self._sessions, self._session = sessions, sessions.open("s")
        self._prune, self._session._prune = self._session._prune, self._wait
        self._here, self._go = queue.Queue(), queue.Queue()
        self._pool = ThreadPoolExecutor(1)
        self._adding = None

    def _wait(self, change, most, **how):
        self._here.put(None)
        self._go.get()
        return self._prune(change, most, **how)

    def step(self, recordings):
        """Begins to add, or goes on to the end."""
        if self._adding is None:
            self._adding = self._pool.submit(self._session.add, recordings)
            self._here.get()
        else:
            self._go.put(None)
            self._adding.result()
            self._adding = None

    def close(self):
        if self._adding is not None:
            self.step([])
        self._pool.shutdown()
        self._sessions.close()


STEPS = some.lists(some.one_of(
    some.tuples(some.just("step"), some.integers(0, 2)),
    some.tuples(some.just("edit"), some.integers(1, 12)),
    some.tuples(some.just("delete"), some.integers(1, 12)),
    some.tuples(some.just("follow"), some.just(0))), max_size=30)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_a_copy_is_equal_whichever_host_is_late(postgres, tmp_path_factory, steps):
    url, folder = postgres.make(), tmp_path_factory.mktemp("copy")
    with ExitStack() as opened:
        sessions = opened.enter_context(closing(PostgresSessions(url, folder)))
        session = sessions.create("s", Manifest(count=9))
        hosts = [opened.enter_context(closing(Slow(PostgresSessions(url, folder))))
                 for _ in range(3)]
        copy = opened.enter_context(closing(open_copy(folder, "s", session)))
        for at, (verb, number) in enumerate(steps):
            match verb:
                case "step":
                    hosts[number].step(some_of(at, 2))
                case "edit":
                    session.edit(recording(number, request(f"/edited/{at}")))
                case "delete":
                    session.delete([number])
                case "follow":
                    follow(copy, session)
        for host in hosts:
            host.close()
        session.prune()
        follow(copy, session)
        assert list(copy.recordings()) == list(session.recordings())
        assert len(session) == len(copy) <= 9
        assert session.size() == sum(row.size for row in session.rows("", 1000))


def test_hosts_record_at_once(postgres, tmp_path):
    url, hosts, batches = postgres.make(), 8, 20
    with closing(PostgresSessions(url, tmp_path)) as sessions:
        session = sessions.create("s")
        together = threading.Barrier(hosts)

        def record(host):
            with closing(PostgresSessions(url, tmp_path)) as own:
                mine = own.open("s")
                together.wait()
                for batch in range(batches):
                    mine.put(some_of(f"{host}-{batch}", 5))

        with closing(open_copy(tmp_path, "s", session)) as copy:
            with ThreadPoolExecutor(hosts) as pool:
                running = [pool.submit(record, host) for host in range(hosts)]
                while not all(one.done() for one in running):
                    copy.follow(session)
                for one in running:
                    one.result()
            follow(copy, session)
            assert len(copy) == len(session) == 5 * hosts * batches
            assert list(copy.recordings()) == list(session.recordings())
    ((rows,),) = postgres.ask("SELECT count(*) FROM cutthrough_recordings.changes", url)
    assert rows <= MOST_CHANGES + 2 * hosts


def test_who_deletes_and_stands_still_holds_no_recorder_up(postgres, tmp_path):
    url = postgres.make()
    with closing(PostgresSessions(url, tmp_path)) as sessions:
        session = sessions.create("s", Manifest(count=3))
        ((number,),) = postgres.ask(
            "SELECT id FROM cutthrough_recordings.sessions", url)
        with closing(PostgresSessions(url, tmp_path)) as other, \
                other._base.transaction() as lost:
            lost.execute("SELECT pg_advisory_xact_lock(%s)", (SESSION_LOCK + number,))
            session.put(some_of("a", 5))
            assert len(session) == 5
        session.prune()
        assert [one.number for one in session.recordings()] == [3, 4, 5]


def test_hosts_that_begin_at_once_change_old_tables_once_and_copies_go_on(
        postgres, tmp_path):
    url = postgres.make()
    with closing(PostgresSessions(url, tmp_path)) as sessions:
        for name in ("other", "s"):
            session = sessions.create(name)
            session.put(some_of("a", 4))
            session.put(some_of("b", 4))
        session.delete([10])
        copy = open_copy(tmp_path, "s", session)
        follow(copy, session)
        size = session.size()
    postgres.ask(OLD, url)
    together = threading.Barrier(5)

    def begin(host):
        with closing(PostgresSessions(url, tmp_path)) as own:
            together.wait()
            own.open("s").put(some_of(host, 1))

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(begin, range(5)))
    assert postgres.ask("SELECT version FROM cutthrough_recordings.state", url) == [
        (TABLES.version,)]
    with closing(PostgresSessions(url, tmp_path)) as sessions, closing(copy):
        session = sessions.open("s")
        assert len(session) == 12 and session.size() > size
        assert session.edit(msgspec.structs.replace(session.get(9), tags=("new",)))
        follow(copy, session)
        assert list(copy.recordings()) == list(session.recordings())
        assert len(sessions.open("other")) == 8


def test_a_late_host_holds_copies_up_for_a_bounded_time(
        postgres, tmp_path, monkeypatch):
    url = postgres.make()
    monkeypatch.setattr("cutthrough.storage.postgres.SESSION",
                        "SET idle_in_transaction_session_timeout = '500ms'")
    with closing(PostgresSessions(url, tmp_path)) as sessions:
        session = sessions.create("s")
        copy = open_copy(tmp_path, "s", session)
        lost = PostgresSessions(url, tmp_path)
        with pytest.raises(StoreAway, match="terminat"), lost.open("s")._changed(1):
            session.put(some_of("a", 1))
            wait_until(lambda: (follow(copy, session), len(copy))[1] == 1, "one")
        lost.close()
        copy.close()
