"""The first worker, which starts before there is a configuration.

The supervisor loads its modules, reads the configuration and opens the sockets, and a
worker loads as many modules: on two cores at the same time. There is one early worker,
because the number of workers is not known yet. Its descriptors come with its Hello.

Whatever is loaded before the worker starts delays the first answer: `socket`, `signal`,
`typing` and `subprocess` take 10 ms, so this module does without them.
"""

from __future__ import annotations

import _socket
import os
import resource
import sys

from cutthrough.process.environment import SIGNALS, first_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

# A worker's program; its channel's descriptor follows. -P: files in the working
# directory shadow no module.
COMMAND = (sys.executable, "-P", "-m", "cutthrough.worker.main")
SIGCHLD = 17                                 # `signal` has not been loaded yet
# Of systemd's sockets, and of an upgrade
INHERITANCE = {"LISTEN_FDS", "CUTTHROUGH_SUCCEEDS"}


class Spawned:
    """A child process, as much of it as subprocess.Popen would give."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:        # the supervisor, which waits for all
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def spawn(channel: int) -> Spawned:
    """Starts a worker with its end of the channel, and no other descriptor of this
    process. Raises OSError."""
    # With the same number it would still be closed on exec, if glibc is before 2.29
    theirs = channel + 1
    actions = [(os.POSIX_SPAWN_CLOSE, fd) for fd in inherited()]
    pid = os.posix_spawn(
        sys.executable, [*COMMAND, str(theirs)], first_environment(), file_actions=[
            *actions, (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, channel, theirs)],
        # Until the worker has its own handlers: a Ctrl-C must not run Python's. A
        # blocked signal stays blocked, and pending, over exec.
        setsigmask=SIGNALS,
        # Our parent process may ignore it, and the worker has children, too
        setsigdef=[SIGCHLD])
    return Spawned(pid)


def inherited() -> list[int]:
    """Returns the descriptors but 0, 1 and 2 that a new program would have."""
    fds = [int(name) for name in os.listdir("/proc/self/fd")]
    return [fd for fd in fds if fd > 2 and is_inheritable(fd)]


def is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:                          # of the list itself
        return False


class EarlyWorker:
    """A worker that has no slot yet; `ours` is our end of its channel."""

    begun: ClassVar[EarlyWorker | None] = None           # until `take`

    def __init__(self, ours: int, process: Spawned) -> None:
        self.ours, self.process = ours, process

    @classmethod
    def begin(cls) -> None:
        """Starts it, before the program knows its options."""
        cls.begun = cls.start()

    @classmethod
    def take(cls) -> EarlyWorker | None:
        """Returns the one that has begun, or starts it."""
        begun, cls.begun = cls.begun, None
        return begun or cls.start()

    @classmethod
    def end_unused(cls) -> None:
        if cls.begun is not None:
            cls.begun.end()
            cls.begun = None

    @classmethod
    def start(cls) -> EarlyWorker | None:
        """None if this process inherits sockets or a predecessor's memory, whose names
        in the environment are no worker's; or if it fails: the next start says why."""
        if not INHERITANCE.isdisjoint(os.environ):
            return None
        # A worker inherits the limit; `raise_nofile` compares it with the options
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            try:
                process = spawn(theirs.fileno())
            finally:
                theirs.close()
        except OSError:
            return None
        return cls(ours.detach(), process)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """Ends it, if it still has no slot."""
        os.close(self.ours)
        self.process.kill()
        self.process.wait()
