"""`cutthrough passwd` and `check` from outside: one line of a file, and only that."""

import os
import shutil
import subprocess
import sys
import threading

import pytest

from cutthrough.generation.policy_files import load_users, read_text
from cutthrough.policy.users import check_hash, read_htpasswd
from cutthrough.tools.passwd import put_line
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import PATIENCE

APR1 = "$apr1$AAyMeLbL$lI7zKL5SwAzW.izj5pix5/"


def passwd(*arguments, typed=b"one\n"):
    return subprocess.run(
        [sys.executable, "-m", "cutthrough", "passwd", *map(str, arguments)], cwd=ROOT,
        timeout=30, input=typed, capture_output=True, env=clean_environment())


def check(file):
    return subprocess.run(
        [sys.executable, "-m", "cutthrough", "check", "--users-file", str(file)],
        cwd=ROOT, timeout=30, capture_output=True, text=True, env=clean_environment())


@pytest.mark.parametrize("typed", [b"one\n", b"one\r\n", b"one", b"one\ntwo\n"])
def test_without_a_file_the_line_is_printed(typed):
    done = passwd("ann", "--algorithm", "sha512", typed=typed)
    assert (done.returncode, done.stderr) == (0, b"")
    user = read_htpasswd(done.stdout.decode(), "")["ann"]
    assert user.hash.startswith("$6$") and check_hash(user.hash, b"one")


def test_a_line_is_added_or_replaced_and_the_rest_stays(tmp_path):
    file = tmp_path / "users"
    file.write_text(f"# staff\nann:{APR1}:comment\nanna:{APR1}\n\nbob:{APR1}")
    file.chmod(0o640)
    assert passwd("ann", "--file", file).returncode == 0
    assert passwd("new", "--file", file, "--algorithm", "argon2").returncode == 0
    lines = file.read_text().split("\n")
    assert [lines[i] for i in (0, 2, 3, 4, 6)] == [
        "# staff", f"anna:{APR1}", "", f"bob:{APR1}", ""]
    users = read_htpasswd(file.read_text(), "")
    assert list(users) == ["ann", "anna", "bob", "new"]
    assert users["ann"].hash.startswith("$2b$12$")
    assert all(check_hash(users[name].hash, b"one") for name in ("ann", "new"))
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["users"]


def test_a_new_file_is_nobody_elses_to_read(tmp_path):
    assert passwd("ann", "--file", tmp_path / "users").returncode == 0
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o600
    assert check(tmp_path / "users").returncode == 0


def test_a_link_is_followed_and_not_replaced(tmp_path):
    (tmp_path / "link").symlink_to("users")
    assert passwd("ann", "--file", tmp_path / "link").returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "users").read_text().startswith("ann:")


@pytest.mark.parametrize(("arguments", "typed", "reason"), [
    (["a:b"], b"one\n", b"cannot contain a colon"),
    ([""], b"one\n", b"the user name is empty"),
    (["ann"], b"\n", b"a password has 1 to 1024 bytes"),
    (["ann"], b"a\x07b\n", b"no control characters"),
    (["ann"], b"x" * 73 + b"\n", b"72 bytes at most"),
])
def test_what_cannot_be_used_exits_2_with_the_reason(arguments, typed, reason):
    done = passwd(*arguments, typed=typed)
    assert (done.returncode, done.stdout) == (2, b"")
    assert reason in done.stderr and done.stderr.count(b"\n") == 1
    assert typed.strip() == b"" or typed.strip() not in done.stderr


def test_no_password_exits_1():
    done = passwd("ann", typed=b"")
    assert (done.returncode, done.stderr) == (1, b"cutthrough: no password was given\n")


@pytest.mark.parametrize("there", ["a\u0308nna", "\ufeffänna"])
def test_a_line_of_the_same_name_in_another_spelling_is_replaced(tmp_path, there):
    """It was appended, and then the file was refused: the user was in it twice. Behind
    a byte order mark the name was another one, which nobody could have."""
    file = tmp_path / "users"
    file.write_text(f"{there}:{APR1}\n")
    assert [*load_users(str(file))] == ["änna"]
    assert passwd("änna", "--file", file).returncode == 0
    assert file.read_text().startswith("änna:$2b$")
    assert file.read_text().count("\n") == 1
    assert check(file).returncode == 0


def test_a_file_that_is_none_of_users_is_left_alone(tmp_path):
    file = tmp_path / "notes"
    file.write_text("my notes\n")
    done = passwd("ann", "--file", file)
    assert done.returncode == 2
    assert f"{file}:1: the line is not name:hash".encode() in done.stderr
    assert file.read_text() == "my notes\n"
    assert passwd("ann", "--file", tmp_path / "none" / "users").returncode == 1


@pytest.mark.skipif(shutil.which("htpasswd") is None, reason="htpasswd is not there")
@pytest.mark.parametrize("algorithm", ["bcrypt", "sha512"])
def test_htpasswd_reads_what_is_written(tmp_path, algorithm):
    file = tmp_path / "users"
    assert passwd("ann", "--file", file, "--algorithm", algorithm).returncode == 0
    for secret, status in (("one", 0), ("two", 3)):
        assert subprocess.run(["htpasswd", "-vb", file, "ann", secret],
                              capture_output=True).returncode == status


@pytest.mark.parametrize(("text", "reason"), [
    (f"ann:{APR1}\nbob\n", ":2: the line is not name:hash"),
    ("\n", "lists no users"),
    (None, "No such file or directory"),
    (b"ann:\xff", "is not UTF-8"),
])
def test_check_names_what_is_wrong_with_a_file(tmp_path, text, reason):
    file = tmp_path / "users"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = check(file)
    assert (done.returncode, done.stdout) == (2, "")
    where = "command line: --users-file: " if text is None else ""
    assert done.stderr.startswith(f"cutthrough: {where}{file}:")
    assert reason in done.stderr


def test_a_user_of_both_places_is_an_error(tmp_path):
    file = tmp_path / "users"
    file.write_text(f"ann:{APR1}\n")
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "check", "--users-file", str(file),
         "--user", "ann", "--password", "x"], cwd=ROOT, timeout=30, text=True,
        capture_output=True, env=clean_environment())
    assert done.returncode == 2
    assert "'ann' is also the configured `user`" in done.stderr


def test_without_a_file_no_library_of_hashes_is_loaded():
    """The demonstration's start does not change."""
    code = ("import asyncio, sys, cutthrough\n"
            "async def main():\n"
            "    async with cutthrough.serve(): pass\n"
            "asyncio.run(main())\n"
            "print(sorted({'bcrypt', 'argon2', 'passlib', 'ctypes', "
            "'cutthrough.policy.users'} & sys.modules.keys()))")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=30, text=True,
                          capture_output=True, env=clean_environment())
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_two_at_a_time_lose_no_line(tmp_path, monkeypatch):
    file = tmp_path / "users"
    other = threading.Thread(target=put_line, args=(str(file), "bob", f"bob:{APR1}"))

    def read(path):
        text = read_text(path) if file.exists() else ""
        if not other.ident:
            other.start()
            other.join(0.5)                 # with a lock it does not end meanwhile
        return text

    file.touch()
    monkeypatch.setattr("cutthrough.tools.passwd.read_text", read)
    put_line(str(file), "ann", f"ann:{APR1}")
    other.join(PATIENCE)
    assert sorted(read_htpasswd(file.read_text(), "")) == ["ann", "bob"]
