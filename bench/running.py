"""A proxy under measurement: started for one run, ended after it.

Each run gets a fresh process, so that no run inherits another's pools and caches.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.children import BenchError, Site, end, spawn, tree_of

USER, PASSWORD = "bench", "bench-password"


@dataclass(frozen=True)
class Target:
    """The addresses for a proxy, and the origin that a blind proxy forwards to."""

    site: Site
    authority: str


class Running:
    """A running proxy: its port and process tree. `close()` ends it, idempotently."""

    def __init__(
        self, command: list[str], target: Target, *, port: int = 0, blind: bool = False
    ) -> None:
        self.command, self.port, self.blind = command, port, blind
        self.site, self.ip = target.site, target.site.proxy_ip
        self.process: subprocess.Popen[str] | None = None
        self.directory: Path | None = None
        self.behind: Running | None = None
        self.admin_port = 0
        self.closes = True  # whenever a request asks for it

    def tree(self) -> list[psutil.Process]:
        """The proxy's processes; none for the direct baseline."""
        return [] if self.process is None else tree_of(self.process)

    def make_directory(self) -> Path:
        """Return a directory that any user may enter; removed with the proxy."""
        self.directory = Path(tempfile.mkdtemp(prefix="bench-proxy."))
        self.directory.chmod(0o777)  # started by root, many fall to a user of their own
        return self.directory

    def start(
        self, *, piped: bool = False, cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Start the command; its output goes to DIR/said, or to a pipe."""
        command = self.site.within("proxy", self.command)
        if piped:
            self.process = spawn(command, stdout=subprocess.PIPE, cwd=cwd, env=env)
            return
        assert self.directory is not None
        with (self.directory / "said").open("w") as out:
            self.process = spawn(command, stdout=out, stderr=out, cwd=cwd, env=env)

    def said(self) -> str:
        """Return the end of the proxy's output."""
        if self.directory is None or not (self.directory / "said").exists():
            return ""
        return (self.directory / "said").read_text(errors="replace")[-2000:].strip()

    def await_line(self, pattern: str, seconds: float = 60) -> str:
        """Wait until `pattern` matches the output; return its group 1."""
        assert self.process is not None
        deadline = time.monotonic() + seconds
        while not (match := re.search(pattern, self.said())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{self.command} did not start: {self.said()}")
            time.sleep(0.01)  # between looks for the line
        return match[1]

    def stop(self, most: float = 20) -> float:
        """Ask it to end; return how many seconds it took. Raises if it had to be killed
        after `most` seconds."""
        began = time.monotonic()
        if self.process is not None:
            end(self.process, most)
        if (took := time.monotonic() - began) >= most:
            raise BenchError(f"did not end in {most:g} s")
        return took

    def close(self) -> None:
        try:
            if self.process is not None:
                end(self.process)
        finally:
            if self.behind is not None:
                self.behind.close()
            if self.directory is not None:
                shutil.rmtree(self.directory, ignore_errors=True)

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close it where its start, of which nobody knows yet, is not to be."""
        try:
            yield
        except BaseException:
            self.close()
            raise


@dataclass(frozen=True)
class Proxy:
    """One row of the table: description, start function, reason if missing.

    `tunnels`, `plain`: can it do these? `keeps`: does it keep a client's connection
    after a plain request? `closes`: does it close a connection when asked to? `socks`:
    is it called by SOCKS5, and by nothing else?
    """

    about: str
    start: Callable[[Target], Running]
    missing: str = ""
    tunnels: bool = True
    plain: bool = True
    keeps: bool = True
    closes: bool = True
    blind: bool = False
    socks: bool = False
