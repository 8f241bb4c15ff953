"""Files of other programs over the admin listener: POST /flows/import."""

import gzip
import json
import re
from importlib import resources

import pytest

from cutthrough.capture.query import MOST_IMPORT
from tests.capture.dumps import dump, state
from tests.support.admin import AUTHORIZED
from tests.support.archives import archive, entry, request
from tests.support.flows import database, filled, get, ids, reads, start
from tests.support.sanitized import SANITIZED
from tests.support.wait import wait_until

__all__ = ["database", "filled", "start"]    # fixtures

pytestmark = pytest.mark.any_loop


def post(operator, content, query="name=a.har", **fields):
    """Status, and the answer as an object or in words."""
    status, _, text = get(operator, f"/flows/import?{query}", "POST", content, **fields)
    return status, json.loads(text) if status == 200 else text.decode()


def begin(operator, size, content=b"", **fields):
    """A connection on which a file's first bytes were sent."""
    connection = operator.connection()
    connection.putrequest("POST", "/flows/import")
    for name, value in (AUTHORIZED | {"Content-Length": str(size)} | fields).items():
        connection.putheader(name, value)
    connection.endheaders(content)
    return connection


def test_an_archive_and_a_dump_are_imported_once_and_logged(filled, database):
    _, operator = filled
    asked = request(url="https://b.test/", headers=[
        {"name": "Cookie", "value": "secret"}])
    file = archive(entry(), entry(request=asked,
                                  startedDateTime="2026-03-01T12:01:00Z"))
    assert post(operator, file) == (200, {
        "imported": 2, "known": 0, "refused": 0, "reasons": [], "notes": [],
        "others": {}})
    assert ids(operator, "filter=~d+b.test") == [12]
    assert "Cookie: [redacted]\r\n" in json.loads(
        get(operator, "/flows/12")[2])["request_head"]
    assert post(operator, file, "")[1]["known"] == 2
    assert post(operator, dump(state()) + dump({"type": "tcp"}), "name=b.mitm")[1] == {
        "imported": 1, "known": 0, "refused": 0, "reasons": [], "notes": [],
        "others": {"tcp": 1}}
    assert [one for one in reads(database) if one[1] == "import"] == [
        ("127.0.0.1", "import", "a.har", 2), ("127.0.0.1", "import", "", 0),
        ("127.0.0.1", "import", "b.mitm", 1)]


def test_what_is_exported_is_known_when_it_is_imported(filled):
    _, operator = filled
    file = get(operator, "/flows.har")[2]
    get(operator, "/flows/3", "DELETE")
    assert post(operator, file)[1] == {
        "imported": 1, "known": 9, "refused": 0, "reasons": [], "notes": [],
        "others": {}}


def test_a_watcher_sees_what_is_imported(filled):
    _, operator = filled
    connection = operator.connection()
    connection.request("GET", "/flows/live", headers=AUTHORIZED)
    stream = connection.getresponse()
    post(operator, archive(entry()))
    line = stream.readline()
    while not line.startswith(b"data: "):
        line = stream.readline()
    assert [one["url"] for one in json.loads(line[6:])] == ["https://a.test/x?y=1"]
    connection.close()


def test_what_is_no_such_file_is_refused_with_its_reason(filled):
    _, operator = filled
    for content, reason in (
            (b"", "the file is empty"), (b"PK\x03\x04", "the file is neither an HTTP"),
            (b'{"log": 1}', "the file is no HTTP Archive"),
            (b"   ", "the file is neither an HTTP")):
        status, text = post(operator, content)
        assert status == 400 and text.startswith(reason), text
    assert post(operator, b"{}", "name=" + "a" * 201)[0] == 400
    assert len(ids(operator)) == 10


def test_a_file_beyond_the_bound_is_refused_before_it_comes(filled):
    _, operator = filled
    connection = begin(operator, MOST_IMPORT + 1)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (
        413, b"the file is longer than 64 MiB: use cutthrough flows import, which "
        b"takes more\n")
    connection.close()
    connection = operator.connection()
    connection.request("POST", "/flows/import", iter([b"{}"]), AUTHORIZED,
                       encode_chunked=True)
    assert connection.getresponse().status == 411
    connection.close()
    script = resources.files("cutthrough.admin").joinpath("traffic.js").read_text()
    (most,) = re.findall(r"MOST_IMPORT_MIB = (\d+)", script)
    assert int(most) << 20 == MOST_IMPORT


@pytest.mark.skipif(SANITIZED, reason="memory is the sanitizer's")
@pytest.mark.parametrize("piece", ["[],", "{},", '{"":0},', "[[[]]],"])
def test_a_file_that_becomes_too_large_in_memory_is_refused(filled, piece):
    _, operator = filled
    operator.seconds = 50               # 64 MiB are parsed: 10 s beside other tests
    n = (MOST_IMPORT - 100) // len(piece)
    content = b'{"log": {"entries": [%s0]}}' % (piece.encode() * n)
    status, reason = post(operator, content)
    assert status == 400 and "the file" in reason
    assert post(operator, archive(entry()))[1]["imported"] == 1


def test_a_large_file_comes_whole(filled):
    _, operator = filled
    text = "x" * 1_000_000
    entries = [entry(startedDateTime=f"2026-03-01T12:00:{n:02}Z",
                     comment=text) for n in range(30)]
    assert post(operator, archive(*entries))[1]["imported"] == 30


def test_an_encoded_body_is_no_second_query(filled, database):
    """The listener undid gzip, and bytes beyond the length were a query; it refuses a
    coding now."""
    _, operator = filled
    query = json.dumps({"verb": "delete", "database": str(database)}).encode()
    inner = archive(entry())
    tail = len(query).to_bytes(4, "little") + query
    content = gzip.compress(inner + tail * 50)
    assert len(content) < len(inner + tail * 50)
    status, text = post(operator, content, **{"Content-Encoding": "gzip"})
    assert status == 415 and "without a coding" in text
    assert len(ids(operator)) == 10


def test_a_client_that_goes_leaves_nothing_and_its_place(filled, database):
    proxy, operator = filled
    file = archive(entry())
    there = begin(operator, len(file), file[:-1])
    wait_until(lambda: post(operator, file)[0] == 503, "the place is taken")
    there.close()
    wait_until(lambda: post(operator, b"none")[0] == 400, "the place is free")
    assert len(ids(operator)) == 10
    assert not any(one[1] == "import" for one in reads(database))
    assert "Traceback" not in proxy.stderr()


def test_a_file_is_imported_before_anything_was_captured(start, database):
    _, operator = start()
    wait_until(database.exists, "the writer's file")
    assert post(operator, archive(entry()))[1]["imported"] == 1
    assert ids(operator) == [1]
