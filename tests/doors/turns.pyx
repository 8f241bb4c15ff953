# cython: language_level=3
"""A door to a turn of the poller, with an endpoint that raises."""

import os

from cutthrough.net.poller cimport Endpoint, Poller
from cutthrough.net.sysio cimport CAN_WRITE
from cutthrough.net.transport cimport KERNEL, Socket

cdef enum:
    LATE_MS = 60000


cdef class Faulty(Endpoint):

    cdef int on_ready(self) except -1:
        raise ValueError("a fault of this connection")


cdef class Counted(Endpoint):
    cdef int events

    cdef int on_ready(self) except -1:
        self.events += 1
        return 0


cdef int put(Poller poller, Endpoint endpoint) except -1:
    endpoint.sock = Socket(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), CAN_WRITE, KERNEL, 0)
    poller.add(endpoint)
    return endpoint.set_deadline(LATE_MS)


def run_turn(loop, on_fault):
    """One turn with an event of each. Returns the events that came to the other one, whether the
    poller has only that one, and the faults that it has counted."""
    cdef Poller poller = Poller()
    cdef Faulty faulty = Faulty()
    cdef Counted counted = Counted()
    poller.attach(loop, on_fault)
    put(poller, faulty)
    put(poller, counted)
    poller.drain()
    answer = counted.events, poller.registered == 1, poller.faults
    counted.close()
    poller.detach()
    return answer


def arm(loop, *deadlines_ms):
    """Arms one endpoint with each of these in turn. Returns what each has raised, or None."""
    cdef Poller poller = Poller()
    cdef Counted counted = Counted()
    poller.attach(loop)
    counted.sock = Socket(os.eventfd(0), CAN_WRITE, KERNEL, 0)
    poller.add(counted)
    raised = []
    for after_ms in deadlines_ms:
        try:
            counted.set_deadline(after_ms)
            raised.append(None)
        except MemoryError as error:
            raised.append(type(error))
    counted.close()
    poller.detach()
    return raised
