# cython: language_level=3
"""The journal that tells what led to a bad ending: one whose fault was the origin's or
our own, and that no operator asked for."""

import logging
import time

from cutthrough.outcome cimport N_OUTCOMES
from cutthrough.outcome import TABLE
from cutthrough.session.client cimport Client, Journal
from cutthrough.session.describe import trace
from cutthrough.wire.http1 cimport Head

log = logging.getLogger("cutthrough")

ASKED_FOR = ("drained", "stopped", "cut")
# A telling costs a look at the whole ring, some 0.1 ms, and makes a line of 1 KiB: an
# origin that is down for all clients is told of so often, and the rest counted.
MOST_TOLD = 5
EVERY_S = 10.0

cdef bint[N_OUTCOMES] is_bad
for _number, _row in enumerate(TABLE):
    is_bad[<size_t>_number] = (
        _row.fault in ("origin", "proxy") and _row.label not in ASKED_FOR)


cdef class Tracer(Journal):
    cdef Journal first
    cdef int worker
    cdef object since
    cdef int told
    cdef long untold

    def __init__(self, Journal first, worker):
        """Writes through `first`, too."""
        self.first = first
        self.worker = worker
        self.wants_fields = first.wants_fields
        self.since = -EVERY_S

    cdef int write(self, Client client, int outcome) except -1:
        self.first.write(client, outcome)
        if is_bad[outcome]:
            self.tell(client, TABLE[outcome].label)
        return 0

    cdef int note_head(self, Client client, const Head *head, const char *data) except -1:
        return self.first.note_head(client, head, data)

    def tell(self, client, reason):
        now = time.monotonic()
        if now - self.since >= EVERY_S:
            self.since = now
            self.told = 0
        self.told += 1
        if self.told > MOST_TOLD:
            self.untold += 1
            return
        about = trace(client, self.worker)
        about["reason"] = reason
        if self.untold:
            about["untold_before"] = self.untold
            self.untold = 0
        log.warning("trace", extra={"fields": about})
