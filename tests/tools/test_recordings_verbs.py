"""`cutthrough mode` and `cutthrough recordings`, by the files of a directory."""


import json

import msgspec
import pytest

from cutthrough.cli.main import main
from cutthrough.recording.model.recording import Pattern, Request
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import read_state
from cutthrough.tools.recordings import LEFT_OUT, tell_export
from tests.support.recordings import fill, made

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


SECRET = Request(method="GET", scheme="http", host="127.0.0.1", port=9, path="/secret",
                 fields=(("Authorization", "Bearer s3cr3t-token"),))


def test_hashes_match_where_their_key_is(run, folder, tmp_path, capsys):
    """On another machine each request with a secret was missed, without a message."""
    session = Sessions(folder).open("default")
    session.add([msgspec.structs.replace(made(9), request=SECRET)])
    key, out = tmp_path / "key-of-ci", tmp_path / "out"
    assert run("recordings", "export", "default", out)[0] == 0
    assert not key.exists() and not any(one.name == "key" for one in out.iterdir())
    assert run("recordings", "export", "default", out, "--key-file", key)[0] == 0
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes() == (folder / "key").read_bytes()
    assert key.read_bytes().hex() not in (out / "manifest.json").read_text()

    def there(name, *flags):
        """Whether it matches there, and the errors."""
        main(["recordings", "import", "s", str(out), "--directory",
              str(tmp_path / name), *flags])
        said = capsys.readouterr().err
        kept = Sessions(tmp_path / name).open("s")
        return kept.masker.request(SECRET) in [
            one.request for one in kept.recordings()], said

    assert there("new", "--key-file", str(key)) == (True, "")
    matches, said = there("other")
    assert not matches and "made with another key" in said and "--key-file" in said
    # Sessions that are there would not match any longer
    status, said = run("recordings", "import", "t", out, "--key-file", key,
                       "--directory", tmp_path / "other")
    assert status == 1 and "has sessions with another key" in said
    # A key is never written over
    assert run("recordings", "export", "default", out, "--key-file", key)[0] == 1
    (tmp_path / "short").write_bytes(b"x")
    status, said = run("recordings", "import", "t", out, "--key-file",
                       tmp_path / "short")
    assert status == 1 and "has not 32 bytes" in said


def test_a_device_without_an_end_is_no_key(run, tmp_path):
    status, said = run("recordings", "import", "t", tmp_path, "--key-file", "/dev/zero")
    assert (status, said) == (
        1, "cutthrough: /dev/zero: has not 32 bytes, so it is no key\n")


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


def opened(folder, name):
    return Sessions(folder).open(name)


def test_a_session_is_made_with_what_is_configured_and_what_flags_say(
        run, folder, tmp_path):
    file = tmp_path / "proxy.toml"
    file.write_text('recording_count = 7\nrecording_redact_query = ["token"]\n')
    assert run("recordings", "create", "a", "-c", file, "--age", "2d",
               "--redact-fields", "X-Secret", "--redact-fields", "X-Other",
               "--comment", "for CI") == (0, "session a created\n")
    kept = opened(folder, "a").manifest
    assert (kept.count, kept.age_s, kept.comment) == (7, 2 * 86400, "for CI")
    assert kept.redaction.fields == ("x-secret", "x-other")
    assert kept.redaction.query == ("token",)
    status, said = run("recordings", "create", "a")
    assert status == 1 and "there is a session 'a' already" in said
    for words, reason in (
            (["../b"], "is no name of a session"), (["b", "--age", "5"], "--age: '5'"),
            (["b", "--redact-body", "("], "--redact-body: '(' is no regular"),
            (["b", "--redact-json", "$[0]"], "--redact-json: ")):
        status, said = run("recordings", "create", *words)
        assert status and reason in said
    assert Sessions(folder).names() == ["a", "default"]


def test_bounds_of_a_session_are_changed_and_hold_at_once(run, folder):
    """They could be set for new sessions alone."""
    assert run("recordings", "set", "default", "--count", "1", "--age", "7d") == (
        0, "session default: count 1, age 168h; 1 recording\n")
    session = opened(folder, "default")
    assert [one.request.path for one in session.recordings()] == ["/b"]
    assert run("recordings", "set", "default", "--count", "0")[1] == (
        "session default: count 0, age 168h; 1 recording\n")
    assert opened(folder, "default").manifest.age_s == 7 * 86400
    assert run("recordings", "set", "default")[0] == 2
    assert run("recordings", "set", "none", "--count", "1")[0] == 1


def test_a_recording_is_edited_as_it_is_shown(run, folder, tmp_path):
    status, text = run("recordings", "show", "default", "2")
    table = json.loads(text)
    table["response"]["status"] = 203
    table["request"]["fields"] = [["Authorization", "Bearer s3cret"]]
    file = tmp_path / "one.json"
    file.write_text(json.dumps(table))
    before = opened(folder, "default").get(2)
    assert run("recordings", "edit", "default", "2", file) == (
        0, "recording 2 of default replaced\n")
    after = opened(folder, "default").get(2)
    assert (after.response.status, after.created_us) == (203, before.created_us)
    assert "s3cret" not in after.request.field("authorization"), "R59"
    assert run("recordings", "edit", "default", "9", file)[0] == 1
    for change, reason in (
            ({"template": True, "response": {**table["response"], "chunks": [
                {"at_us": 0, "data": {"text": "{{ x"}}]}}, "one.json"),
            ({"patterns": [{"part": "path", "how": "regex", "value": "("}]},
             "is no regular expression"),
            ({"request": 1}, "one.json")):
        file.write_text(json.dumps(table | change))
        status, said = run("recordings", "edit", "default", "2", file)
        assert status == 1 and reason in said
    file.write_text("[1]")
    assert run("recordings", "edit", "default", "2", file)[0] == 1
    assert opened(folder, "default").get(2) == after


def test_every_read_is_logged_in_the_session(run, folder, tmp_path):
    """R59: reads and exports left no line."""
    run("recordings", "list", "default")
    run("recordings", "list", "default", "items")
    run("recordings", "show", "default", "2")
    run("recordings", "show", "default", "9")
    run("recordings", "export", "default", tmp_path / "out")
    _, said = run("recordings", "reads", "default")
    assert [line.split("  ")[2:] for line in said.splitlines()] == [
        ["export json", "2 found"], ["show 9", "0 found"], ["show 2", "1 found"],
        ["list items", "0 found"], ["list", "2 found"]]
    assert all("  uid " in line for line in said.splitlines())


def test_what_an_export_leaves_out_is_named(run, folder, tmp_path, capsys):
    """It reported "3 recordings", and 2 were written."""
    session = opened(folder, "default")
    session.add([made(9, "/c")])
    one = session.get(3)
    session.edit(msgspec.structs.replace(one, patterns=(
        Pattern(part="path", how="glob", value="/c*"),)))
    session.close()
    status, _ = run("recordings", "export", "default", tmp_path / "a", "--form", "vcr")
    assert status == 1
    cassette = (tmp_path / "a").read_text()
    assert cassette.count("uri: ") == 2
    status = tell_export([(3, f"{LEFT_OUT}why"), (1, "without its tags")], 3,
                         tmp_path / "a")
    out, err = capsys.readouterr()
    assert (status, out) == (1, f"2 of 3 recordings in {tmp_path / 'a'}\n")
    assert err == ("cutthrough: recording 3: left out: why\n"
                   "cutthrough: recording 1: without its tags\n")
    assert run("recordings", "export", "default", tmp_path / "b") == (
        0, f"3 recordings in {tmp_path / 'b'}\n")


def test_a_folder_that_is_no_whole_export_is_named(run, tmp_path):
    """Both were "No such file or directory", of the folder, which is there."""
    assert run("recordings", "export", "default", tmp_path / "out")[0] == 0
    (gone, _) = sorted((tmp_path / "out").glob("GET*"))
    gone.unlink()
    (tmp_path / "cassettes").mkdir()
    (tmp_path / "cassettes" / "a.yaml").write_text("interactions: []\nversion: 1\n")
    for name, reason in (
            ("out", f"there is no {gone.name} in it, that manifest.json names"),
            ("cassettes", "there is no manifest.json in it, so it is no export: name "
                          "the files in it")):
        path = tmp_path / name
        assert run("recordings", "import", "default", path) == (
            1, f"cutthrough: {path}: {reason}\n")


def test_the_presets_are_a_part_of_a_configuration(capsys, tmp_path):
    assert main(["recordings", "presets"]) == 0
    (tmp_path / "proxy.toml").write_text(
        f'recording_directory = "{tmp_path}"\n' + capsys.readouterr().out)
    assert main(["check", str(tmp_path / "proxy.toml")]) == 0
