"""Answers to the admin listener's queries, without the listener."""

import contextlib
import io
import json
import sqlite3

import pytest

from cutthrough.capture import answers, selection
from cutthrough.capture.importing import import_file
from cutthrough.capture.query import Query
from cutthrough.config.database import is_url
from cutthrough.storage.postgres_store import PostgresReader
from cutthrough.storage.sqlite_store import SqliteReader
from cutthrough.storage.store import BODIES, LIGHT, StoreError
from cutthrough.storage.stores import close_kept, open_reader, open_store
from tests.capture.dumps import dump, state
from tests.capture.flows import row
from tests.support.archives import archive, entry


@pytest.fixture(params=["sqlite", "postgres"])
def path(request, tmp_path):
    found = str(tmp_path / "flows.db") if request.param == "sqlite" else (
        request.getfixturevalue("postgres").make())
    store = open_store(found, 0, 0, 0.0, "here")
    store.write([row(n, status=200 + n, response_body="x" * n) for n in range(1, 31)])
    while store.index(100):
        pass
    store.close()
    yield found
    close_kept()


def ask(path, verb="list", **fields):
    head, pieces = answers.answer(Query(verb=verb, database=path, **fields))
    return head, b"".join(pieces)


def test_a_page_ends_in_time_and_the_next_goes_on(path, monkeypatch):
    """A filter that nothing passes would read a whole database for one answer."""
    monkeypatch.setattr(selection, "PAGE_S", -1.0)
    before, found, pages = 0, [], 0
    while before is not None:
        _, content = ask(path, filter="~c 217", before=before)
        page = json.loads(content)
        found += [one["id"] for one in page["flows"]]
        before, pages = page["next"], pages + 1
        assert pages < 40
    assert found == [17] and pages > 20


def test_hosts_are_counted_and_the_slowest_are_first(path, monkeypatch):
    store = open_store(path, 0, 0, 0.0, "here")
    store.write([row(50, host="b.test", status=500, total_us=9_000_000),
                 row(51, host="b.test", reason="replayed", total_us=2_000_000),
                 row(52, host="c.test", kind="tunnel", reason="origin_reset",
                     status=None, total_us=99_000_000)])
    store.close()
    found = json.loads(ask(path, "hosts")[1])
    assert found == {"hosts": [
        {"host": "a.test", "count": 30, "failed": 0, "bytes": 4800},
        {"host": "b.test", "count": 2, "failed": 1, "bytes": 320},
        {"host": "c.test", "count": 1, "failed": 1, "bytes": 160}],
        "left": 0, "next": None}
    found = json.loads(ask(path, "hosts", filter="~d b.test | ~e", limit=1)[1])
    assert ([one["host"] for one in found["hosts"]], found["left"]) == (["b.test"], 1)
    found = json.loads(ask(path, "slowest", limit=3)[1])
    assert [one["request"] for one in found["flows"]] == ["0-50", "0-51", "0-30"]
    assert found["next"] is None
    assert "fault" not in found["flows"][0]
    head, _ = ask(path, "hosts", filter="~dur 5")
    assert head.status == 400

    monkeypatch.setattr(answers, "SUMMARY_S", -1.0)      # one flow an answer
    found = json.loads(ask(path, "slowest")[1])
    assert len(found["flows"]) == 0 and found["next"], "the tunnel alone"
    found = json.loads(ask(path, "slowest", before=found["next"])[1])
    assert [one["request"] for one in found["flows"]] == ["0-51"]


def test_a_list_has_the_program_of_a_shared_database_and_selects_by_it(path):
    def ids(filter_):
        page = json.loads(ask(path, filter=filter_, limit=2)[1])
        return [(one["id"], one.get("program")) for one in page["flows"]]

    is_shared = is_url(path)
    everything = [(30, "here"), (29, "here")] if is_shared else [(30, None), (29, None)]
    assert ids("~program ^here$") == (everything if is_shared else [])
    assert ids("!~program here") == ([] if is_shared else everything)


def test_a_file_is_imported_and_that_is_logged(path):
    content = archive(entry())
    for added in (1, 0):
        head, text = answers.answer(Query(
            verb="import", database=path, name="a.har", client="192.0.2.9",
            size=len(content)), content)
        assert head.found == added and json.loads(b"".join(text)) == {
            "imported": added, "known": 1 - added, "refused": 0, "reasons": [],
            "notes": [], "others": {}}
    newest = json.loads(ask(path, limit=1)[1])["flows"][0]
    assert newest["url"] == "https://a.test/x?y=1" and "program" not in newest
    with contextlib.closing(open_reader(path)) as reader:
        assert [(one["client"], one["verb"], one["what"], one["found"])
                for one in reader.reads() if one["verb"] == "import"] == [
            ("192.0.2.9", "import", "a.har", added) for added in (0, 1)]


class Ending(io.BytesIO):
    def read(self, size=-1):
        data = super().read(size)
        if size and not data:
            raise OSError("no more")
        return data


def test_an_import_that_ends_in_the_middle_is_logged(path):
    """The entries before are there."""
    content = b"".join(dump(state(id=str(n))) for n in range(250))
    with pytest.raises(OSError, match="no more"):
        import_file(Ending(content), path, "a.mitm", "192.0.2.9")
    with contextlib.closing(open_reader(path)) as reader:
        assert len(list(reader.flows())) == 30 + 200
        one = reader.reads()[0]
    assert (one["client"], one["verb"], one["what"], one["found"]) == (
        "192.0.2.9", "import", "a.mitm", 200)


def test_a_file_for_a_database_that_cannot_be_made_is_refused(tmp_path):
    head, text = answers.answer(Query(
        verb="import", database=str(tmp_path / "none" / "flows.db")),
        archive(entry()))
    assert head.status == 503 and b"No such file or directory" in b"".join(text)


def test_bodies_are_read_only_if_a_filter_looks_at_them(path, monkeypatch):
    asked = []
    kind = PostgresReader if is_url(path) else SqliteReader
    real = kind.bodies
    monkeypatch.setattr(kind, "bodies", lambda self, number: (
        asked.append(number), real(self, number))[1])
    ask(path, filter="~d a.test & ~t text & ~h accept")
    assert not asked and not {*LIGHT} & {*BODIES}
    ask(path, filter="~b xx", limit=1)
    assert asked


@pytest.mark.parametrize("verb", ["list", "watch", "har", "delete"])
def test_a_bad_filter_changes_and_reads_nothing(path, verb):
    head, content = ask(path, verb, filter="~c x")
    assert (head.status, head.kind) == (400, "text/plain")
    assert content.startswith(b"filter: ~c takes a status")
    assert len(json.loads(ask(path)[1])["flows"]) == 30


def test_words_and_a_filter_are_one_query(path):
    _, content = ask(path, words="hello", filter="~c 203")
    assert json.loads(content)["flows"] == []
    _, content = ask(path, words="xxx", filter="!~c 204")
    assert [one["id"] for one in json.loads(content)["flows"]] == [3]


def test_marks_go_with_the_flows_that_a_bound_deletes(path):
    ask(path, "mark", number=3, tag="a")
    store = open_store(path, 10, 0, 0.0)
    store.prune()
    store.close()
    if is_url(path):                         # there a mark is a part of its row
        return
    with contextlib.closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT * FROM marks").fetchall() == []


def test_a_file_that_is_none_is_explained(path, tmp_path):
    head, content = ask(str(tmp_path / "other.db"))
    assert (head.status, content) == (404, b"nothing has been captured yet\n")
    (tmp_path / "odd").write_text("no database" * 100)
    head, content = ask(str(tmp_path / "odd"))
    assert head.status == 503 and b"not a database" in content


def test_who_follows_gets_all_of_a_file_that_was_made_anew(tmp_path):
    """Its numbers begin at 1, and nothing came until they were above those before."""
    path = str(tmp_path / "flows.db")
    with contextlib.closing(open_store(path, 0, 0, 0.0)) as store:
        store.write([row(n) for n in (1, 2, 3)])
    ask(path, "delete", number=3)
    head, content = ask(path, "watch", after=3)
    assert (head.last, content) == (3, b"")  # the newest was deleted, no more
    (tmp_path / "flows.db").unlink()
    with contextlib.closing(open_store(path, 0, 0, 0.0)) as store:
        assert ask(path, "watch", after=3)[0].last == 0
        store.write([row(n) for n in (4, 5)])
    head, content = ask(path, "watch", after=3)
    assert (head.last, [one["id"] for one in json.loads(content)]) == (2, [1, 2])
    assert ask(path, "watch", after=2)[1] == b""


def test_who_follows_a_restored_database_gets_what_comes_after(postgres, tmp_path):
    """Nothing came until the numbers were above those before."""
    url, backup = postgres.make(), tmp_path / "backup"
    with contextlib.closing(open_store(url, 0, 0, 0.0, "here")) as store:
        store.write([row(1), row(2)])
        postgres.back_up(url, backup)
        store.write([row(n) for n in range(3, 10)])
    postgres.restore(url, backup)
    head, content = ask(url, "watch", after=9)
    assert (head.last, content) == (2, b"")
    with contextlib.closing(open_store(url, 0, 0, 0.0, "here")) as store:
        store.write([row(20)])
    head, content = ask(url, "watch", after=head.last)
    assert [one["request"] for one in json.loads(content)] == ["0-20"]
    assert head.last == 3 and ask(url, "watch", after=3)[1] == b""
    close_kept()


def test_a_reader_whose_file_was_moved_is_told(tmp_path):
    """`flows follow` printed nothing any more, and did not end."""
    path = str(tmp_path / "flows.db")
    open_store(path, 0, 0, 0.0).close()
    with contextlib.closing(SqliteReader(path)) as reader:
        reader.check_place()
        (tmp_path / "flows.db").rename(tmp_path / "flows.old")
        open_store(path, 0, 0, 0.0).close()
        with pytest.raises(StoreError, match="was deleted or moved"):
            reader.check_place()
