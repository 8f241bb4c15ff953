# cython: language_level=3
"""What a worker counts, in a page that the supervisor can read while it runs.

One writer, the worker, or the one that follows it on the same slot. Each word is written
whole, so a reader never sees half of one.
"""

from libc.string cimport memset
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.session.state import TABLE as STATES

PAGE_BYTES = 4096

FIELDS = (
    "accepted", "refused", "requests", "tunnels", "bytes_up", "bytes_down", "dialled",
    "reused", "retried", "faults", "starved", "shed", "next_id", "live",
    *(f"state:{row.name}" for row in STATES),
    *(f"outcome:{row.label}" for row in OUTCOMES),
)

assert len(FIELDS) * 8 == sizeof(Counters) <= PAGE_BYTES


cdef class Page:

    def __init__(self, memory=None):
        """On writable `memory` of PAGE_BYTES bytes, or on memory of its own."""
        cdef unsigned char[::1] view
        self.memory = bytearray(PAGE_BYTES) if memory is None else memory
        view = self.memory
        if view.shape[0] < PAGE_BYTES:
            raise ValueError("a counters page has %d bytes" % PAGE_BYTES)
        self.c = <Counters *>&view[0]
        # A worker that follows a dead one on its page: totals go on, gauges begin anew
        self.c.live = 0
        memset(self.c.states, 0, sizeof(self.c.states))

    def read(self):
        """All counters by name."""
        cdef int64_t *words = <int64_t *>self.c
        return {name: words[i] for i, name in enumerate(FIELDS)}
