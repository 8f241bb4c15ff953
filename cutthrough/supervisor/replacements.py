"""Keeps a worker on every slot: who replaces a worker that ended, and when.

    current ends ──> a new one at once, or later if workers of the slot die young
    current is to be replaced ──> next starts; current serves until next is ready
    current has a signal to end ──> the same, unless the program ends
"""

import asyncio
import time
from typing import Protocol

from cutthrough.log.stderr import say
from cutthrough.supervisor import children as processes
from cutthrough.supervisor.children import BACKOFF_MAX_S, Child, Slot, describe_exit
from cutthrough.supervisor.listeners import Listeners
from cutthrough.supervisor.upgrade import Successor

# How long to wait before replacing a worker that has a signal to end, or that exited
# with status 0: systemd may have signalled every process of the service, and then our
# own signal is a moment away.
EXIT_WAIT_S = 0.25

# From this delay on the other workers serve the callers of a slot without a worker. Who
# waits there already is then reset: for a shorter delay the slot's next worker serves
# them sooner than they would connect again.
PAUSE_FROM_S = 0.4


class Program(Protocol):
    """The part of the supervisor that is used here."""

    slots: list[Slot]
    listeners: Listeners

    @property
    def count(self) -> int: ...
    @property
    def is_serving(self) -> bool: ...
    @property
    def is_ending(self) -> bool: ...
    @property
    def successor(self) -> Successor | None: ...
    def spawn(self, slot: Slot) -> Child: ...
    def retire(self, child: Child) -> None: ...
    def close_dropped(self) -> None: ...


class Replacements:
    def __init__(self, program: Program) -> None:
        self._program = program

    def on_death(self, child: Child, returncode: int, is_followed: bool) -> None:
        """A worker that was not asked to end has left its slot. `is_followed`: to the
        next one, which has started already."""
        slot = child.slot
        if is_followed:
            slot.count_death(time.monotonic() - child.started_at)
            say(f"{child.name} died: {describe_exit(returncode)}; "
                "its replacement is starting already")
            self._program.close_dropped()    # which only the dead one had
        elif returncode:
            self._respawn(slot, child, returncode)
        else:
            slot.set_timer(asyncio.get_running_loop().call_later(
                EXIT_WAIT_S, self._respawn, slot, child, 0))

    def on_signalled(self, child: Child) -> None:
        """A signal asks a worker to end, which serves until it is replaced."""
        slot = child.slot
        if child is slot.current and slot.next is None and not (
                child.retired or self._program.is_ending):
            slot.set_timer(asyncio.get_running_loop().call_later(
                EXIT_WAIT_S, self._replace_signalled, child))

    def _replace_signalled(self, child: Child) -> None:
        say(f"{child.name} has a signal to end; starting a replacement")
        self.replace(child.slot)

    def _respawn(self, slot: Slot, child: Child, returncode: int) -> None:
        delay = slot.count_death(time.monotonic() - child.started_at)
        say(f"{child.name} died: {describe_exit(returncode)}; "
            f"starting a replacement {f'in {delay:g} s' if delay else 'now'}")
        self.replace(slot, delay)

    def replace(self, slot: Slot, delay: float = 0.0) -> None:
        """Starts a new worker on the slot; the present one serves until it is ready."""
        slot.set_timer(None)
        if delay:
            if delay >= PAUSE_FROM_S and self._can_pause(slot):
                self._program.listeners.pause(slot.index, self._program.count)
            slot.set_timer(asyncio.get_running_loop().call_later(
                delay, self.replace, slot))
            return
        try:
            self.adopt(slot, self._program.spawn(slot))
        except OSError as error:             # no memory, no process: it may pass
            processes.report_failure(f"worker {slot.index}", error)
            self.replace(slot, BACKOFF_MAX_S)

    def _can_pause(self, slot: Slot) -> bool:
        """No worker accepts on the slot's own sockets, and others accept the callers.

        In an upgrade the other program's workers have the same sockets.
        """
        program = self._program
        return slot.current is None and program.is_serving and (
            program.successor is None) and any(
                other.current is not None and other.current.ready
                for other in program.slots if other is not slot)

    def adopt(self, slot: Slot, child: Child) -> None:
        """This is the slot's next worker."""
        slot.set_timer(None)
        late, slot.next = slot.next, None
        if late is not None:    # drained, not killed: its Ready may be on the way
            self._program.retire(late)
        if slot.current is None:
            slot.current = child
        else:
            slot.next = child
