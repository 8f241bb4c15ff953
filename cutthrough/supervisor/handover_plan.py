"""Decides which worker hands its tunnels to which, and connects the two.

When a worker gets ready, every retired worker of its slot hands its tunnels to it. If a
slot was removed, the slot of its number modulo the count takes them. In an upgrade each
worker of the old program hands its tunnels to a worker of the new program: the old
supervisor sends the socket between the two to the new one. If no worker takes a tunnel,
it stays where it is and drains.
"""

import os
import socket
from collections.abc import Iterable

from cutthrough.config.values import show_count
from cutthrough.log.stderr import say
from cutthrough.process.channel import Give, Released, Take, TunnelsGiven, TunnelsTaken
from cutthrough.supervisor.children import Child
from cutthrough.supervisor.limits_page import FIRST_HOLDER, LimitsPage
from cutthrough.supervisor.upgrade import Successor


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def connect_givers(child: Child, left: Iterable[Child], slots: int) -> None:
    """Has the retired children among `left` hand their tunnels to `child`, which is
    ready, if it is on their slot."""
    for old in left:
        if old.retired and old.slot.index % slots == child.slot.index:
            try:
                giver, taker = pair()
            except OSError as error:
                say(f"no tunnels are handed over: {error.strerror}")
                return
            with giver, taker:
                if old.send(Give(holder=FIRST_HOLDER + child.page), (giver.fileno(),)):
                    old.lent_pages.add(child.page)
                child.send(Take(), (taker.fileno(),))


def connect_successor(children: Iterable[Child], successor: Successor) -> None:
    """Has all children hand their tunnels to the program that replaces this one."""
    for child in children:
        try:
            giver, taker = pair()
        except OSError as error:
            say(f"no tunnels are handed over: {error.strerror}")
            return
        with giver:
            child.send(Give(holder=-1), (giver.fileno(),))
        successor.send_giver(child.slot.index, taker)


def connect_taker(children: list[Child | None], index: int, fd: int) -> None:
    """Has the worker on slot `index` take the tunnels that come over this socket, and
    closes our copy of it. If there is no worker, the giver finds the socket closed."""
    child = children[index % len(children)] if children else None
    if child is not None:
        child.send(Take(), (fd,))
    os.close(fd)


def on_report(child: Child, message: TunnelsGiven | Released | TunnelsTaken) -> None:
    """Logs the result, or marks the page as free that the child needs no more."""
    name = f"worker {child.slot.index} (pid {child.pid})"
    match message:
        case TunnelsGiven(moved, stayed):
            say(f"{name} handed {show_count(moved, 'tunnel')} over, kept {stayed}")
        case Released(holder):
            child.lent_pages.discard(holder - FIRST_HOLDER)
        case TunnelsTaken(count, most_us, longest_us):
            say(f"{name} took {show_count(count, 'tunnel')} over; longest pause "
                f"{longest_us / 1000:.1f} ms, 99.9% of pauses up to "
                f"{most_us / 1000:.1f} ms")


def allocate_page(children: Iterable[Child], limits: LimitsPage, counters: int) -> int:
    """Returns the lowest page number that no child has or has lent, and makes room for
    it in the counters. Raises OSError if the page of limits is full.

    A page is lent to the taker of a child's tunnels: if the taker dies, the giver takes
    back the tunnels that were under way, and their counts on that page. The page is
    lent until the giver reports that none is under way any more.
    """
    from cutthrough.session.model.counters import PAGE_BYTES

    taken: set[int] = set()
    for child in children:
        taken |= {child.page, *child.lent_pages}
    page = next(n for n in range(len(taken) + 1) if n not in taken)
    limits.check(page)
    if os.fstat(counters).st_size < (page + 1) * PAGE_BYTES:
        os.ftruncate(counters, (page + 1) * PAGE_BYTES)
    return page
