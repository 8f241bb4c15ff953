"""Who replaces a worker, and whose sockets it leaves to others meanwhile."""

import asyncio

import pytest

from cutthrough.supervisor.children import Child, Slot
from cutthrough.supervisor.replacements import Replacements


def make_child(slot: Slot) -> Child:
    return Child(slot, slot.index, 1, asyncio.get_running_loop().time())


class Program:
    """Two slots, each with a worker that accepts."""

    def __init__(self) -> None:
        self.slots = [Slot(0), Slot(1)]
        self.is_serving, self.is_ending, self.successor = True, False, None
        self.listeners = self
        self.count = 2
        self.paused: list[int] = []
        self.has_closed_dropped = False
        for slot in self.slots:
            slot.current = make_child(slot)
            slot.current.ready = True
        self.started: asyncio.Queue[int] = asyncio.Queue()

    def spawn(self, slot: Slot) -> Child:
        self.started.put_nowait(slot.index)
        return make_child(slot)

    def close_dropped(self) -> None:
        self.has_closed_dropped = True

    def pause(self, index: int, slots: int) -> None:
        assert slots == 2
        self.paused.append(index)


def change(program: Program, what: str) -> None:
    match what:
        case "its worker lives":
            program.slots[0].current = make_child(program.slots[0])
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


@pytest.mark.parametrize(("deaths", "paused"), [(2, []), (3, []), (4, [0])])
async def test_who_waits_for_a_worker_that_follows_soon_is_not_reset(deaths, paused):
    """A worker that was killed twice within ten seconds left its callers a reset,
    though the next one began 0.1 s later."""
    program = Program()
    slot = program.slots[0]
    replacements = Replacements(program)
    for _ in range(deaths):
        child = slot.current or make_child(slot)
        slot.remove(child)
        replacements.on_death(child, -9, is_followed=False)
    slot.set_timer(None)
    assert program.paused == paused


async def test_the_next_worker_has_the_place_of_the_present_one_that_dies():
    """And sockets that a reload has dropped had no other owner."""
    program = Program()
    slot = program.slots[0]
    child, slot.next = slot.current, make_child(slot)
    follower = slot.next
    assert slot.remove(child)
    Replacements(program).on_death(child, -9, is_followed=True)
    assert (slot.current, slot.next, slot._timer) == (follower, None, None)
    assert program.started.empty() and program.has_closed_dropped and slot.deaths == 1


async def test_a_worker_that_exits_with_0_is_replaced(capfd):
    program = Program()
    child = program.slots[1].current
    assert not program.slots[1].remove(child)
    Replacements(program).on_death(child, 0, is_followed=False)
    assert await program.started.get() == 1
    assert "died: status 0; starting a replacement now\n" in capfd.readouterr().err


@pytest.mark.parametrize("state", [
    "", "the program ends", "it drains", "it is being replaced"])
async def test_a_worker_with_a_signal_to_end_is_replaced_if_nothing_else_does_so(state):
    program = Program()
    slot = program.slots[0]
    child, program.is_ending = slot.current, state == "the program ends"
    child.retired = state == "it drains"
    if state == "it is being replaced":
        slot.next = make_child(slot)
    Replacements(program).on_signalled(child)
    assert (slot._timer is not None) == (not state)
    if not state:
        assert await program.started.get() == 0
        assert slot.current is child and slot.next is not None, "it serves meanwhile"
