"""One worker process, which `cutthrough.worker.main` begins.

FD is its end of the channel; the first message brings everything else. The worker
makes everything that its generation needs and says so; it accepts connections when it
is told to. Then it carries out the supervisor's messages, and exits 0. If the channel
ends, the supervisor is gone: the worker drains and exits by itself.

Signals: the worker ignores SIGINT, because Ctrl-C in a terminal reaches the whole
process group and only the supervisor handles it; and SIGHUP and SIGUSR2, because an
operator may send them to the whole service. SIGTERM and SIGQUIT are for this worker
alone, or for all: the supervisor decides, and drains it when it is replaced.
"""

import asyncio
import errno
import faulthandler
import gc
import importlib
import logging
import mmap
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

from cutthrough.config.config import ConfigError
from cutthrough.contained import Kept, drive
from cutthrough.generation.generation import Generation, from_memory
from cutthrough.log.errorlog import EVERY_S, ErrorLog, log_unraisable
from cutthrough.log.nonblocking import open_text
from cutthrough.process.channel import (
    Arm,
    Channel,
    Commit,
    Cut,
    Decide,
    Discard,
    Drain,
    Give,
    Hello,
    List,
    ListHeld,
    ListOpen,
    ListReplays,
    Look,
    Message,
    PauseCapture,
    Prepare,
    Prepared,
    Ready,
    Released,
    Reopen,
    SetLogLevel,
    Settle,
    Signalled,
    Stop,
    Swapped,
    Take,
    Trace,
    TunnelsGiven,
    TunnelsTaken,
    Watch,
)
from cutthrough.process.cpus import pin
from cutthrough.process.environment import SIGNALS
from cutthrough.process.files import (
    FilesReplaced,
    ModuleReplaced,
    check_files,
    seal,
)
from cutthrough.process.forks import keep_apart
from cutthrough.process.leaving import LEAVE_S, leave_soon
from cutthrough.process.loops import choose_loop, make_loop

if TYPE_CHECKING:
    from cutthrough.worker.admin_queries import AdminQueries
    from cutthrough.worker.transaction import Transaction
    from cutthrough.worker.worker import Worker


# At a Stop, before the supervisor's GRACE_S are over
STOPPED_S = 1.0
SHORT = "ends, because a limit of this process is too low (ulimit -a): %s"


class WorkerProcess:
    """The life of one worker process, from its first message to its exit status."""

    def __init__(self, channel: Channel, hello: Hello, generation: Generation,
                 errors: ErrorLog) -> None:
        self.errors = errors
        self.channel = channel
        self.config = generation.config
        self.listeners = [socket.socket(fileno=fd) for fd in hello.listeners]
        self.worker = make_worker(hello, generation, self.listeners)
        self.admin_queries: AdminQueries | None = None
        self.loop_name = ""
        self.has_begun = False               # it accepts connections
        self.was_signalled = False
        self.transaction: Transaction | None = None      # of a reload
        self.over = asyncio.Event()
        self.draining: asyncio.Task[None] | None = None
        self.deadline = 0.0                  # of the drain, by the loop's clock

    async def run(self, loop_name: str) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGQUIT):
            loop.add_signal_handler(number, self.on_signal)
        loop.add_signal_handler(signal.SIGUSR1, self.worker.reopen_log)

        self.loop_name = loop_name
        first = self.worker.generation.number
        self.load_handover()
        seal()
        check_files()                        # of what is imported by now
        try:
            self.worker.open()
        except (ValueError, MemoryError) as error:
            self.channel.send(Prepared(first, reason_of(error)))
            raise
        self.admin_queries = make_admin_queries(self.worker, self.channel)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        # Objects that exist now live as long as the process: the collector need not
        # look at them again, nor write to their pages. Nor now, because that takes
        # 10 ms, and 800 objects of 54 000 are garbage.
        gc.freeze()
        gc.enable()
        self.channel.attach(self.on_message)
        self.channel.send(Prepared(first))
        self.report_suppressed()
        await self.over.wait()
        self.admin_queries.close()
        # systemd sends SIGTERM to every process. If it came while the loop closes and
        # removes its handlers, a clean end would look like a death.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self.worker.stop()
        self.channel.close()
        if self.draining is not None and self.draining.done():
            self.draining.result()           # raises what went wrong in it

    def report_suppressed(self) -> None:
        """Reports suppressed messages at intervals: the next one may be far away."""
        self.errors.report_suppressed()
        asyncio.get_running_loop().call_later(EVERY_S, self.report_suppressed)

    def on_message(self, message: Message | None) -> None:
        try:
            self.carry_out(message)
        except OSError as error:             # no descriptor available
            logging.warning("cannot carry out %s: %s", type(message).__name__.lower(),
                            error.strerror)

    def carry_out(self, message: Message | None) -> None:
        match message:
            case Drain(timeout):
                self.drain(timeout)
            case Reopen():
                self.worker.reopen_log()
            case Prepare(number):
                self.prepare(number)
            case Commit(number):
                self.commit(number)
            case Discard():
                self.discard()
            case Stop():
                self.deadline = 0.0          # not that of a drain before it
                self.over.set()
            case (List() | Trace() | ListOpen() | Cut() | Watch() | Arm()
                  | PauseCapture() | SetLogLevel() | ListHeld() | Decide()
                  | ListReplays() | Settle() | Look()):
                assert self.admin_queries is not None
                self.admin_queries.carry_out(message)
            case Give() | Take():
                self.hand_over(message)
            case None:
                self.drain(self.config.drain_timeout)

    def load_handover(self) -> None:
        """Loads the modules of a hand-over at the start: when a new program takes the
        tunnels over, its files are in place of this program's. Behind `seal` each of
        four modules would take a look at all files."""
        if self.config.handover:
            importlib.import_module("cutthrough.worker.handover")

    def hand_over(self, message: Give | Take) -> None:
        # Imported here, like the rest of the data plane: see make_worker
        from cutthrough.worker.handover import Giver, Taker

        match message:
            case Give(holder):
                try:
                    Giver(self.worker, self.take_socket(), holder,
                          lambda moved, stayed: self.channel.send(
                              TunnelsGiven(moved, stayed)),
                          lambda: self.channel.send(Released(holder)))
                except OSError:              # no giver: nothing will be in transit
                    self.channel.send(Released(holder))
                    raise
            case Take():
                Taker(self.worker, self.take_socket(), self.report_pauses)

    def take_socket(self) -> socket.socket:
        return socket.socket(fileno=self.channel.take_fd())

    def report_pauses(self, pauses_us: list[int]) -> None:
        pauses_us.sort()
        self.channel.send(TunnelsTaken(
            len(pauses_us), pauses_us[len(pauses_us) * 999 // 1000], pauses_us[-1]))

    def prepare(self, number: int) -> None:
        """Makes the parts of the generation that came with the message."""
        self.discard()
        try:
            generation = self.receive_generation()
            self.transaction = self.worker.prepare(generation)
        except ModuleReplaced as error:
            self.channel.send(Prepared(number, str(error)))
        except OSError as error:             # no descriptor came with the message
            self.channel.send(Prepared(
                number, error.strerror or str(error), is_lost=True))
        except Exception as error:           # some of the code is the operator's
            if not isinstance(error, ValueError | MemoryError):
                logging.exception("cannot prepare generation %d", number)
            self.channel.send(Prepared(number, reason_of(error)))
        else:
            self.channel.send(Prepared(number))

    def commit(self, number: int) -> None:
        if not self.has_begun:
            if self.draining is not None:    # by a signal: another one has to begin
                return
            self.has_begun = True
            self.worker.begin()
            self.channel.send(Ready(loop=self.loop_name))
            return
        transaction, self.transaction = self.transaction, None
        if transaction is None or transaction.generation.number != number:
            self.channel.send(Swapped(number, "it is not prepared"))
            return
        self.worker.commit(transaction)
        self.config = transaction.generation.config
        self.channel.send(Swapped(number))

    def discard(self) -> None:
        if self.transaction is not None:
            self.transaction.discard()
            self.transaction = None

    def receive_generation(self) -> Generation:
        fd = self.channel.take_fd()
        try:
            return from_memory(fd)
        finally:
            os.close(fd)

    def on_signal(self) -> None:
        """Has the supervisor replace this worker: if it stopped accepting at once, new
        connections would wait in its queue. The second signal drains it now."""
        if self.has_begun and not self.was_signalled and self.channel.send(Signalled()):
            self.was_signalled = True
        else:
            self.drain(self.config.drain_timeout)

    def drain(self, timeout: float) -> None:
        if self.admin_queries is not None:
            self.admin_queries.breakpoints.close()
        if self.draining is None:
            self.draining = Kept(self._drain(timeout))
            self.deadline = asyncio.get_running_loop().time() + timeout

    @property
    def time_to_leave_s(self) -> float:
        """For code of the operator's that goes on at the end. The supervisor kills the
        process GRACE_S behind the drain's deadline, or behind Stop."""
        left_s = self.deadline - asyncio.get_running_loop().time()
        return min(LEAVE_S, max(left_s, STOPPED_S))

    async def _drain(self, seconds: float) -> None:
        ending = Kept(self.worker.drain(seconds))
        await asyncio.sleep(0)               # its first step stops accepting
        # Closed now, before the wait: open sockets would still queue connections.
        # Closed earlier they would stay in the epoll set while the supervisor has them.
        for listener in self.listeners:
            listener.close()
        try:
            await ending
            if self.admin_queries is not None:
                await self.admin_queries.finish()
        finally:
            self.over.set()


def reason_of(error: Exception) -> str:
    return str(error) or "no memory"


def make_worker(hello: Hello, generation: Generation,
                listeners: list[socket.socket]) -> "Worker":
    # Imported here: the process is pinned and logs before the data plane is loaded
    from cutthrough.net.tls.ticket_keys import TicketKeys
    from cutthrough.policy.known import Known
    from cutthrough.policy.ledger import Ledger
    from cutthrough.process.checks_page import ChecksPage
    from cutthrough.session.model.counters import PAGE_BYTES
    from cutthrough.tape.ring import RING_BYTES, Ring
    from cutthrough.tape.ring_room import size_for
    from cutthrough.worker.worker import Pages, Worker

    memory = mmap.mmap(hello.counters, PAGE_BYTES, offset=hello.page * PAGE_BYTES)
    os.close(hello.counters)                 # the mapping stays
    ledger = Ledger(mmap.mmap(hello.limits, 0), hello.holder)
    os.close(hello.limits)
    known = Known(mmap.mmap(hello.known, 0))
    os.close(hello.known)
    ring = Ring(mmap.mmap(hello.rings, RING_BYTES, offset=hello.page * RING_BYTES),
                hello.wake, size_for(hello.workers))
    os.close(hello.rings)
    keys = TicketKeys(mmap.mmap(hello.tickets, 0))
    os.close(hello.tickets)
    pages = Pages(memoryview(memory), ledger, known, keys, ChecksPage(hello.checks),
                  ring)
    return Worker(generation, pages, slot=hello.slot, listeners=listeners,
                  numbers=hello.numbers, helpers=True,
                  must_log=False)            # the supervisor checked it at the start


def load_data_plane() -> None:
    """Imports what make_worker imports, before it is needed."""
    importlib.import_module("cutthrough.worker.worker")
    importlib.import_module("cutthrough.worker.admin_queries")


def make_admin_queries(worker: "Worker", channel: Channel) -> "AdminQueries":
    from cutthrough.worker.admin_queries import AdminQueries  # see make_worker

    return AdminQueries(worker, channel)


async def serve(channel: Channel, hello: Hello, generation: Generation,
                errors: ErrorLog, loop_name: str) -> float:
    process = WorkerProcess(channel, hello, generation, errors)
    await process.run(loop_name)
    return process.time_to_leave_s


def run(fd: int) -> int:
    """Runs the worker with the channel at descriptor `fd`; returns its exit status."""
    faulthandler.enable()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    keep_apart()
    channel = Channel(socket.socket(fileno=fd))
    if not channel.has_message:              # early: the configuration is not read yet
        load_data_plane()
    hello = channel.receive()
    if not isinstance(hello, Hello):         # the supervisor has ended
        return 0
    if fds := channel.take_fds():
        hello = hello.renumbered(fds)
    generation = from_memory(hello.generation)
    os.close(hello.generation)
    errors = ErrorLog(generation.config.error_log_format, f"worker {hello.slot}")
    logging.basicConfig(level=logging.INFO, handlers=[errors])
    sys.unraisablehook = log_unraisable
    # Of the operator's code: it would wait for who reads them, and all with it
    sys.stdout = open_text(1, sys.stdout.encoding)
    sys.stderr = open_text(2, sys.stderr.encoding)
    try:
        pin(generation.config, hello.slot)   # before there are threads: they inherit it
        loop_name, factory = make_loop(choose_loop(generation.config.loop))
        with asyncio.Runner(loop_factory=factory) as runner:
            leave_soon(0, drive(runner.get_loop(), serve(
                channel, hello, generation, errors, loop_name)))
    except ConfigError as error:
        logging.error("%s", error)
        return 2
    except FilesReplaced:                    # the supervisor says so
        return 3
    except MemoryError:
        logging.error(SHORT, "no memory")
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOMEM, errno.EMFILE, errno.ENFILE):
            raise
        logging.error(SHORT, error.strerror)
        return 1
    finally:
        errors.report_suppressed(everything=True)
    return 0
