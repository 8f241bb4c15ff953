"""The origin of every measurement: a private nginx and its own count of requests.

Owns a temporary directory with the configuration, the files and the access log;
never touches a system service. `Origin` is a context manager: leaving it stops
nginx and removes the directory.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent
FILES = {"1k": 1 << 10, "16k": 16 << 10, "128k": 128 << 10, "1m": 1 << 20}


class BenchError(Exception):
    """The measurement cannot be made, or what it gave must not be believed."""


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(
    port: int, process: subprocess.Popen[str], seconds: float = 10
) -> None:
    """Return when `port` accepts; raise when `process` ends first or time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BenchError(f"{process.args!r} ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)  # between looks at the port
    raise BenchError(f"nothing listens on port {port} after {seconds:g} s")


class Origin:
    """nginx with index.html and FILES; `lengths` maps a path to its body length."""

    def __init__(self) -> None:
        nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if nginx is None:
            raise BenchError("nginx is not installed")
        self.directory = Path(tempfile.mkdtemp(prefix="bench-origin."))
        self.port = free_port()
        self.log = self.directory / "access.log"
        self.lengths = self._make_files()
        self.config = self.directory / "nginx.conf"
        config = (HERE / "origin.conf").read_text().replace("@PORT@", str(self.port))
        # As root, nginx would fall to a user that cannot enter the directory.
        user = "user root;" if os.geteuid() == 0 else ""
        self.config.write_text(config.replace("@USER@", user))
        self.command = [nginx, "-p", str(self.directory), "-c", str(self.config)]
        self._process = subprocess.Popen(
            self.command, text=True, stderr=subprocess.DEVNULL
        )
        self._read_to = 0

    def _make_files(self) -> dict[str, int]:
        files = self.directory / "files"
        files.mkdir()
        shutil.copy(HERE.parent / "index.html", files / "index.html")
        for name, size in FILES.items():
            (files / name).write_bytes(os.urandom(size))
        return {f"/{file.name}": file.stat().st_size for file in files.iterdir()}

    def __enter__(self) -> Origin:
        try:
            wait_for_port(self.port, self._process)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def count_requests(self, expected: int, path: str, cut: int = 0) -> int:
        """Return how many 200 replies for `path` the log gained since last asked.

        nginx writes a request when its response has been sent, and the file some 50 ms
        later; so this waits until `expected` are there, and then until the file rests.
        At most `cut` of them may have a short body (wrk hangs up when time is over).
        Any other line raises.
        """
        status, name = b"200 ", f" {path}\n".encode()
        whole = status + str(self.lengths[path]).encode() + name
        lines, idle = 0, 0
        while idle < (4 if lines >= expected else 20):
            time.sleep(0.06)  # longer than nginx keeps a log line
            with self.log.open("rb") as log:
                log.seek(self._read_to)
                data = log.read()
            data = data[: data.rfind(b"\n") + 1]
            idle = 0 if data else idle + 1
            self._read_to += len(data)
            lines += data.count(b"\n")
            if data.count(b"\n") == data.count(whole):
                continue
            for line in data.splitlines(keepends=True):
                if line == whole:
                    continue
                cut -= 1
                if cut < 0 or not (line.startswith(status) and line.endswith(name)):
                    raise BenchError(f"the origin logged {line.decode().strip()!r}")
        return lines

    def skip_log(self) -> None:
        """Forget what has been logged so far (the warm-up's requests)."""
        before = -1
        while before != self.log.stat().st_size:
            before = self.log.stat().st_size
            time.sleep(0.12)  # likewise, before it is counted
        self._read_to = before

    def close(self) -> None:
        """Stop nginx and remove its directory; again does nothing."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)
        shutil.rmtree(self.directory, ignore_errors=True)
