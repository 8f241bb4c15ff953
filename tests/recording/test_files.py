"""Files are recognised by their content, and one bad file costs itself alone."""

import gzip
import json
import zlib

import pytest

from cutthrough.capture.importing import import_file
from cutthrough.cli.main import main
from cutthrough.exchange.formats.imported import NotImported, make_redactor
from cutthrough.exchange.formats.reader import read
from cutthrough.recording.formats.files import read_recordings
from cutthrough.recording.sessions.directory import Sessions
from tests.capture.dumps import dump, state
from tests.recording.archives import archive, entry
from tests.support.cassettes import BETAMAX, CASSETTE, GO, RUBY, cassette
from tests.support.simulations import exact, pair, simulation

FILES = {
    "HAR": archive(entry(1)), "mitmproxy": dump(state()), "VCR.py": cassette(),
    "go-vcr": GO.encode(), "Ruby VCR": RUBY.encode(), "betamax": BETAMAX.encode(),
    "hoverfly": simulation(pair({"path": exact("/")}))}
WRAPPED = {"plain": bytes, "gzip": gzip.compress, "zlib": zlib.compress,
           "blanks": lambda data: b"\n " + data}
# Blanks have a meaning in YAML
CASES = [(program, wrap) for program in FILES for wrap in WRAPPED
         if wrap != "blanks" or program not in ("go-vcr", "Ruby VCR")]


@pytest.mark.parametrize(("program", "wrap"), CASES)
@pytest.mark.parametrize("name", ["a", "a.har", "a.json", "a.yaml", "a.zhar"])
def test_the_name_of_a_file_says_nothing(tmp_path, program, name, wrap):
    path = tmp_path / name
    path.write_bytes(WRAPPED[wrap](FILES[program]))
    contents = read_recordings(path)
    assert contents.program == program
    assert not any(isinstance(item, NotImported) for item in contents.items)


@pytest.mark.parametrize("data", [
    b"\xef\xbb\xbf" + archive(entry(1)), "\ufeff".encode("utf-16-le") + archive(
        entry(1)).decode().encode("utf-16-le"),
    "\ufeff".encode("utf-16-le") + CASSETTE.encode("utf-16-le"),
    b"# a comment\n" + CASSETTE.encode()])
def test_marks_and_comments_may_come_first(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    assert read_recordings(tmp_path / "a").program in ("HAR", "VCR.py")


@pytest.mark.parametrize("data", [
    b"", b"  \n", b"x", b"- just\n- a list\n", b"{}", b"[]", b'[{"a": 1}]', b"{",
    b"interactions: null\n", gzip.compress(b"x" * 100, mtime=0)[:20], b"\x1f\x8bx",
    b"<html></html>", b'{"log": 1}', b'{"log": {"entries": 1}}', b"\xff\xfe"])
def test_a_file_that_is_none_of_them_is_refused(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(NotImported):
        list(read_recordings(tmp_path / "a").items)


@pytest.mark.parametrize("data", [
    b"3.14\n", b"24", b"2026-11-28 start\n", b"0\x82\x02", b"05:abc", b"5", b"5;x"])
def test_a_digit_alone_is_no_dump(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(NotImported, match="is no HTTP Archive, dump of mitmproxy"):
        read_recordings(tmp_path / "a")
    with (tmp_path / "a").open("rb") as file, pytest.raises(NotImported,
                                                            match="neither"):
        list(read(file, make_redactor(keep_credentials=False)))


def run(tmp_path, *files):
    return main(["recordings", "import", "--directory", str(tmp_path / "recordings"),
                 "default", *map(str, files)])


def test_one_bad_file_is_named_and_the_others_come_in(tmp_path, capsys):
    good, bad, empty = (tmp_path / name for name in ("good", "bad.yaml", "empty"))
    good.write_text(CASSETTE.split("- request: {body: null")[0] + "version: 1\n")
    bad.write_text("- just\n- a list\n")
    empty.write_text("interactions: []\nversion: 1\n")
    assert run(tmp_path, bad, tmp_path / "missing", tmp_path) == 1
    assert not list((tmp_path / "recordings").glob("*.recordings")), "no session"
    capsys.readouterr()
    assert run(tmp_path, bad, good, tmp_path / "missing", empty, good) == 1
    output, errors = capsys.readouterr()
    lines = errors.splitlines()
    assert len(lines) == 2 and str(bad) in lines[0] and "missing: No such" in lines[1]
    assert "recordings added" in output
    assert len(Sessions(tmp_path / "recordings").open("default")) == 2
    assert run(tmp_path, empty) == 0


def test_captures_are_read_from_compressed_files(tmp_path):
    for number, wrap in enumerate((gzip.compress, zlib.compress)):
        path = tmp_path / f"{number}"
        path.write_bytes(wrap(archive(entry(1))))
        with path.open("rb") as file:
            assert import_file(file, str(tmp_path / f"{number}.db")).added == 1


def test_what_is_inflated_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("cutthrough.exchange.formats.reader.MOST_FILE", 1 << 20)
    (tmp_path / "bomb").write_bytes(gzip.compress(
        json.dumps({"log": " " * (8 << 20)}).encode()))
    with pytest.raises(NotImported, match="longer than"):
        read_recordings(tmp_path / "bomb")


def test_entries_of_other_protocols_are_no_failure(tmp_path, capsys):
    path = tmp_path / "a"
    path.write_bytes(dump(state()) + dump(state(type="tcp")) + dump(state(type="dns")))
    assert run(tmp_path, path) == 0
    assert "2 of other protocols (dns 1, tcp 1)" in capsys.readouterr().err
