"""Sessions in files and in a database: contents, redaction (R59), retention (R58)."""

import gzip
import json
import os
import re
import stat
import subprocess
import sys
import time

import msgspec
import pytest

from cutthrough.exchange.bounds import KeyMistake
from cutthrough.recording.match.matches import Match, Miss
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.masking import Masker, Redaction
from cutthrough.recording.model.recording import (
    Chunk,
    Message,
    Pattern,
    Recording,
    Request,
    Response,
)
from cutthrough.recording.sessions.directory import VALUES, Sessions
from cutthrough.recording.sessions.places import open_sessions
from cutthrough.recording.sessions.session import Manifest, SessionError
from cutthrough.storage.store import StoreError
from cutthrough.tape.batch import Batch
from tests.recording.answers import matcher_of, recording, request

REDACTION = Redaction(fields=("x-key",), query=("token",), json=("password", "$..key"),
                      body=(r"sk-(\w+)", r"pin=\d+"))
JSON = (("Content-Type", "application/json"),)


@pytest.fixture
def files(tmp_path):
    return Sessions(tmp_path / "sessions")


@pytest.fixture(params=["files", "postgres"])
def database(request):
    """The URL of an empty database; "": sessions are files."""
    if request.param == "files":
        return ""
    return request.getfixturevalue("postgres").make()


@pytest.fixture
def sessions(tmp_path, database):
    made = open_sessions(tmp_path / "sessions", database)
    yield made
    made.close()


@pytest.fixture
def written(tmp_path, database, request):
    """All bytes that are kept."""
    def run():
        found = b"".join(
            path.read_bytes() for path in (tmp_path / "sessions").iterdir())
        if database:
            server = request.getfixturevalue("postgres")
            rows = server.ask("SELECT data FROM cutthrough_recordings.recordings "
                              "UNION ALL SELECT manifest FROM "
                              "cutthrough_recordings.sessions", database)
            found += server.dump(database) + b"".join(data for data, in rows)
        return found
    return run


@pytest.fixture
def session(sessions):
    made = sessions.create("a", Manifest(redaction=REDACTION))
    yield made
    made.close()


@pytest.fixture
def masker():
    return Masker(REDACTION, b"k" * 32)


def test_sessions_are_created_listed_and_deleted(sessions):
    for name in ("b", "a.1"):
        sessions.create(name).close()
    assert sessions.names() == ["a.1", "b"]
    with pytest.raises(SessionError, match="already"):
        sessions.create("b")
    sessions.delete("b")
    assert sessions.names() == ["a.1"]
    for verb in (sessions.open, sessions.delete):
        with pytest.raises(SessionError, match="no session 'b'"):
            verb("b")


@pytest.mark.parametrize("name", [
    "", ".", "..", "../a", "a/b", ".key", "a\0", "a" * 101])
def test_a_name_never_leaves_the_directory(sessions, name):
    for verb in (sessions.create, sessions.open, sessions.delete):
        with pytest.raises(SessionError, match="is no name"):
            verb(name)


def test_files_are_the_owners_alone(tmp_path):
    old = os.umask(0)
    try:
        session = Sessions(tmp_path / "s").create("a")
        session.add([recording(0, request())])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode)
                 for path in (tmp_path / "s").iterdir()}
    finally:
        os.umask(old)
    session.close()
    assert modes == dict.fromkeys(
        ("key", "a.session", "a.session-wal", "a.session-shm"), 0o600)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


def test_what_was_added_is_there_after_a_restart(sessions):
    full = Recording(
        request=Request(method="POST", scheme="https", host="a", port=1, path="/",
                        query="b=1", fields=(("A", "b"),), body=b"\x00\xff",
                        protocol="HTTP/2"),
        response=Response(status=200, reason="OK", fields=(("B", "c"),), head_us=3,
                          chunks=(Chunk(4, b"x"), Chunk(9, b"y")),
                          trailers=(("T", "u"),), messages=(
                              Message(5, True, "text", b"hi"),
                              Message(6, False, "close", b"", 1000))),
        created_us=7, hits=2, tags=("t",), patterns=(Pattern(part="path", value="/"),),
        requires={"a": "b"}, sets={"c": "d"}, removes=("e",), delay_us=8)
    first = sessions.create("a", Manifest(comment="one"))
    (kept,) = first.add([full])
    first.close()
    again = sessions.open("a")
    assert list(again.recordings()) == [kept]
    assert kept == msgspec.structs.replace(full, number=1)
    assert again.manifest.comment == "one" and again.manifest.created_us
    again.close()


def test_recordings_are_edited_deleted_and_counted(session):
    session.add([recording(0, request(f"/{path}")) for path in "abc"])
    one = session.get(2)
    assert session.edit(msgspec.structs.replace(one, tags=("new",)))
    assert session.get(2).tags == ("new",)
    assert not session.edit(msgspec.structs.replace(one, number=9))
    session.hit({1: 2, 2: 1})
    assert [each.hits for each in session.recordings()] == [2, 1, 0]
    assert session.delete([1, 9]) == 1
    assert session.get(1) is None and len(session) == 2
    assert session.add([recording(0, request())])[0].number == 4


def test_counts_of_replays_are_of_their_recordings(session):
    session.add([recording(0, request(f"/{path}")) for path in "abcd"])
    session.hit({1: 2, 2: 3, 3: 1})
    session.hit({1: 1})
    assert session.get(1).hits == 3
    assert [row.hits for row in session.rows("", 9)] == [0, 1, 3, 3]
    assert [each.hits for each in session.search("")] == [0, 1, 3, 3]
    session.edit(msgspec.structs.replace(session.get(2), tags=("new",)))
    session.hit({2: 1})
    assert session.get(2).hits == 4
    session.delete([1])
    session.set_bounds(2, 0.0)
    session.prune()
    assert [each.hits for each in session.recordings()] == [1, 0]


def test_a_count_of_an_earlier_program_stays(tmp_path):
    first = Sessions(tmp_path / "s").create("a")
    first.add([recording(0, request(f"/{path}")) for path in "ab"])
    first._base.execute("UPDATE recordings SET hits = 5 WHERE number = 1")
    assert [each.hits for each in first.recordings()] == [5, 0]
    first.hit({1: 2, 2: 1})
    assert [each.hits for each in first.recordings()] == [7, 1]
    first.close()


def test_a_count_does_not_write_its_recording_again(tmp_path):
    sessions = Sessions(tmp_path / "s")
    first = sessions.create("a")
    body = b"b" * 4000
    first.add([recording(0, request(f"/{n}", body=body)) for n in range(500)])
    first.close()                            # its log is in the file then
    again = sessions.open("a")
    again.hit(dict.fromkeys(range(1, 501), 1))
    assert (tmp_path / "s" / "a.session-wal").stat().st_size < 200_000
    again.close()


def test_a_search_finds_words_in_urls_tags_fields_and_bodies(session):
    session.add([
        recording(0, request("/alpha", fields=(("X-A", "omega"),))),
        recording(0, request("/beta", "gamma delta"), tags=("slow",))])
    for words, wanted in {"ALPHA": [1], "omega": [1], "gamma delta": [2], "slow": [2],
                          "alpha gamma": [], "a.example": [2, 1], "": [2, 1]}.items():
        assert [one.number for one in session.search(words)] == wanted, words


def test_the_oldest_go_beyond_the_count_and_the_age(sessions):
    now_us = time.time_ns() // 1000
    session = sessions.create("a", Manifest(count=3))
    session.add([recording(0, request(f"/{path}")) for path in "abcd"])
    assert [one.request.path for one in session.recordings()] == ["/b", "/c", "/d"]
    session.set_bounds(0, 60)
    session.add([recording(0, request("/old"), created_us=now_us - 61_000_000)])
    assert [one.request.path for one in session.recordings()] == ["/b", "/c", "/d"]
    session.close()
    again = sessions.open("a")
    assert (again.manifest.count, again.manifest.age_s) == (0, 60)
    assert again.prune() == 0
    again.close()

def test_what_is_pruned_is_known_without_reading_the_file(tmp_path):
    """A player looks for the lowest number, and at the count of edits."""
    sessions = Sessions(tmp_path)
    made = sessions.create("a", Manifest(count=5, age_s=60))
    other, seen = sessions.open("a"), sessions.open("a")
    edits, now_us = seen.edits(), time.time_ns() // 1000

    def put(session, count, us=now_us):
        session.put([recording(0, request(), created_us=us) for _ in range(count)])
    put(made, 3)
    put(other, 4)                            # which `made` has not counted
    put(made, 2)
    assert [one.number for one in seen.recordings()] == [5, 6, 7, 8, 9]
    with pytest.raises(StoreError):          # nothing of it is counted
        made.put_rows([Batch.of([(None,) * len(VALUES)], len(VALUES))])
    put(made, 1)
    assert (seen.span()[0], len(seen), seen.edits()) == (6, 5, edits)
    assert made.delete([8]) == 1
    assert (seen.span()[0], len(seen)) == (6, 4) and seen.edits() > edits
    put(made, 1)
    assert (seen.span()[0], len(seen)) == (6, 5)
    edits = seen.edits()
    with made._changed():                    # time passes
        made._base.execute("UPDATE recordings SET created_us = ? WHERE number IN "
                           "(6, 7, 10)", (now_us - 70_000_000,))
    put(made, 1)
    assert [one.number for one in seen.recordings()] == [9, 10, 11, 12]
    assert seen.edits() == edits
    assert made.prune() == 1
    assert [one.number for one in seen.recordings()] == [9, 11, 12]
    assert seen.edits() > edits              # one in the middle
    assert seen.delete([9, 11, 12]) == 3 and made.span() == (0, 0)
    for one in (made, other, seen):
        one.close()


@pytest.mark.parametrize("content", [b"no database, but long enough to look", b""])
def test_a_file_that_is_no_session_is_refused(files, tmp_path, content):
    (tmp_path / "sessions" / "a.session").write_bytes(content)
    with pytest.raises(StoreError):
        files.open("a")


def test_a_malformed_redaction_leaves_no_file(sessions):
    with pytest.raises(KeyMistake):
        sessions.create("a", Manifest(redaction=Redaction(body=("(",))))
    assert sessions.names() == []


SECRET = "hunter2hunter2"
SECRETS = [
    request(fields=(("Authorization", f"Bearer {SECRET}"), ("Cookie", SECRET),
                    ("X-Key", SECRET), ("Referer", f"http://a/?token={SECRET}"))),
    request(f"/?a=1&token={SECRET}&to%6ben={SECRET}"),
    request(body=json.dumps({"password": SECRET, "a": [{"key": SECRET}]}), fields=JSON),
    request(body=f'{{"password": "{SECRET}"'),
    request(body=f"\ufeff {{\"password\": \"{SECRET}\"}}"),
    request(body=f"a=1&token={SECRET}"),
    request(body=f"say sk-{SECRET}, twice sk-{SECRET}"),
    request(body=f"say sk-{SECRET}".encode("utf-16"),
            fields=(("Content-Type", "text/plain; charset=utf-16"),)),
    request(body=b"\xff sk-" + SECRET.encode()),
    request(body=gzip.compress(json.dumps({"password": SECRET}).encode()),
            fields=(*JSON, ("Content-Encoding", "gzip"))),
    request(body=f"sk-{SECRET}", fields=(("Content-Encoding", "unknown"),)),
    request(body=f'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n{SECRET}',
            fields=(("Content-Type", "multipart/form-data; boundary=b"),)),
]


@pytest.mark.parametrize("one", SECRETS, ids=range(len(SECRETS)))
def test_no_secret_of_a_request_is_kept_and_it_still_matches(session, written, one):
    session.add([recording(0, one)])
    found = written()
    for coded in (SECRET.encode(), SECRET.encode("utf-16")[2:]):
        assert coded not in found
    (kept,) = session.recordings()
    assert b"hunter2" not in kept.request.body.replace(b"\0", b"")
    fields = tuple(name.lower() for name, _ in one.fields)
    key = Key(fields=tuple(name for name in fields if name != "content-encoding"))
    assert isinstance(matcher_of(session, Route(key=key)).match(one), Match)
    if b"\x1f\x8b" not in one.body[:2]:      # compressed bytes do not hold the word
        other = msgspec.structs.replace(
            one, query=one.query.replace(SECRET, "other"),
            fields=tuple((k, v.replace(SECRET, "other")) for k, v in one.fields),
            body=one.body.replace(SECRET.encode(), b"other").replace(
                SECRET.encode("utf-16")[2:], "other".encode("utf-16")[2:]))
        assert isinstance(matcher_of(session, Route(key=key)).match(other), Miss)


def test_no_secret_of_an_answer_is_kept(session, written):
    session.add([Recording(request=request(), response=Response(
        status=200, fields=(
            ("Set-Cookie", SECRET), ("Set-Cookie", f"id={SECRET}; x={SECRET}; Path=/"),
            *JSON),
        trailers=(("X-Key", SECRET),),
        chunks=(Chunk(1, b'{"password": "hunter2'), Chunk(5, b'hunter2", "b": 1}')),
        messages=(Message(1, True, "text", f"pin=123 sk-{SECRET}".encode()),
                  Message(2, False, "binary", b"\xff\x00"))),
        patterns=(Pattern(part="field", key="Authorization", how="regex", value=SECRET),
                  Pattern(part="field", key="authorization", value=SECRET),
                  Pattern(part="body", how="partial_json",
                          value=json.dumps({"password": SECRET}))))])
    found = written()
    assert SECRET.encode() not in found and b"hunter2" not in found
    (kept,) = session.recordings()
    assert [chunk.at_us for chunk in kept.response.chunks] == [5]
    assert re.fullmatch(r"id=\[redacted:[0-9a-f]{16}\]; Path=/",
                        kept.response.fields[1][1])
    assert json.loads(kept.response.body)["b"] == 1
    assert kept.response.messages[1].data == b"\xff\x00"


def test_what_was_edited_is_redacted_and_what_is_redacted_stays(session, written):
    (one,) = session.add([recording(0, SECRETS[0])])
    session.edit(one)
    assert session.get(1) == one
    session.edit(msgspec.structs.replace(one, request=SECRETS[2]))
    assert SECRET.encode() not in written()


def test_events_keep_their_pace_if_one_is_redacted(masker):
    made = masker.response(Response(
        status=200, fields=(("Content-Type", "text/event-stream"),), chunks=(
            Chunk(10, b'data: {"a": 1}\n\n'), Chunk(20, b'data: {"password": "x'),
            Chunk(30, b'y"}\n\ndata: [DONE]\n\n'))))
    assert [chunk.at_us for chunk in made.chunks] == [10, 30]
    assert made.chunks[0].data == b'data: {"a": 1}\n\n'
    assert b'"xy"' not in made.body and made.body.endswith(b"data: [DONE]\n\n")


def test_an_event_of_several_lines_is_one_document(masker):
    made = masker.response(Response(
        status=200, fields=(("Content-Type", "text/event-stream"),), chunks=(Chunk(
            1, b'event: a\r\ndata: {\r\ndata: "password": "xy"}\r\n\r\ndata: b\n\n'
               b'data: {"password"\n\n'),)))
    assert b'"xy"' not in made.body and b'"password"\n' not in made.body
    assert made.body.startswith(b'event: a\r\ndata: {\r\ndata: "password": "[redacted:')
    assert b'"}\r\n\r\ndata: b\n\ndata: [redacted:' in made.body


def test_a_body_without_secrets_stays_as_it_came(masker):
    coded = gzip.compress(b'{"a" : 1}')
    for body, fields in ((b'{ "a" :1.50}', JSON), (b"\xff\xfe\x00", ()),
                         (coded, (*JSON, ("Content-Encoding", "gzip")))):
        one = request(body=body, fields=fields)
        assert masker.request(one) is one
        made = masker.response(Response(status=200, fields=fields, chunks=(
            Chunk(1, body[:1]), Chunk(2, body[1:]))))
        assert [chunk.at_us for chunk in made.chunks] == [1, 2] and made.body == body


def test_the_hash_needs_the_key_of_the_directory(masker):
    assert masker.value("a") != Masker(REDACTION, b"l" * 32).value("a")
    assert masker.value("a") == masker.value("a") != masker.value("b")


def test_without_hashes_all_secrets_are_alike_and_those_of_another_key_too(masker):
    plain = Masker(msgspec.structs.replace(REDACTION, hashed=False), b"k" * 32)
    assert {plain.value(text) for text in ("a", "b", masker.value("a"), "[redacted]")
            } == {"[redacted]"}
    assert plain.value("") == ""


def test_what_is_put_is_kept_as_what_is_added(session):
    """Heads that are equal in a batch are masked once, and forgotten behind it."""
    fields = (("Authorization", "s3cret"), ("X-Key", "k3y"), ("Accept", "*/*"))
    sent = [recording(0, request(f"/{n}?token=t0ken", fields=fields))
            for n in range(3)]
    added = session.add(sent)
    session.put(sent)
    put = session.read_behind(3, 10)
    assert [msgspec.structs.replace(one, number=0, created_us=0) for one in put] == [
        msgspec.structs.replace(one, number=0, created_us=0) for one in added]
    assert [one.number for one in put] == [4, 5, 6]
    assert "s3cret" not in repr(put) and "s3cret" not in repr(vars(session.masker))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_many_that_are_put_keep_their_order_behind_a_deleted_one(session, count):
    session.add([recording(0, request("/old"))])
    session.delete([1])
    session.put([recording(0, request(f"/{n}")) for n in range(count)])
    assert [(one.number, one.request.path) for one in session.recordings()] == [
        (n + 2, f"/{n}") for n in range(count)]


def test_a_session_that_has_settled_can_be_copied_without_its_log(files, tmp_path):
    session = files.create("a")
    session.put([recording(0, request())])
    session.checkpoint()
    other = Sessions(tmp_path / "other")
    path = tmp_path / "sessions" / "a.session"
    (tmp_path / "other" / "a.session").write_bytes(path.read_bytes())
    copied = other.open("a")
    assert [one.request.host for one in copied.recordings()] == ["a.example"]
    copied.close()
    session.close()


def test_a_program_that_closes_a_session_leaves_the_log_of_those_that_have_it_open(
        tmp_path):
    """A worker opens a session a second time to count hits. Until then the second open
    ended SQLite's locks of the first: another program deleted the log, and recordings
    were lost, or failed with "disk I/O error"."""
    path = tmp_path / "one.session"
    session = Sessions(tmp_path).create("one")
    session.put([recording(0, request("/1"))])
    Sessions(tmp_path).open("one").close()
    subprocess.run(
        [sys.executable, "-c", "import sqlite3, sys\n"
         "base = sqlite3.connect(sys.argv[1])\n"
         "base.execute('SELECT count(*) FROM recordings').fetchone()\nbase.close()",
         str(path)], check=True)
    assert path.with_name("one.session-wal").exists()
    session.put([recording(0, request("/2"))])
    session.close()
    session = Sessions(tmp_path).open("one")
    assert [one.request.path for one in session.recordings()] == ["/1", "/2"]
    session.close()
