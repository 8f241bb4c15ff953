"""A number that no recording has costs its entry alone, whoever wrote it (R71)."""

import io
import json

import pytest

from cutthrough.cli.main import main
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.formats import exchanges
from cutthrough.recording.formats.exchanges import read_exchanges
from cutthrough.recording.formats.hoverfly import read_simulation
from cutthrough.recording.formats.replayproxy import Base, read_export
from cutthrough.recording.formats.vcr import read_cassette
from cutthrough.recording.model.ranges import checked
from cutthrough.recording.model.recording import Recording, Request, Response
from cutthrough.recording.play.stubs import make_response, make_stub
from cutthrough.recording.sessions.directory import Sessions
from tests.capture.dumps import dump, response, state
from tests.capture.dumps import request as sent
from tests.recording.archives import archive, entry, imported
from tests.support.exports import document, export

GOOD = 7                                     # the entry that comes in
SOCKET = {"_webSocketMessages": [
    {"type": "send", "opcode": 1, "time": 1.7e15, "data": "x"}]}


def only(items):
    """The error beside the good recording."""
    items = [*items]
    (good,) = [item for item in items if isinstance(item, Recording)]
    assert str(GOOD) in good.request.path
    (error,) = [item for item in items if isinstance(item, NotImported)]
    return str(error)


@pytest.mark.parametrize(("one", "what"), [
    (entry(1, response={"status": 103}), "the status 103 is none"),
    (entry(1, response={"status": 101}, **SOCKET), "at_us of a message: "),
    (entry(1, timings={"send": 2e14, "wait": 2e14, "receive": 0}), "head_us: 4"),
    (entry(1, timings={"send": 0, "wait": 2e14, "receive": 2e14}), "at_us of a chunk: ")
])
def test_an_archive(one, what):
    recordings, errors = imported(one, entry(GOOD))
    assert what in only([*recordings, *errors])


@pytest.mark.parametrize("more", [
    {"request": sent(timestamp_start=1.7e18)}, {"request": sent(timestamp_start=1e99)},
    {"response": response(status_code=10 ** 17)},
    {"response": response(status_code=199)}, {"response": response(status_code=-1)}])
def test_a_dump(more):
    """A status of 10^17 was recorded, and a time ended the import."""
    data = dump(state(**more)) + dump(state(request=sent(path=b"/%d" % GOOD)))
    only(read_exchanges(io.BytesIO(data)))


def test_the_verb_has_the_others(tmp_path, capsys):
    (tmp_path / "a.flow").write_bytes(
        dump(state(request=sent(timestamp_start=1.7e18))) + dump(state()))
    assert main(["recordings", "import", "--directory", str(tmp_path / "s"), "mine",
                 str(tmp_path / "a.flow")]) == 1
    output = capsys.readouterr()
    assert "1 recordings added" in output.out and "created_us: " in output.err
    session = Sessions(tmp_path / "s").open("mine")
    assert len(session) == 1
    session.close()


def test_whatever_an_entry_raises_is_of_that_entry(monkeypatch):
    make = exchanges.make_request

    def fail(method, url, *others):
        if url.endswith("/1"):
            raise OverflowError("too large")
        return make(method, url, *others)
    monkeypatch.setattr(exchanges, "make_request", fail)
    assert only(read_exchanges(io.BytesIO(archive(entry(1), entry(GOOD))))).startswith(
        "entry-1: OverflowError in ")


@pytest.mark.parametrize("status", [100, 103, 199])
def test_a_status_of_no_answer(tmp_path, status):
    """On replay it let a client wait for another answer."""
    def pair(number, code):
        return {"request": {"path": [{"matcher": "exact", "value": f"/{number}"}]},
                "response": {"status": code}}
    only(read_simulation(json.dumps({
        "meta": {"schemaVersion": "v5"}, "data": {"pairs": [
            pair(1, status), pair(GOOD, 200)]}}).encode()))

    def interaction(number, code):
        return {"request": {"method": "GET", "uri": f"http://a/{number}"},
                "response": {"status": {"code": code}, "body": {"string": "x"}}}
    only(read_cassette(json.dumps({"interactions": [
        interaction(1, status), interaction(GOOD, 200)]}).encode()))
    only(read_export(export(
        tmp_path, "json", document(1, uri="/1", status=status),
        document(2, uri=f"/{GOOD}")), Base("http", "a")))
    with pytest.raises(NotImported):
        make_stub("http://a/", "GET", make_response(status, None, "", b"", {}))


def test_a_text_that_cannot_be_kept_costs_its_pair_alone():
    """Half of a character ended the import."""
    def pair(path):
        return {"request": {"path": [{"matcher": "exact", "value": path}]},
                "response": {"status": 200}}
    only(read_simulation(json.dumps({
        "meta": {"schemaVersion": "v5"},
        "data": {"pairs": [pair("/\ud800"), pair(f"/{GOOD}")]}}).encode()))


@pytest.mark.parametrize("status", [0, 101, 200, 304, 451, 599, 600, 999])
def test_what_is_recorded_comes_back(status):
    recording = Recording(request=Request(
        method="GET", scheme="http", host="a", port=65535, path="/"),
        response=Response(status=status, is_cut=not status, cut_by_client=not status),
        created_us=1 << 51)
    assert checked(recording) is recording
