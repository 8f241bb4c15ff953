"""The fields of a client that few requests need, because thousands of clients are at rest."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t
from cutthrough.net.buffers cimport Block
from cutthrough.net.connector cimport Connector
from cutthrough.net.poller cimport Endpoint
from cutthrough.policy.decision_cache cimport Decision
from cutthrough.session.model.passage cimport Passage
from cutthrough.wire.openings cimport Opening


@cython.no_gc
cdef class Extras:
    """A client without any of them has NOTHING, whose fields are always None: read them from
    client.extras, and set them by client.extras_of. Owns the two blocks of memory."""
    cdef Decision decision              # the hook's, or the reason of a refusal
    cdef Passage passage                # None: directly, or the origin is connected
    cdef Connector connector            # of the dial under way, or of the one that failed
    cdef Endpoint turn                  # to dial, or a wait for it: see turns
    cdef object filtering               # a Filtering: the rule's filters have it; None: none
    cdef object replay                  # a Replay: the player has it, or had it; None: no player
    cdef object up                      # the Sluice of the request's body; None: it goes by itself
    cdef object down                    # … of the response's
    cdef uint64_t drawn                 # bytes that `up` has read
    cdef tuple newer_limits             # what a newer policy's rule names, None too; None: not asked
    cdef bytes tlvs                     # the connection's, of its PROXY header; see wire.proxy_header
    cdef tuple tether                   # the connection's: key of an origin's that is its own
    cdef Block *partial                 # part of a response's head
    cdef Opening *opening               # of a tunnel; NULL: its first bytes were not looked at
    cdef uint8_t relieved               # idle connections were closed for its dial: only once

cdef Extras NOTHING


# The exchange of filters and player has ended, with the outcome of this label.
cdef int end_responders(Extras extras, str label) except -1
# The next request of the client is not theirs.
cdef int forget_responders(Extras extras) except -1


# Has somebody in Python the request, or has had it?
cdef inline bint has_responder(Extras extras) noexcept:
    return extras.filtering is not None or extras.replay is not None


cdef inline bint is_empty(Extras extras) noexcept:
    return (extras.decision is None and extras.passage is None and extras.connector is None
            and extras.turn is None and extras.tlvs is None and extras.newer_limits is None
            and extras.tether is None and not has_responder(extras)
            and extras.partial == NULL and extras.opening == NULL and not extras.relieved)
