"""`cutthrough doctor`: queries the database of captures; never shows its password."""

import contextlib

import pytest

from cutthrough.doctor.postgres import check_database, is_local
from cutthrough.recording.sessions.postgres import PostgresSessions
from cutthrough.storage.stores import open_store
from tests.doctor.hosts import make_case
from tests.support.postgres import PASSWORD, PROGRAMS, Postgres

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="postgresql is not installed")


@pytest.fixture(scope="module")
def server():
    with contextlib.closing(Postgres()) as running:
        yield running


def findings(url: str):
    found = list(check_database(make_case(capture_url=url)))
    assert PASSWORD not in str(found)
    return found


def test_without_a_url_nobody_is_asked():
    assert not list(check_database(make_case()))


def test_a_database_that_answers_is_all_right(server):
    (found,) = findings(server.make())
    assert (found.verdict, found.seen) == (
        "ok", "PostgreSQL answers; the tables are made when a rule captures")
    store = open_store(server.url(), 0, 0, 0.0, "here")
    store.open()
    store.close()
    for url in (server.url(), server.path_url()):
        (found,) = findings(url)
        assert found.verdict in ("ok", "note") and " ms" in found.seen
    server.ask("UPDATE cutthrough.state SET version = 77")
    (found,) = findings(server.url())
    assert found.verdict == "fail" and "version 77" in found.seen


def test_the_database_of_sessions_is_asked_too(server, tmp_path):
    url = server.make()

    def ask(url=url):
        (found,) = check_database(make_case(
            recording_url=url, recording_directory=str(tmp_path)))
        assert PASSWORD not in str(found)
        return found
    assert ask().seen == "PostgreSQL answers; the tables are made when a rule records"
    with contextlib.closing(PostgresSessions(url, tmp_path)) as sessions:
        sessions.create("s")
    assert ask().verdict in ("ok", "note") and " ms" in ask().seen
    found = ask("postgresql://127.0.0.1:1/a")
    assert found.verdict == "warn" and "copies in recording_directory" in found.advice
    (tmp_path / "key").write_bytes(b"o" * 32)
    assert ask().verdict == "fail" and "another key" in ask().seen


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda url: url.replace(PASSWORD, "wrong"), "password authentication failed"),
    (lambda url: f"{url}-none", "does not exist"),
    (lambda url: "postgresql://127.0.0.1:1/a", "Connection refused"),
])
def test_a_database_that_is_not_to_be_had_is_a_warning(server, spoil, said):
    (found,) = findings(spoil(server.url()))
    assert found.verdict == "warn" and said in found.seen


@pytest.mark.parametrize(("url", "local"), [
    ("postgresql://a:b@127.0.0.1:5432/c", True), ("postgresql://[::1]/c", True),
    ("postgresql:///c", True), ("postgresql://a@%2Frun%2Fpg/c", True),
    ("postgresql:///c?host=/run", True), ("postgresql:///c?host=db.example", False),
    ("postgresql://localhost/c", True), ("postgresql://192.0.2.1/c", False),
    ("postgresql://a:b@db1.example:5432,db2.example/c", False)])
def test_plain_text_is_all_right_on_this_host_only(url, local):
    assert is_local(url) == local
