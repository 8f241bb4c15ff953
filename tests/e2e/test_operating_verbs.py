"""`cutthrough status`, `reload` and `drain`, at a running proxy."""

import subprocess

import pytest

from tests.support.admin import operator_of
from tests.support.terminal import on_terminal
from tests.support.verbs import run_apart
from tests.support.wait import wait_until

TOKEN = "a-token-of-the-tests"
ADMIN = f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'


@pytest.fixture
def verb(start_policy):
    """The proxy, and a function that runs a verb at its admin listener."""
    proxy = start_policy('[[rules]]\naction = "allow"\n', ADMIN)
    port = operator_of(proxy).where

    def run(*words: str, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
        return run_apart(*words, CUTTHROUGH_ADMIN=f"127.0.0.1:{port}",
                         CUTTHROUGH_ADMIN_TOKEN=token)

    return proxy, run


def test_status_says_what_serves(verb):
    proxy, run = verb
    done = run("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ready\ngeneration 1, ")
    assert "worker" in done.stdout and "0 connections" in done.stdout
    proxy.policy.write_text("[[rules]\n")
    proxy.hup()
    assert "the last reload was refused" in run("status").stdout


def test_reload_prints_its_line_and_fails_if_it_is_refused(verb):
    proxy, run = verb
    proxy.policy.write_text('[[rules]]\naction = "deny"\n')
    done = run("reload")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "generation 2: rules 1 (+1 -1)\n"
    proxy.policy.write_text("[[rules]\n")
    done = run("reload")
    assert (done.returncode, done.stdout) == (1, "")
    assert "409: reload refused, generation 2 stays in force" in done.stderr


def test_drain_ends_the_program(verb):
    proxy, run = verb
    assert run("drain").returncode == 0
    wait_until(lambda: proxy.process.poll() is not None, proxy.stderr)
    assert proxy.process.returncode == 0
    assert run("status").returncode == 1


@pytest.mark.parametrize("word", ["reload", "drain"])
def test_without_its_token_nothing_happens(verb, word):
    _, run = verb
    done = run(word, token="")
    assert done.returncode == 1 and "give the token with --token-file" in done.stderr
    assert run("status").stdout.startswith("ready\ngeneration 1, ")


@pytest.mark.parametrize("token", ["tök-en", "“quoted”", "\ufeffwith-a-mark"])
def test_a_token_goes_as_its_file_has_it(start_policy, tmp_path, token):
    """It went as Latin-1: refused, or a traceback."""
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    proxy = start_policy('[[rules]]\naction = "allow"\n',
                         f'admin = "127.0.0.1:0"\nadmin_token_file = "{file}"\n')
    done = run_apart("reload", "--token-file", file,
                     CUTTHROUGH_ADMIN=f"127.0.0.1:{operator_of(proxy).where}")
    assert (done.returncode, done.stderr) == (0, "")


def test_top_is_a_screen_that_ends_by_q(verb, dial):
    proxy, _ = verb
    client = dial(proxy)
    assert client.get("http://127.0.0.1:1/").status >= 400
    status, output = on_terminal(
        ("top", "--interval", "0.2"), 100,
        keys=[(b"sort: bytes", b"s"), (b"age", b"q")],
        CUTTHROUGH_ADMIN=f"127.0.0.1:{operator_of(proxy).where}",
        CUTTHROUGH_ADMIN_TOKEN=TOKEN)
    assert status == 0
    for text in ("cutthrough top", "requests/s", "ENDED BY", "address_denied", "USER"):
        assert text in output, output
    assert output.count("\x1b[?1049h") == output.count("\x1b[?1049l") == 1


def test_without_a_terminal_top_prints_one_look(verb):
    _, run = verb
    done = run("top", "--interval", "0.1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("generation 1, 1 worker, ")
    assert "\x1b" not in done.stdout
    done = run("top", "--interval", "0.1", "--count", "2")
    assert done.stdout.count("requests/s") == 2
