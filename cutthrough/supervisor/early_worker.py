"""The start of worker processes; the first one's is before there is a configuration.

The supervisor loads its modules, reads the configuration and opens the sockets, and a
worker loads as many modules: on two cores at the same time. There is one early worker,
because the number of workers is not known yet. Its descriptors come with its Hello;
those of others are inherited.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
from typing import ClassVar, Self

from cutthrough.process.environment import SIGNALS, worker_environment

# A worker's program; its channel's descriptor follows. -P: files in the working
# directory shadow no module.
COMMAND = (sys.executable, "-P", "-m", "cutthrough.worker.main")
# Of systemd's sockets, and of an upgrade
INHERITANCE = {"LISTEN_FDS", "CUTTHROUGH_SUCCEEDS"}


def start_process(channel: socket.socket, inherited: tuple[int, ...] = ()
                  ) -> subprocess.Popen[bytes]:
    """Starts a worker with its end of the channel and these descriptors. Raises
    OSError."""
    # Until the worker has its own handlers these signals stay blocked: a Ctrl-C must
    # not run Python's. A blocked signal stays blocked, and pending, over exec.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return subprocess.Popen(
            [*COMMAND, str(channel.fileno())],
            stdin=subprocess.DEVNULL, env=worker_environment(),
            pass_fds=(channel.fileno(), *inherited))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class EarlyWorker:
    """A worker that has no slot yet."""

    begun: "ClassVar[EarlyWorker | None]" = None         # until `take`

    def __init__(self, ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.ours, self.process = ours, process

    @classmethod
    def begin(cls) -> None:
        """Starts it, before the program knows its options."""
        cls.begun = cls.start()

    @classmethod
    def take(cls) -> "EarlyWorker | None":
        """Returns the one that has begun, or starts it."""
        begun, cls.begun = cls.begun, None
        return begun or cls.start()

    @classmethod
    def end_unused(cls) -> None:
        if cls.begun is not None:
            cls.begun.end()
            cls.begun = None

    @classmethod
    def start(cls) -> Self | None:
        """None if this process inherits sockets or a predecessor's memory, whose names
        in the environment are no worker's; or if it fails: the next start says why."""
        if not INHERITANCE.isdisjoint(os.environ):
            return None
        # A worker inherits the limit; `raise_nofile` compares it with the options
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                return cls(ours, start_process(theirs))
        except OSError:
            return None

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """Ends it, if it still has no slot."""
        self.ours.close()
        self.process.kill()
        self.process.wait()
