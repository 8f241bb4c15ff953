"""Worker processes, as their parent sees them: a child, and the slot it stands in.

A slot is a place among the workers. It has one child that serves, and while that one is
being replaced a second that is about to. A child that has been told to finish has left
its slot, and is `retired` until it is reaped.
"""

import asyncio
import os
import signal
import subprocess
import sys

from cutthrough.process.channel import Channel, Message
from cutthrough.process.environment import SIGNALS, worker_environment

# A worker that lived this long died of something else than its start.
YOUNG_S = 10.0
# A worker that ends well was told to, and not by us: with all of the service perhaps,
# as systemd does it, and then our own signal is a moment away.
TOLD_S = 0.25
# Between starts of a slot whose workers die young: 0, 0.1, 0.2, 0.4 … seconds.
BACKOFF_S, BACKOFF_MAX_S = 0.1, 5.0


class Child:
    """One worker process, from its spawn until it is reaped.

    `page` is the number of its counters page, its alone while it lives. `begun` is the
    generation that it begins with, `generation` the one that it has said it judges by,
    `refused` one that it could not take.
    """

    def __init__(self, slot: "Slot", page: int, begun: int, now: float) -> None:
        self.slot = slot
        self.page = page
        self.begun = begun
        self.generation = self.refused = 0
        self.started_at = now
        self.channel, self._theirs = Channel.pair()
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.retired = False
        self.lent: set[int] = set()          # pages of its takers; see relief
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    @property
    def name(self) -> str:
        return f"worker {self.slot.index} (pid {self.pid})"

    def spawn(self, inherited: tuple[int, ...]) -> None:
        """Starts the process with these descriptors. Raises OSError."""
        # Until the worker has its own handlers these signals wait: a Ctrl-C must not
        # find Python's. A blocked signal stays blocked through exec, and pending.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            # -P: a directory from which the proxy is started shadows no module.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cutthrough.worker.main",
                 str(self._theirs.fileno())],
                stdin=subprocess.DEVNULL, env=worker_environment(),
                pass_fds=(self._theirs.fileno(), *inherited))
        except BaseException:
            self.channel.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._theirs.close()

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def tell(self, message: Message, fds: tuple[int, ...] = ()) -> bool:
        """False: it has not read what it was told for long, and this is lost."""
        return self.channel.send(message, fds)

    def take_fd(self) -> int:
        """The descriptor of what it said last."""
        return self.channel.take_fd()

    def reaped(self, status: int) -> int:
        """Takes the status of waitpid(2); returns it as `returncode` would be."""
        assert self.process is not None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.set_timer(None)
        self.channel.close()
        return self.process.returncode

    def kill(self) -> None:
        # Not Popen's, which would reap one that has just ended: nobody would hear of it
        if self.process is not None and self.process.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class Slot:
    """One worker's place: processes come and go."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.current: Child | None = None
        self.next: Child | None = None       # will take over when it is ready
        self.needs = 0                       # the generation that its child begins with
        self.proven = False                  # some worker of this slot got ready
        self.died_young = 0                  # how many in a row
        self.deaths = 0                      # in all, of those that nobody told to end
        self._timer: asyncio.TimerHandle | None = None    # back-off

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def count_death(self, lived_s: float) -> float:
        """Returns how many seconds from now the next one is to start."""
        self.deaths += 1
        self.died_young = self.died_young + 1 if lived_s < YOUNG_S else 0
        if self.died_young < 2:
            return 0.0
        return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (self.died_young - 2))


def cause(returncode: int) -> str:
    """Names how a child ended: `signal SIGKILL` or `status 1`."""
    if returncode >= 0:
        return f"status {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:                       # the real-time ones have no name
        return f"signal {-returncode}"
