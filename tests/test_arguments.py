"""The command line: its verbs, arguments that cannot be used, errors of the system."""

import argparse
import errno
import subprocess
import sys
from importlib import import_module

import pytest

from cutthrough.cli import main as cli
from cutthrough.cli.verbs import VERBS, make_parser, parse
from cutthrough.config.settings import flag_name
from tests.support.proxy import ROOT, clean_environment
from tests.support.verbs import run_verb

# As sys.argv has the octet E9, by Python's surrogateescape
BROKEN = "caf\udce9"
REQUEST = ("CONNECT", "a.example:443")


@pytest.mark.parametrize("words", [
    ("explain", "CONNECT", BROKEN),
    ("route", "GET", BROKEN),
    ("explain", "GET", "/", "--host", BROKEN),
    ("explain", *REQUEST, "--client-ja4", BROKEN),
    ("explain", *REQUEST, "--http2-fingerprint", BROKEN),
    ("explain", *REQUEST, "--tlv", "a=b", "--tlv", f"authority={BROKEN}"),
    ("ca", "init", "--name", BROKEN),
    ("conns", "--admin", "127.0.0.1:1", "--trace", BROKEN),
    ("init", BROKEN, "--dry-run"),
    ("run", "--cassette", BROKEN, "--", "true"),
], ids=" ".join)
def test_an_argument_that_is_not_utf_8_is_refused(words, tmp_path):
    """They were tracebacks, where it was to be encoded."""
    done = run_verb(*words, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("cutthrough: error: command line: ")
    assert done.stderr.endswith("caf\\u{dce9}: is not UTF-8\n")


def test_a_command_may_have_any_argument():
    """Names of files are octets."""
    command = ["--", "touch", BROKEN]
    assert parse(["run", "--cassette", "c", *command]).command == command
    assert parse(["inspect", *command]).command == command


@pytest.mark.parametrize("words", [
    ("flows", "show"), ("flows", "diff", "1"), ("flows", "delete", "--id"),
    ("flows", "list", "--limit"), ("flows", "follow", "--lines"),
    ("recordings", "show", "c"), ("recordings", "delete", "c", "--id"),
    ("recordings", "list", "c", "--limit"), ("top", "--count"),
], ids=" ".join)
@pytest.mark.parametrize("text", [str(1 << 63), "-1", "9" * 5000, "1.0"], ids=len)
def test_a_number_that_no_row_can_have_is_refused(capsys, words, text):
    """A number of more than 63 bits was a traceback of SQLite."""
    if not text.startswith("-"):
        words = (*words, text)
    elif words[-1].startswith("--"):
        words = (*words[:-1], f"{words[-1]}={text}")
    else:
        words = (*words, "--", text)
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
    assert f"invalid number value: '{text}'" in capsys.readouterr().err


def test_a_missing_temporary_directory_is_not_called_standard_output(
        monkeypatch, capsys):
    """`run` has none in a container whose root is read-only."""
    def fail(_):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")
    monkeypatch.setattr(cli, "dispatch", fail)
    monkeypatch.setattr(cli.os, "dup2", lambda *_: 0)
    monkeypatch.setattr(cli.sys.stdout, "fileno", lambda: 1)
    assert cli.finish([]) == 1
    assert capsys.readouterr().err == (
        "cutthrough: No usable temporary directory found\n")


def test_a_verb_promises_the_options_that_it_takes():
    """`mcp --help` showed `--OPTION VALUE` and told of variables, and took none."""
    for verb, sub in verbs_of(make_parser()):
        takes = all(flag_name(name) in sub._option_string_actions
                    for name in ("listen", "head_timeout"))
        assert VERBS[verb].takes_options == takes, verb
        assert ("--OPTION" in sub.format_usage()) == takes, verb
        assert ("environment variable" in sub.format_help()) == takes, verb


def test_the_module_of_each_verb_has_its_run():
    for verb, (_, _, module, _) in VERBS.items():
        if module:
            assert callable(import_module(f"cutthrough.{module}").run), verb


def verbs_of(parser):
    return next(action for action in parser._actions
                if isinstance(action, argparse._SubParsersAction)).choices.items()


@pytest.mark.parametrize(("words", "status", "said"), [
    ("passwd ann", 1, "cutthrough: no password was given\n"),
    ("suggest --log -", 0, ""),
], ids=lambda value: value if isinstance(value, str) else "")
def test_an_input_that_is_closed_is_empty(words, status, said):
    """Python has no sys.stdin then: `passwd`, `mcp` and `recordings edit` ended with a
    traceback."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "cutthrough",
         *words.split()], cwd=ROOT, timeout=60, text=True, capture_output=True,
        env=clean_environment())
    assert (done.returncode, done.stderr) == (status, said)
