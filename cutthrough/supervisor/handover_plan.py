"""Which worker gives its tunnels to which, as their supervisor arranges it.

Whenever a worker gets ready, every one that left its slot gives to it; those of slots
that are no more give to the slot of their number modulo the count. In an upgrade each
of the old program's workers gives to one of the new one's: the socket between them goes
from one supervisor to the other. Where nobody takes, a tunnel stays and drains.
"""

import os
import socket
from collections.abc import Iterable

from cutthrough.config.values import show_count
from cutthrough.log.stderr import say
from cutthrough.process.channel import Gave, Give, Take, Took
from cutthrough.supervisor.children import Child
from cutthrough.supervisor.limits_page import FIRST, Limits
from cutthrough.supervisor.upgrade import Successor


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def relieve(child: Child, left: Iterable[Child], slots: int) -> None:
    """`child` is ready: those that `left` their slots give to it, where it is
    theirs."""
    for old in left:
        if old.retired and old.slot.index % slots == child.slot.index:
            try:
                giver, taker = pair()
            except OSError as error:
                say(f"no tunnels are handed over: {error.strerror}")
                return
            with giver, taker:
                old.tell(Give(holder=FIRST + child.page), (giver.fileno(),))
                child.tell(Take(), (taker.fileno(),))
            old.lent.add(child.page)


def offer(children: Iterable[Child], successor: Successor) -> None:
    """Has all give to the program that takes our place."""
    for child in children:
        try:
            giver, taker = pair()
        except OSError as error:
            say(f"no tunnels are handed over: {error.strerror}")
            return
        with giver:
            child.tell(Give(holder=-1), (giver.fileno(),))
        successor.give(child.slot.index, taker)


def take(children: list[Child | None], index: int, fd: int) -> None:
    """Has the worker in that slot take what comes over this socket, which is ours.
    Where there is none, the giver finds it closed."""
    child = children[index % len(children)] if children else None
    if child is not None:
        child.tell(Take(), (fd,))
    os.close(fd)


def tell(child: Child, message: Gave | Took) -> None:
    who = f"worker {child.slot.index} (pid {child.pid})"
    match message:
        case Gave(given, stayed):
            say(f"{who} handed {show_count(given, 'tunnel')} over, kept {stayed}")
        case Took(count, most_us, longest_us):
            say(f"{who} took {show_count(count, 'tunnel')} over; longest pause "
                f"{longest_us / 1000:.1f} ms, 99.9% of pauses up to "
                f"{most_us / 1000:.1f} ms")


def take_page(children: Iterable[Child], limits: Limits, counters: int) -> int:
    """Returns the lowest page that no child has, and that none lends to: of a taker
    that died its giver takes back what was under way. Makes room for it in the
    counters. Raises OSError where there can be no more."""
    from cutthrough.session.counters import PAGE_BYTES

    taken: set[int] = set()
    for child in children:
        taken |= {child.page, *child.lent}
    page = next(n for n in range(len(taken) + 1) if n not in taken)
    limits.check(page)
    if os.fstat(counters).st_size < (page + 1) * PAGE_BYTES:
        os.ftruncate(counters, (page + 1) * PAGE_BYTES)
    return page
