"""Rows that are made at once: as those that are made of recordings."""

import gzip
import random
import sqlite3
from pathlib import Path

import msgspec
import pytest

from cutthrough.exchange.messages import Piece
from cutthrough.recording.model.masking import Masker, Redaction
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.record.conversion import (
    Converter,
    NotRecordable,
    make_recording,
)
from cutthrough.recording.record.recorder import Recorder
from cutthrough.recording.record.row_encoder import FAILED, RowEncoder
from cutthrough.recording.sessions import wal_size
from cutthrough.recording.sessions.directory import VALUES, Session
from cutthrough.recording.sessions.offsets import Offset
from cutthrough.recording.sessions.session import masked
from cutthrough.storage.settings import Recordings
from cutthrough.storage.store import StoreError
from cutthrough.tape.batch import Batch
from tests.recording.exchanges import ended

MASKER = Masker(Redaction(fields=("x-key",)), b"k" * 32)
GET = "GET /x?y=1 HTTP/1.1\r\nHost: a\r\nVia: 1.1 p\r\n\r\n"
SECRETS = GET.replace("Host: a", "Host: a\r\nCookie: c=s3cret\r\nX-Key: s3cret")
CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CODED = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
PACKED = gzip.compress(b"it was s3cret")
ECHO = "the answer repeats a secret"
USER = "user information in its URL"
PLAIN = "HTTP/1.1 200 OK\r\nSet-Cookie: a=s3cret; Path=/\r\n\r\n"


def long_way(one, masker=MASKER):
    """The row as a recording makes it, its data decoded."""
    (found,) = masked(masker, [make_recording(one)])
    return decoded(Session._values(found))


def decoded(row):
    return *row[:-1], msgspec.msgpack.decode(row[-1], type=Recording)


def row_of(one, masker=MASKER):
    batch = Batch(len(VALUES))
    reason = RowEncoder(masker, batch).add(one)
    return next(iter(batch), None) if reason is None else None


def asks(line, **more):
    return ended(PLAIN, up_head=GET.replace("GET /x?y=1 HTTP/1.1", line), **more)


def sends(body, *, head="", **more):
    return ended(up_head=f"POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n", up=body,
                 up_bytes=len(body), **more)


@pytest.mark.parametrize("one", [
    ended(), ended(PLAIN, up_head=SECRETS),
    ended(down=()), ended(down=(b"", b"a", b"")),
    ended(down=(b"x" * 300, b"y" * 70_000, *[b"z"] * 20), wait_us=1 << 33),
    ended(down=(b"x",) * 70_000), ended(head_at_us=5000, wait_us=0),
    ended("HTTP/1.1 301 to http://bob:s3cret@h/\r\n\r\n"),
    ended("HTTP/1.0 404\r\n\r\n"), ended("HTTP/1.1 200 \xfc\r\nX: \xe4\r\n\r\n"),
    asks("GET /? HTTP/1.1"), asks("GET /?? HTTP/1.1"), asks("GET /a?b?c HTTP/1.0"),
    asks(f"GET /{'long' * 200}?{'q' * 70_000} HTTP/1.1"), asks("OPTIONS * HTTP/1.1"),
    asks("GET / HTTP/1.1", is_intercepted=True, port=443, host="::1"),
    asks("GET / HTTP/1.1", is_intercepted=True, port=80),
    sends(b"hello"), sends(b"hello", head="Content-Length: 5\r\n"),
    sends(b"5\r\nhello\r\n0\r\n\r\n", up_chunked=True),
    sends(b"5\r\nhello\r\n0\r\n\r\n", head="Transfer-Encoding: Chunked\r\n"),
    ended(CODED, (PACKED,)), ended(CODED, (b"cut",), up_head=SECRETS),
    ended(CODED, (gzip.compress(b"hello"),), up_head=SECRETS),
    ended(CHUNKED, (b"3\r\nabc\r", b"\n2\r\nde\r\n0\r\n", b"\r\n"), down_chunked=True),
])
def test_a_row_has_what_the_recording_has(one):
    made = row_of(one)
    assert decoded(made) == long_way(one)
    assert "s3cret" not in repr(made)


@pytest.mark.parametrize("one", [
    ended(reason="client_reset"), ended(was_cut=True), ended(""), ended(up_head=""),
    ended(up_bytes=1), ended(down_bytes=(1 << 64) - 1), ended(down_bytes=4),
    ended("HTTP/1.1 304 Not Modified\r\n\r\n"), ended("HTTP/1.1 x\r\n\r\n"),
    ended("nothing"), asks("GET /"), asks("GET / a HTTP/1.1"), ended(up_head="GET / "),
    sends(b"5\r\nhello\r\n", up_chunked=True),
    sends(b"", head="Transfer-Encoding: chunked\r\n"),
    sends(b"", head="Content-Length: 5\r\n"),
    sends(b"hell", head="Content-Length: 5\r\n"),
    ended(CHUNKED, (b"3\r\nabc\r\n",), down_chunked=True),
    ended(CHUNKED, (b"x\r\n",), down_chunked=True),
    ended(CHUNKED, (b"0\r\n\r\nmore",), down_chunked=True),
])
def test_what_cannot_be_a_recording_makes_no_row(one):
    assert row_of(one) is None
    with pytest.raises((NotRecordable, ValueError)):
        make_recording(one)


@pytest.mark.parametrize(("one", "reason"), [
    (asks("GET /\xfc HTTP/1.1"), "an odd first line, or no ASCII"),
    (asks("GET /?u=http://bob:s3cret@h/ HTTP/1.1"), USER),
    (asks("GET /?u=http%3A%2F%2Fbob%3As3cret%40h HTTP/1.1"), USER),
    (asks("GET /f/http://bob:s3cret@h/ HTTP/1.1"), USER),
    (ended(host="\xfc"), "an odd first line, or no ASCII"),
    (ended(begun_us=0), "its begin is unknown"),
    (ended(CHUNKED, (b"0\r\nT: u\r\n\r\n",), down_chunked=True), "trailers"),
    (ended(up_head=SECRETS, down=(b"s3c", b"ret")), ECHO),
    (ended("HTTP/1.1 200 OK\r\nX-Got: s3cret\r\n\r\n", up_head=SECRETS), ECHO),
    (ended(CODED, (PACKED[:9], PACKED[9:]), up_head=SECRETS), ECHO),
    (ended("HTTP/1.1 101 X\r\n\r\n", (), pieces=[Piece(False, 500, b"\x81\x02hi")],
           down_bytes=4), "a WebSocket"),
])
def test_what_is_rare_takes_the_slow_path_by_a_recording(one, reason):
    batch = Batch(len(VALUES))
    assert RowEncoder(MASKER, batch).add(one) == reason and not len(batch)
    assert "s3cret" not in repr(long_way(one))


def test_slow_paths_are_counted_by_their_reasons(recorder):
    assert recorder.write([*numbered(0, 9)]) == 0
    assert recorder.slow_paths == {"trailers": 3, "a part is missing": 1}


def test_a_fault_of_rows_is_logged_if_a_recording_can_be_made(recorder, caplog):
    """It was taken for an exchange that cannot be a recording, and nobody was told."""
    class Faulty(Masker):
        def echoes(self, fields):
            raise LookupError

    batch = Batch(len(VALUES))
    encoder = RowEncoder(Faulty(Redaction(), b"k" * 32), batch)
    converter = Converter("", "streams")
    assert encoder.add(ended()) is FAILED and not len(batch)
    for _ in range(3):
        assert converter.take_slow_path(ended(), {}, FAILED, encoder.error) is not None
    assert converter.slow_paths == {FAILED: 3}
    assert [record.getMessage().partition(" in ")[0] for record in caplog.records] == [
        "a recording's row was made the long way: LookupError"] * 2


BATCH = "multipart/mixed; boundary=b"


@pytest.mark.parametrize("is_up", [True, False])
def test_a_batch_has_no_credentials_either_way(is_up):
    """R59. Without keys of bodies: it was kept as it came."""
    body = (b"--b\r\nContent-Type: application/http\r\n\r\nGET /a HTTP/1.1\r\n"
            b"Authorization: Bearer s3cret-token\r\nX-Key: s3cret\r\n\r\n\r\n--b--\r\n")
    kind = f"\r\nContent-Type: {BATCH}\r\n\r\n"
    ask = GET.replace("GET", "POST").replace("\r\n\r\n", kind if is_up else "\r\n\r\n")
    answer = "HTTP/1.1 200 OK\r\n\r\n"
    one = ended(up_head=ask, up=body, up_bytes=len(body),
                down=(b"you are s3cret-token",)) if is_up else ended(
        answer.replace("\r\n\r\n", kind), up_head=ask, down=(body,))
    batch = Batch(len(VALUES))
    assert RowEncoder(MASKER, batch).add(one) == "bodies are redacted"
    assert b"s3cret" not in msgspec.msgpack.encode(
        MASKER.recording(make_recording(one)))


@pytest.mark.parametrize("redaction", [
    Redaction(query=("y",)), Redaction(json=("a",)), Redaction(body=("h.llo",))])
def test_if_bodies_are_redacted_no_row_is_made(redaction):
    assert row_of(ended(), Masker(redaction, b"k" * 32)) is None


def test_exchanges_of_a_batch_do_not_change_each_other():
    source = random.Random(9)
    heads = [PLAIN, CHUNKED, "HTTP/1.1 404 None\r\nX: 1\r\n\r\n"]
    batch = Batch(len(VALUES))
    encoder = RowEncoder(MASKER, batch)
    for number in range(500):
        down = tuple(source.randbytes(source.choice((0, 1, 300)))
                     for _ in range(source.randrange(4)))
        one = ended(
            source.choice(heads), down, wait_us=source.randrange(1 << 20),
            up_head=source.choice((GET, SECRETS)).replace("y=1", f"y={number}"),
            port=source.choice((80, 443, 8080)), begun_us=number + 1)
        assert encoder.add(one) is None
        assert decoded([*batch][-1]) == long_way(one)


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(Recordings(
        directory=str(tmp_path / "made"), session="a", count=0, age=0, fields=(),
        query=(), json=(), body=(), hooks="", code="", url=""))
    yield made
    made.close()


def numbered(first, count):
    """Every third one has trailers, and the fourth is not whole."""
    for number in range(first, first + count):
        head = GET.replace("/x", f"/{number}")
        yield ended(CHUNKED, (b"0\r\nT: u\r\n\r\n",), down_chunked=True,
                    up_head=head) if number % 3 == 0 else ended(
            up_head=head, was_cut=number == first + 4)


def paths(recorder):
    return [int(recording.request.path[1:])
            for recording in recorder.writer_of().open().recordings()]


def test_rows_and_recordings_are_written_in_their_order(recorder):
    assert recorder.write([*numbered(0, 200)]) == 0
    assert paths(recorder) == [n for n in range(200) if n != 4]


def test_rows_that_cannot_be_written_wait_as_recordings(recorder, monkeypatch, caplog):
    session = recorder.writer_of().open()

    def fail(rows, _offset):
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(session, "put_rows", fail)
        assert recorder.write([*numbered(0, 10)]) == 0
    assert recorder.fails and "s3cret" not in caplog.text
    assert recorder.write([*numbered(10, 10)]) == 0
    recorder.writer_of()._tried = 0.0
    recorder.on_idle()
    assert not recorder.fails
    assert paths(recorder) == [n for n in range(20) if n not in (4, 14)]
    assert "1 so far" in caplog.text and "3 so far" not in caplog.text


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_rows_wait_whichever_part_of_them_cannot_be_written(
        recorder, monkeypatch, caplog, parts):
    session = recorder.writer_of().open()
    insert = session._inserter.insert

    def fail(rows):
        nonlocal parts
        parts -= 1
        if parts < 0:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
            raise error
        return insert(rows)

    with monkeypatch.context() as patch:
        patch.setattr(session._inserter, "insert", fail)
        assert recorder.write([*numbered(0, 300)]) == 0
    assert len(recorder.writer_of().waiting) == 299 and paths(recorder) == []
    recorder.writer_of()._tried = 0.0
    recorder.on_idle()
    assert paths(recorder) == [n for n in range(300) if n != 4]


def test_a_turn_of_which_nothing_is_recorded_changes_nothing(recorder):
    """A full disk, for one, does not matter to it."""
    assert recorder.write([ended()], Offset(7, 100, False)) == 0
    base = recorder.writer_of().open()._base
    before = base.total_changes
    assert recorder.write([ended(was_cut=True)], Offset(7, 200, False)) == 0
    assert base.total_changes == before


def test_bodies_are_read_before_the_file_is_locked(recorder, monkeypatch):
    session = recorder.writer_of().open()
    session.masker = Masker(Redaction(json=("$.a",)), b"k" * 32)
    parts, insert = [], session._inserter.insert
    monkeypatch.setattr(session._inserter, "insert",
                        lambda rows: parts.append(len(rows)) or insert(rows))
    assert recorder.write([*numbered(0, 200)]) == 0 and parts == [199]
    session.masker = MASKER
    assert recorder.write([*numbered(200, 200)]) == 0 and len(parts) > 3


@pytest.mark.parametrize("size, count, bounds", [
    (500, 1, 0), (2500, 2, 0), (2500, 500, 0), (9000, 300, 0), (40_000, 50, 0),
    (2500, 1000, 2000), (9000, 300, 1000)])
def test_the_log_of_a_session_is_moved_before_sqlite_does_it(
        recorder, monkeypatch, size, count, bounds):
    """In a transaction it would hold up the ring."""
    monkeypatch.setattr(wal_size, "CHECKPOINT_BYTES", 6 << 20)
    writer, longest, moves = recorder.writer_of(), 0, 0
    session = writer.open()
    session.set_bounds(bounds, 0)
    session._base.execute(f"PRAGMA wal_autocheckpoint = {100 << 20 >> 14}")
    log = Path(f"{session._path}-wal")
    for _ in range(max(60, (40 << 20) // (size * count)) if count > 2 else 300):
        before = session.wal_size
        assert recorder.write([ended(down=(b"x" * size,))] * count) == 0
        longest = max(longest, log.stat().st_size)
        moves += before.is_long
        recorder.checkpoint()
    assert moves and longest < 14 << 20, (moves, longest)


def test_a_row_that_can_never_be_written_does_not_wait(recorder, monkeypatch):
    def fail(batches, _offset):
        next(batches)
        raise ValueError("too long")

    with monkeypatch.context() as patch:
        patch.setattr(recorder.writer_of().open(), "put_rows", fail)
        assert recorder.write([*numbered(0, 100)]) == 0
    assert not recorder.fails and recorder._converter.failures.take() == 99
    assert recorder.write([*numbered(100, 3)]) == 0
    assert paths(recorder) == [100, 101, 102]
