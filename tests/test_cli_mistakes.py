"""Mistakes on the command line and in files, as people read them."""

import subprocess
import sys

from tests.support.proxy import ROOT, clean_environment
from tests.support.terminal import on_terminal


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "cutthrough", *arguments], cwd=ROOT, timeout=30,
        text=True, stdin=subprocess.DEVNULL, capture_output=True,
        env=clean_environment())


def test_a_mistake_has_colours_on_a_terminal_alone(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("hed_timeout = 1\n")
    words = ("check", str(file))
    assert "\x1b" not in run(*words).stderr
    status, output = on_terminal(words)
    assert status == 2 and "\x1b[31m    ^^^^^^^^^^^\x1b[0m" in output
    assert f"cutthrough: \x1b[1m{file}:1:1: hed_timeout: no such option" in output
    assert "\x1b" not in on_terminal(words, NO_COLOR="1")[1]


def test_a_list_whose_file_is_not_there_is_named(tmp_path):
    """Only the file was, and not the line that needs it."""
    path = tmp_path / "policy.toml"
    path.write_text('[lists]\nx = { file = "x.txt" }\n'
                    '[[rules]]\naction = "deny"\nhosts = ["@x"]\n')
    assert run("check", "--policy", str(path)).stderr == (
        f"cutthrough: {path}:2:5: lists.x: {tmp_path}/x.txt: No such file or "
        "directory\n"
        '    x = { file = "x.txt" }\n        ^^^^^^^^^^^^^^^^^^\n')
