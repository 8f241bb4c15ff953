"""The campaign counts the imported entries, and groups the reasons of the rest."""

import json

import pytest

from bench.import_campaign import main
from tests.capture.dumps import dump, state
from tests.recording.archives import archive, entry
from tests.support.cassettes import cassette


def test_entries_are_counted_by_program_and_reasons(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/one").write_bytes(archive(
        entry(1), entry(2, response={"status": 0}), entry(3, response={"status": 0}),
        entry(4, {"url": "data:,"})))
    (tmp_path / "two.json").write_bytes(cassette())
    (tmp_path / "three").write_bytes(dump(state()) + dump(state(type="tcp")))
    (tmp_path / "four.md").write_text("# none\n")
    (tmp_path / "five.json").write_text("[")
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("HAR: 1 files, 3 entries: 1 as recordings, 3 as captures "
                        "(100.00 %, goal 97 %)")
    assert lines[1].split() == "1 not counted: data".split()
    assert lines[2].split() == "2 no recording: has no response".split()
    assert "VCR.py: 1 files, 1 entries: 1 as recordings (100.00 %, goal 99 %)" in lines
    assert "files of no known form: 1; that could not be read: 1" in lines


def test_what_came_in_answers_as_the_file_says(tmp_path, capsys):
    (tmp_path / "one.json").write_bytes(cassette())
    assert main([str(tmp_path), "--replay", "5"]) == 0
    assert capsys.readouterr().out.endswith("replayed: 1 of 1 files: 1 equal\n")


def test_less_than_a_goal_is_a_failure(tmp_path):
    one = json.loads(cassette())
    one["interactions"][0]["response"] = {}
    (tmp_path / "a").write_text(json.dumps(one))
    assert main([str(tmp_path)]) == 1


def test_nothing_is_no_success(tmp_path, capsys):
    """A directory with a wrong name ended with 0."""
    assert main([str(tmp_path)]) == 1
    with pytest.raises(SystemExit):
        main([str(tmp_path / "other")])
    assert "is no directory" in capsys.readouterr().err
