"""Parents, groups and named origins of one generation, and a worker's knowledge about each."""

from libc.stdint cimport int64_t, uint16_t, uint64_t
from cutthrough.policy.origins cimport Origin
from cutthrough.wire.authority cimport Target

cdef enum:
    MOST_MEMBERS = 64           # of a group: a request remembers those it tried in 64 bits
    MOST_CHAIN = 8              # parents behind each other
    NO_TLS = -2
    MOST_SUSPECTS = 4           # failures that may be their destination's
    N_LOSSES = 8                # the outcomes from PARENT_UNREACHABLE to BAD_PARENT

# The key that a Way hashes.
cdef enum Keying:
    KEYED_BY_NOTHING = 0
    KEYED_BY_USER
    KEYED_BY_CLIENT
    KEYED_BY_DESTINATION

# A failure that may be the destination's, not the parent's. Hashes; 0: none.
cdef struct Suspect:
    uint64_t user
    uint64_t destination

cdef class Standing:
    """A parent in one worker, over all generations: its number, and how it has done."""
    cdef readonly int number            # Hop.parent
    cdef readonly bytes name            # the newest generation's
    cdef readonly bint is_down          # by its active check
    cdef readonly int64_t in_hand       # requests and tunnels on their way through it
    cdef readonly int failures          # of its own, in a row
    cdef Suspect suspects[MOST_SUSPECTS]    # others since it last answered
    cdef int n_suspects
    cdef uint64_t only_for              # the circuit is open for this user; 0: for all
    cdef int64_t retry_ms               # the time of the next trial; 0: the circuit is closed
    cdef int64_t backoff_ms
    cdef readonly int64_t setup_us      # smoothed time of a set-up; 0: none yet
    cdef readonly uint64_t begun        # requests that took it, pooled connections included
    cdef readonly uint64_t used         # set-ups that succeeded
    cdef readonly uint64_t used_us      # their time, added up
    cdef uint64_t lost[N_LOSSES]        # set-ups that did not, by outcome
    cdef int standby                    # connections that are kept ready; see session.model.standby
    cdef uint64_t standby_used          # taken by a request
    cdef uint64_t standby_lost          # ended by the parent, or not made

    # `user`: a hash, as of every function here.
    cdef bint may_try(self, int64_t now_ms, uint64_t user) noexcept
    # Its circuit is closed, and its check does not fail.
    cdef bint is_up(self) noexcept
    # Before a set-up: if the circuit is open, this one is the trial, and no other one begins
    # within a back-off.
    cdef void begin(self, int64_t now_ms, uint64_t user) noexcept
    cdef void succeed(self, int64_t took_us) noexcept
    # The same of a set-up that says nothing about the circuit.
    cdef void note_setup(self, int64_t took_us) noexcept
    # `outcome`: one of the parents'. Nothing had been said about a destination.
    cdef void fail(self, int64_t now_ms, int outcome) noexcept
    # The same behind a message about this destination, which may be the cause (R76).
    cdef void suspect(self, int64_t now_ms, int outcome, uint64_t user,
                      uint64_t destination) noexcept
    cdef void close_circuit(self) noexcept
    cdef void open_circuit(self, int64_t now_ms, uint64_t only_for) noexcept
    # It answered, and refused to connect to the destination: it is alive.
    cdef void refuse(self) noexcept

cdef class Registry:
    """The Standing of each parent that a worker has had."""
    cdef readonly list standings        # by number; 0 is none
    cdef dict by_identity

    # The Standing, made if need be. Raises ValueError if there are too many.
    cpdef Standing find(self, str name, str identity)
    cdef str identity_of(self, int number)

cdef class Parent:
    """One parent of one generation, or a server of a named origin; immutable."""
    cdef readonly str name
    cdef readonly Standing standing     # None: `direct`, which is no parent
    cdef readonly Origin origin         # it is a server of this one; None: a parent
    cdef bytes host                     # what it gets in Host; None: what the client sent
    cdef readonly Parent via            # this parent is reached through that one; None: directly
    cdef readonly int depth             # parents before it
    cdef Target address
    cdef int protocol                   # wire's Protocol
    cdef readonly bint resolves         # it gets names, and resolves them
    cdef bint passes_credentials
    cdef bint forwards                  # plain requests go to it in absolute form
    cdef bint by_source                 # connections to it come from the request's source
    cdef readonly int standby           # connections to keep ready; 0: none
    cdef int tls                        # number of its TLS context; NO_TLS: it has no TLS
    cdef bytes server_name              # in its certificate
    cdef int proxy_protocol             # version of the header sent to it; 0: none
    cdef bytes basic                    # value for Proxy-Authorization; None: no credentials
    cdef bytes user, password           # b"": no credentials

cdef class Way:
    """A route's name compiled: the members to choose from."""
    cdef readonly str name
    cdef readonly tuple members         # of Parent
    cdef readonly int n
    cdef readonly Origin origin         # the members are its servers; None: parents
    cdef Keying keying
    cdef int chooser
    cdef list weights                   # of int
    cdef list turns                     # of the weighted round robin
    cdef int64_t tolerance_us

    # Index of the member for this request, or -1: none is left. `tried`: bits of the members
    # that are not wanted any more. `key`: None unless `keying`.
    cdef int pick(self, uint64_t tried, int64_t now_ms, bytes key, uint64_t user) except -2
    cdef list fast(self, list left)
    cdef int take_turn(self, list left) except -2
    # Milliseconds until the first circuit is tried again; 0: not known.
    cdef int64_t wait_ms(self, int64_t now_ms)

cdef class Ways:
    """All ways of one generation."""
    cdef readonly Way default           # None: direct
    cdef readonly Way origin            # of requests whose rule names no origin; None: none
    cdef readonly bint has_origins
    cdef readonly bint pass_credentials     # a parent gets the client's credentials
    cdef tuple by_route                 # of Acl.routes: index 0 is the default; None: direct
    cdef readonly dict by_name
    cdef readonly tuple parents         # of Parent, without `direct`; servers of origins too
