"""Both stores: bounds, index, readers (R58, R59); of SQLite's also the file."""

import contextlib
import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from cutthrough.config.database import is_url
from cutthrough.exchange.columns import ADDED
from cutthrough.exchange.flow import Flow
from cutthrough.storage import sqlite_store, sqlite_words
from cutthrough.storage.store import MOST_PRUNED, StoreError
from cutthrough.storage.stores import open_reader, open_store
from tests.capture.flows import drop_columns, row

NOW = 4_000_000_000_000_000         # microseconds, far ahead: nothing is too old


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "flows.db")


@pytest.fixture(params=["sqlite", "postgres"])
def path(request, file):
    """Of a store that is to be made: a file, or the URL of an empty database."""
    if request.param == "sqlite":
        return file
    return request.getfixturevalue("postgres").make()


def make(path, count=100, most_bytes=0, age=0.0):
    return open_store(path, count, most_bytes, age, "here")


def ids(path):
    reader = open_reader(path)
    found = [one["request"] for one in reader.flows()]
    reader.close()
    return found


def test_the_file_and_its_companions_are_the_owners_alone(file):
    old = os.umask(0)
    try:
        store = make(file)
        store.write([row()])
        for name in (file, f"{file}-wal", f"{file}-shm"):
            assert stat.S_IMODE(os.stat(name).st_mode) == 0o600, name
    finally:
        os.umask(old)
    store.close()


def test_a_file_that_others_may_read_becomes_the_owners(file):
    open(file, "w").close()
    os.chmod(file, 0o644)
    make(file).close()
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_a_link_and_a_directory_are_refused(file, tmp_path):
    os.symlink(tmp_path / "elsewhere", file)
    with pytest.raises(OSError, match="symbolic"):
        make(file)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(OSError, match="directory"):
        make(str(tmp_path))


def test_a_file_that_is_no_database_of_ours_is_left_alone(file, tmp_path):
    (tmp_path / "flows.db").write_text("something of a user's" * 100)
    with pytest.raises(StoreError, match="not a database"):
        make(file)
    other = str(tmp_path / "other.db")
    with sqlite3.connect(other) as base:
        base.execute("PRAGMA user_version = 77")
    with pytest.raises(StoreError, match="version 77"):
        make(other)


def test_a_file_with_pages_of_another_size_stays_as_it_is(file):
    with sqlite3.connect(file) as base:
        base.execute("PRAGMA page_size = 4096")
        base.execute("PRAGMA journal_mode = WAL")
    store = make(file)
    store.write([row()])
    store.close()
    assert ids(file) == ["0-1"]
    assert sqlite3.connect(file).execute("PRAGMA page_size").fetchone() == (4096,)


def test_a_column_of_nulls_in_a_batch_and_one_of_some_are_both_kept(path):
    store = make(path)
    store.write([row(1, parent=None, sni=None), row(2, parent="a:1", sni=None)])
    store.write([row(3, parent=None, sni="a.test")])
    store.close()
    assert [(one["parent"], one["sni"]) for one in open_reader(path).flows()] == [
        (None, "a.test"), ("a:1", None), (None, None)]


def test_the_oldest_go_first_by_count(path):
    store = make(path, count=10)
    for first in range(1, 50, 7):
        store.write([row(n) for n in range(first, first + 7)])
    store.close()
    assert ids(path) == [f"0-{n}" for n in range(49, 39, -1)]


def test_a_batch_larger_than_the_bound_leaves_its_newest(path):
    store = make(path, count=10)
    store.write([row(n) for n in range(1, 1001)])
    store.close()
    assert ids(path) == [f"0-{n}" for n in range(1000, 990, -1)]


def test_a_bound_that_was_lowered_is_reached_in_short_transactions(path):
    """R58: one of all rows would let the rings fill."""
    store = make(path, count=0)
    store.write([row(n) for n in range(1, 2 * MOST_PRUNED + 101)])
    store.close()
    lower = make(path, count=50)
    lower.write([row(9999)])
    assert len(ids(path)) == MOST_PRUNED + 100 and lower.is_over
    lower.prune()
    assert len(ids(path)) == 100 and lower.is_over
    lower.prune()
    assert len(ids(path)) == 50 and not lower.is_over
    lower.close()


#: Words, and the numbers of the rows that have them
RUNS = {"中文": [1], "检查": [1], "中文搜": [1], "查中文": [], "检中": [], "们": [1],
        "索": [1], "GNU": [1], "gnu 中文": [1], "我们 absent": [], "东京": [],
        "京都": [2], "ガス": [3, 2],
        "東京都 plain": [2], "plain": [4, 2], "검색": [4], "中文！": [1]}


def test_words_inside_runs_without_spaces_are_found(path):
    """The index had each run as one word: a search for a word in it found nothing."""
    store = make(path)
    bodies = ["我们检查GNU中文搜索", "plain: 東京都の天然ガス、です", "ｶﾞｽ",
              "plain 검색을"]
    store.write([row(n, url="http://a/", request_head="", response_head="",
                     response_body=body) for n, body in enumerate(bodies, 1)])
    while store.index(2):
        pass
    reader = open_reader(path)
    assert {words: [one["id"] for one in reader.flows(words)] for words in RUNS} == RUNS
    assert [one["id"] for one in reader.page(3, 10, words="ガス")] == [2]
    assert reader.delete([2]) == 1
    assert [one["id"] for one in reader.flows("ガス")] == [3]
    reader.close()
    store.close()
    make(path, count=1).prune()
    reader = open_reader(path)
    assert [one["id"] for one in reader.flows("검색")] == [4]
    assert list(reader.flows("中文")) == []
    reader.close()


def test_the_index_calls_python_only_for_text_beyond_ascii(file, monkeypatch):
    """Each row cost six calls, to be indexed and again to be forgotten."""
    monkeypatch.setattr(sqlite_store, "unpacked_text", mock.Mock(return_value=None))
    paired = mock.Mock(side_effect=sqlite_words.paired)
    monkeypatch.setattr(sqlite_words, "paired", paired)
    store = make(file, count=3)
    store.write([row(1), row(2, response_body="na\u00efve"), row(3)])
    store.index(10)
    texts = [call.args[0].split("\n")[-2] for call in paired.call_args_list]
    assert texts == ["na\u00efve"]
    store.write([row(4), row(5, request_body=None), row(6)])
    store.close()
    assert paired.call_count == 1 and not sqlite_store.unpacked_text.called


def test_a_file_of_an_earlier_program_gets_its_runs_indexed(file):
    store = make(file)
    store.write([row(1, response_body="我们检查中文"), row(2, response_body="plain")])
    while store.index(10):
        pass
    store.close()
    with sqlite3.connect(file) as base:      # as it was
        base.executescript("DROP TABLE runs; DELETE FROM state WHERE name = 'paired';")
    reader = open_reader(file)
    assert list(reader.flows("检查")) == [] and reader.delete([2]) == 1
    assert len(list(reader.flows("我们检查中文"))) == 1
    reader.close()
    store = make(file)
    while store.index(10):
        pass
    store.close()
    assert [one["id"] for one in open_reader(file).flows("检查")] == [1]


@pytest.mark.parametrize("first", [open_reader, make])
def test_tables_of_an_earlier_program_get_their_columns(path, first):
    """A reader of a server's may not, and sees nulls until a writer has."""
    store = make(path)
    store.write([row(1)])
    store.close()
    drop_columns(path, ADDED)
    first(path).close()
    reader = open_reader(path)
    (flow,) = map(Flow, reader.flows())
    assert (flow.id, flow.fingerprints) == (1, {})
    assert reader.light(1)["client_ja4"] is None
    reader.close()
    store = make(path)
    store.write([row(2, client_ja4="t13d")])
    store.close()
    reader = open_reader(path)
    assert [Flow(one).fingerprints for one in reader.flows()] == [
        {"client_ja4": "t13d"}, {}]
    reader.close()


def test_large_rows_are_indexed_a_few_at_a_time(file):
    """R58: an index of 500 bodies held the writer up for seconds."""
    store = make(file, count=0)
    store.write([row(n, bytes=400_000) for n in range(1, 21)])
    steps = 0
    while store.index(500):
        steps += 1
    assert steps == 7, "three rows each"
    store.close()


def test_large_rows_are_deleted_a_few_at_a_time(path):
    store = make(path, count=0)
    store.write([row(n, bytes=400_000) for n in range(1, 21)])
    store.close()
    lower = make(path, count=1)
    lower.write([])
    assert len(ids(path)) == 14 and lower.is_over
    while lower.is_over:
        lower.prune()
    assert ids(path) == ["0-20"]
    lower.close()


def test_the_oldest_go_first_by_bytes(path):
    store = make(path, count=0, most_bytes=1000)
    for n in range(1, 8):
        store.write([row(n, bytes=300)])
    assert ids(path) == ["0-7", "0-6", "0-5"]
    store.write([row(8, bytes=900)])
    assert ids(path) == ["0-8"]
    store.close()
    again = make(path, count=0, most_bytes=1000)
    again.write([row(9, bytes=300)])
    assert ids(path) == ["0-9"], "the sum is read at the start"
    again.close()


def test_what_is_too_old_goes(path):
    store = make(path, age=3600.0)
    store.write([row(1, ended_us=0), row(2, ended_us=NOW)])
    store.prune()
    assert ids(path) == ["0-2"]
    store.close()


def test_what_is_too_old_goes_wherever_it_is(path):
    """One of another clock, or an imported one, kept all behind it for as long."""
    store = make(path, age=3600.0)
    store.write([row(1, ended_us=NOW, begun_us=NOW), row(2, url="http://a.test/zebra"),
                 row(3), row(4, ended_us=NOW), row(5)])
    store.index(500)
    store.prune()
    assert ids(path) == ["0-4", "0-1"] and not store.is_over
    with contextlib.closing(open_reader(path)) as reader:
        assert list(reader.flows("zebra")) == []
    store.write([row(6)])
    store.prune()
    assert ids(path) == ["0-4", "0-1"]
    store.close()


def test_what_is_too_old_goes_in_short_transactions(path):
    store = make(path, count=0, age=3600.0)
    store.write([row(0, ended_us=NOW, begun_us=NOW)])
    young = make(path, count=0)
    young.write([row(n) for n in range(1, 2 * MOST_PRUNED + 101)])
    for left in (MOST_PRUNED + 101, 101):
        store.prune()
        assert len(ids(path)) == left and store.is_over
    store.prune()
    assert ids(path) == ["0-0"] and not store.is_over
    store.close()
    young.close()


def test_a_row_that_is_written_twice_is_there_once(path):
    """A writer that was killed leaves its records to the next."""
    store = make(path)
    store.write([row(1), row(2)])
    store.write([row(2), row(3)])
    store.close()
    assert ids(path) == ["0-3", "0-2", "0-1"]


def test_words_are_found_in_urls_heads_and_bodies_until_their_row_goes(path):
    store = make(path, count=2)
    store.write([row(1, url="http://a.test/zebra"), row(2, response_body="a gnu here")])
    assert store.index(500) != is_url(path) and not store.index(500)
    reader = open_reader(path)

    def search(words):
        return [one["request"] for one in reader.flows(words)]

    assert search("zebra") == ["0-1"] and search("gnu") == ["0-2"]
    assert search("accept") == ["0-2", "0-1"]
    store.write([row(3, request_body="an emu")])
    assert search("zebra") == []
    assert search("emu") == (["0-3"] if is_url(path) else []), "later, in a file"
    store.index(500)
    assert search("emu") == ["0-3"] and search("gnu") == ["0-2"]
    store.write([row(n) for n in range(4, 8)])
    store.index(500)
    assert search("gnu") == [] and search("accept") == ["0-7", "0-6"]
    reader.close()
    store.close()
    if not is_url(path):
        with contextlib.closing(sqlite3.connect(path)) as base:
            base.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 0)")


def test_bytes_are_not_indexed_and_stay_bytes(path):
    store = make(path)
    store.write([row(1, response_body=b"\x00\xffpanda")])
    store.index(500)
    reader = open_reader(path)
    (found,) = reader.flows()
    assert found["response_body"] == b"\x00\xffpanda"
    assert list(reader.flows("panda")) == []
    reader.close()
    store.close()


def test_a_write_that_fails_changes_nothing(path):
    store = make(path, count=0, most_bytes=1000)
    store.write([row(1, bytes=300)])
    with pytest.raises(StoreError):
        store.write([row(2, bytes=900), row(3, url=object())])
    store.write([row(4, bytes=300)])
    store.close()
    assert ids(path) == ["0-4", "0-1"]


def test_a_reader_does_not_hold_up_the_writer(path):
    store = make(path)
    store.write([row(n) for n in range(1, 50)])
    reader = open_reader(path)
    flows = reader.flows()
    next(flows)
    store.write([row(n) for n in range(50, 200)])
    assert len(list(flows)) <= 48
    reader.close()
    store.close()


def test_a_mark_is_set_kept_and_removed(path):
    store = make(path)
    store.write([row(1), row(2)])
    store.close()
    reader = open_reader(path)

    def marks():
        return [(one["tag"], one["comment"]) for one in reader.flows()]

    assert reader.mark(1, "odd", None) and reader.mark(1, None, "why")
    assert marks() == [(None, None), ("odd", "why")] and not reader.mark(3, "a", None)
    assert reader.mark(1, "", None)
    assert marks() == [(None, None), (None, "why")]
    assert reader.delete([1]) == 1 and marks() == [(None, None)]
    reader.close()


def test_a_page_ends_where_it_was_told_to(path):
    store = make(path)
    store.write([row(n) for n in range(1, 8)])
    while store.index(500):
        pass
    store.close()
    reader = open_reader(path)

    def page(*given, **named):
        return [one["id"] for one in reader.page(*given, **named)]

    assert page(6, 3) == [5, 4, 3] and page(4, 9, rising=True) == [5, 6, 7]
    assert page(6, 2, words="hello") == [5, 4] and page(6, 2, words="nothing") == []
    assert reader.light(7)["url"] == "http://a.test/a?b=c%20d" and not reader.light(8)
    assert [*reader.bodies(7)] == ["", "hello", None] and reader.newest() == 7
    reader.close()


def test_every_read_is_logged(path):
    """R59."""
    store = make(path)
    store.open()
    store.close()
    reader = open_reader(path)
    reader.log("export", "~d a.test", 7)
    (found,) = reader.reads()
    assert (found["uid"], found["verb"], found["what"], found["found"]) == (
        os.getuid(), "export", "~d a.test", 7)
    reader.close()


def test_a_file_that_is_not_there_is_not_made(file):
    with pytest.raises(StoreError, match="No such file"):
        open_reader(file)
    assert not os.path.exists(file)


def test_two_that_make_a_database_at_once_have_one(file):
    """A writer that begins, and an import: one of them ended with "table flows already
    exists"."""
    for n in range(20):
        ready = threading.Barrier(4)

        def open_one(path: str, ready: threading.Barrier) -> None:
            ready.wait()
            make(path).close()

        with ThreadPoolExecutor(4) as pool:
            for one in [pool.submit(open_one, f"{file}{n}", ready) for _ in range(4)]:
                one.result()
