"""Receivers of log messages: a socket such as syslogd's, and a real journald."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.wait import wait_until

JOURNALD = "/usr/lib/systemd/systemd-journald"


class Receiver:
    """A datagram socket at `where`: a path, or None for a free UDP port."""

    def __init__(self, where: Path | None = None) -> None:
        self.messages: list[bytes] = []
        self._path = where
        family = socket.AF_INET if where is None else socket.AF_UNIX
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0) if where is None else str(where))
        self.socket.setblocking(False)

    @property
    def target(self) -> str:
        """The part of the option's value after @."""
        if self._path is not None:
            return str(self._path)
        return f"127.0.0.1:{self.socket.getsockname()[1]}"

    def read(self) -> list[bytes]:
        """Returns all messages so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.messages.append(self.socket.recv(65536))
        return self.messages

    def wait(self, n: int) -> list[bytes]:
        return wait_until(lambda: len(self.read()) >= n and self.messages,
                          lambda: f"{n} messages: {len(self.messages)}")

    def close(self) -> None:
        self.socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def can_run_journald() -> bool:
    return (os.geteuid() == 0 and Path(JOURNALD).exists()
            and shutil.which("journalctl") is not None
            and Path("/etc/machine-id").exists())


class Journald:
    """A journald with its own namespace, separate from the host's, if any."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._run = Path(f"/run/systemd/journal.{name}")
        self.path = self._run / "socket"
        self._process = subprocess.Popen([JOURNALD, name], stderr=subprocess.DEVNULL)
        wait_until(self.path.exists, "journald's socket")

    def entries(self) -> list[dict[str, str]]:
        done = subprocess.run(
            ["journalctl", f"--namespace={self.name}", "-o", "json", "--no-pager",
             "SYSLOG_IDENTIFIER=cutthrough"], capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()
                if line.startswith("{")]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        machine = Path("/etc/machine-id").read_text().strip()
        for left in (self._run, *(Path(top) / "log/journal" / f"{machine}.{self.name}"
                                  for top in ("/run", "/var"))):
            shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def journald(name: str) -> Iterator[Journald]:
    running = Journald(name)
    try:
        yield running
    finally:
        running.close()
