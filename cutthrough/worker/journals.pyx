# cython: language_level=3
"""Journals around the access log: `Tee` also writes a second one, `Tracer` also logs the
events that led to a bad ending."""

import logging
import time

from cutthrough.outcome cimport N_OUTCOMES
from cutthrough.outcome import TABLE
from cutthrough.session.model.client cimport Client, Journal
from cutthrough.session.describe import trace
from cutthrough.wire.http1 cimport Head

log = logging.getLogger("cutthrough")

ASKED_FOR = ("drained", "stopped", "cut")
# A trace reads the whole ring, some 0.1 ms, and makes a line of 1 KiB. If an origin is
# down for all clients, this many are logged in EVERY_S and the rest counted.
MOST_TRACES = 5
EVERY_S = 10.0

# Outcomes by the origin's or the proxy's fault, except those that an operator requested
cdef bint[N_OUTCOMES] is_bad
for _number, _row in enumerate(TABLE):
    is_bad[<size_t>_number] = (
        _row.fault in ("origin", "proxy") and _row.label not in ASKED_FOR)


cdef bint traces_all = False


def trace_all(on):
    """Whether `Tracer` logs every ending, at the level debug, from now on."""
    global traces_all
    traces_all = on


cdef class Tee(Journal):
    """Two journals as one: the access log, and the lines for /events."""
    cdef Journal first, second

    def __init__(self, Journal first, Journal second):
        self.first = first
        self.second = second
        self.wants_fields = first.wants_fields      # the second's JSON has none

    cdef int note_head(self, Client client, const Head *head, const char *data) except -1:
        return self.first.note_head(client, head, data)

    cdef int write(self, Client client, int outcome) except -1:
        self.first.write(client, outcome)
        return self.second.write(client, outcome)


cdef class Tracer(Journal):
    """Logs the flight recorder's events of a connection that ended badly."""
    cdef Journal first
    cdef int worker
    cdef object since
    cdef int logged
    cdef long suppressed

    def __init__(self, Journal first, worker):
        """Writes through `first`, too."""
        self.first = first
        self.worker = worker
        self.wants_fields = first.wants_fields
        self.since = -EVERY_S

    cdef int write(self, Client client, int outcome) except -1:
        self.first.write(client, outcome)
        if is_bad[outcome]:
            self.log_trace(client, TABLE[outcome].label)
        elif traces_all:
            log.debug("trace", extra={"fields": {
                **trace(client, self.worker), "reason": TABLE[outcome].label}})
        return 0

    cdef int note_head(self, Client client, const Head *head, const char *data) except -1:
        return self.first.note_head(client, head, data)

    def log_trace(self, client, reason):
        now = time.monotonic()
        if now - self.since >= EVERY_S:
            self.since = now
            self.logged = 0
        self.logged += 1
        if self.logged > MOST_TRACES:
            self.suppressed += 1
            return
        about = trace(client, self.worker)
        about["reason"] = reason
        if self.suppressed:
            about["untold_before"] = self.suppressed
            self.suppressed = 0
        log.warning("trace", extra={"fields": about})
