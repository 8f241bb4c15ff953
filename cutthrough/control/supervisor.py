"""The supervisor: opens the listening sockets, keeps a worker on every slot.

It owns the process: its signals, its children (all are reaped, as process 1 of a
container must), its descriptor limit. It moves no byte of a client.

    starting ──all ready──> serving ──TERM, QUIT──> draining ──any again──> stopping
        └───── a worker that cannot begin, or INT ──────────────────────────────┘

It holds every slot's sockets too. So a worker's death loses that worker's connections
only: what waits in its queue is accepted by the one that follows.
"""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from enum import Enum

import cutthrough
from cutthrough.config import SECRETS, Config, ConfigError, variable_name
from cutthrough.control.channel import (
    Channel,
    Drain,
    Hello,
    Message,
    Ready,
    Reopen,
    Stop,
)
from cutthrough.control.process import SIGNALS, choose_loop
from cutthrough.net.listener import bound_address, listen
from cutthrough.values import show_address

# A worker that lived this long died of something else than its start.
YOUNG_S = 10.0
# Between starts of a slot whose workers die young: 0, 0.1, 0.2, 0.4 … seconds.
BACKOFF_S, BACKOFF_MAX_S = 0.1, 5.0
# A worker imports and binds nothing slow: 0.2 s here; this is for a machine in swap.
START_S = 30.0
# After the drain deadline, or after stop: then it hangs, and is killed.
GRACE_S = 2.0

State = Enum("State", "STARTING SERVING DRAINING STOPPING")


def say(line: str) -> None:
    """Writes one line to standard error; whoever read it may be gone."""
    with contextlib.suppress(OSError):
        os.write(2, f"cutthrough: {line}\n".encode())


class Slot:
    """One worker's place: its sockets stay, its processes come and go."""

    def __init__(self, index: int, listeners: list[socket.socket]) -> None:
        self.index = index
        self.listeners = listeners
        self.child: subprocess.Popen[bytes] | None = None
        self.channel: Channel | None = None
        self.ready = False
        self.proven = False                  # some worker of this slot got ready
        self.died_young = 0                  # how many in a row
        self.started_at = 0.0
        self.timer: asyncio.TimerHandle | None = None     # start deadline, or back-off

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer

    def tell(self, message: Message) -> None:
        if self.channel is not None:
            self.channel.send(message)


class Supervisor:
    """One run of the program: `run` returns its exit status."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.state = State.STARTING
        self.status = 0
        self.loop_name = ""
        self.slots: list[Slot] = []
        self.counters = -1
        self.page_bytes = 0
        self.over = asyncio.Event()

    async def run(self) -> int:
        """Serves until told to stop.

        Returns 0 after a clean stop, else 1, or 2 where a worker could not use its
        configuration. Raises ConfigError and OSError for what cannot be opened.
        """
        choose_loop(self.config.loop)
        raise_nofile()
        check_log(self.config.access_log)
        try:
            self.open()
            self.catch_signals()
            for slot in self.slots:
                self.spawn(slot)
            await self.over.wait()
        finally:
            self.close()
        return self.status

    def open(self) -> None:
        """Opens what the workers inherit: the sockets of every slot, the counters."""
        from cutthrough.session.counters import PAGE_BYTES

        count = self.config.workers or len(os.sched_getaffinity(0))
        self.slots = [Slot(index, []) for index in range(count)]
        for address in self.config.listen:
            try:
                group = listen(address, count)
            except OSError as error:
                error.filename = show_address(address)
                raise
            for slot, sock in zip(self.slots, group, strict=True):
                slot.listeners.append(sock)
        self.page_bytes = PAGE_BYTES
        self.counters = os.memfd_create("cutthrough-counters", os.MFD_CLOEXEC)
        os.ftruncate(self.counters, count * PAGE_BYTES)

    def close_listeners(self) -> None:
        for slot in self.slots:
            for sock in slot.listeners:
                sock.close()

    def close(self) -> None:
        self.close_listeners()
        if self.counters >= 0:
            os.close(self.counters)
            self.counters = -1

    # Workers

    def spawn(self, slot: Slot) -> None:
        slot.channel, theirs = Channel.pair()
        slot.ready = False
        slot.started_at = time.monotonic()
        fds = tuple(sock.fileno() for sock in slot.listeners)
        # Until the worker has its own handlers these signals wait: a Ctrl-C must not
        # find Python's. A blocked signal stays blocked through exec, and pending.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            # -P: a directory from which the proxy is started shadows no module.
            slot.child = subprocess.Popen(
                [sys.executable, "-P", "-m", "cutthrough.control.process",
                 str(theirs.fileno())],
                stdin=subprocess.DEVNULL, env=worker_environment(),
                pass_fds=(theirs.fileno(), self.counters, *fds))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            theirs.close()
        slot.channel.send(Hello(
            config=self.config, slot=slot.index, listeners=fds, counters=self.counters,
            page_bytes=self.page_bytes))
        slot.channel.attach(lambda message: self.on_message(slot, message))
        loop = asyncio.get_running_loop()
        slot.set_timer(loop.call_later(START_S, self.kill, slot))

    def on_message(self, slot: Slot, message: Message | None) -> None:
        if not isinstance(message, Ready):   # at the end of file SIGCHLD follows
            return
        if self.state in (State.STARTING, State.SERVING):
            slot.set_timer(None)             # later it is the one that ends the wait
        slot.ready = slot.proven = True
        self.loop_name = message.loop
        if self.state is State.STARTING and all(each.ready for each in self.slots):
            self.state = State.SERVING
            self.print_banner()

    def on_child(self) -> None:
        """Reaps every child that ended, ours or inherited."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for slot in self.slots:
                if slot.child is not None and slot.child.pid == pid:
                    slot.child.returncode = os.waitstatus_to_exitcode(status)
                    self.on_death(slot, slot.child)

    def on_death(self, slot: Slot, child: subprocess.Popen[bytes]) -> None:
        slot.child = None
        slot.set_timer(None)
        if slot.channel is not None:
            slot.channel.close()
            slot.channel = None
        if self.state in (State.DRAINING, State.STOPPING):
            if child.returncode:
                say(f"worker {slot.index} (pid {child.pid}) ended by "
                    f"{cause(child.returncode)}")
                self.status = self.status or 1
            if all(each.child is None for each in self.slots):
                self.over.set()
        elif not slot.proven:
            say(f"worker {slot.index} (pid {child.pid}) ended before it was ready, by "
                f"{cause(child.returncode)}")
            self.status = 2 if child.returncode == 2 else 1
            self.stop()
        else:
            self.respawn(slot, child)

    def respawn(self, slot: Slot, child: subprocess.Popen[bytes]) -> None:
        young = time.monotonic() - slot.started_at < YOUNG_S
        slot.died_young = slot.died_young + 1 if young else 0
        delay = 0.0
        if slot.died_young > 1:
            delay = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (slot.died_young - 2))
        say(f"worker {slot.index} (pid {child.pid}) died by {cause(child.returncode)}; "
            f"the next one starts {f'in {delay:g} s' if delay else 'now'}")
        self.start_again(slot, delay)

    def start_again(self, slot: Slot, delay: float) -> None:
        if delay:
            loop = asyncio.get_running_loop()
            slot.set_timer(loop.call_later(delay, self.start_again, slot, 0.0))
            return
        try:
            self.spawn(slot)
        except OSError as error:             # no memory, no process: as likely passing
            say(f"worker {slot.index} cannot be started: {error}")
            self.start_again(slot, BACKOFF_MAX_S)

    def kill(self, slot: Slot) -> None:
        if slot.child is not None:
            say(f"worker {slot.index} (pid {slot.child.pid}) does not answer: killed")
            slot.child.kill()

    # Signals and endings

    def catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        loop.add_signal_handler(signal.SIGCHLD, self.on_child)
        self.on_child()                      # who ended before that told nobody
        loop.add_signal_handler(signal.SIGTERM, self.drain)
        loop.add_signal_handler(signal.SIGQUIT, self.drain)
        loop.add_signal_handler(signal.SIGINT, self.stop)
        loop.add_signal_handler(signal.SIGUSR1, self.reopen)
        loop.add_signal_handler(
            signal.SIGHUP, say, "reload is not available in this version")

    def reopen(self) -> None:
        for slot in self.slots:
            slot.tell(Reopen())

    def drain(self) -> None:
        if self.state is not State.SERVING:
            self.stop()
            return
        self.state = State.DRAINING
        self.end(Drain(self.config.drain_timeout), self.config.drain_timeout + GRACE_S)

    def stop(self) -> None:
        if self.state is not State.STOPPING:
            self.state = State.STOPPING
            self.end(Stop(), GRACE_S)

    def end(self, message: Message, seconds: float) -> None:
        """Tells every worker, and kills those that are still there after `seconds`."""
        self.close_listeners()               # held open they would still take callers
        loop = asyncio.get_running_loop()
        for slot in self.slots:
            slot.tell(message)
            slot.set_timer(loop.call_later(seconds, self.kill, slot))
        if all(slot.child is None for slot in self.slots):
            self.over.set()

    def print_banner(self) -> None:
        addresses = " and ".join(
            show_address(bound_address(sock)) for sock in self.slots[0].listeners)
        line = (f"cutthrough {cutthrough.__version__} listening on {addresses}, "
                f"{len(self.slots)} workers, {self.loop_name}")
        if self.config.demonstration:
            line += ", demonstration credentials username:password"
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode())


def cause(returncode: int) -> str:
    """Names how a child ended: `signal SIGKILL` or `status 1`."""
    if returncode >= 0:
        return f"status {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:                       # the real-time ones have no name
        return f"signal {-returncode}"


def worker_environment() -> dict[str, str]:
    """Returns our environment, able to import this package, and without secrets."""
    environ = {name: value for name, value in os.environ.items()
               if name not in map(variable_name, SECRETS)}
    package = os.path.dirname(os.path.dirname(os.path.abspath(cutthrough.__file__)))
    before = environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = f"{package}{os.pathsep}{before}" if before else package
    return environ


def raise_nofile() -> None:
    """Raises the limit of open files as far as we may: a tunnel needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_log(path: str) -> None:
    """Creates the access log, so that a path that cannot be written fails here."""
    # Not blocking: opening a FIFO that nobody reads would wait for ever.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
    if path not in ("-", "off"):
        try:
            os.close(os.open(path, flags, 0o640))
        except OSError as error:
            raise ConfigError(path, "access_log", error.strerror or "") from None


def run(config: Config) -> int:
    """Runs the program with this configuration; returns its exit status."""
    return asyncio.run(Supervisor(config).run())
