# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The latest events of connections: one ring for all connections of a worker.

A ring for each connection would cost memory for as long as the connection rests. The shared
ring costs a connection nothing: a busy neighbour may push its events out, and then the
report says that it does not begin at the beginning.

An event's time is that of its batch. From the wire it holds nothing but counts.
"""

import os

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.session.model.states import WORDS
from cutthrough.wire.openings import PROTOCOLS

# The word for each kind, and the names of its detail and its value; "": none
KINDS = (
    ("", "", ""),
    ("accepted", "", "port"),
    ("state", "state", ""),
    ("read", "", "bytes"),
    ("up", "", "bytes"),
    ("down", "", "bytes"),
    ("answer", "", "bytes"),
    ("resolved", "", "addresses"),
    ("dialled", "", "us"),
    ("reused", "", ""),
    ("client ended", "", "errno"),
    ("origin ended", "", "errno"),
    ("up failed", "", "errno"),
    ("down failed", "", "errno"),
    ("not dialled", "", "errno"),
    ("deadline", "state", ""),
    ("ended", "reason", "status"),
    ("taken over", "", "port"),
    ("peeked", "protocol", ""),
    ("parent", "", "number"),
    ("parent lost", "reason", "status"),
    ("secured", "", "resumed"),
)
assert len(KINDS) == <int>N_EVENTS

DETAILS = {"state": WORDS, "reason": [row.label for row in OUTCOMES],
           "protocol": PROTOCOLS}


cdef enum:
    MOST_TOLD = 256             # events reported of one connection, the newest


cdef class FlightRecorder:

    def __cinit__(self, size_t n=0):
        """A ring of at least `n` events; 0: none is recorded. Every page is touched now: its
        memory shows from the beginning, and does not look like a connection's cost."""
        cdef size_t size = 1
        while size < n:
            size *= 2
        self.events = NULL
        if n:
            self.events = <Event *>calloc(size, sizeof(Event))
            if self.events == NULL:
                raise MemoryError
            memset(self.events, 0xff, size * sizeof(Event))
            self.mask = size - 1

    def __dealloc__(self):
        free(self.events)

    @property
    def size(self):
        return self.mask + 1 if self.events != NULL else 0


cdef object told(FlightRecorder r, void *connection):
    """The events of a connection, oldest first: dicts with `ms` since the first of them; and
    whether the first is its beginning."""
    cdef uint32_t who = name_of(connection)
    cdef uint64_t n_events = min(r.next, r.mask + 1)
    cdef uint64_t i
    cdef Event *event
    cdef bint whole = False
    cdef list events = []
    if r.events == NULL:
        return events, False
    for i in range(1, n_events + 1):
        event = &r.events[(r.next - i) & r.mask]
        if event.who == who:
            events.append((event.what >> 16, event.what >> 8 & 255, event.what & 255,
                          event.value))
            whole = (event.what >> 8 & 255) == <uint64_t>E_ACCEPTED
            if whole or len(events) == MOST_TOLD or (
                    (event.what >> 8 & 255) == <uint64_t>E_TAKEN):
                break
    events.reverse()
    return [_describe(fields, events[0][0]) for fields in events], whole


def _describe(event, since_us):
    at_us, kind, detail, value = event
    word, detailed, counted = KINDS[kind]
    about = {"ms": (at_us - since_us) / 1000, "event": word}
    if detailed:
        about[detailed] = DETAILS[detailed][detail]
    if counted == "errno":
        if value:
            about["error"] = os.strerror(value)
    elif counted:
        about[counted] = value
    return about
