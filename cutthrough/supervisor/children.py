"""Worker processes as their parent sees them: children, and the slots that they fill.

A slot is a place among the workers. It has one child that serves and, while that child
is being replaced, a second one that will serve when it is ready. A child that has been
asked to finish has left its slot, and is `retired` until it is reaped.
"""

import asyncio
import os
import signal
import socket
import subprocess

from cutthrough.log.stderr import say
from cutthrough.process import helper
from cutthrough.process.channel import MOST_FDS, Channel, Message
from cutthrough.process.files import FilesReplaced
from cutthrough.supervisor.early_worker import COMMAND, EarlyWorker, Spawned

# If a worker lived this long, its start was not the reason for its death.
EARLY_S = 10.0

# Delays between starts of a slot if its workers die young: 0, 0.1, 0.2, 0.4 … seconds.
BACKOFF_S, BACKOFF_MAX_S = 0.1, 5.0


_reported = False                            # that files were replaced


def report_failure(what: str, error: OSError) -> None:
    """Logs that a process cannot be started. That the program's files were replaced is
    logged once."""
    global _reported
    if not isinstance(error, FilesReplaced):
        say(f"{what} cannot be started: {error}")
    elif not _reported:
        _reported = True
        say(str(error))


class Child:
    """One worker process, from its spawn until it is reaped.

    `page` is the number of its counters page, which no other living child has.
    `first_generation` is the one that it started with, `generation` the latest that it
    reported to be in force, `refused` the latest that it could not apply; 0: none yet.
    """

    # The program's first worker, until a slot takes it
    early: EarlyWorker | None = None

    def __init__(self, slot: "Slot", page: int, first_generation: int,
                 now: float) -> None:
        self.slot = slot
        self.page = page
        self.first_generation = first_generation
        self.generation = self.refused = 0
        self.started_at = now
        self.channel: Channel
        self.process: subprocess.Popen[bytes] | Spawned | None = None
        self.ready = False
        self.retired = False
        self.lent_pages: set[int] = set()    # pages of its takers; see handover_plan
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    @property
    def name(self) -> str:
        return f"worker {self.slot.index} (pid {self.pid})"

    @property
    def has_ended(self) -> bool:
        """Has the process ended? Its last messages are read after that."""
        return self.process is not None and self.process.returncode is not None

    def spawn(self, fds: tuple[int, ...]) -> tuple[int, ...]:
        """Starts the process; returns those of its descriptors that have to be sent
        with the Hello. Raises OSError."""
        early, Child.early = Child.early, None
        if early is not None:
            if early.is_alive and len(fds) <= MOST_FDS:
                self.channel = Channel(socket.socket(fileno=early.ours))
                self.process = early.process
                return fds
            early.end()
        self.channel, theirs = Channel.pair()
        try:
            self.process = helper.start_program(COMMAND, theirs, fds)
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()
        return ()

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def send(self, message: Message, fds: tuple[int, ...] = ()) -> bool:
        """Sends without waiting. False: the worker is not reading, and the message is
        lost."""
        return self.channel.send(message, fds)

    def take_fd(self) -> int:
        """Returns the descriptor that came with the last message."""
        return self.channel.take_fd()

    def on_reaped(self, status: int) -> int:
        """Delivers the child's last messages, and releases its resources. Takes the
        status of waitpid(2) and returns it in the form of `Popen.returncode`."""
        assert self.process is not None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.channel.read_rest()             # an answer to an operator, for example
        self.set_timer(None)
        self.channel.close()
        return self.process.returncode

    def kill(self) -> None:
        # Popen.kill would reap a child that has just ended, and its death be missed
        if self.process is not None and self.process.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class Slot:
    """A worker's place, which successive processes fill."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.current: Child | None = None
        self.next: Child | None = None       # replaces `current` when it is ready
        self.needed_generation = 0           # oldest generation that a child may have
        self.was_ready = False               # a worker of this slot was ready once
        self.early_deaths = 0                # consecutive early deaths
        self.deaths = 0                      # unexpected ends, in all
        self._timer: asyncio.TimerHandle | None = None    # back-off

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def remove(self, child: Child) -> bool:
        """A child has ended, or is to. Returns whether the next one has its place."""
        if child is self.next:
            self.next = None
        elif child is self.current:
            self.current, self.next = self.next, None
            return self.current is not None
        return False

    def count_death(self, lived_s: float) -> float:
        """Returns after how many seconds the replacement is to start."""
        self.deaths += 1
        self.early_deaths = self.early_deaths + 1 if lived_s < EARLY_S else 0
        if self.early_deaths < 2:
            return 0.0
        return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (self.early_deaths - 2))


def describe_exit(returncode: int) -> str:
    """Describes how a child ended: `signal SIGKILL` or `status 1`."""
    if returncode >= 0:
        return f"status {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:                       # real-time signals have no name
        return f"signal {-returncode}"
