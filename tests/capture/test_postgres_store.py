"""The store that several programs share: bounds, outages, errors without secrets."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from cutthrough.capture.importing import import_file
from cutthrough.config.config import ConfigError
from cutthrough.exchange.flow import Flow
from cutthrough.exchange.formats.har import make_archive
from cutthrough.storage import postgres_store
from cutthrough.storage.runs import MOST_PAIRED
from cutthrough.storage.store import NoStore, StoreAway, StoreError
from cutthrough.storage.stores import open_reader, open_store
from cutthrough.tools.console import Unanswered
from cutthrough.tools.database import FILE, URL, URL_FILE, find_database
from cutthrough.tools.flow_source import ByDatabase
from tests.capture.flows import row
from tests.support.postgres import PASSWORD, Postgres

TOTALS = "SELECT sum(flows), sum(bytes) FROM cutthrough.totals"


@pytest.fixture
def url(postgres):
    return postgres.make()


@pytest.fixture
def reader(url):
    made = []

    def run():
        made.append(open_reader(url))
        return made[-1]
    yield run
    for one in made:
        one.close()


def make(url, program="here", count=0, most_bytes=0, age=0.0):
    return open_store(url, count, most_bytes, age, program)


def test_rows_have_the_program_that_wrote_them(url, reader):
    for program in ("a", "b"):
        store = make(url, program)
        store.write([row(1)])
        store.close()
    assert [(one["program"], one["request"]) for one in reader().flows()] == [
        ("b", "0-1"), ("a", "0-1")]
    assert Flow(next(reader().flows())).as_dict()["program"] == "b"


def test_bounds_are_of_all_programs(url, reader, postgres):
    """R58: a fleet of ten would keep ten times as much."""
    first, second = make(url, "a", count=10), make(url, "b", count=10)
    for n in range(1, 40, 2):
        first.write([row(n)])
        second.write([row(n + 1)])
    assert [one["request"] for one in reader().flows()] == [
        f"0-{n}" for n in range(40, 30, -1)]
    assert postgres.ask(TOTALS, url) == [(10, 5000)]
    first.close()
    second.close()


def test_totals_follow_what_readers_delete(url, reader, postgres):
    store = make(url)
    store.write([row(n) for n in range(1, 11)])
    assert reader().delete([2, 3, 99]) == 2
    assert postgres.ask(TOTALS, url) == [(8, 4000)]
    store.close()


def test_who_follows_the_numbers_misses_nothing_of_many_writers(url, reader):
    """A sequence gives numbers before commits: the second could be seen first."""
    make(url).write([row(1)])
    programs = ("a", "b", "c", "d", "e", "f")

    def write(program):
        store = make(url, program)
        for n in range(40):
            store.write([row(n * 10 + m) for m in range(10)])
        store.close()

    seen, at, watcher = 0, 1, reader()
    with ThreadPoolExecutor(len(programs)) as pool:
        running = [pool.submit(write, one) for one in programs]
        while True:
            ended = all(one.done() for one in running)
            page = watcher.page(at, 500, rising=True)
            seen, at = seen + len(page), page[-1]["id"] if page else at
            if ended and not page:
                break
    for one in running:
        one.result()
    assert seen == 400 * len(programs)


def test_programs_that_begin_at_once_make_the_tables_once(url, postgres):
    together = threading.Barrier(6)

    def begin(number):
        together.wait()
        store = make(url, str(number))
        store.write([row(1)])
        store.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(begin, range(6)))
    assert postgres.ask(TOTALS, url) == [(6, 3000)]


def test_tables_of_another_version_are_left_alone(url, postgres):
    store = make(url)
    store.open()
    store.close()
    postgres.ask("UPDATE cutthrough.state SET version = 77", url)
    for use in (lambda: make(url).open(), lambda: open_reader(url)):
        with pytest.raises(StoreError, match="version 77 of the tables") as caught:
            use()
        assert not isinstance(caught.value, StoreAway) and PASSWORD not in str(caught)


def test_a_database_that_cannot_hold_every_text_is_refused(postgres):
    postgres.ask("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreError, match="its encoding is LATIN1, and not UTF8"):
        make(postgres.url("latin")).open()


def test_a_database_without_tables_has_nothing_and_gets_none_from_a_reader(
        url, postgres):
    with pytest.raises(NoStore):
        open_reader(url)
    assert postgres.ask("SELECT to_regnamespace('cutthrough')", url) == [(None,)]


def test_texts_that_the_server_cannot_hold_are_kept_with_a_mark(url, reader):
    store = make(url)
    assert store.write([row(1), row(2, response_body="a\0b\ud800"), row(3)]) == 3
    found = [one["response_body"] for one in reader().flows()]
    assert found == ["hello", "a\ufffdb?", "hello"]
    store.close()


def test_words_are_found_without_case_accents_and_in_urls(url, reader):
    store = make(url)
    store.write([row(1, url="http://a.test/Über/zoo?x=1", response_body="Kaffee Café"),
                 row(2, messages='[{"side": "request", "text": "gnu"}, {}]')])
    for words, found in (("zoo", 1), ("uber", 1), ("CAFE kaffee", 1), ("gnu", 1),
                         ("kaff", 0), ("kaffee gnu", 0), ("& | !", 0), ("a'z\\c", 0),
                         ("http 200", 2)):
        assert len(list(reader().flows(words))) == found, words
    store.close()


def test_runs_of_rows_of_earlier_programs_are_found_as_a_whole(url, reader):
    store = make(url)
    store.write([row(1, response_body="x"), row(2, response_body="我们检查ガス กีฬา"),
                 row(3, response_body="ガ" * (MOST_PAIRED + 9) + " behind")])
    with psycopg.connect(url) as base:       # as words_of was
        base.execute(
            "UPDATE cutthrough.flows SET words = '我们检查 カ ス' WHERE id = 1")
    for words, found in (("我们检查", [2, 1]), ("检查", [2]), ("ガス", [2, 1]),
                         ("查", [2]), ("กีฬา", [2]), ("ฬา", [2]), ("ก", [2]),
                         ("ี", []), ("behind", [3]), ("检查 absent", [])):
        assert [one["id"] for one in reader().flows(words)] == found, words
    store.close()


def test_a_body_of_many_words_is_kept_and_searched_in_part(url, reader):
    """A tsvector has 1 MiB; beyond it the server refuses the row."""
    store = make(url)
    body = " ".join(f"w{n:06d}x" for n in range(300_000))
    store.write([row(1, response_body=body), row(2, response_body="x" * 3000)])
    (found,) = reader().flows("w000001x")
    assert found["response_body"] == body
    assert len(list(reader().flows("accept"))) == 2
    store.close()


def test_an_exchange_of_any_program_is_not_imported_again(url, reader, tmp_path):


    store = make(url, "a")
    store.write([row(1)])
    store.close()
    archive = tmp_path / "a.har"
    archive.write_text(json.dumps(make_archive(map(Flow, reader().flows()))))
    with open(archive, "rb") as file:
        result = import_file(file, url)
    assert (result.added, result.known) == (0, 1)


def test_a_program_of_an_operator_reads_it_by_its_url(url):
    store = make(url)
    store.write([row(n, response_body="x" * n) for n in range(1, 4)])
    store.close()
    source = ByDatabase(url)
    try:
        found = source.list(filter="~b xx", words="accept", before=0, limit=5)["flows"]
        assert [one["id"] for one in found] == [3, 2]
        assert source.show(3)["program"] == "here"
        assert source.body(3, "response") == b"xxx"
        assert source.mark(2, "odd", None) and source.delete(3) == {"deleted": 1}
        with pytest.raises(Unanswered, match="no flow 3"):
            source.show(3)
    finally:
        source.close()


def test_the_database_is_named_by_a_file_or_the_environment(tmp_path):
    path = tmp_path / "url"
    path.write_text("postgresql://a:s3cret@b/c\n")
    found = "postgresql://a:s3cret@b/c"
    assert find_database("d", None, {URL: found}) == "d"
    assert find_database(None, str(path), {FILE: "d"}) == found
    assert find_database(None, None, {URL: found, FILE: "d"}) == found
    assert find_database(None, None, {URL_FILE: str(path)}) == found
    assert find_database(None, None, {FILE: "d"}) == "d"
    path.write_text("postgresql://a:s3cret/@b/c")
    for given in ((None, None, {"HOME": str(tmp_path)}), ("d", "e", {}),
                  (None, str(path), {}), (None, None, {URL: "mysql://s3cret"}),
                  (None, str(tmp_path / "none"), {})):
        with pytest.raises(ConfigError) as caught:
            find_database(*given)
        assert "s3cret" not in str(caught.value)


# The server is away


def test_a_server_that_is_gone_loses_no_row(reader, monkeypatch):
    server = Postgres()
    try:
        store = make(server.url())
        store.write([row(1)])
        server.kill()
        for _ in range(2):
            with pytest.raises(StoreAway, match=r"127\.0\.0\.1"):
                store.write([row(2)])
        server.start()
        assert store.write([row(2)]) == 1
        found = open_reader(server.url())
        assert [one["request"] for one in found.flows()] == ["0-2", "0-1"]
        found.close()
        monkeypatch.setattr(postgres_store, "ANSWER_S", 0.5)
        slow = make(server.url() + "?connect_timeout=2")
        slow.open()
        server.pause()
        with pytest.raises(StoreAway, match="timeout expired"):
            slow.write([row(3)])
        with pytest.raises(StoreAway):
            slow.write([row(3)])
        server.resume()
        assert slow.write([row(3)]) == 1
        slow.close()
        store.close()
    finally:
        server.close()


def test_a_connection_that_the_server_ends_is_made_again(url, reader, postgres):
    store = make(url)
    store.write([row(1)])
    postgres.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                 "WHERE application_name = 'cutthrough'")
    with pytest.raises(StoreAway, match="terminat"):
        store.write([row(2)])
    assert store.write([row(2)]) == 1
    store.close()


@pytest.mark.parametrize("spoil", [
    lambda url: url.replace(PASSWORD, f"{PASSWORD}-wrong"),
    lambda url: url.replace("127.0.0.1", "127.0.0.2"),
    lambda url: f"{url}-nowhere",
    lambda url: f"{url}?{PASSWORD}=1",
    lambda url: f"{url}?connect_timeout={PASSWORD}",
])
def test_no_error_has_the_password(url, spoil):
    """R37."""
    with pytest.raises(StoreError) as caught:
        make(spoil(url)).open()
    assert PASSWORD not in str(caught.value) and "127.0.0." in str(caught.value)


def test_no_error_has_a_part_of_a_row(url, monkeypatch):
    """R37: the server's details quote the line of a COPY."""
    store = make(url)
    with pytest.raises(StoreError) as caught:
        store.write([row(1, port="s3cret-in-a-row")])
    assert "s3cret" not in str(caught.value).replace(PASSWORD, "")
    store.close()


def test_a_role_that_only_reads_needs_no_more_than_the_page_says(url, postgres):
    """docs/capture.md."""
    store = make(url)
    store.write([row(1)])
    store.close()
    role = f"reader{url.rpartition('base')[2]}"
    postgres.ask(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'; "
                 f"GRANT USAGE ON SCHEMA cutthrough TO {role}; "
                 f"GRANT SELECT ON cutthrough.flows, cutthrough.state TO {role}; "
                 f"GRANT SELECT, INSERT, DELETE ON cutthrough.reads TO {role}", url)
    reader = open_reader(url.replace("//postgres:", f"//{role}:"))
    assert [one["id"] for one in reader.flows()] == [1]
    reader.log("list", "", 1)
    for change in (lambda: reader.delete([1]), lambda: reader.mark(1, "a", None)):
        with pytest.raises(StoreError, match="InsufficientPrivilege"):
            change()
    reader.close()


def test_a_unix_socket_will_do(postgres):
    store = make(postgres.path_url())
    store.write([row(1)])
    store.close()
