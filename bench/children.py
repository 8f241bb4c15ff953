"""Child processes that end with the harness, and the network that they live in.

Every child is a session of its own, so that Ctrl-C reaches the harness alone, which
then ends what it began; and the kernel ends each child if the harness is killed.
`Site` says which address each role has: all on loopback, or in three network
namespaces joined by veth pairs, the two-host case on one machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psutil

HERE = Path(__file__).parent
PR_SET_PDEATHSIG = 1
LISTEN_STATE = "0A"  # of /proc/net/tcp
_libc = ctypes.CDLL(None)


class BenchError(Exception):
    """The measurement cannot be made, or its result is not valid."""


# Signals that end the harness by an exception. An exception raised in a fork's callback
# is ignored, as happened here: logging has one, and subprocess runs it for a
# preexec_fn.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


def spawn(
    command: list[str],
    *,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = subprocess.DEVNULL,
    stderr: int | IO[Any] | None = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a child, for which the caller must call `end`."""

    def begin() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        child = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, text=True,
            start_new_session=True, preexec_fn=begin,
            env={**os.environ, **env} if env else None,
        )  # fmt: skip
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    except BaseException:  # what came meanwhile: nobody else knows of the child yet
        end(child)
        raise
    return child


def tree_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the process and all its descendants."""
    try:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end(process: subprocess.Popen[str], seconds: float = 5) -> None:
    """End a child and its children: SIGTERM, then SIGKILL. Idempotent."""
    if process.poll() is None:
        left = tree = tree_of(process)
        process.terminate()
        try:
            _, left = psutil.wait_procs(tree, timeout=seconds)
        finally:  # a Ctrl-C meanwhile leaves no child behind either
            for one in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        # It is killed. Under load its end may take longer, and a reason that is being
        # raised counts more
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(pid: int, port: int) -> bool:
    """Does anything in the network of process `pid` listen on `port`?"""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state = line.split()[:4]
            if state == LISTEN_STATE and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


def wait_for_port(
    port: int, process: subprocess.Popen[str], seconds: float = 20
) -> None:
    """Return when `port` is open; raise if `process` ends or the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BenchError(f"{process.args!r} ended with {process.returncode}")
        if _listens(process.pid, port):
            return
        time.sleep(0.01)  # between looks at the port
    raise BenchError(f"nothing listens on port {port} after {seconds:g} s")


class Site:
    """Where each role lives: here, all on loopback."""

    name = "loopback"
    proxy_ip = origin_ip = "127.0.0.1"

    def within(self, role: str, command: list[str]) -> list[str]:
        """Return the command as it is run for `role`: client, proxy or origin."""
        return command

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


class Namespaces(Site):
    """client and origin behind a veth pair each, the proxy's host between them.

    The direct baseline is routed by the proxy's host, so that it crosses the same two
    links. The addresses are those that RFC 2544 reserves for benchmarks.
    """

    name = "veth"
    proxy_ip, origin_ip = "198.18.0.1", "198.18.1.2"

    def __init__(self) -> None:
        self._names = {
            role: f"bench-{os.getpid()}-{role}"
            for role in ("client", "proxy", "origin")
        }

    @staticmethod
    def missing() -> str:
        """Return the reason if it cannot run here, or nothing."""
        if os.geteuid():
            return "network namespaces need root"
        if shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
            return "iproute2 is not installed"
        made = subprocess.run(["ip", "netns", "list"], capture_output=True)
        return "ip netns does not work here" if made.returncode else ""

    def within(self, role: str, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self._names[role], *command]

    def _ip(self, *words: str, role: str = "") -> None:
        command = ["ip", *(("-n", self._names[role]) if role else ()), *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{' '.join(command)}: {done.stderr.strip()}")

    def __enter__(self) -> Site:
        try:
            for role, name in self._names.items():
                self._ip("netns", "add", name)
                self._ip("link", "set", "lo", "up", role=role)
            for role, net in (("client", "198.18.0"), ("origin", "198.18.1")):
                self._ip("link", "add", f"to-{role}", "netns", self._names["proxy"],
                         "type", "veth", "peer", "name", "eth0",
                         "netns", self._names[role])  # fmt: skip
                self._ip(
                    "addr", "add", f"{net}.1/24", "dev", f"to-{role}", role="proxy"
                )
                self._ip("link", "set", f"to-{role}", "up", role="proxy")
                self._ip("addr", "add", f"{net}.2/24", "dev", "eth0", role=role)
                self._ip("link", "set", "eth0", "up", role=role)
                self._ip("route", "add", "default", "via", f"{net}.1", role=role)
            forward = ["sysctl", "-qw", "net.ipv4.ip_forward=1"]
            subprocess.run(self.within("proxy", forward), check=True)
        except BaseException:
            self._remove()
            raise
        return self

    def _remove(self) -> None:
        for name in self._names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()
