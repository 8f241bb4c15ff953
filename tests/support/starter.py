"""`python -m tests.support.starter FD`: a program that is imported once, and forks.

The imports of a supervisor take 0.2 s of CPU, those of a worker 0.24 s, those of the
admin listener 0.3 s, those of a writer 0.12 s, and tests/e2e starts some two thousand.
The starter imports all of them once. For each start it gets the command line, the
environment and two files, and a fork of it runs `main` as `python -m cutthrough` does.
The early worker is a fork of that fork: by then there is no loop, no thread and no
file. Later children of the supervisor whose program is in CHILDREN are forks of it, and
helpers of workers are new processes as ever.

A fork cannot be given what the interpreter or the loader reads at its start: with such
a variable, or by another command, a start is a new process (`can_fork`). So are those
outside of `running`. A fork enters the network of the thread that starts it. /proc
shows a fork's own command line and the starter's environment, and what a fork shares
with the starter is not its private memory: tests that look there start with
`executed=True` (tests.support.proxy).
"""

import asyncio
import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import logging
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from cutthrough.process import helper
from tests.support.network import CLONE_NEWNET
from tests.support.sanitized import SANITIZED

#: The modules of command lines whose `main` a fork can run
PROGRAMS = {"cutthrough": "cutthrough.cli.main",
            "tests.support.with_policy": "tests.support.with_policy"}
#: The programs of a supervisor's children that a fork can run
CHILDREN = ("cutthrough.worker.main", "cutthrough.storage.writer",
            "cutthrough.recording.record.writer", "cutthrough.capture.query_process")
MOST_BYTES = 1 << 17
#: Of a command line that /proc shows
MOST_SHOWN = 1 << 12
NETWORK = "/proc/thread-self/ns/net"
#: What else forks would import: for `serve`, as a worker (`load_data_plane`), for a
#: policy (0.1 s), for the admin listener (0.3 s), and for what rules use
MODULES = ("cutthrough.supervisor.run", "cutthrough.worker.process",
           "cutthrough.worker.worker", "cutthrough.worker.admin_queries",
           "cutthrough.policy.reader", "cutthrough.policy.smokescreen",
           "cutthrough.admin.server", "cutthrough.recording.play.player",
           "cutthrough.storage.sqlite_batch", *CHILDREN)
#: These need what may not be installed
OPTIONAL = ("cutthrough.http2.transport", "uvloop")
M_MMAP_THRESHOLD = -3                                   # malloc.h
START_PROGRAM = helper.start_program
#: Of the starter itself
PYTHONPATH: str | None = None


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
                raise subprocess.TimeoutExpired("a fork", timeout or 0)
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
        self._lock = threading.Lock()
        self._pids: list[int] = []
        self._ended: dict[int, int] = {}
        self._channel, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()),
                 " " * MOST_SHOWN], cwd=folder, env=self._environ,
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL)

    def can_fork(self, words: list[str], environ: Mapping[str, str]) -> bool:
        changed = {name for name in {*environ, *self._environ}
                   if environ.get(name) != self._environ.get(name)}
        return (words[0] == "-m" and words[1] in PROGRAMS
                and all(name in ("PYTHONPATH", "PYTEST_CURRENT_TEST")
                        or name.startswith("CUTTHROUGH_") for name in changed))

    def start(self, words: list[str], environ: Mapping[str, str],
              out: IO[bytes], err: IO[bytes]) -> Started:
        """`words`: the command line behind the interpreter."""
        order = json.dumps([words, dict(environ)]).encode()
        with self._lock, open(NETWORK, "rb") as network:
            socket.send_fds(self._channel, [order],
                            [out.fileno(), err.fileno(), network.fileno()])
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


@contextlib.contextmanager
def running(environ: Mapping[str, str], folder: str) -> Iterator[None]:
    """Meanwhile supervisors are forks, if their command line can be a fork's."""
    global current
    with contextlib.closing(Starter(environ, folder)) as current:
        try:
            yield
        finally:
            current = None


def start(words: list[str], environ: Mapping[str, str], folder: str,
          out: IO[bytes], err: IO[bytes], executed: bool = False
          ) -> "subprocess.Popen[bytes] | Started":
    """Starts the program: `words` are the command line behind the interpreter.
    `executed`: as a new process in any case."""
    if not executed and current is not None and current.can_fork(words, environ):
        return current.start(words, environ, out, err)
    return subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL,
                            stdout=out, stderr=err, cwd=folder, env=dict(environ))


def complete(words: list[str], environ: Mapping[str, str], folder: str,
             seconds: float = 60.0) -> "subprocess.CompletedProcess[str]":
    """As subprocess.run with captured output. Raises TimeoutExpired."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(words, environ, folder, out, err)
        try:
            status = process.wait(seconds)
        except BaseException:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(
            words, status, *(io.TextIOWrapper(file).read() for file in (out, err)))


def run(channel: socket.socket) -> int:
    """Forks until the other end is closed; a fork returns the program's status."""
    global PYTHONPATH
    PYTHONPATH = os.environ.get("PYTHONPATH")
    for name in (*PROGRAMS.values(), *MODULES):
        importlib.import_module(name)
    for name in OPTIONAL:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
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
        order, files, _flags, _sender = socket.recv_fds(channel, MOST_BYTES, 3)
        if not order:
            return 0
        words, environ = json.loads(order)
        pid = os.fork()
        if pid == 0:
            channel.close()
            for pidfd in children:
                os.close(pidfd)
            become(words, environ, files)
            end(serve(importlib.import_module(PROGRAMS[words[1]]).main))
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


def end(status: int) -> None:
    """Ends a fork when its program has returned, and what it made is freed. Not cleared
    are the modules, most of which are the starter's: that takes as long as all the rest
    of a fork, 0.03 s. New processes do it, and so do forks under the sanitizers."""
    gc.collect()
    if SANITIZED:
        sys.exit(status)
    threading._shutdown()                               # as forks of multiprocessing
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def become(words: list[str], environ: dict[str, str], files: list[int]) -> None:
    """Makes this process what the interpreter makes of a command line."""
    *standard, network = files
    if os.stat(NETWORK).st_ino != os.fstat(network).st_ino:
        enter(network)
    for number, file in enumerate(standard, 1):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before, now = ([path for path in source.get("PYTHONPATH", "").split(os.pathsep)
                    if path] for source in (os.environ, environ))
    if before != now:
        sys.path[1:1 + len(before)] = now               # behind the working directory
        refuse_shadows(now)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = list(words[1:])
    set_command([sys.executable, *words])


def set_command(words: list[str]) -> None:
    """The command line, for /proc too: it shows the place of the starter's, which is
    long enough."""
    sys.orig_argv = words
    numbers = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = map(int, numbers[45:47])               # arg_start and arg_end
    shown = "\0".join(words).encode()[:end - begin - 1].ljust(end - begin, b"\0")
    ctypes.memmove(begin, shown, len(shown))


def enter(network: int) -> None:
    """Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def refuse_shadows(folders: list[str]) -> None:
    """A module there would not be imported if the starter has one of its name. Each
    later process imports its own sitecustomize, and a fork none."""
    for folder in map(Path, folders):
        hidden = {file.stem for file in folder.glob("*.py")} & sys.modules.keys()
        assert hidden <= {"sitecustomize"}, f"start with executed=True: {hidden}"


class Worker(BaseException):
    """Raised in the fork of a young supervisor, whose frames it ends: what they hold is
    not the worker's."""

    def __init__(self, fd: int, environ: dict[str, str]) -> None:
        """`fd`: of the channel."""
        self.fd, self.environ = fd, environ


def serve(main: Callable[[], int]) -> int:
    """Runs the program, and in another process its early worker."""
    from cutthrough.supervisor import early_worker
    from cutthrough.worker.main import main as work

    early_worker.spawn = fork_worker
    if os.environ.get("PYTHONPATH") == PYTHONPATH:
        helper.start_program = fork_child
    try:
        return main()
    except Worker as worker:
        fd, environ = worker.fd, worker.environ
    become_child([*early_worker.COMMAND, str(fd)], environ, (fd,))
    return work(fd)


def fork_blocked() -> int:
    """As os.fork. The supervisor's signals stay blocked in the child."""
    from cutthrough.process.environment import SIGNALS

    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def fork_worker(channel: int) -> object:
    """As early_worker.spawn."""
    from cutthrough.process.environment import worker_environment
    from cutthrough.supervisor.early_worker import Spawned

    environ = worker_environment()
    pid = fork_blocked()
    if pid == 0:
        raise Worker(os.dup(channel), environ)
    return Spawned(pid)


def fork_child(command: tuple[str, ...], channel: socket.socket,
               inherited: tuple[int, ...] = ()) -> object:
    """As helper.start_program."""
    from cutthrough.process.environment import worker_environment
    from cutthrough.supervisor.early_worker import Spawned

    if command[-1] not in CHILDREN:
        return START_PROGRAM(command, channel, inherited)
    environ = worker_environment()
    fd = channel.fileno()
    pid = fork_blocked()
    if pid:
        return Spawned(pid)
    status = 1
    try:
        leave_supervisor()
        become_child([*command, str(fd)], environ, (fd, *inherited))
        del sys.modules[command[-1]]                    # as it was before `python -m`
        runpy.run_module(command[-1], run_name="__main__", alter_sys=True)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        end(status)
    return None


def leave_supervisor() -> None:
    """In a fork: nothing of the supervisor happens here, and no object of it is freed,
    which could close a descriptor whose number is the worker's by then."""
    gc.freeze()
    atexit._clear()
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(None)
    signal.set_wakeup_fd(-1)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)       # as execve(2) has it


def become_child(command: list[str], environ: dict[str, str], fds: tuple[int, ...]
                 ) -> None:
    """Makes this process what the interpreter makes of a child's command line."""
    from cutthrough.process import files

    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, *fds):
            with contextlib.suppress(OSError):          # of the list itself
                os.close(int(name))
    for fd in fds:
        os.set_inheritable(fd, True)                    # as pass_fds has it
    os.environ.clear()
    os.environ.update(environ)
    del os.environ[files.VARIABLE]                      # read at the import
    # The loader reads it where there is an interpreter to start. The malloc of the
    # sanitizers has no such bound
    if not SANITIZED and not ctypes.CDLL(None).mallopt(
            M_MMAP_THRESHOLD, int(environ["MALLOC_MMAP_THRESHOLD_"])):
        raise OSError("mallopt")
    sys.argv = [sys.modules[command[-2]].__file__ or "", command[-1]]
    set_command(command)


if __name__ == "__main__":
    sys.exit(run(socket.socket(fileno=int(sys.argv[1]))))
