"""`cutthrough mode` and `cutthrough recordings`, by the files of a directory."""


import pytest

from cutthrough.cli import main
from cutthrough.recording.modes import read_state
from tests.e2e.test_recording import fill, made

VARIABLE = "CUTTHROUGH_RECORDING_DIRECTORY"


@pytest.fixture
def folder(tmp_path):
    fill(tmp_path / "sessions", made(9), made(9, "/b"))
    return tmp_path / "sessions"


@pytest.fixture
def run(folder, capsys, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    def ask(*words):
        status = main([*map(str, words)])
        out, err = capsys.readouterr()
        return status, out or err
    return ask


@pytest.mark.parametrize("name", ["../evil", "new one", ".hidden", "a" * 101])
def test_a_mode_s_session_has_a_name(run, folder, name):
    """It was set, and recordings of then went into the next session."""
    status, said = run("mode", "record", "--session", name)
    assert status == 1 and "is no name of a session" in said
    assert not (folder / "mode").exists()


def test_a_directory_that_is_none_is_refused(run, tmp_path):
    """It was made, and the mode of no proxy was changed."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("")
    for path, reason in ((tmp_path / "typo", "there is no such directory"),
                         (tmp_path / "home", "has other files, and no recordings"),
                         (tmp_path / "home" / "letter", "Not a directory")):
        for words in (("mode", "replay"), ("mode",), ("recordings", "list"),
                      ("recordings", "delete", "default")):
            status, said = run(*words, "--directory", path)
            assert status == 2 and f"--directory: {path}: {reason}" in said
    assert not (tmp_path / "typo").exists()
    assert [*(tmp_path / "home").iterdir()] == [tmp_path / "home" / "letter"]


def test_the_mode_may_be_set_before_a_proxy_has_started(run, tmp_path):
    (tmp_path / "new").mkdir()
    assert run("mode", "record", "--directory", tmp_path / "new")[0] == 0
    assert read_state(tmp_path / "new").mode == "record"


def test_the_directory_of_run_is_found_by_itself(run, monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    theirs = tmp_path / "cutthrough" / "recordings"
    for words in (("mode",), ("recordings", "list")):
        status, said = run(*words)
        assert status == 2 and VARIABLE in said and f"there is no {theirs}" in said
    fill(theirs, made(9), name="checkout")
    assert run("recordings", "list") == (0, "checkout\t1\n")
    assert run("mode", "replay")[0] == 0 and read_state(theirs).mode == "replay"
