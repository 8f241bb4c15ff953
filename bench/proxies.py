"""The proxies that are measured: how each is started, and how a client speaks to it.

Each run gets a fresh process, so no run inherits another's pools and caches.
`PROXIES` is the table; one that is not installed is skipped and named as skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.origin import HERE, BenchError, Origin, free_port, wait_for_port

TREE = HERE.parent
USER, PASSWORD = "bench", "bench-password"
SQUID = shutil.which("squid", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
NCSA_AUTH = Path("/usr/lib/squid/basic_ncsa_auth")


class Running:
    """A proxy at work: its port, its process tree; `close()` ends it, once or often."""

    def __init__(self, command: list[str], *, port: int, blind: bool) -> None:
        self.port, self.blind, self.command = port, blind, command
        self.process: subprocess.Popen[str] | None = None
        self.directory: Path | None = None

    def tree(self) -> list[psutil.Process]:
        """The proxy's processes; none for the direct baseline."""
        if self.process is None:
            return []
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            tree = self.tree()
            self.process.terminate()
            _, left = psutil.wait_procs(tree, timeout=5)
            for process in left:
                process.kill()
            self.process.wait(5)
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


def _await_line(running: Running, stderr: Path, pattern: str) -> str:
    """Return group 1 of what `pattern` finds in the file `stderr`, once it is there."""
    assert running.process is not None
    deadline = time.monotonic() + 15
    while not (match := re.search(pattern, stderr.read_text())):
        if running.process.poll() is not None or time.monotonic() > deadline:
            running.close()
            raise BenchError(f"{running.command} did not start: {stderr.read_text()}")
        time.sleep(0.01)  # between looks for the banner
    return match[1]


def start_direct(origin: Origin) -> Running:
    return Running([], port=origin.port, blind=True)


def build_tool(name: str) -> str:
    """Return the path of bench/bin/`name`, compiled anew if its source is newer."""
    made = subprocess.run(
        ["make", "-s", f"bin/{name}"], cwd=HERE, capture_output=True, text=True
    )
    if made.returncode:
        raise BenchError(f"make bin/{name}: {made.stderr.strip()}")
    return str(HERE / "bin" / name)


def _relay(mode: str) -> Callable[[Origin], Running]:
    def start(origin: Origin) -> Running:
        command = [build_tool("relay"), "0", str(origin.port), mode]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout as stdout:
            port = int(stdout.readline().split()[1])
        running = Running(command, port=port, blind=True)
        running.process = process
        return running

    return start


def start_cutthrough(*flags: str) -> Callable[[Origin], Running]:
    def start(origin: Origin) -> Running:
        directory = Path(tempfile.mkdtemp(prefix="bench-cutthrough."))
        command = [sys.executable, "-m", "cutthrough", "serve"]
        command += ["--listen", "127.0.0.1:0", "--workers", "1"]
        command += ["--user", USER, "--password", PASSWORD]
        command += ["--origin", f"http://{origin.authority}"]
        command += [flag.replace("@DIR@", str(directory)) for flag in flags]
        running = Running(command, port=0, blind=False)
        running.directory, stderr = directory, directory / "stderr"
        with stderr.open("w") as out:
            running.process = subprocess.Popen(
                command, cwd=TREE, stdout=out, stderr=out, text=True
            )
        running.port = int(_await_line(running, stderr, r"listening on [^ ,]*:(\d+)"))
        return running

    return start


SQUID_CONF = """
http_port 127.0.0.1:{port}
pid_filename none
cache deny all
cache_mem 0 MB
memory_pools off
access_log none
cache_log {directory}/cache.log
cache_store_log none
coredump_dir {directory}
shutdown_lifetime 0 seconds
max_filedescriptors 20000
auth_param basic program {helper} {directory}/users
auth_param basic children 1
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
cache_effective_user {user}
"""


def _start_squid(origin: Origin) -> Running:
    assert SQUID is not None
    directory = Path(tempfile.mkdtemp(prefix="bench-squid."))
    directory.chmod(0o777)  # started by root, squid falls to its own user
    digest = subprocess.run(
        ["openssl", "passwd", "-apr1", PASSWORD],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (directory / "users").write_text(f"{USER}:{digest}\n")
    port, config = free_port(), directory / "squid.conf"
    config.write_text(
        SQUID_CONF.format(
            port=port, directory=directory, helper=NCSA_AUTH, user="proxy"
        )
    )
    running = Running([SQUID, "-N", "-f", str(config)], port=port, blind=False)
    running.directory = directory
    running.process = subprocess.Popen(
        running.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    try:
        wait_for_port(port, running.process, 30)
    except BenchError:
        running.close()
        raise
    return running


@dataclass(frozen=True)
class Proxy:
    """One row of the table: what it is, how to start it, why it may be missing."""

    about: str
    start: Callable[[Origin], Running]
    missing: str = ""


def _compiler() -> str:
    lacks = [tool for tool in ("cc", "make") if shutil.which(tool) is None]
    return f"{' and '.join(lacks)} not installed" if lacks else ""


def _squid() -> str:
    return "" if SQUID and NCSA_AUTH.exists() else "squid not installed"


LOG_OFF = ("--access-log", "off")
PROXIES = {
    "direct": Proxy("no proxy: what the machine can do", start_direct),
    "relay": Proxy("blind C relay, 64 KiB copies", _relay("copy"), _compiler()),
    "relay-splice": Proxy("blind C relay, splice", _relay("splice"), _compiler()),
    "cutthrough": Proxy("one worker, access log off", start_cutthrough(*LOG_OFF)),
    "cutthrough-copy": Proxy(
        "the same without splice", start_cutthrough(*LOG_OFF, "--splice", "false")
    ),
    "cutthrough-asyncio": Proxy(
        "the same on plain asyncio", start_cutthrough(*LOG_OFF, "--loop", "asyncio")
    ),
    "cutthrough-log": Proxy(
        "one worker, access log to a file",
        start_cutthrough("--access-log", "@DIR@/access.log"),
    ),
    "squid": Proxy("cache off, log off, Basic auth", _start_squid, _squid()),
}
