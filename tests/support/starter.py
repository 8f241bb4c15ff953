"""`python -m tests.support.starter FD`: a program that is imported once, and forks.

The imports of a supervisor take 0.2 s of CPU, and tests/e2e starts some two thousand.
The starter imports them once. For each start it gets the command line, the environment
and two files, and a fork of it runs `main` as `python -m cutthrough` does. Workers are
new processes as ever. A fork cannot be given what the interpreter or the loader reads
at its start: with such a variable, in another network, or by another command a start
is a new process (`can_fork`). So are those outside of tests/e2e.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO

MODULE = ("-m", "cutthrough")
MOST_BYTES = 1 << 17
NETWORK = "/proc/thread-self/ns/net"


class Started:
    """A fork of the starter, with the part of Popen's interface that tests use."""

    def __init__(self, starter: "Starter", pid: int) -> None:
        self._starter = starter
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._starter.status_of(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired([*MODULE], timeout or 0)
            self._starter.wait_message(0.1)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Starter:
    """The process that forks, from construction until `close`."""

    def __init__(self, environ: Mapping[str, str], folder: str) -> None:
        """`folder`: the working directory of all."""
        self._environ = dict(environ)
        self._network = os.readlink(NETWORK)
        self._lock = threading.Lock()
        self._pids: list[int] = []
        self._ended: dict[int, int] = {}
        self._channel, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())], cwd=folder,
                env=self._environ, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def can_fork(self, words: list[str], environ: Mapping[str, str]) -> bool:
        changed = {name for name in {*environ, *self._environ}
                   if environ.get(name) != self._environ.get(name)}
        return (words[:2] == [*MODULE] and os.readlink(NETWORK) == self._network
                and all(name in ("PYTHONPATH", "PYTEST_CURRENT_TEST")
                        or name.startswith("CUTTHROUGH_") for name in changed))

    def start(self, words: list[str], environ: Mapping[str, str],
              out: IO[bytes], err: IO[bytes]) -> Started:
        """`words`: the command line behind the interpreter."""
        order = json.dumps([words, dict(environ)]).encode()
        with self._lock:
            socket.send_fds(self._channel, [order], [out.fileno(), err.fileno()])
            while not self._pids:
                self._take_message()
            return Started(self, self._pids.pop())

    def status_of(self, pid: int) -> int | None:
        with self._lock:
            while select.select([self._channel], [], [], 0)[0]:
                self._take_message()
            return self._ended.pop(pid, None)

    def wait_message(self, seconds: float) -> None:
        """Another thread may take the message, so `seconds` is short."""
        select.select([self._channel], [], [], seconds)

    def _take_message(self) -> None:
        message = self._channel.recv(MOST_BYTES)
        assert message, "the starter has ended"
        pid, status = json.loads(message)
        if status is None:
            self._pids.append(pid)
        else:
            self._ended[pid] = status

    def close(self) -> None:
        self._channel.close()
        self._process.wait()


#: The starter of this run; None: each start is a new process.
current: Starter | None = None


def start(words: list[str], environ: Mapping[str, str], folder: str,
          out: IO[bytes], err: IO[bytes]) -> "subprocess.Popen[bytes] | Started":
    """Starts the program: `words` are the command line behind the interpreter."""
    if current is not None and current.can_fork(words, environ):
        return current.start(words, environ, out, err)
    return subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL,
                            stdout=out, stderr=err, cwd=folder, env=dict(environ))


def run(channel: socket.socket) -> int:
    """Forks until the other end is closed; a fork returns the program's status."""
    main = importlib.import_module("cutthrough.cli.main").main
    importlib.import_module("cutthrough.supervisor.run")        # as `serve` does
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)        # Ctrl-C is of the tests
    children: dict[int, int] = {}                       # pids by their pidfds
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        ready = [fd for fd, _event in poll.poll()]
        for pidfd in children.keys() & ready:
            poll.unregister(pidfd)
            os.close(pidfd)
            pid, status = os.waitpid(children.pop(pidfd), 0)
            report(channel, pid, os.waitstatus_to_exitcode(status))
        if channel.fileno() not in ready:
            continue
        order, files, _flags, _sender = socket.recv_fds(channel, MOST_BYTES, 2)
        if not order:
            return 0
        words, environ = json.loads(order)
        pid = os.fork()
        if pid == 0:
            channel.close()
            for pidfd in children:
                os.close(pidfd)
            become(words, environ, files)
            return main()
        for file in files:
            os.close(file)
        pidfd = os.pidfd_open(pid)
        children[pidfd] = pid
        poll.register(pidfd, select.POLLIN)
        report(channel, pid, None)


def report(channel: socket.socket, pid: int, status: int | None) -> None:
    """A start, if `status` is None, or an end."""
    with contextlib.suppress(BrokenPipeError):
        channel.send(json.dumps([pid, status]).encode())


def become(words: list[str], environ: dict[str, str], files: list[int]) -> None:
    """Makes this process what the interpreter makes of a command line."""
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    paths = environ.get("PYTHONPATH", "")
    if paths != os.environ.get("PYTHONPATH", ""):
        sys.path[1:1] = paths.split(os.pathsep)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = list(words[1:])
    sys.orig_argv = [sys.executable, *words]


if __name__ == "__main__":
    sys.exit(run(socket.socket(fileno=int(sys.argv[1]))))
