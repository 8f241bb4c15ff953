"""The options of capture, and the options that a rule with `capture` needs."""

import os

import pytest

from cutthrough.cli.main import main
from cutthrough.config.config import OPTIONS
from cutthrough.config.database import show_database
from cutthrough.config.redaction import parse_path
from cutthrough.exchange.redaction.json_redactor import split_path

POLICY = """
[[rules]]
action = "allow"
capture = "head"
"""


@pytest.fixture
def check(tmp_path, capsys):
    (tmp_path / "policy.toml").write_text(POLICY)

    def run(*flags):
        status = main(["check", "--policy", str(tmp_path / "policy.toml"),
                       "--user", "a", "--password", "bcd", *flags])
        return status, capsys.readouterr().err
    return run


def test_they_stand_behind_all_others():
    """Their structs are bases; fields of bases would come first."""
    names = list(OPTIONS)
    assert names[0] == "listen" and names[-1] == "recording_hooks"


def test_compression_needs_its_package(check, tmp_path, monkeypatch):
    flags = ("--capture-file", str(tmp_path / "flows.db"), "--capture-compress")
    assert check(*flags)[0] == 0
    monkeypatch.setattr("cutthrough.exchange.packing._ZSTD", None)
    status, err = check(*flags)
    assert status == 2 and "pip install 'cutthrough[codings]'" in err


def test_a_rule_that_captures_needs_a_file(check, tmp_path):
    status, err = check()
    assert status == 2
    assert "policy.toml:2" in err and "set capture_file or capture_url" in err
    assert check("--capture-file", str(tmp_path / "flows.db")) == (0, "")
    assert not (tmp_path / "flows.db").exists(), "a check makes no file"


def test_a_file_that_cannot_be_written_is_refused_at_the_start(check, tmp_path):
    status, err = check("--capture-file", str(tmp_path / "nowhere" / "flows.db"))
    assert status == 2 and "--capture-file: No such file or directory" in err
    os.symlink("/etc/hostname", tmp_path / "link")
    for path in (tmp_path, tmp_path / "link"):
        status, err = check("--capture-file", str(path))
        assert status == 2 and "is not a regular file" in err


@pytest.mark.parametrize(("text", "steps"), [
    ("password", ("password",)), ("$.user.token", ("user", "token")),
    ("items.*.key", ("items", "*", "key")), ("$..token", ("..", "token")),
    ("..a", ("..", "a")), ("a..b.c", ("a", "..", "b", "c")), ("$.a-b", ("a-b",)),
    ("$.items[*].key", ("items", "*", "key")), ("a[*]", ("a", "*")),
])
def test_a_path_has_steps(text, steps):
    assert split_path(parse_path(text)) == steps


@pytest.mark.parametrize("text", ["", "$", "$.", "a.", "a...b", "a b", "a[0]", "a[*"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(ValueError, match="is not a path"):
        parse_path(text)


def test_names_are_compared_in_lower_case(check, tmp_path):
    assert check("--capture-file", str(tmp_path / "f"), "--capture-redact-fields",
                 "X-Key,Other", "--capture-redact-query", "Token") == (0, "")
    status, err = check("--capture-redact-fields", "X Key")
    assert status == 2 and "--capture-redact-fields" in err


URL = "postgresql://proxy:s3cret@127.0.0.1:1/flows"


def test_a_database_elsewhere_is_not_asked_by_a_check(check, tmp_path):
    assert check("--capture-url", URL) == (0, "")
    (tmp_path / "url").write_text(f"{URL}\n")
    assert check("--capture-url-file", str(tmp_path / "url")) == (0, "")


@pytest.mark.parametrize("url", [
    "mysql://proxy:s3cret@host/flows", "postgresql://proxy:s3cret/a@host/flows",
    "postgresql://proxy:s3cret@a@host/flows", "postgresql://proxy:s3cret?a@host/flows",
    "postgresql://proxy:s3cret#a@host/flows", "postgresql://proxy:a@host:s3cret/flows",
    "postgresql://proxy:a@host/flows?s3cret=1", "postgresql://proxy:a@[s3cret/flows",
    "postgresql://proxy:s3cret"])
def test_an_url_that_cannot_be_read_is_refused_without_a_part_of_it(check, url):
    """R37: a password with an @ would make a part of it the host, which errors name."""
    status, err = check("--capture-url", url)
    assert status == 2 and "--capture-url" in err and "s3cret" not in err
    assert "postgresql://user:password@host" in err


def test_a_file_and_a_url_are_one_too_many(check, tmp_path):
    status, err = check("--capture-url", URL, "--capture-file", str(tmp_path / "f"))
    assert status == 2 and "both set" in err and "s3cret" not in err


@pytest.mark.parametrize(("url", "shown"), [
    (URL, "postgresql://127.0.0.1:1/flows"), ("/a/b.db", "/a/b.db"),
    ("postgres://a,b:2/c?password=s3cret", "postgresql://a,b:2/c"),
    ("postgresql:///c?host=/run", "postgresql:///c"),
    ("postgresql://[::1/s3cret", "postgresql://")])
def test_a_database_is_shown_without_user_and_password(url, shown):
    assert show_database(url) == shown
