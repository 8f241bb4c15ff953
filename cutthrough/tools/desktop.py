"""The desktop's proxy, set while `cutthrough inspect --system` serves.

    GNOME and its kin    gsettings                       no password
    KDE                  kioslaverc, by kwriteconfig     no password
    sessions that begin  environment.d/90-cutthrough.conf, readable by its owner

The former values are in NOTE before anything is changed. A process of its own waits for
the end of the proxy, by SIGKILL too, and undoes all. If it is killed itself, or the
power fails, the next `cutthrough inspect` of the user does that. A value that is no
longer ours was set by somebody else, and stays.

Desktops have no password, because a browser asks for it once, and dconf's file goes
into backups; variables need it, because curl and its kin cannot ask.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cutthrough.ca.store import write_file
from cutthrough.config.files import home_of

NOTE, LOCK, VARIABLES = "desktop.json", "desktop.lock", "90-cutthrough.conf"
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
PATIENCE_S = 10.0                            # with a program of the desktop
_UNSET = "(unset)"


class DesktopError(Exception):
    """A setting that was not made, with the reason."""


class Settings(Protocol):
    """Values by keys, in their own notation; None: there is none. Both raise OSError
    and DesktopError."""

    name: str

    def read(self, key: str) -> str | None: ...

    def write(self, key: str, value: str | None) -> None: ...


class Gnome:
    """A key is a schema and its key; a value is GVariant text."""

    name = "GNOME"

    def read(self, key: str) -> str | None:
        return _run("gsettings", "get", *key.split())

    def write(self, key: str, value: str | None) -> None:
        if value is None:
            _run("gsettings", "reset", *key.split())
        else:
            _run("gsettings", "set", *key.split(), value)

    @staticmethod
    def values(host: str, port: int) -> dict[str, str]:
        schema = "org.gnome.system.proxy"
        # Another proxy's credentials are not for this one
        return {f"{schema}.http use-authentication": "false",
                **{f"{schema}.{kind} {key}": value for kind in ("http", "https")
                   for key, value in (("host", f"'{host}'"), ("port", str(port)))},
                f"{schema} mode": "'manual'"}


class Kde:
    """A key is one of the group "Proxy Settings" of kioslaverc."""

    name = "KDE"

    def read(self, key: str) -> str | None:
        value = _run(self._program("kreadconfig"), *self._place(key), "--default",
                     _UNSET)
        return None if value == _UNSET else value

    def write(self, key: str, value: str | None) -> None:
        _run(self._program("kwriteconfig"), *self._place(key),
             *(["--delete"] if value is None else [value]))
        with contextlib.suppress(OSError, DesktopError):     # what runs reads it again
            _run("dbus-send", "--session", "--type=signal", "/KIO/Scheduler",
                 "org.kde.KIO.Scheduler.reparseSlaveConfiguration", "string:")

    @staticmethod
    def _program(name: str) -> str:
        return f"{name}6" if shutil.which(f"{name}6") else f"{name}5"

    @staticmethod
    def _place(key: str) -> list[str]:
        return ["--file", "kioslaverc", "--group", "Proxy Settings", "--key", key]

    @staticmethod
    def values(host: str, port: int) -> dict[str, str]:
        way = f"http://{f'[{host}]' if ':' in host else host} {port}"
        return {"httpProxy": way, "httpsProxy": way, "ProxyType": "1"}


class Sessions:
    """A key is the path of a file of environment.d(5); a value is its text."""

    name = "new sessions"

    def read(self, key: str) -> str | None:
        path = Path(key)
        return path.read_text() if path.exists() else None

    def write(self, key: str, value: str | None) -> None:
        path = Path(key)
        if value is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            write_file(key, value.encode(), 0o600, True)

    @staticmethod
    def values(variables: Mapping[str, str], environ: Mapping[str, str]
               ) -> dict[str, str]:
        home = environ.get("XDG_CONFIG_HOME") or os.path.join(
            home_of(environ), ".config")
        lines = ["# Made, and removed again, by cutthrough inspect --system.\n"]
        for name, value in variables.items():
            if not value:                    # environment.d(5) has no empty values
                continue
            for mark in ("\\", '"', "$", "`"):
                value = value.replace(mark, "\\" + mark)
            lines.append(f'{name}="{value}"\n')
        return {os.path.join(home, "environment.d", VARIABLES): "".join(lines)}


SETTINGS: dict[str, Settings] = {
    settings.name: settings for settings in (Gnome(), Kde(), Sessions())}


def _run(*command: str) -> str:
    """Runs a command and returns its output. Raises OSError and DesktopError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise DesktopError(f"{command[0]} does not end") from None
    if done.returncode:
        raise DesktopError(done.stderr.strip() or f"{command[0]} failed")
    return done.stdout.strip()


class Desktop:
    """The settings of this user, with the note and the lock in `folder`."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._note = self._folder / NOTE

    def set(self, changes: Mapping[str, Mapping[str, str]]
            ) -> tuple[list[str], list[str]]:
        """Sets values by name and key, until this process ends. Returns the names of
        what is set, and a line for each that could not be. Raises OSError, and
        DesktopError if another proxy has set it."""
        lock = self._lock()
        if lock is None:
            raise DesktopError("another `cutthrough inspect --system` has set the "
                               "desktop's proxy, and has not ended")
        try:
            if left := self.undo()[1]:
                raise DesktopError(f"an earlier start has left {'; '.join(left)}")
            self._start_keeper()
            names, faults = [], []
            for name, values in changes.items():
                try:
                    self._set(name, values)
                    names.append(name)
                except (OSError, DesktopError) as error:
                    faults.append(f"{name}: {error}")
            return names, faults
        finally:
            os.close(lock)                   # the keeper has it, too

    def undo_what_was_left(self) -> tuple[list[str], list[str]]:
        """As `undo`, unless the proxy that has set it has not ended. Raises OSError."""
        if not self._note.exists() or (lock := self._lock()) is None:
            return [], []
        try:
            return self.undo()
        finally:
            os.close(lock)

    def undo(self) -> tuple[list[str], list[str]]:
        """Restores what the note has. Returns the names of what was restored, and a
        line for each that could not be, which stays in the note. Raises OSError."""
        names, faults = [], []
        left: dict[str, dict[str, list[str | None]]] = {}
        for name, changes in self._read_note().items():
            for key, (before, own) in reversed(changes.items()):
                try:
                    if SETTINGS[name].read(key) != own:
                        continue
                    SETTINGS[name].write(key, before)
                    names.append(name)
                except (OSError, DesktopError) as error:
                    faults.append(f"{name}: {error}")
                    left.setdefault(name, {})[key] = [before, own]
        if left:
            self._write_note(left)
        else:
            self._note.unlink(missing_ok=True)
        return list(dict.fromkeys(names)), list(dict.fromkeys(faults))

    def _set(self, name: str, values: Mapping[str, str]) -> None:
        """Raises OSError and DesktopError."""
        settings, note = SETTINGS[name], self._read_note()
        note[name] = {key: [settings.read(key), own] for key, own in values.items()}
        self._write_note(note)
        for key, own in values.items():
            settings.write(key, own)
            if settings.read(key) != own:    # without a bus, gsettings forgets it
                raise DesktopError(f"{key} is not kept")

    def _lock(self) -> int | None:
        """None: another process has it."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                       0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _start_keeper(self) -> None:
        """A process that undoes all when this one ends. It is nobody's child: a proxy
        waits for its own."""
        watched = os.pidfd_open(os.getpid())
        if child := os.fork():
            os.close(watched)
            os.waitpid(child, 0)
            return
        try:
            os.setsid()                      # no signal of the terminal
            if os.fork() == 0:
                os.chdir("/")
                null = os.open(os.devnull, os.O_RDWR)
                for stream in range(3):
                    os.dup2(null, stream)
                end = select.poll()
                end.register(watched, select.POLLIN)
                end.poll()
                self.undo()
        finally:
            os._exit(0)

    def _read_note(self) -> dict[str, dict[str, list[str | None]]]:
        try:
            return dict(json.loads(self._note.read_text()))
        except FileNotFoundError:
            return {}

    def _write_note(self, note: Mapping[str, Mapping[str, list[str | None]]]) -> None:
        write_file(str(self._note), json.dumps(note, indent=1).encode(), 0o600, True)


def desktop_values(host: str, port: int, variables: Mapping[str, str]
                   ) -> dict[str, Mapping[str, str]]:
    """The values that send a desktop's programs to this proxy, by what is here."""
    host = LOOPBACK.get(host, host)
    values: dict[str, Mapping[str, str]] = {}
    if shutil.which("gsettings"):
        values[Gnome.name] = Gnome.values(host, port)
    if shutil.which("kwriteconfig6") or shutil.which("kwriteconfig5"):
        values[Kde.name] = Kde.values(host, port)
    return {**values, Sessions.name: Sessions.values(variables, os.environ)}
