"""Reads from the disk never block: pipes have a bound, devices are refused."""

import contextlib
import os
import pwd
import subprocess
import sys
import threading

import pytest

from cutthrough.ca.store import default_directory
from cutthrough.config import files
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import HOMELESS, FileError, home_of, read_file
from cutthrough.config.settings import from_options, load
from cutthrough.generation.policy_files import load_policy
from cutthrough.policy.source import PolicyError
from cutthrough.tools.database import default_flows
from tests.support.proxy import ROOT, clean_environment


@pytest.fixture
def pipe(tmp_path, monkeypatch):
    """A FIFO, and a program that began long ago."""
    monkeypatch.setattr(files, "_deadline", 1e-9)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("option", ["file", "users_file", "policy", "password_file"])
def test_a_pipe_without_a_writer_is_refused_by_a_reload(pipe, option):
    """open(2) waited for ever, and with it the supervisor."""
    with pytest.raises((ConfigError, PolicyError), match="a pipe that no writer has f"):
        if option == "file":
            load((), {}, str(pipe))
        elif option == "password_file":
            load(["--user", "me", "--password-file", str(pipe)])
        else:
            load_policy(from_options(**{option: str(pipe)}))


def test_a_pipe_that_stays_open_is_refused(pipe):
    keeper = os.open(pipe, os.O_RDWR)
    try:
        os.write(keeper, b"listen =")
        with pytest.raises(FileError, match="a pipe that no writer has filled and"):
            read_file(str(pipe))
    finally:
        os.close(keeper)


def test_a_pipe_is_read_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_deadline", 0.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 200_000,))
    writer.start()
    assert read_file(str(pipe)) == b"x" * 200_000
    writer.join()


def test_a_substituted_process_is_a_configuration():
    done = subprocess.run(
        ["bash", "-c", '"$1" -m cutthrough check -c <(echo "max_fields = 5")', "bash",
         sys.executable], cwd=ROOT, capture_output=True, text=True, timeout=30,
        env=clean_environment())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("path", "reason"), [
    ("/dev/zero", "is a device"), ("/dev/tty", "device|No such"), ("/", "directory")])
def test_what_is_no_file_is_refused(path, reason):
    with pytest.raises(ConfigError, match=reason):
        load((), {}, path)


def test_dev_null_is_an_empty_file():
    assert load((), {}, "/dev/null").max_fields == Config().max_fields


def test_a_file_without_end_is_refused(tmp_path):
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(files.MOST_BYTES + 1)
    with pytest.raises(FileError, match="longer than"):
        read_file(str(path))


@pytest.mark.parametrize("given", [{}, {"HOME": ""}, {"HOME": "some/where"}])
def test_a_user_without_a_home_has_none_where_the_user_is(given, monkeypatch):
    """R55: a container's user got an authority in `./~`."""
    assert home_of(given) == pwd.getpwuid(os.getuid()).pw_dir

    def missing(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", missing)
    assert home_of(given) == HOMELESS
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert default_directory().startswith(HOMELESS)
    assert default_flows({}).startswith(HOMELESS)
    assert home_of({"HOME": "/home/user"}) == "/home/user"


# Windows' editors write a byte order mark
@pytest.mark.parametrize(("data", "said"), [
    (b"\xef\xbb\xbfidle_timeout = '1s'\n", ""),
    ("idle_timeout = '1s'\n".encode("utf-16"), "is UTF-16: save it as UTF-8"),
    (b"watch = true\n# \xff\n", "is not UTF-8, in line 2"),
])
@pytest.mark.parametrize("option", ["file", "policy", "password_file"])
def test_a_file_is_utf_8_with_or_without_a_mark(tmp_path, option, data, said):
    """With the mark the first line of a configuration was no statement, and a password
    was another one. Without UTF-8, the reason was Python's."""
    path = tmp_path / "file"
    if option == "policy":
        data = data.replace(b"idle_timeout = '1s'", b"default = 'allow'").replace(
            b"watch = true", b"cut = true")
    elif option == "password_file" and not said:
        data = data.replace(b"idle_timeout = '1s'\n", b"secret")
    path.write_bytes(data)
    with contextlib.ExitStack() as stack:
        if said:
            stack.enter_context(pytest.raises((ConfigError, PolicyError), match=said))
        if option == "file":
            assert load((), {}, str(path)).idle_timeout == 1
        elif option == "password_file":
            given = load(["--user", "me", "--password-file", str(path)])
            assert given.password == "secret"
        else:
            assert load_policy(from_options(
                policy=str(path), user="me", password="secret")).default == "allow"


def test_a_start_names_the_limit_of_a_file_s_size():
    """Memory that processes share counts too: it said "File too large" alone."""
    code = ("import os, resource, sys; "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)); "
            "os.execv(sys.executable, [sys.executable, '-m', 'cutthrough', 'serve', "
            "'--listen', '127.0.0.1:0', '--access-log', 'off'])")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True,
                          capture_output=True, env=clean_environment())
    assert done.returncode == 1
    assert done.stderr.endswith("File too large (ulimit -f: 100000 bytes)\n")
