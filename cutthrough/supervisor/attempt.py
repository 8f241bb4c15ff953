"""A generation that is prepared in all workers, and in force in none.

    prepared by all ─> commit      none can fail any more
    refused by one ──> refuse      nothing has changed, in any process (R73)

Running workers make what the generation needs and wait. If an option changed that is
fixed when a worker starts, each slot gets a new worker, which opens everything and
accepts nothing yet. A worker that stands still holds nobody up: see PREPARE_S.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Protocol

from cutthrough.config.config import Config
from cutthrough.generation.generation import Generation
from cutthrough.log.stderr import say
from cutthrough.process.channel import Commit, Discard, Prepare, Prepared
from cutthrough.process.hang_watch import cpu_of
from cutthrough.supervisor.children import Child, Slot, describe_exit
from cutthrough.supervisor.listeners import Listeners, Opened
from cutthrough.supervisor.replacements import Replacements

# A running worker prepares a generation within a turn of its loop. One that has not
# answered after this time, and has used no CPU time since the last look, is not waited
# for: it commits when it can, or is replaced. On a busy host others need more time; as
# much as new workers, or one that never ends would hold all reloads up
PREPARE_S, MOST_LOOKS = 1.5, 20


class AdminListener(Protocol):
    def withdraw(self) -> None: ...


class Program(Protocol):
    """The part of the supervisor that an attempt uses."""

    generation: Generation
    slots: list[Slot]
    children: dict[int, Child]
    listeners: Listeners
    replacements: Replacements

    @property
    def operations(self) -> AdminListener: ...
    def spawn(self, slot: Slot, basis: "Basis | None" = None) -> Child: ...
    def put_in_force(self, generation: Generation, memory: int) -> None: ...
    def retire(self, child: Child) -> None: ...
    def stop_child(self, child: Child) -> None: ...


class Basis:
    """The arguments of a worker's start. `opened`: its listeners' sockets."""

    def __init__(self, generation: Generation, memory: int, count: int,
                 opened: Opened) -> None:
        self.generation, self.memory = generation, memory
        self.count, self.opened = count, opened

    @property
    def config(self) -> Config:
        return self.generation.config


class Attempt:
    """From `begin` until `commit` or `refuse`, one of which is called once. `on_ready`
    is called when every worker has answered, `on_refused` when one cannot."""

    def __init__(self, program: Program, basis: Basis,
                 on_ready: Callable[[], None], on_refused: Callable[[str], None]
                 ) -> None:
        self._program, self.basis = program, basis
        self._on_ready, self._on_refused = on_ready, on_refused
        self.number = basis.generation.number
        self._waited_for: set[Child] = set()
        self._prepared: set[Child] = set()
        self._new: dict[Child, Slot] = {}
        self._cpu: dict[Child, object] = {}  # used by those, at the last look
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_overdue = False              # PREPARE_S have passed

    def begin(self, needs_new: bool) -> None:
        """Has all workers prepare. Raises OSError if a new one cannot be started."""
        memory = self.basis.memory
        for child in self._program.children.values():
            if child.send(Prepare(self.number), (memory,)) and not child.retired:
                self._waited_for.add(child)
                self._cpu[child] = cpu_of(child.pid)
        if needs_new:
            slots = self._program.slots
            for index in range(self.basis.count):
                slot = slots[index] if index < len(slots) else Slot(index)
                child = self._program.spawn(slot, self.basis)
                self._new[child] = slot
                self._waited_for.add(child)
        self._arm()
        # There may be no worker to wait for
        asyncio.get_running_loop().call_soon(self._check)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            PREPARE_S, self._on_overdue)

    def _check(self) -> None:
        if self._timer is not None and not self._waited_for:
            self._on_ready()

    def _on_overdue(self) -> None:
        self.is_overdue = True
        self._looks += 1
        self._arm()
        for child in self._waited_for & self._cpu.keys():
            before, self._cpu[child] = self._cpu[child], cpu_of(child.pid)
            if self._cpu[child] == before or self._looks >= MOST_LOOKS:
                self._waited_for.discard(child)
        self._check()

    def on_prepared(self, child: Child, message: Prepared) -> bool:
        """Takes an answer. False: it is not about this generation."""
        if message.number != self.number:
            return False
        if message.error and not message.is_lost and not child.retired:
            self._on_refused(f"{child.name} cannot apply it: {message.error}")
            return True
        if not message.error:
            self._prepared.add(child)
        self._waited_for.discard(child)
        self._check()
        return True

    def on_death(self, child: Child, returncode: int) -> bool:
        """False: the child is not new here."""
        self._waited_for.discard(child)
        self._prepared.discard(child)
        if child in self._new:
            del self._new[child]
            self._on_refused(f"the new {child.name} ended before it was ready: "
                             f"{describe_exit(returncode)}")
            return True
        self._check()
        return False

    @property
    def missing(self) -> Iterable[Child]:
        """The workers that have not answered."""
        return self._waited_for

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def commit(self) -> list[Child]:
        """Puts the generation in force in this program, and in every worker that has
        prepared it. Returns the workers that could not be told."""
        self._end()
        program, basis = self._program, self.basis
        program.listeners.commit(basis.opened)
        program.put_in_force(basis.generation, basis.memory)
        if self._new:
            self._renew_slots()
        unreachable = []
        for child in [*program.children.values()]:       # retired ones apply it too
            if child.first_generation >= self.number:
                continue
            is_prepared = child in self._prepared or child.send(
                Prepare(self.number), (basis.memory,))
            if not (is_prepared and child.send(Commit(self.number))):
                unreachable.append(child)
        return unreachable

    def _renew_slots(self) -> None:
        """Each slot's new worker is its next one; the slots beyond are removed."""
        slots = self._program.slots
        for slot in slots[self.basis.count:]:
            slot.set_timer(None)
            for child in (slot.current, slot.next):
                if child is not None:
                    self._program.retire(child)
        slots[:] = self._new.values()
        for child, slot in self._new.items():
            slot.needed_generation = self.number
            self._program.replacements.adopt(slot, child)
            child.send(Commit(self.number))

    def refuse(self) -> None:
        """Takes everything back."""
        self._end()
        for child in self._program.children.values():
            if child.first_generation < self.number:
                child.send(Discard(self.number))
        for child in self._new:
            self._program.stop_child(child)
        self.basis.opened.withdraw()
        self._program.operations.withdraw()
        os.close(self.basis.memory)


def report_refusal(child: Child, message: Prepared) -> None:
    """Reports the refusal of a worker that was not waited for."""
    say(f"{child.name} cannot apply generation {message.number}: {message.error}")
