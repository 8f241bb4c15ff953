"""Who replaces a worker, and whose sockets it leaves to others meanwhile."""

import asyncio

import pytest

from cutthrough.supervisor.children import Child, Slot
from cutthrough.supervisor.replacements import Replacements


class Program:
    """Two slots, each with a worker that accepts."""

    def __init__(self) -> None:
        self.slots = [Slot(0), Slot(1)]
        self.is_serving, self.successor = True, None
        self.listeners = self
        self.count = 2
        self.paused: list[int] = []
        for slot in self.slots:
            slot.current = self.spawn(slot)
            slot.current.ready = True

    def spawn(self, slot: Slot) -> Child:
        return Child(slot, slot.index, 1, asyncio.get_running_loop().time())

    def pause(self, index: int, slots: int) -> None:
        assert slots == 2
        self.paused.append(index)


def change(program: Program, what: str) -> None:
    match what:
        case "its worker lives":
            program.slots[0].current = program.spawn(program.slots[0])
        case "the other starts":
            program.slots[1].current.ready = False
        case "the other has died":
            program.slots[1].current = None
        case "the program starts":
            program.is_serving = False
        case "an upgrade is under way":
            program.successor = object()


@pytest.mark.parametrize("what", [
    "", "its worker lives", "the other starts", "the other has died",
    "the program starts", "an upgrade is under way"])
async def test_only_sockets_without_an_acceptor_are_paused(what):
    """And only if others accept: in an upgrade both programs' workers have the
    sockets."""
    program = Program()
    slot = program.slots[0]
    slot.current = None
    change(program, what)
    Replacements(program).replace(slot, 60.0)
    slot.set_timer(None)
    assert program.paused == ([] if what else [0])
