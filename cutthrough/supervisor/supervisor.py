"""The supervisor: opens the listening sockets and keeps a worker on every slot.

It owns the process: its signals, its children (it reaps all of them, as process 1 of a
container must), its descriptor limit. It moves no byte of a client.

    starting ──all ready──> serving ──TERM, QUIT──> draining ──any again──> stopping
        └───── a worker that cannot start, or INT ──────────────────────────────┘

It also holds every slot's sockets. So if a worker dies, only its own connections are
lost: the connections in its accept queue go to its replacement.

`replacements` has a worker that ended replaced, `reload` carries out a reload (HUP),
`succession` an upgrade (USR2).
"""

import asyncio
import os
import signal
import time
from enum import Enum

from cutthrough.config.config import Config
from cutthrough.config.values import show_count
from cutthrough.generation.checks import check_log, complete
from cutthrough.generation.generation import Generation, Sources, to_memory
from cutthrough.log.stderr import say
from cutthrough.policy.source import Policy
from cutthrough.process.channel import (
    Commit,
    CutReport,
    Decided,
    Drain,
    HandoverReport,
    Hello,
    Listed,
    Message,
    Prepared,
    Ready,
    Reopen,
    Signalled,
    Stop,
    Swapped,
)
from cutthrough.process.cpus import count_workers
from cutthrough.process.descriptors import raise_nofile
from cutthrough.process.environment import SIGNALS
from cutthrough.process.files import seal
from cutthrough.process.loops import choose_loop
from cutthrough.process.systemd import feed_watchdog, notify
from cutthrough.supervisor import handover_plan
from cutthrough.supervisor.attempt import Basis
from cutthrough.supervisor.banner import print_banner
from cutthrough.supervisor.capture_writer import CaptureWriter
from cutthrough.supervisor.children import Child, Slot, describe_exit
from cutthrough.supervisor.flow_queries import FlowQueries
from cutthrough.supervisor.inherited_pages import InheritedPages
from cutthrough.supervisor.inquiry import Inquiry
from cutthrough.supervisor.limits_page import LimitsPage
from cutthrough.supervisor.listeners import Listeners
from cutthrough.supervisor.operations import Operations
from cutthrough.supervisor.reload import Reloads
from cutthrough.supervisor.replacements import Replacements
from cutthrough.supervisor.start_gate import StartGate
from cutthrough.supervisor.succession import Succession
from cutthrough.supervisor.terminal import Terminal
from cutthrough.supervisor.upgrade import Predecessor, Successor

# A worker that runs this long after its drain deadline or Stop hangs, and is killed.
GRACE_S = 2.0
# Time for a hand-over, however short the drain is: each of ten thousand tunnels takes
# 0.1 ms
HANDOVER_S = 1.0

State = Enum("State", "STARTING SERVING DRAINING STOPPING")


class Supervisor:
    """One run of the program: `run` returns its exit status. `sources` are read again
    for a reload. `predecessor` is the previous program, which this one replaces.
    """

    def __init__(self, config: Config, policy: Policy, sources: Sources,
                 listeners: Listeners, predecessor: Predecessor | None = None) -> None:
        self.generation = Generation(1, config, policy)
        self.sources = sources
        self.state = State.STARTING
        self.status = 0
        self.loop_name = ""
        self.slots: list[Slot] = []
        self.children: dict[int, Child] = {}     # by process id, until reaped
        self.listeners = listeners
        self.predecessor = predecessor
        self.counters = -1
        self.limits = LimitsPage()
        self.pages = InheritedPages()
        self.capture = CaptureWriter()
        self.memory = -1                     # descriptor with the encoded generation
        self.end_requested = False           # to end, by a signal or an operator
        self.over = asyncio.Event()
        self.terminal = Terminal()
        self.inquiry = Inquiry(self)
        self.flow_queries = FlowQueries(self)
        self.operations = Operations(self, predecessor is not None)
        self.gate = StartGate(self, is_open=predecessor is None)
        self.replacements = Replacements(self)
        self.reloads = Reloads(self)
        self.succession = Succession(
            self, self.on_successor_serving, self.inquiry.answer)

    @property
    def config(self) -> Config:
        return self.generation.config

    async def run(self) -> int:
        """Serves until a signal or an operator ends it.

        Returns 0 after a clean stop, else 1, or 2 if a worker could not use its
        configuration. Raises ConfigError, PolicyError and OSError if something cannot
        be used or opened.
        """
        choose_loop(self.config.loop)
        raise_nofile(len(self.config.all_listeners) * self.count, self.count)
        check_log(self.config.access_log)
        self.generation = complete(self.generation)
        try:
            self.counters = os.memfd_create("cutthrough-counters", os.MFD_CLOEXEC)
            self.limits.open(self.count)
            self.pages.open(self.config.shared_secret)
            self.capture.open()
            self.listeners.commit(self.listeners.prepare(
                self.config.all_listeners, self.count))
            self.slots += map(Slot, range(self.count))
            self.generation = self.generation.with_own_addresses(
                self.operations.open(self.config))
            self.memory = to_memory(self.generation)
            self.operations.commit(self.config)
            self.catch_signals()
            self.capture.commit(self.generation)
            for slot in self.slots:
                slot.current = self.spawn(slot)
            await self.over.wait()
            await self.succession.finish_answers()
        finally:
            self.inquiry.close()
            await self.operations.close()
            self.flow_queries.close()
            await self.capture.close()
            self.close()
        return self.status

    def close(self) -> None:
        self.listeners.close()
        for fd in (self.counters, self.memory):
            if fd >= 0:
                os.close(fd)
        self.counters = self.memory = -1
        self.limits.close()
        self.pages.close()

    # Workers

    @property
    def count(self) -> int:
        """The number of slots that are to have a worker; further slots drain."""
        return count_workers(self.config)

    def spawn(self, slot: Slot, basis: Basis | None = None) -> Child:
        """Starts a worker for this slot. `basis`: of a generation that is not in force;
        the worker waits for its Commit. Raises OSError."""
        generation = self.generation if basis is None else basis.generation
        memory = self.memory if basis is None else basis.memory
        count = count_workers(generation.config)
        opened = self.listeners if basis is None else basis.opened
        numbers, listeners = opened.of_slot(slot.index, count)
        page = handover_plan.allocate_page(
            self.children.values(), self.limits, self.counters)
        child = Child(slot, page, generation.number, time.monotonic())
        hello = Hello(
            slot=slot.index, workers=count, generation=memory, listeners=listeners,
            numbers=numbers, counters=self.counters, limits=self.limits.fd, page=page,
            holder=self.limits.holder(page), **self.pages.descriptors,
            **self.capture.descriptors(page))
        sent = child.spawn(hello.descriptors)
        self.children[child.pid] = child
        child.send(hello, sent)
        self.gate.on_spawn(child, waits=basis is not None)
        child.channel.attach(lambda message: self.on_message(child, message))
        return child

    def stop_child(self, child: Child) -> None:
        """Ends a worker that accepts nothing yet. It is killed, because it reads
        messages only once it has loaded all: seconds later on a busy machine."""
        child.retired = True
        child.kill()

    def on_message(self, child: Child, message: Message | None) -> None:
        match message:                       # at the end of file SIGCHLD follows
            case Ready(loop=name):
                self.loop_name = name
                self.on_ready(child)
                self.reloads.update()
            case Prepared():
                self.gate.on_prepared(child, message)
                self.reloads.on_prepared(child, message)
            case Swapped(number, error):
                self.reloads.on_swapped(child, number, error)
            case Listed() | CutReport() | Decided():
                self.inquiry.on_message(child, message)
            case Signalled():
                self.replacements.on_signalled(child)
            case HandoverReport():
                handover_plan.on_report(child, message)

    def on_ready(self, child: Child) -> None:
        slot = child.slot
        child.ready = slot.was_ready = True
        child.generation = max(child.generation, child.first_generation)
        self.inquiry.on_ready(child)
        if self.is_ending or child.retired or child.has_ended:
            return                           # it has a deadline for its end, or none
        child.set_timer(None)
        if child is slot.next:
            old, slot.current, slot.next = slot.current, child, None
            if old is not None:
                slot.early_deaths = 0        # the old worker did not die
                self.retire(old)
        if self.config.handover:
            handover_plan.connect_givers(child, self.children.values(), self.count)
        if self.state is State.STARTING and all(
                slot.current is not None and slot.current.ready for slot in self.slots):
            self.begin_serving()

    def begin_serving(self) -> None:
        self.state = State.SERVING
        seal()
        self.listeners.on_serving()
        print_banner(
            self.listeners.bound(), len(self.slots), self.loop_name, self.config)
        self.operations.on_serving()
        if self.predecessor is not None:
            self.predecessor.report_serving(
                self.take_tunnels if self.config.handover else None, self.on_answer)
        notify("READY=1", f"MAINPID={os.getpid()}", f"STATUS={self.status_line()}")
        feed_watchdog(lambda: self.state in (State.SERVING, State.DRAINING))
        self.reloads.retry()

    def take_tunnels(self, index: int, fd: int) -> None:
        handover_plan.connect_taker([slot.current for slot in self.slots], index, fd)

    def on_answer(self, before: Predecessor, message: Message | None) -> None:
        if message is None:
            self.inquiry.on_death(before)
            if self.is_ending:
                self.end_if_done()
        else:
            self.inquiry.on_message(before, message)

    def status_line(self) -> str:
        return (f"generation {self.generation.number}, "
                f"{show_count(len(self.slots), 'worker')}")

    def retire(self, child: Child) -> None:
        """Drains a child that has left its slot."""
        child.retired = True
        seconds = self.drain_seconds()
        self.end(child, Drain(seconds), seconds + GRACE_S)
        self.close_dropped()

    def drain_seconds(self) -> float:
        """Seconds that a worker has to drain if another worker takes its tunnels."""
        return max(self.config.drain_timeout,
                   HANDOVER_S if self.config.handover else 0.0)

    def close_dropped(self) -> None:
        """Closes the sockets that no worker on a slot has any more."""
        if not (any(slot.next for slot in self.slots) or self.reloads.is_attempting):
            self.listeners.close_dropped()

    def on_attempt_over(self) -> None:
        self.close_dropped()
        self.succession.retry()

    def on_child(self) -> None:
        """Reaps every child that ended: workers, successor, inherited processes."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.children.pop(pid, None)
            if self.successor is not None and pid == self.successor.process.pid:
                self.successor.process.returncode = os.waitstatus_to_exitcode(status)
            if child is None:
                _ = (self.capture.on_reaped(pid, status)
                     or self.flow_queries.on_reaped(pid, status))
            else:
                self.limits.reap(child.page)
                self.pages.credentials.reap(pid)
                self.on_death(child, child.on_reaped(status))
                self.reloads.update()

    def on_death(self, child: Child, returncode: int) -> None:
        slot = child.slot
        self.inquiry.on_death(child)
        if self.reloads.on_death(child, returncode):
            return
        is_followed = slot.remove(child)
        is_unasked = returncode and (child.ready or returncode != -signal.SIGKILL)
        if self.is_ending:
            if is_unasked:
                say(f"{child.name} ended by {describe_exit(returncode)}")
                self.status = self.status or 1
            self.end_if_done()
        elif child.retired:
            if is_unasked:
                say(f"{child.name}, being replaced, ended by "
                    f"{describe_exit(returncode)}")
        elif not slot.was_ready and self.state is State.STARTING:
            say(f"{child.name} exited before it was ready: {describe_exit(returncode)}")
            self.status = 2 if returncode == 2 else 1
            self.stop()
        else:
            self.replacements.on_death(child, returncode, is_followed)

    def kill(self, child: Child) -> None:
        if child.ready or not self.is_ending:
            say(f"{child.name} does not answer: killed")
        child.kill()

    # Reload

    @property
    def successor(self) -> Successor | None:
        return self.succession.successor

    @property
    def is_serving(self) -> bool:
        return self.state is State.SERVING

    @property
    def is_ending(self) -> bool:
        return self.state in (State.DRAINING, State.STOPPING)

    def put_in_force(self, generation: Generation, memory: int) -> None:
        """Has new workers start with this generation; owns `memory`, which holds it."""
        os.close(self.memory)
        self.generation, self.memory = generation, memory
        self.operations.commit(generation.config)
        self.capture.commit(generation)
        self.inquiry.pass_on(Commit(generation.number))

    def notify_ready(self) -> None:
        """Tells the service manager that a reload is over, whatever its result."""
        if self.is_serving:
            notify("READY=1", f"STATUS={self.status_line()}")

    # Signals and endings

    def catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        loop.add_signal_handler(signal.SIGCHLD, self.on_child)
        self.on_child()                      # for children that ended before this
        loop.add_signal_handler(signal.SIGTERM, self.drain)
        loop.add_signal_handler(signal.SIGQUIT, self.drain)
        loop.add_signal_handler(signal.SIGINT, self.stop)
        loop.add_signal_handler(signal.SIGUSR1, self.on_rotated)
        loop.add_signal_handler(signal.SIGHUP, self.on_hangup)
        loop.add_signal_handler(signal.SIGUSR2, self.succession.request)
        # The process that started us may have blocked more signals
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*SIGNALS, signal.SIGCHLD})

    def on_hangup(self) -> None:
        if self.terminal.has_ended:
            self.stop()
        else:
            self.reloads.request()

    def on_rotated(self) -> None:
        """The new program of an upgrade opens the log before it is the main process."""
        self.reopen()
        if self.successor is not None:
            self.successor.process.send_signal(signal.SIGUSR1)

    def reopen(self) -> None:
        """Of the previous program too, while it drains: it writes to the same file."""
        for child in self.children.values():
            child.send(Reopen())
        self.inquiry.pass_on(Reopen())

    def drain(self) -> None:
        """Drains and ends; the second request ends the program now."""
        before, self.end_requested = self.end_requested, True
        if self.state is State.DRAINING and not before:
            return                           # it drains already, for its successor
        if self.state is not State.SERVING:
            self.stop()
            return
        self.succession.abandon()
        notify("STOPPING=1", "STATUS=draining")
        self.begin_drain(self.config.drain_timeout)

    def on_successor_serving(self, successor: Successor) -> None:
        """Drains, because the new program serves: hands the tunnels over first."""
        self.operations.on_successor()
        if self.config.handover:
            handover_plan.connect_successor(self.children.values(), successor)
        self.begin_drain(self.drain_seconds())

    def begin_drain(self, seconds: float) -> None:
        self.state = State.DRAINING
        self.reloads.retry()
        self.end_all(Drain(seconds), seconds + GRACE_S)

    def stop(self) -> None:
        if self.state is not State.STOPPING:
            self.succession.abandon()
            self.state = State.STOPPING
            self.reloads.retry()
            self.end_all(Stop(), GRACE_S)

    def end_all(self, message: Message, seconds: float) -> None:
        self.listeners.close(handed_on=self.successor is not None)
        for slot in self.slots:
            slot.set_timer(None)
        for child in self.children.values():
            if not (child.retired and isinstance(message, Drain)):
                self.end(child, message, seconds)
        self.end_if_done()

    def end_if_done(self) -> None:
        """Ends the run if no worker is left. While the previous program drains, it goes
        on for the next one, whose queries reach that one through this."""
        before = self.predecessor
        is_between = (self.state is State.DRAINING and self.successor is not None
                      and before is not None and before.drains)
        if not self.children and not is_between:
            self.over.set()

    def end(self, child: Child, message: Message, delay: float) -> None:
        """Asks a worker to end, and kills it if it still runs after `delay` seconds."""
        child.send(message)
        if not child.ready and isinstance(message, Stop):
            delay = 0.0                      # it serves no connection yet
        child.set_timer(asyncio.get_running_loop().call_later(delay, self.kill, child))
