"""What a worker counts, in a page that the supervisor can read while it runs."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from cutthrough.outcome cimport N_OUTCOMES
from cutthrough.session.model.state cimport N_STATES
from cutthrough.wire.openings cimport N_PROTOCOLS

cdef enum:
    N_METHODS = 13              # wire's Method
    N_CODES = 501               # 100–599, and one for all others
    N_BUCKETS = 17              # the bounds of counters.BUCKETS
    # Listening addresses over the life of a page; any beyond these share the last entry
    N_LISTENERS = 16
    N_BOUNDS = 5                # Bound
    N_GONE = 4                  # Gone
    LISTENER_BYTES = 120        # of an address in text, unix:/path too, NUL included

cdef struct Histogram:
    uint64_t counts[N_BUCKETS + 1]      # the last one: above every bound
    uint64_t sum_us

# The bound that was reached when a connection was closed to make room.
cdef enum Bound:
    BOUND_CONNECTIONS = 0       # max_connections, max_connections_total
    BOUND_CLIENT                # max_connections_per_client
    BOUND_MEMORY                # the share of blocks
    BOUND_DESCRIPTORS           # the host's: EMFILE, ENOBUFS and the like
    BOUND_HANDSHAKES            # of TLS, under way at a time

# The kind of connection that was closed.
cdef enum Gone:
    GONE_STRANGER = 0           # at rest, never authenticated
    GONE_HEAD                   # with a part of a head
    GONE_GUEST                  # at rest, has authenticated
    GONE_POOLED                 # an idle connection to an origin

# Its name stands in the page itself: the page outlives workers and their listeners.
cdef struct Listener:
    char name[LISTENER_BYTES]   # the address in text; "": free
    uint64_t accepted

cdef struct Counters:           # 64-bit words in the order of counters.FIELDS, and listeners
    uint64_t accepted           # client connections
    uint64_t refused            # of these, refused at once: too many
    uint64_t requests           # plain requests, and CONNECTs without a tunnel, that ended
    uint64_t tunnels            # tunnels that ended
    uint64_t bytes_up
    uint64_t bytes_down
    uint64_t spliced_up         # of these, moved by pumps that spliced
    uint64_t spliced_down
    uint64_t dialled            # connections made to origins
    uint64_t reused             # requests sent over a pooled connection
    uint64_t retried            # requests sent again after a pooled connection was dead
    uint64_t identified         # requests whose credentials were right
    uint64_t verified           # of these, requests that waited for a hash
    uint64_t intercepted        # connections that were opened inside: see session.transfer.intercept
    uint64_t pinned             # tunnels that passed in place of that: see session.model.pinned
    uint64_t faults             # exceptions caught at a connection's border (R34)
    uint64_t starved            # times that no descriptor, memory or pipe was available
    uint64_t shed               # connections closed to make room
    uint64_t sheds[N_BOUNDS][N_GONE]    # of these, by Bound and by Gone
    uint64_t next_id            # number of the request begun last
    int64_t peak                # most client connections open at one time
    uint64_t totals_above[39]    # totals written by the room above; see counters.FIELDS
    int64_t gauges_above[15]
    int64_t live                # client connections open now
    int64_t states[N_STATES]    # of these, in each state
    uint64_t outcomes[N_OUTCOMES]
    uint64_t tunnel_ends[N_OUTCOMES]
    uint64_t protocols[N_PROTOCOLS]     # tunnels by their first bytes
    uint64_t replies[N_METHODS][N_CODES]
    Histogram tunnel
    Histogram connects[2]       # IPv4, IPv6
    Histogram first_byte        # wait for a response's first byte
    Histogram request           # plain requests that an origin answered
    Histogram auth_wait
    Listener listeners[N_LISTENERS]

cdef class Page:
    cdef Counters *c
    cdef object memory          # keeps it alive

# Adds what a pump has moved since the last call. Signed: a send that falls short at the end of its
# batch takes bytes back. The sums never go back, and go on when the pump has caught up.
cdef inline void count_bytes(uint64_t moved, uint32_t *counted, uint64_t *all, uint64_t *spliced,
                             bint is_spliced) noexcept nogil:
    cdef int32_t n = max(0, <int32_t>(<uint32_t>moved - counted[0]))
    counted[0] += n
    all[0] += n
    if is_spliced:
        spliced[0] += n

# Counts one more observation of `us` microseconds.
cdef void observe(Histogram *histogram, int64_t us) noexcept nogil
# Counts one more accept of this listener's number; it is counted as open already.
cdef void count_accept(Counters *c, int listener) noexcept nogil
# Counts one more connection to an origin, made within `us` microseconds.
cdef void count_dial(Counters *c, int family, int64_t us) noexcept nogil
# Counts one more connection closed to make room.
cdef void count_shed(Counters *c, int bound, int gone) noexcept nogil
# Counts one more reply with this status; 0: no reply was made, and nothing is counted.
cdef void count_reply(Counters *c, int method, int status) noexcept nogil
# Counts one more end, `us` after its start; `first_byte_us`: of the origin, 0: none came.
cdef void count_end(
    Counters *c, int outcome, bint is_tunnel, int64_t first_byte_us, int64_t us) noexcept nogil
