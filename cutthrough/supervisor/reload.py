"""A reload: the files' present content comes into force in every worker, or in none.

    requested ─ read, checked, opened ─> attempted ─ prepared by all ─> committed
      └───── refused <───── one cannot ──────┘                             │
                  in force <─ late <─ not within LATE_S ─┬─ all report it <┘
                  in force <─────────────────────────────┘

Refused: nothing has changed (R73). Attempted: all workers make what the generation
needs, as `attempt` says. Committed: workers apply the generation, and those that cannot
are replaced. In force: no process uses an older generation, draining ones included.
Then `generation N` is logged. If that is late, a line names the workers, and another
line follows at the end.

A reload requested during the start, an upgrade or an attempt waits. The program that
serves afterwards carries it out. An attempt whose new workers take their time gives way
to the next request, but not if that asks for the same: it would never be over if
requests come faster than workers start.
"""

import asyncio
import logging
import os
from typing import Protocol

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import take_versions
from cutthrough.generation.checks import check_log, complete, describe
from cutthrough.generation.generation import (
    Generation,
    Sources,
    needs_new_workers,
    show_changes,
    to_memory,
)
from cutthrough.log.stderr import say
from cutthrough.policy.source import PolicyError
from cutthrough.process.channel import Prepared
from cutthrough.process.cpus import count_workers
from cutthrough.process.files import ModuleReplaced
from cutthrough.process.loops import choose_loop
from cutthrough.process.systemd import notify_reloading
from cutthrough.supervisor.attempt import Attempt, Basis, report_refusal
from cutthrough.supervisor.bundle_poll import BundlePoll
from cutthrough.supervisor.certificate_watch import CertificateWatch
from cutthrough.supervisor.children import Child, Slot
from cutthrough.supervisor.file_watch import FileWatch
from cutthrough.supervisor.inherited_pages import InheritedPages
from cutthrough.supervisor.limits_page import LimitsPage
from cutthrough.supervisor.listeners import Listeners, Opened
from cutthrough.supervisor.replacements import Replacements
from cutthrough.supervisor.upgrade import Successor

# A worker prepares and applies a generation within two turns of its loop, and a new
# worker starts in 0.2 s here. After this time the reload is reported as late
LATE_S = 5.0
# Between two looks at what a reload asks for that waits for an attempt
LOOK_S = 0.5
# Workers named in one line
MOST_NAMED = 8

log = logging.getLogger("cutthrough")


class AdminListener(Protocol):
    """The operators' listener, which a reload reconfigures and reports to."""

    def open(self, config: Config) -> tuple[tuple[str, int], ...]: ...
    def withdraw(self) -> None: ...
    def on_reload(self, result: str, in_force: bool) -> None: ...


class Program(Protocol):
    """The part of the supervisor that reloads use."""

    generation: Generation
    memory: int
    sources: Sources
    slots: list[Slot]
    children: dict[int, Child]
    listeners: Listeners
    replacements: Replacements
    limits: LimitsPage
    pages: InheritedPages

    @property
    def successor(self) -> Successor | None: ...
    @property
    def operations(self) -> AdminListener: ...
    @property
    def is_serving(self) -> bool: ...
    @property
    def is_ending(self) -> bool: ...
    def spawn(self, slot: Slot, basis: Basis | None = None) -> Child: ...
    def put_in_force(self, generation: Generation, memory: int) -> None: ...
    def retire(self, child: Child) -> None: ...
    def stop_child(self, child: Child) -> None: ...
    def notify_ready(self) -> None: ...
    def on_attempt_over(self) -> None: ...


class Reload:
    """A requested reload. `over` is set when it has its result and its log line."""

    def __init__(self) -> None:
        self.number, self.changes = 0, ""
        self.result = ""                     # ok, refused, late, passed
        self.line = ""
        self.over = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None

    def end(self, result: str, line: str) -> None:
        self.result, self.line = result, line
        say(line)
        self.over.set()


class Reloads:
    """All requested reloads; several may be in progress."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._attempt: Attempt | None = None
        self._attempted = Reload()           # of the attempt
        self._number = 1                     # of the newest generation, refused or not
        self._sent: list[Reload] = []        # committed, not in force; oldest first
        self._waiting: Reload | None = None
        self._look: asyncio.TimerHandle | None = None
        self._watch = CertificateWatch(
            lambda: program.generation.config, self.reread_certificates)
        self._files = FileWatch(lambda: program.generation.config, self.request)
        self._files.follow(take_versions(), whole=True)     # read before the start
        self.bundles = BundlePoll(lambda: program.generation, self.request)

    def request(self) -> Reload:
        """Applies the files' present content; on any error nothing changes."""
        reload = self._waiting or Reload()
        program = self._program
        if not program.is_ending and (program.successor or not program.is_serving):
            if self._waiting is None:
                say("reload postponed until the new program has started")
            self._waiting = reload
            return reload
        if self._attempt is not None and not program.is_ending:
            self._waiting = reload
            if self._look is None:
                self._look = asyncio.get_running_loop().call_later(
                    LOOK_S, self._give_way)
            return reload
        self._waiting = None
        if not program.is_ending:
            self._begin(reload)
        elif program.successor is None:
            self._end(reload, "refused", "reload refused: the program is shutting down")
        else:
            reload.end("passed", program.successor.reload())
        return reload

    def _give_way(self) -> None:
        """Looks if the waiting reload asks for another generation than the attempt."""
        self._look = None
        attempt = self._attempt
        if attempt is None or self._waiting is None:
            return
        if attempt.is_overdue and not self._is_present(attempt.basis.generation):
            self._refuse("another one was requested before its new workers were ready")
        else:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._give_way)

    def _is_present(self, generation: Generation) -> bool:
        """Do the files have this? As good as that is a mistake in them, which the
        waiting reload reports in its turn."""
        try:
            config, policy = self._program.sources.read()
            return generation == complete(msgspec.structs.replace(
                generation, config=config, policy=policy))
        except Exception:
            return True

    def reread_certificates(self) -> bool:
        """Applies the present content of TLS listeners' files alone; on any error
        nothing changes. False: not now, because a start, an upgrade or the end is under
        way."""
        program = self._program
        if (program.is_ending or program.successor or not program.is_serving
                or self._attempt is not None):
            return False
        self._begin(Reload(), certificates=True)
        return True

    def retry(self) -> None:
        """The program's state has changed: retries the waiting reload. Certificates are
        watched, and ticket keys made, only while the program serves."""
        if self._program.is_serving:
            self._watch.begin()
            self._files.begin()
            self.bundles.begin()
            self._program.pages.tickets.begin()
        else:
            self._watch.end()
            self._files.end()
            self.bundles.end()
            self._program.pages.tickets.end()
            if self._attempt is not None:
                self._refuse("the program is shutting down")
        if self._waiting is not None:
            self.request()

    @property
    def is_attempting(self) -> bool:
        return self._attempt is not None

    def _begin(self, reload: Reload, certificates: bool = False) -> None:
        program = self._program
        notify_reloading()
        try:
            generation, memory, opened = (
                self._read_certificates() if certificates else self._read())
        except Exception as error:           # whatever it is, the next one is possible
            program.operations.withdraw()
            self._end(reload, "refused", self._show_refusal(self.explain(error)))
            if not certificates:
                self.bundles.on_refused(None)
        else:
            self._try(reload, Basis(
                generation, memory, count_workers(generation.config), opened))
        finally:
            self._notify_manager()

    def explain(self, error: Exception) -> str:
        """The reason in one line. If the program has a mistake itself, the traceback is
        in the log."""
        if isinstance(error, ModuleReplaced):
            return str(error)
        if isinstance(error, OSError):
            return describe(error)
        if isinstance(error, ConfigError | PolicyError):
            return describe(self._program.sources.blame(error))
        log.error("the configuration cannot be read", exc_info=error)
        return f"the configuration cannot be read: {type(error).__name__}"

    def _show_refusal(self, reason: str) -> str:
        return (f"reload refused, generation {self._program.generation.number} stays "
                f"in force: {reason}")

    def _read(self) -> tuple[Generation, int, Opened]:
        """Reads and checks everything, and opens missing listeners."""
        program = self._program
        is_whole = False
        take_versions()
        try:
            config, policy = program.sources.read()
            generation = Generation(self._number + 1, config, policy,
                                    program.operations.open(config))
            choose_loop(config.loop)
            check_log(config.access_log)
            generation = complete(generation)
            is_whole = True
        finally:
            self._files.follow(take_versions(), is_whole)
        self._check_credentials(config)
        self._check_room(config)
        return self._open(generation)

    def _read_certificates(self) -> tuple[Generation, int, Opened]:
        return self._open(complete(msgspec.structs.replace(
            self._program.generation, number=self._number + 1)))

    def _open(self, generation: Generation) -> tuple[Generation, int, Opened]:
        memory = to_memory(generation)
        try:
            opened = self._program.listeners.prepare(
                generation.config.all_listeners, count_workers(generation.config))
        except BaseException:
            os.close(memory)
            raise
        return generation, memory, opened

    def _check_credentials(self, config: Config) -> None:
        self.check_user(config)
        if config.shared_secret != self._program.generation.config.shared_secret:
            raise ConfigError("", "share_credentials", "cannot change, nor its key, "
                              "while the program runs: restart it, or send USR2")

    def check_user(self, config: Config) -> None:
        """Refuses a reload that would enable the demonstration credentials (R29).

        A file may be empty because the disk is full or the file is being written. It
        then configures no user, and must not let in credentials that everybody knows.
        """
        if config.demonstration and not self._program.generation.config.demonstration:
            raise ConfigError("", "user", "no user is configured any more; the "
                              "demonstration credentials are enabled only at a start")

    def _check_room(self, config: Config) -> None:
        """Refuses more workers than the page of limits has room for: a slot beyond
        them would have a socket and no worker, and its clients would wait for ever."""
        program = self._program
        count = count_workers(config)
        most = program.limits.capacity - len(program.children)
        if count > len(program.slots) and count > most:
            raise ConfigError("", "workers", f"{count} is more than the {most} that "
                              "fit now; restart the program to run more")

    def _try(self, reload: Reload, basis: Basis) -> None:
        """Has all workers prepare it."""
        self._number = reload.number = basis.generation.number
        reload.changes = show_changes(self._program.generation, basis.generation)
        needs_new = needs_new_workers(self._program.generation, basis.generation)
        self._attempted = reload
        self._attempt = Attempt(self._program, basis, self._commit, self._refuse)
        self._schedule(reload)
        try:
            self._attempt.begin(needs_new)
        except OSError as error:
            self._refuse(f"a new worker cannot be started: {error}")

    def _schedule(self, reload: Reload) -> None:
        if reload.timer is not None:
            reload.timer.cancel()
        reload.timer = asyncio.get_running_loop().call_later(
            LATE_S, self._on_late, reload)

    def _refuse(self, reason: str) -> None:
        """Ends the attempt; nothing has changed."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        attempt.refuse()
        reload = self._attempted
        if reload.timer is not None:
            reload.timer.cancel()
        line = self._show_refusal(reason)
        if reload.over.is_set():             # it was reported as late
            say(line)
        else:
            self._end(reload, "refused", line)
        self.bundles.on_refused(attempt.basis.generation.bundle)
        self._after_attempt()

    def _commit(self) -> None:
        """Every worker can apply it."""
        attempt, self._attempt = self._attempt, None
        assert attempt is not None
        reload = self._attempted
        if not reload.over.is_set():
            self._schedule(reload)
        self._sent.append(reload)
        for child in attempt.commit():
            self._on_unreachable(child)
        self.update()
        self._files.begin()                  # as the new configuration says
        self.bundles.on_commit(attempt.basis.generation.bundle)
        self.bundles.begin()
        self._after_attempt()

    def _after_attempt(self) -> None:
        self._notify_manager()
        if self._waiting is not None:
            self.request()
        self._program.on_attempt_over()

    def on_death(self, child: Child, returncode: int) -> bool:
        """False: the child is no new worker of an attempt."""
        return self._attempt is not None and self._attempt.on_death(child, returncode)

    def on_prepared(self, child: Child, message: Prepared) -> None:
        if self._attempt is not None and self._attempt.on_prepared(child, message):
            return
        if message.error and child.ready:    # Swapped follows
            report_refusal(child, message)

    def _on_unreachable(self, child: Child) -> None:
        """Replaces a worker with a full socket. If it is retired, it is killed at its
        deadline anyway."""
        if not child.retired and child.slot.next is None:
            say(f"{child.name}: control socket full, worker is not reading; "
                "starting a replacement")
            self._program.replacements.replace(child.slot)

    def on_swapped(self, child: Child, number: int, error: str) -> None:
        if error:                            # it has not prepared it
            child.refused = number
            if not child.retired and self._program.is_serving:
                self._program.replacements.replace(child.slot)
            return
        child.generation = max(child.generation, number)
        self.update()

    def update(self) -> None:
        """Ends the reloads that are in force in every worker now."""
        least = min((child.generation for child in self._program.children.values()),
                    default=self._program.generation.number)
        least = min([least, *(
            slot.needed_generation - 1 for slot in self._outdated_slots())])
        while self._sent and self._sent[0].number <= least:
            reload = self._sent.pop(0)
            if reload.timer is not None:
                reload.timer.cancel()
            if reload.over.is_set():
                say(f"generation {reload.number} is in force in every worker now")
                self._program.operations.on_reload("", True)
            else:
                self._end(reload, "ok", f"generation {reload.number}: {reload.changes}")
                self._notify_manager()

    def _outdated_slots(self) -> list[Slot]:
        """The slots with a worker older than they need, to be replaced."""
        return [slot for slot in self._program.slots
                if slot.current is not None
                and slot.current.first_generation < slot.needed_generation]

    def _on_late(self, reload: Reload) -> None:
        late = [f"{child.name}, which {why_late(child, reload.number)}"
                for child in self._late_children(reload)]
        late += [f"worker {slot.index}, which cannot be started"
                 for slot in self._outdated_slots() if slot.next is None]
        if len(late) > MOST_NAMED:
            late[MOST_NAMED:] = [f"{len(late) - MOST_NAMED} more"]
        self._end(reload, "late", f"generation {reload.number} is not in force yet in "
                  f"{'; '.join(late)}: {reload.changes}")
        self._notify_manager()

    def _late_children(self, reload: Reload) -> list[Child]:
        if self._attempt is not None and reload is self._attempted:
            return [*self._attempt.missing]
        return [child for child in self._program.children.values()
                if child.generation < reload.number]

    def _end(self, reload: Reload, result: str, line: str) -> None:
        self._program.operations.on_reload(result, result == "ok")
        reload.end(result, line)

    def _notify_manager(self) -> None:
        if self._attempt is None and all(reload.over.is_set() for reload in self._sent):
            self._program.notify_ready()

    async def wait_for_results(self) -> None:
        """Returns when every reload in progress has its result."""
        attempted = [self._attempted] if self._attempt is not None else []
        for reload in [*self._sent, *attempted]:
            await reload.over.wait()


def why_late(child: Child, number: int) -> str:
    if child.refused >= number:
        return "could not apply it and is being replaced"
    return "does not answer" if child.ready else "has not started yet"
