"""Several programs that write captures to one database at once: none waits for another
one, who follows misses no row and sees none twice, and one deletes at a time."""

import itertools
import json
import multiprocessing
import os
import queue
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cutthrough.capture.answers import answer
from cutthrough.capture.query import Query
from cutthrough.storage import postgres as connections
from cutthrough.storage import postgres_store
from cutthrough.storage.postgres import ANSWER_S, Base
from cutthrough.storage.postgres_rows import TABLES
from cutthrough.storage.postgres_store import MOST_TOTALS, PRUNING
from cutthrough.storage.store import NotNow, StoreAway
from cutthrough.storage.stores import close_kept, open_reader, open_store
from tests.capture.flows import row
from tests.support.wait import wait_until

TOTALS = "SELECT sum(flows), sum(bytes) FROM cutthrough.totals"
#: The tables of version 3
OLD = """
DROP TABLE cutthrough.totals;
ALTER INDEX cutthrough.flows_by_words RESET (gin_pending_list_limit);
ALTER TABLE cutthrough.state ADD flows bigint, ADD bytes bigint;
UPDATE cutthrough.state SET version = 3,
    flows = (SELECT count(*) FROM cutthrough.flows),
    bytes = (SELECT coalesce(sum(bytes), 0) FROM cutthrough.flows);
"""


@pytest.fixture
def url(postgres):
    return postgres.make()


@pytest.fixture(scope="module")
def common(postgres):
    """A database of all examples of a test: to make one takes half a second."""
    url = postgres.make()
    with closing(make(url)) as store:
        store.open()
    return url


def make(url, program="here", count=0, age=0.0):
    return open_store(url, count, 0, age, program)


def requests_of(url):
    """Of all rows, by number."""
    with closing(open_reader(url)) as reader:
        return [one["request"] for one in reader.flows()][::-1]


class Failed(Exception):
    pass


class Slow:
    """A store that writes a batch in steps: it waits before and after its COPY."""

    def __init__(self, url, program):
        self._store = make(url, program)
        self._here, self._go = queue.Queue(), queue.Queue()
        self._thread = None

    @property
    def is_writing(self):
        return self._thread is not None

    def begin(self, rows):
        self._thread = threading.Thread(target=self._write, args=(rows,))
        slow_stores[self._thread] = self
        self._thread.start()
        self._here.get()

    def _write(self, rows):
        try:
            self._store.write(rows)
        except Failed:
            self._here.put("failed")
        else:
            self._here.put("written")

    def wait(self):
        self._here.put("")
        if self._go.get():
            raise Failed

    def step(self, *, fail=False):
        """Goes on. Returns the end of the write, or nothing yet."""
        self._go.put(fail)
        end = self._here.get()
        if end:
            self._thread.join()
            self._thread = None
        return end

    def close(self):
        while self.is_writing:
            self.step(fail=True)
        self._store.close()


slow_stores = {}


@pytest.fixture(scope="module", autouse=True)
def steps():
    """COPY waits in the threads of Slow."""
    copy = postgres_store._copy

    def copy_in_steps(cursor, records):
        store = slow_stores.get(threading.current_thread())
        if store is not None:
            store.wait()
        copy(cursor, records)
        if store is not None:
            store.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_store, "_copy", copy_in_steps)
        yield


NUMBERS = itertools.count(1)
#: A step of one of four programs, of which it fails in some; or a look of the follower
STEPS = some.lists(some.one_of(
    some.tuples(some.integers(0, 3), some.sampled_from((False, False, False, True))),
    some.just(())), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_follower_sees_each_row_once_and_in_order(common, steps):
    """Whatever the order in which numbers are given and transactions end."""
    written, seen, waiting = [], [], {}
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(Slow(common, str(n)))) for n in range(4)]
        reader = opened.enter_context(closing(open_reader(common)))
        begin = reader.newest()

        def look():
            at = seen[-1]["id"] if seen else begin
            while page := reader.page(at, 2, rising=True):
                seen.extend(page)
                at = page[-1]["id"]
            assert reader.newest() >= at

        for step in steps:
            if not step:
                look()
                continue
            number, fail = step
            store = stores[number]
            if not store.is_writing:
                waiting[number] = [row(next(NUMBERS)) for _ in range(3)]
                store.begin(waiting[number])
            elif store.step(fail=fail) == "written":
                written += waiting[number]
        for number, store in enumerate(stores):
            while store.is_writing:
                if store.step() == "written":
                    written += waiting[number]
                look()
        # The server may have to notice yet that a failed one has gone
        wait_until(lambda: (look(), len(seen) >= len(written))[1], lambda: str(seen))
    ids = [one["id"] for one in seen]
    assert ids == sorted({*ids})
    assert sorted(one["request"] for one in seen) == sorted(one[0] for one in written)


def test_a_row_that_commits_late_is_waited_for_by_followers_alone(url):
    with closing(Slow(url, "slow")) as slow, closing(make(url, "quick")) as quick:
        quick.write([row(1)])
        slow.begin([row(2)])
        slow.step()                          # it has a number now
        assert quick.write([row(3)]) == 1
        with closing(open_reader(url)) as reader:
            assert [one["request"] for one in reader.page(1 << 62, 9)] == ["0-3", "0-1"]
            at = reader.newest()
            assert [one["id"] for one in reader.page(0, 9, rising=True)] == [at] == [1]
            assert slow.step() == "written"
            assert [one["request"] for one in reader.page(at, 9, rising=True)] == [
                "0-2", "0-3"]
            assert reader.newest() == 3


def test_a_list_ends_where_who_follows_it_goes_on(url):
    """A row that it had would come again, and one that it had not would never come."""
    with closing(Slow(url, "slow")) as slow, closing(make(url, "quick")) as quick:
        quick.write([row(1)])
        slow.begin([row(2)])
        slow.step()
        quick.write([row(3)])
        head, pieces = answer(Query(verb="list", database=url))
        page = json.loads(b"".join(pieces))
        assert [one["id"] for one in page["flows"]] == [1] and head.found == 1
        slow.step()
        head, pieces = answer(Query(verb="watch", database=url, after=page["newest"]))
        assert [one["id"] for one in json.loads(b"".join(pieces))] == [2, 3]
        assert head.last == 3
    close_kept()


def test_the_server_notices_the_loss_of_a_host(url):
    """Its batch would hold followers up for two hours, which is TCP's usual bound."""
    with closing(make(url)) as store:
        store.open()
        with store._base.cursor() as cursor:
            for name, seconds in (("idle", "15"), ("interval", "5"), ("count", "3")):
                cursor.execute(f"SHOW tcp_keepalives_{name}")
                assert [*cursor.fetchone().values()] == [seconds]


def test_many_programs_write_at_once(url, postgres):
    """More than there is room for are deleted by one of them at a time."""
    programs, batches = 16, 20
    together = threading.Barrier(programs)

    def run(number):
        with closing(make(url, str(number), count=1000)) as store:
            together.wait()
            for batch in range(batches):
                assert store.write([row(10 * batch + n) for n in range(10)]) == 10

    with ThreadPoolExecutor(programs) as pool:
        list(pool.map(run, range(programs)))
    with closing(make(url, count=1000)) as store:
        store.prune()
    assert postgres.ask(TOTALS, url) == [(1000, 500_000)]
    ((count, first, last),) = postgres.ask(
        "SELECT count(*), min(id), max(id) FROM cutthrough.flows", url)
    assert count == 1000 and last == 10 * batches * programs
    assert first > last - 1000 - 10 * programs, "the oldest went"


def test_rows_of_totals_become_one(url, postgres):
    with closing(make(url)) as store:
        for n in range(2 * MOST_TOTALS):
            store.write([row(n)])
    ((rows,),) = postgres.ask("SELECT count(*) FROM cutthrough.totals", url)
    assert rows <= MOST_TOTALS + 1
    assert postgres.ask(TOTALS, url) == [(2 * MOST_TOTALS, 1000 * MOST_TOTALS)]


def write_and_stop(url, rows, sign):
    copy = postgres_store._copy

    def copy_and_stop(cursor, records):
        copy(cursor, records)
        os.write(sign, b"x")
        signal.pause()

    postgres_store._copy = copy_and_stop
    make(url).write(rows)


def test_a_writer_that_is_killed_in_a_batch_leaves_each_row_once(url):
    """R71: its successor reads the same records."""
    rows = [row(n) for n in range(1, 30)]
    with closing(make(url)) as store:
        store.write(rows[:10])
    here, there = os.pipe()
    killed = multiprocessing.get_context("fork").Process(
        target=write_and_stop, args=(url, rows[10:20], there))
    killed.start()
    os.close(there)
    assert os.read(here, 1) == b"x"
    killed.kill()
    killed.join()
    os.close(here)
    with closing(make(url)) as store:
        assert store.write(rows[5:20]) == 10
        assert store.write(rows) == 9
    assert sorted(requests_of(url)) == sorted(one[0] for one in rows)
    with closing(open_reader(url)) as reader:
        assert len(reader.page(0, 99, rising=True)) == 29


def test_a_batch_of_which_the_end_is_unknown_is_there_once(url, monkeypatch):
    """Its transaction goes on in the server, and its writer sends it again."""
    monkeypatch.setattr(connections, "SESSION", "SET lock_timeout = '200ms'")
    rows = [row(1), row(2)]
    with closing(Slow(url, "here")) as first, closing(make(url, "here")) as again:
        first.begin(rows)
        first.step()
        with pytest.raises(StoreAway, match="lock timeout"):
            again.write(rows)
        assert first.step() == "written"
        assert again.write(rows) == 0
    assert requests_of(url) == ["0-1", "0-2"]


def test_two_that_import_the_same_add_it_once(url):
    rows = [row(n) for n in range(200)]

    def add(rows):
        with closing(make(url, "")) as store:
            return sum(store.write(rows[at:at + 20]) for at in range(0, 200, 20))

    with ThreadPoolExecutor(2) as pool:
        counts = pool.map(add, [rows, rows[::-1]])
    assert sum(counts) == 200 == len(requests_of(url))


# Who deletes


def test_a_program_that_deletes_and_stands_still_holds_nobody_up(url, postgres):
    """Its host is lost, or it is stopped: the server ends its transaction."""
    store = make(url, count=5)
    store.write([row(n) for n in range(5)])
    with psycopg.connect(url) as lost:
        lost.execute("SET idle_in_transaction_session_timeout = '500ms'")
        lost.execute("SELECT pg_advisory_xact_lock(%s)", (PRUNING,))
        for n in range(5, 9):
            assert store.write([row(n)]) == 1
            assert not store.is_over, "it need not hurry: another one deletes"
        wait_until(lambda: (store.prune(), len(requests_of(url)))[1] == 5, "rows")
        with pytest.raises(psycopg.Error):
            lost.execute("SELECT 1")
    assert requests_of(url) == [f"0-{n}" for n in range(4, 9)]
    assert postgres.ask(TOTALS, url) == [(5, 2500)]
    store.close()


def test_a_batch_that_stands_still_holds_followers_up_for_a_bounded_time(
        url, monkeypatch):
    monkeypatch.setattr(connections, "SESSION",
                        "SET idle_in_transaction_session_timeout = '500ms'")
    with closing(Slow(url, "lost")) as lost, closing(make(url)) as store:
        lost.begin([row(1)])
        lost.step()
        store.write([row(2)])
        with closing(open_reader(url)) as reader:
            assert wait_until(lambda: reader.page(0, 9, rising=True), "a row")[0][
                "request"] == "0-2"


# Tables of an earlier program


def test_hosts_that_begin_at_once_change_old_tables_once(url, postgres):
    with closing(make(url)) as store:
        store.write([row(n) for n in range(1, 11)])
    postgres.ask(OLD, url)
    together = threading.Barrier(6)

    def begin(number):
        with closing(make(url, str(number), count=12)) as store:
            together.wait()
            store.write([row(100)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(begin, range(6)))
    with closing(make(url, count=12)) as store:
        store.prune()
    assert postgres.ask(TOTALS, url) == [(12, 6000)]
    assert postgres.ask("SELECT * FROM cutthrough.state", url) == [(TABLES.version,)]
    assert postgres.ask("SELECT reloptions FROM pg_class WHERE relname = "
                        "'flows_by_words'", url) == [(["gin_pending_list_limit=512"],)]
    assert requests_of(url) == [*(f"0-{n}" for n in range(5, 11)), *["0-100"] * 6]


def test_an_earlier_program_says_what_it_finds(url, postgres):
    """And a reader waits for a writer."""
    with closing(make(url)) as store:
        store.write([row(1)])
    earlier = Base(url, TABLES._replace(version=3, migrations={}), ANSWER_S,
                   may_make=True)
    with pytest.raises(NotNow, match=(
            "has version 4 of the tables, and this program has 3; rename the schema "
            "cutthrough")), earlier.cursor():
        pass
    postgres.ask(OLD, url)
    with pytest.raises(NotNow, match=r"has version 3 .* its next writer changes them"):
        open_reader(url)
    with closing(make(url)) as store:
        store.write([row(2)])
    assert requests_of(url) == ["0-1", "0-2"]


def test_tables_in_use_by_an_earlier_program_are_changed_after_its_batch(url, postgres):
    """Its totals count."""
    with closing(make(url)) as store:
        store.write([row(1)])
    postgres.ask(OLD, url)
    with psycopg.connect(url) as earlier, ThreadPoolExecutor(1) as pool:
        earlier.execute("SELECT flows, bytes FROM cutthrough.state FOR UPDATE")
        store = make(url)
        opening = pool.submit(store.open)
        wait_until(lambda: postgres.ask(
            "SELECT 1 FROM pg_locks WHERE NOT granted", url), "it waits")
        earlier.execute("UPDATE cutthrough.state SET flows = 2, bytes = 1234")
        earlier.commit()
        opening.result()
        with pytest.raises(psycopg.errors.UndefinedColumn):
            earlier.execute("SELECT flows, bytes FROM cutthrough.state FOR UPDATE")
    store.close()
    assert postgres.ask(TOTALS, url) == [(2, 1234)]
