"""The pages that a worker has lent to the takers of its tunnels."""

import errno
import os

import pytest

from cutthrough.process.channel import Channel, Give, Message, Released, TunnelsGiven
from cutthrough.supervisor import handover_plan
from cutthrough.supervisor.children import Child, Slot
from cutthrough.supervisor.limits_page import (
    FIRST_HOLDER,
    HOLDERS,
    MORE_HOLDERS,
    LimitsPage,
)


class Workers:
    """Children that are no processes: the test reads their messages itself."""

    def __init__(self) -> None:
        self.slot = Slot(0)
        self.children: list[Child] = []
        self.ends: list[Channel] = []
        self.limits = LimitsPage()
        self.limits.open(1)
        self.counters = os.memfd_create("counters")

    def start(self) -> Child:
        """The slot's next worker is ready, and the ones before hand over to it."""
        page = handover_plan.allocate_page(self.children, self.limits, self.counters)
        child = Child(self.slot, page, 1, 0.0)
        child.channel, theirs = Channel.pair()
        self.ends.append(Channel(theirs))
        for old in self.children:
            old.retired = True
        self.children.append(child)
        handover_plan.connect_givers(child, self.children, 1)
        return child

    def read(self, child: Child) -> Message | None:
        end = self.ends[self.children.index(child)]
        message = end.receive()
        for fd in end.take_fds():
            os.close(fd)
        return message

    def end(self, child: Child) -> None:
        self.ends.pop(self.children.index(child)).close()
        self.children.remove(child)
        child.channel.close()

    def close(self) -> None:
        for child in self.children[:]:
            self.end(child)
        self.limits.close()
        os.close(self.counters)


@pytest.fixture
def workers():
    made = Workers()
    yield made
    made.close()


def test_a_page_is_lent_until_the_giver_has_released_it(workers):
    """For ever: after nineteen takers reloads were refused, and no dead worker was
    replaced any more."""
    giver, *takers = (workers.start() for _ in range(3))
    for taker in takers:
        assert workers.read(giver) == Give(holder=FIRST_HOLDER + taker.page)
        workers.end(taker)
    assert giver.lent_pages == {1, 2}
    handover_plan.on_report(giver, TunnelsGiven(given=0, stayed=1))
    assert workers.start().page == 3, "both pages are lent"
    handover_plan.on_report(giver, Released(holder=FIRST_HOLDER + 2))
    assert giver.lent_pages == {1, 3}
    assert workers.start().page == 2


def test_a_page_of_a_living_taker_stays_its_own(workers):
    giver, taker = workers.start(), workers.start()
    handover_plan.on_report(giver, Released(holder=FIRST_HOLDER + taker.page))
    assert giver.lent_pages == set()
    assert workers.start().page == 2


def test_the_end_of_a_giver_releases_all_its_pages(workers):
    giver, taker = workers.start(), workers.start()
    workers.end(taker)
    workers.end(giver)
    assert [workers.start().page for _ in range(2)] == [0, 1]


def test_a_giver_that_reads_no_message_is_lent_nothing(workers):
    """No tunnel goes to that taker, so nothing would release the page."""
    giver = workers.start()
    while giver.send(Released(holder=0)):    # until the socket is full
        pass
    workers.start()
    assert giver.lent_pages == set()


def test_a_full_page_of_limits_refuses_the_next_worker(workers):
    for _ in range(HOLDERS + MORE_HOLDERS):
        workers.start()
    with pytest.raises(OSError, match="room for 19 processes") as raised:
        workers.start()
    assert raised.value.errno == errno.ENOSPC
