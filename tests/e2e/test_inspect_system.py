"""`cutthrough inspect --system`: the desktop's proxy, on a bus and in a home of their
own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.nginx import free_port
from tests.support.programs import need
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until

SCHEMA = "org.gnome.system.proxy"
# Of another proxy, which somebody had used
BEFORE = {f"{SCHEMA} mode": "'auto'", f"{SCHEMA}.http host": "'old.example'",
          f"{SCHEMA}.http port": "3128", f"{SCHEMA}.http use-authentication": "true",
          f"{SCHEMA}.https host": "''", f"{SCHEMA}.https port": "0"}
GENERATOR = Path(
    "/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")


class Desk:
    """A user's home and session bus. `port`: where `inspect` listens."""

    def __init__(self, home: Path, bus: str) -> None:
        self.home, self.port = home, free_port()
        self.environ = clean_environment(
            HOME=str(home), DBUS_SESSION_BUS_ADDRESS=bus, XDG_RUNTIME_DIR=str(home),
            GSETTINGS_BACKEND="dconf", XDG_CONFIG_HOME=str(home / "config"))
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "DISPLAY"):
            self.environ.pop(name, None)
        self.folder = home / ".local/state/cutthrough/inspect"
        self.variables = home / "config/environment.d/90-cutthrough.conf"

    def do(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environ, cwd=ROOT, capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def cutthrough(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cutthrough", "inspect", *words], cwd=ROOT,
            env=self.environ, capture_output=True, text=True, timeout=60)

    def gnome(self) -> dict[str, str]:
        return {key: self.do("gsettings", "get", *key.split()) for key in BEFORE}

    def keeper(self) -> psutil.Process:
        """The process that waits for the proxy's end."""
        (keeper,) = [process for process in psutil.process_iter(["cmdline"])
                    if f"127.0.0.1:{self.port}" in (process.info["cmdline"] or ())
                    and "--system" in process.info["cmdline"]]
        return keeper

    @contextlib.contextmanager
    def serving(self):
        """The process, and what it has printed."""
        with subprocess.Popen(
                [sys.executable, "-m", "cutthrough", "inspect", "--system", "--listen",
                 f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{free_port()}"],
                cwd=ROOT, env=self.environ, text=True, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE) as process:
            try:
                printed = ""
                while "  desktop " not in printed:
                    line = process.stderr.readline()
                    assert line, printed
                    printed += line
                yield process, printed
            finally:
                if process.poll() is None:
                    process.terminate()
                process.wait(20)


@pytest.fixture
def desk(directory):
    need("gsettings", "dbus-daemon")
    home = directory("home")
    with subprocess.Popen(
            ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address",
             f"--address=unix:path={home}/bus"], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=clean_environment(
                HOME=str(home), XDG_RUNTIME_DIR=str(home),
                XDG_CONFIG_HOME=str(home / "config"))) as bus:
        try:
            desk = Desk(home, bus.stdout.readline().strip())
            if SCHEMA not in desk.do("gsettings", "list-schemas").split():
                # `make test` installs it
                pytest.skip("gsettings-desktop-schemas is not installed")
            for key, value in BEFORE.items():
                desk.do("gsettings", "set", *key.split(), value)
            if desk.gnome() != BEFORE:
                # gsettings keeps values in memory then
                pytest.skip("dconf-gsettings-backend is not installed")
            yield desk
        finally:
            bus.terminate()


def is_undone(desk: Desk) -> bool:
    return desk.gnome() == BEFORE and not desk.variables.exists() and (
        not (desk.folder / "desktop.json").exists())


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_desktop_has_its_proxy_until_it_ends(desk, ending):
    with desk.serving() as (process, printed):
        assert desk.gnome() == {
            f"{SCHEMA} mode": "'manual'", f"{SCHEMA}.http use-authentication": "false",
            **{f"{SCHEMA}.{kind} {key}": value for kind in ("http", "https")
               for key, value in (("host", "'127.0.0.1'"), ("port", str(desk.port)))}}
        assert re.search(r"^  desktop +GNOME, .*new sessions", printed, re.M), printed
        password = (desk.folder / "password").read_text().strip()
        assert password in desk.variables.read_text()
        assert desk.variables.stat().st_mode & 0o777 == 0o600
        for file in (desk.home / "config/dconf").rglob("*"):
            assert file.is_dir() or password.encode() not in file.read_bytes(), file
        proxy = psutil.Process(process.pid)
        assert desk.keeper() not in (proxy, *proxy.children(recursive=True))
        os.kill(process.pid, ending)
        wait_until(lambda: is_undone(desk), lambda: str(desk.gnome()))


@pytest.mark.parametrize("words", [("--undo-system",), ("--", "true")])
def test_what_its_keeper_could_not_undo_the_next_start_does(desk, words):
    """Both are killed, as when the power fails."""
    with desk.serving() as (process, _):
        desk.keeper().kill()
        process.kill()
    assert desk.gnome()[f"{SCHEMA} mode"] == "'manual'" and desk.variables.exists()
    done = desk.cutthrough(*words)
    assert done.returncode == 0, done.stderr
    assert "the desktop's proxy is undone: GNOME, " in done.stderr
    assert is_undone(desk)
    again = desk.cutthrough("--undo-system")
    assert (again.returncode, again.stdout) == (0, "nothing is left to undo\n")


def test_what_somebody_has_set_since_stays(desk):
    with desk.serving() as (process, _):
        desk.do("gsettings", "set", SCHEMA, "mode", "'none'")
        desk.variables.write_text("A=b\n")
        process.terminate()
        wait_until(lambda: not (desk.folder / "desktop.json").exists(), "undone")
        assert desk.gnome() == BEFORE | {f"{SCHEMA} mode": "'none'"}
        assert desk.variables.read_text() == "A=b\n"


def test_two_do_not_set_it_and_a_command_has_variables(desk):
    with desk.serving():
        done = desk.cutthrough("--system", "--listen", f"127.0.0.1:{free_port()}")
        assert done.returncode == 1 and "another `cutthrough inspect" in done.stderr
        assert desk.cutthrough("--", "true").returncode == 0
        assert desk.gnome()[f"{SCHEMA} mode"] == "'manual'", "it is in use"
    done = desk.cutthrough("--system", "--", "true")
    assert done.returncode == 2 and "takes no" in done.stderr
    wait_until(lambda: is_undone(desk), lambda: str(desk.gnome()))


def test_a_bus_that_keeps_nothing_is_said(desk):
    desk.environ["GSETTINGS_BACKEND"] = "memory"
    with desk.serving() as (process, printed):
        assert f"GNOME: {SCHEMA}" in printed and "is not kept" in printed
        assert re.search(r"^  desktop   (KDE, )?new sessions", printed, re.M), printed
        process.terminate()
        wait_until(lambda: not desk.variables.exists(), "undone")


def test_sessions_get_the_variables_of_a_shell(desk):
    if not GENERATOR.exists():
        # of a host without systemd
        pytest.skip("systemd's generator is not installed")
    with desk.serving():
        exports = desk.do(sys.executable, "-m", "cutthrough", "inspect", "--env",
                          "--listen", f"127.0.0.1:{desk.port}")
        exported = desk.do("sh", "-c", f"{exports}\nenv -0").split("\0")
        given = desk.do("sh", "-c", f"set -a; eval \"$({GENERATOR})\"; env -0")
        ours = {variable for variable in exported if re.match(
            r"(\w+_proxy|\w*CA\w*|SSL_CERT_FILE|CUTTHROUGH_BEHIND)=.", variable, re.I)}
        assert len(ours) > 10 and ours <= {*given.split("\0")}


def test_kde_has_it_too(desk):
    need("kwriteconfig5", "kreadconfig5")
    file = desk.home / "config/kioslaverc"
    file.write_text("[Proxy Settings]\nProxyType=2\nhttpsProxy=old.example 3128\n")
    before = file.read_text()
    with desk.serving() as (process, printed):
        assert "GNOME, KDE, new sessions" in printed
        text = file.read_text()
        assert "ProxyType=1\n" in text
        assert text.count(f"Proxy=http://127.0.0.1 {desk.port}\n") == 2
        process.terminate()
        wait_until(lambda: sorted(file.read_text().split()) == sorted(before.split()),
                   file.read_text)
