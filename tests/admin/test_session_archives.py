"""What an archive of a session makes is bounded by its length, and so is an export; a
number that is too large is a mistake of the archive (R70, R71)."""

import json
import tarfile

import pytest

from cutthrough.admin import session_archives
from cutthrough.admin.session_archives import (
    read_archive,
    unpack_into,
    write_archive,
)
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.model.recording import (
    Chunk,
    Message,
    Recording,
    Request,
    Response,
)
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.session import Manifest
from tests.support.archives_of_sessions import entry, manifest, sparse, tar
from tests.support.memory import peak_of

MIB = 1 << 20
BIG = 10 ** 30


def add(tmp_path, data, name="a"):
    folder = tmp_path / "sessions"
    return read_archive(Sessions(folder), name, str(folder), data)


def refused(tmp_path, data):
    with pytest.raises(NotImported):
        add(tmp_path, data)
    assert not (tmp_path / "sessions" / "a.session").exists()


@pytest.mark.parametrize("form", ["old", "pax"])
def test_a_sparse_file_is_none_of_an_export(tmp_path, form):
    """10 KB took 1 GiB."""
    data = sparse("a.json", 256 * MIB, form) + tar(
        {"manifest.json": manifest("a.json")})
    assert peak_of(lambda: refused(tmp_path, data)) < 16 * MIB


@pytest.mark.parametrize("size", [b"999999999999999999999", b"-512", b"5"])
def test_a_size_that_is_none_is_a_mistake(tmp_path, size):
    info = tarfile.TarInfo("a.json")
    info.pax_headers = {"size": size.decode()}
    data = info.tobuf(tarfile.PAX_FORMAT) + tar({"manifest.json": manifest()})
    with pytest.raises(NotImported):
        unpack_into(tmp_path, data)


def test_headers_of_headers_are_a_mistake(tmp_path):
    header = tarfile.TarInfo("a.json")
    header.pax_headers = {"comment": "x"}
    front = header.tobuf(tarfile.PAX_FORMAT)[:1024]
    with pytest.raises(NotImported):
        unpack_into(tmp_path, front * 5000 + bytes(1024))


def test_a_file_counts_once_for_a_manifest(tmp_path):
    """1 MiB that was listed 1000 times took 1 GiB."""
    files = {"manifest.json": manifest(*["a.json"] * 200),
             "a.json": entry(text="y" * MIB)}
    assert peak_of(lambda: refused(tmp_path, tar(files))) < 100 * MIB


@pytest.mark.parametrize("pieces", [
    {"messages": tuple(Message(n, False, "binary", bytes(MIB)) for n in range(9))},
    {"chunks": (Chunk(0, b"\xff" * (7 * MIB)),)},
    {"chunks": (Chunk(0, b'{"a":[' + b"1," * MIB + b"1]}"),)},
    {"fields": (("X", "x" * (9 * MIB)),)}, None], ids=[
        "messages", "base64", "spaces", "fields", "many"])
def test_an_export_is_bounded_whatever_it_has(tmp_path, monkeypatch, pieces):
    """Messages did not count, nor did the files' own length."""
    monkeypatch.setattr(session_archives, "MOST_BYTES", 8 * MIB)
    request = Request(method="GET", scheme="http", host="a", port=80, path="/")
    session = Sessions(tmp_path / "sessions").create("a")
    session.add([Recording(request=request, response=Response(
        status=200, **(pieces or {})))] * (1 if pieces else 9000))
    with pytest.raises(ValueError, match="recordings export"):
        write_archive(session, str(tmp_path / "sessions"))
    session.close()


@pytest.mark.parametrize("more", [
    {"request": {"port": BIG}}, {"request": {"port": -1}}, {"request": {"port": 65536}},
    {"response": {"status": BIG}}, {"response": {"status": -1}},
    {"response": {"status": 103}}, {"response": {"status": 1000}},
    {"response": {"head_us": BIG}}, {"response": {"head_us": -1}},
    {"response": {"head_asked": BIG}}, {"response": {"end_asked": -2}},
    {"response": {"chunks": [{"at_us": BIG, "data": {"text": "x"}}]}},
    {"response": {"chunks": [{"at_us": 1, "data": {"text": "x"}, "asked": BIG}]}},
    {"response": {"messages": [
        {"at_us": -BIG, "is_up": True, "kind": "text", "data": {"text": "x"}}]}},
    {"response": {"messages": [
        {"at_us": 0, "is_up": True, "kind": "close", "code": 1 << 16}]}},
    {"delay_us": BIG}, {"created_us": BIG}, {"created_us": -1}, {"hits": BIG},
    {"number": BIG}, {"tags": ["\ud800"]}], ids=json.dumps)
def test_a_number_that_no_recording_has_is_a_mistake(tmp_path, more):
    """SQLite, and MessagePack, raised an OverflowError: the answer was 500."""
    refused(tmp_path, tar({"manifest.json": manifest("a.json"),
                           "a.json": entry(**more)}))


@pytest.mark.parametrize("more", [
    {"count": BIG}, {"count": -5}, {"age_s": 1e300}, {"age_s": -5},
    {"comment": "\ud800"}, {"redaction": {"body": ["\ud800"]}}], ids=json.dumps)
def test_a_bound_that_no_session_has_is_a_mistake(tmp_path, more):
    refused(tmp_path, tar({"manifest.json": manifest(**more)}))


def test_a_session_is_of_its_host_whatever_the_manifest_says(tmp_path):
    """A session that followed another took no recordings."""
    data = tar({"manifest.json": manifest("a.json", copy_of="x", copied=[BIG, BIG]),
                "a.json": entry()})
    for _ in range(2):
        assert add(tmp_path, data)["added"] == 1


@pytest.mark.parametrize("age_s", [1e300, 1e14])
def test_a_session_with_a_bound_of_an_earlier_program_takes_recordings(tmp_path, age_s):
    Sessions(tmp_path / "sessions").create("a", Manifest(age_s=age_s)).close()
    data = tar({"manifest.json": manifest("a.json"), "a.json": entry()})
    assert add(tmp_path, data)["added"] == 1
