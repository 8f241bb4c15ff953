"""Files that follow sessions of a database, as each host's workers read them."""

import contextlib
import os
import time
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cutthrough.recording.sessions import chosen_copies, copies
from cutthrough.recording.sessions.chosen_copies import ChosenCopies
from cutthrough.recording.sessions.copies import open_copy
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.postgres import PostgresSessions
from cutthrough.recording.sessions.session import Manifest, NoSession, SessionError
from cutthrough.storage.store import Locked, NoRoom, StoreAway
from tests.recording.answers import recording, request


@pytest.fixture
def url(postgres):
    return postgres.make()


@pytest.fixture
def hosts(tmp_path, url):
    """The sessions as two hosts see them, which have the same key."""
    made = []
    for name in "ab":
        (tmp_path / name).mkdir(mode=0o700)
        if made:
            (tmp_path / name / "key").write_bytes((tmp_path / "a/key").read_bytes())
        made.append(PostgresSessions(url, tmp_path / name))
    yield made
    for one in made:
        one.close()


def follow(copy, session):
    while copy.follow(session):
        pass


def some_of(path, count):
    return [recording(0, request(f"/{path}/{n}")) for n in range(count)]


def test_nothing_to_put_changes_nothing(tmp_path):
    session = Sessions(tmp_path).create("s", Manifest())
    session.put([])
    assert len(session) == 0


@pytest.mark.parametrize(("error", "opened"), [
    (Locked("database is locked"), 3), (NoRoom("disk I/O error"), 3),
    (SessionError("is a session of this host alone"), 1)])
def test_a_copy_that_could_not_be_opened_is_opened_at_the_next_turn(
        tmp_path, caplog, error, opened):
    """It was left until its session changed."""
    sessions = mock.Mock(heads=lambda: {"s": (1, 2)})
    made = ChosenCopies(str(tmp_path), copies.nothing)
    with mock.patch.object(chosen_copies, "open_copy", side_effect=error) as call:
        for _ in range(3):
            made.follow(sessions, "other")
    assert call.call_count == opened and caplog.text.count(str(error)) == 1
    copy = mock.Mock(follow=lambda _session: False)
    with mock.patch.object(chosen_copies, "open_copy", return_value=copy) as call:
        for _ in range(3):
            made.follow(sessions, "other")
    assert call.call_count == (opened > 1)


def test_what_one_host_records_is_in_the_copy_of_another(hosts, tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "STEP", 3)
    mine = hosts[0].create("s", Manifest(comment="one"))
    mine.put(some_of("early", 8))
    theirs = hosts[1].open("s")
    copy = open_copy(tmp_path / "b", "s", theirs)
    assert list(copy.recordings()) == list(mine.recordings())
    assert copy.manifest.comment == "one"
    theirs.put(some_of("late", 5))
    mine.put(some_of("later", 5))
    follow(copy, theirs)
    assert list(copy.recordings()) == list(mine.recordings())
    assert [one.number for one in copy.recordings()] == list(range(1, 19))
    # As a player looks, which has it open in another process
    reader = Sessions(tmp_path / "b").open("s")
    edits, seen = reader.edits(), reader.version()
    assert mine.edit(msgspec.structs.replace(mine.get(2), tags=("new",)))
    assert mine.delete([1, 7]) == 2
    follow(copy, theirs)
    assert reader.edits() > edits and reader.version() != seen
    assert list(reader.recordings()) == list(mine.recordings())
    for one in (reader, copy):
        one.close()


@pytest.mark.parametrize("grown", [0, 1, 9])
def test_a_copy_follows_a_database_that_was_restored(
        hosts, postgres, url, tmp_path, caplog, grown):
    """The copy kept what the database had lost, under numbers of other recordings."""
    mine = hosts[0].create("s", Manifest())
    mine.put(some_of("early", 3))
    backup = tmp_path / "backup"
    postgres.back_up(url, backup)
    for n in range(4):                       # a change each
        mine.put(some_of(f"lost{n}", 1))
    copy = open_copy(tmp_path / "b", "s", hosts[1].open("s"))
    assert len(copy) == 7
    for host in hosts:
        host.close()
    postgres.restore(url, backup)
    mine = hosts[0].open("s")
    for n in range(grown):
        mine.put(some_of(f"new{n}", 1))
    with contextlib.closing(copy):
        for _ in range(2):
            follow(copy, hosts[1].open("s"))
            assert list(copy.recordings()) == list(mine.recordings())
    assert caplog.text.count("copied again") == 1


STEPS = some.lists(some.one_of(
    some.tuples(some.just("add"), some.integers(1, 9)),
    some.tuples(some.just("edit"), some.integers(1, 40)),
    some.tuples(some.just("delete"), some.integers(1, 40)),
    some.tuples(some.just("bound"), some.integers(0, 20)),
    some.tuples(some.just("follow"), some.integers(0, 3))), max_size=25)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_a_copy_is_equal_whatever_has_changed(postgres, tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("copy")
    sessions = PostgresSessions(postgres.make(), folder)
    session = sessions.create("s")
    copy = open_copy(folder, "s", session)
    for verb, number in steps:
        match verb:
            case "add":
                session.put(some_of(verb, number))
            case "edit":
                session.edit(recording(number, request(f"/edited/{number}")))
            case "delete":
                session.delete([number, number + 1])
            case "bound":
                session.set_bounds(number, 0)
                session.prune()
            case "follow":
                for _ in range(number):
                    copy.follow(session)
    follow(copy, session)
    assert list(copy.recordings()) == list(session.recordings())
    assert len(session) == len(copy)
    assert session.size() == sum(row.size for row in session.rows("", 1000))
    copy.close()
    sessions.close()


def test_two_programs_follow_into_one_file(hosts, tmp_path):
    session = hosts[0].create("s")
    first = open_copy(tmp_path / "a", "s", session)
    second = open_copy(tmp_path / "a", "s", session)
    for n in range(4):
        session.put(some_of(n, 3))
        follow(first if n % 2 else second, session)
    session.delete([5])
    for one in (first, second):
        follow(one, session)
        assert list(one.recordings()) == list(session.recordings())
        one.close()


def test_a_copy_that_was_left_in_the_middle_is_made_equal(
        hosts, tmp_path, monkeypatch):
    """Killed between the additions and the deletions."""
    session = hosts[0].create("s")
    session.put(some_of("a", 5))
    copy = open_copy(tmp_path / "a", "s", session)
    session.delete([3])
    monkeypatch.setattr(copy, "_keep", lambda numbers: None)
    follow(copy, session)
    assert len(copy) == 5
    copy.close()
    again = open_copy(tmp_path / "a", "s", session)
    follow(again, session)
    assert [one.number for one in again.recordings()] == [1, 2, 4, 5]
    again.close()


def test_hits_of_all_hosts_are_added(hosts, tmp_path):
    session = hosts[0].create("s")
    session.put(some_of("a", 3))
    for name in "ab":
        copy = open_copy(tmp_path / name, "s", session)
        copy.hit({1: 2, 3: 1})
        copy.tell_hits(session)
        copy.tell_hits(session)
        follow(copy, session)
        copy.close()
    assert [one.hits for one in session.recordings()] == [4, 0, 2]


def test_a_copy_may_only_be_read(hosts, tmp_path):
    session = hosts[0].create("s")
    session.put(some_of("a", 1))
    open_copy(tmp_path / "a", "s", session).close()
    here = Sessions(tmp_path / "a").open("s")
    for change in (lambda: here.put(some_of("b", 1)), lambda: here.delete([1]),
                   lambda: here.edit(here.get(1)), lambda: here.set_bounds(1, 1)):
        with pytest.raises(SessionError, match="follows a session in PostgreSQL"):
            change()
    assert list(here.recordings()) == list(session.recordings())
    here.close()


def test_a_session_of_the_host_alone_is_never_replaced(hosts, tmp_path):
    own = Sessions(tmp_path / "a").create("s")
    own.put(some_of("own", 1))
    own.close()
    session = hosts[0].create("s")
    with pytest.raises(SessionError, match="is a session of this host alone"):
        open_copy(tmp_path / "a", "s", session)
    own = Sessions(tmp_path / "a").open("s")
    assert len(own) == 1
    own.close()


def test_a_session_that_was_made_anew_is_copied_anew(hosts, tmp_path):
    session = hosts[0].create("s")
    session.put(some_of("old", 2))
    copy = open_copy(tmp_path / "a", "s", session)
    hosts[1].delete("s")
    for change in (lambda: session.put(some_of("late", 1)),
                   lambda: copy.follow(session), lambda: len(session)):
        with pytest.raises(NoSession, match="deleted"):
            change()
    copy.close()
    session = hosts[1].create("s")
    session.put(some_of("new", 1))
    copy = open_copy(tmp_path / "a", "s", session)
    assert [one.request.path for one in copy.recordings()] == ["/new/0"]
    copy.close()


def test_another_key_is_noticed(hosts, url, tmp_path):
    """Hashes that stand for secrets would never be equal."""
    hosts[0].create("s")
    other = PostgresSessions(url, tmp_path / "c")
    assert other.names() == ["s"]
    for verb in (other.open, other.create):
        with pytest.raises(SessionError, match=r"another key: copy key of .*/c/key"):
            verb("s" if verb == other.open else "t")
    assert hosts[0].names() == ["s"]
    other.close()


def test_long_recordings_come_piece_by_piece(hosts, tmp_path, monkeypatch):
    monkeypatch.setattr("cutthrough.recording.sessions.postgres.MOST_ANSWERED", 10_000)
    session = hosts[0].create("s")
    session.put([recording(0, request(f"/{n}", "x" * size))
                 for n, size in enumerate((1, 30_000, 4000, 4000, 4000, 1))])
    assert [one.number for one in session.read_behind(0, 10)] == [1, 2]
    assert [one.number for one in session.recordings()] == [1, 2, 3, 4, 5, 6]
    copy = open_copy(tmp_path / "a", "s", session)
    assert list(copy.recordings()) == list(session.recordings())
    copy.close()


def test_a_server_that_is_away_leaves_the_copy(hosts, tmp_path, url, postgres):
    session = hosts[0].create("s")
    session.put(some_of("a", 2))
    copy = open_copy(tmp_path / "a", "s", session)
    postgres.kill()
    for _ in range(2):
        with pytest.raises(StoreAway, match=r"127\.0\.0\.1"):
            copy.follow(session)
    postgres.start()
    session.put(some_of("b", 1))
    follow(copy, session)
    assert len(copy) == 3
    copy.close()


def test_bounds_hold_in_every_session_of_the_database(hosts, tmp_path):
    """Only recordings of the session in force were looked at."""
    for name, count in (("a", 0), ("b", 2)):
        session = hosts[0].create(name)
        session.put([recording(0, request(f"/{n}"), created_us=n) for n in (1, 2, 3)])
        session.set_bounds(count, 60 if name == "a" else 0)
    hosts[1].create("c").put(some_of("c", 3))
    hosts[1].prune()
    assert [len(hosts[0].open(name)) for name in "abc"] == [0, 2, 3]


def test_reads_are_logged_in_the_database(hosts):
    """R59: and go with their session."""
    session = hosts[0].create("s")
    session.log("show", "3", 0)
    hosts[1].open("s").log("export", "yaml", 2)
    hosts[0].create("other")
    assert [(one.verb, one.what, one.found) for one in session.reads()] == [
        ("export", "yaml", 2), ("show", "3", 0)]
    assert all(one.host for one in session.reads())
    assert hosts[0].open("other").reads() == []
    hosts[0].delete("s")
    assert hosts[0].create("s").reads() == []


def test_what_a_killed_program_has_left_of_a_copy_is_removed(tmp_path):
    """Each kill left a file as large as the session."""
    for name, age in ((".new-0", copies.REMAINS_S + 60), (".new-1", 0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    copies.drop_remains(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".new-1"]


def test_what_is_put_is_pruned_from_the_first_on_without_reading_all(
        hosts, postgres, url):
    """Each batch read the whole session: of 200 000 recordings in 0.2 s, a large one
    never within the time of an answer, so that nothing was recorded any more."""
    session = hosts[0].create("s", Manifest(age_s=60))
    now_us = time.time_ns() // 1000

    def put(path, age_s):
        session.put([recording(
            0, request(path), created_us=now_us - age_s * 1_000_000)])

    def paths():
        return [one.request.path for one in session.recordings()]

    for path, age_s in (("/0", 30), ("/1", 30), ("/2", 10), ("/3", 61)):
        put(path, age_s)
    assert paths() == ["/0", "/1", "/2", "/3"]           # no old one is the first
    postgres.ask("UPDATE cutthrough_recordings.recordings SET created_us = created_us "
                 "- 40000000 WHERE url LIKE '%/0' OR url LIKE '%/1'", url)
    put("/4", 0)
    assert paths() == ["/2", "/3", "/4"]
    assert session.prune() == 1
    assert paths() == ["/2", "/4"]
    assert (len(session), session.size()) == (2, sum(
        size for (size,) in postgres.ask(
            "SELECT length(data) FROM cutthrough_recordings.recordings", url)))
