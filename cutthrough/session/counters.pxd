"""What a worker counts, in a page that the supervisor can read while it runs."""

from libc.stdint cimport int64_t, uint64_t
from cutthrough.outcome cimport N_OUTCOMES
from cutthrough.session.state cimport N_STATES

cdef struct Counters:           # only 64-bit words, in the order of counters.FIELDS
    uint64_t accepted           # client connections
    uint64_t refused            # of these, turned away at once: too many
    uint64_t requests           # plain requests that ended
    uint64_t tunnels            # tunnels that ended
    uint64_t bytes_up
    uint64_t bytes_down
    uint64_t dialled            # connections made to origins
    uint64_t reused             # requests sent over a pooled connection
    uint64_t retried            # requests sent again after one was dead
    uint64_t faults             # exceptions caught at a connection's border (R34)
    uint64_t starved            # times no descriptor, memory or pipe was to be had
    uint64_t shed               # idle connections closed for that
    uint64_t next_id            # of the request begun last
    int64_t live                # client connections open now
    int64_t states[N_STATES]    # of these, in each state
    uint64_t outcomes[N_OUTCOMES]

cdef class Page:
    cdef Counters *c
    cdef object memory          # keeps it alive
