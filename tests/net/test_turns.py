"""A turn of the poller is completed, whatever one connection's fault leads to (R34)."""

import asyncio

import pytest


@pytest.fixture(scope="module")
def turns():
    from tests.doors import turns

    return turns


def refuse(_fault: BaseException) -> None:
    raise MemoryError


@pytest.mark.parametrize("on_fault", [None, lambda fault: None, refuse])
async def test_a_fault_that_cannot_be_logged_costs_no_other_event(turns, on_fault):
    """Events are edge-triggered: what was left of the batch waited for a deadline."""
    loop = asyncio.get_running_loop()
    assert turns.run_turn(loop, on_fault) == (1, True, 1)


class Scarce:
    """A loop with memory for one timer."""

    def __init__(self) -> None:
        self.timers, self.cancelled = 0, 0

    def add_reader(self, fd, call) -> None:
        pass

    def call_later(self, seconds, call):
        if self.timers:
            raise MemoryError
        self.timers += 1
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def remove_reader(self, fd) -> None:
        assert not self.cancelled, "before the end"


def test_without_memory_for_a_timer_the_present_one_stays(turns):
    loop = Scarce()
    assert turns.arm(loop, 60_000, 1000) == [None, MemoryError]
    assert loop.cancelled == 1
