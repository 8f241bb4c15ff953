"""The fields of a client that few requests need, because thousands of clients are at rest."""

cimport cython
from cutthrough.net.poller cimport Endpoint
from cutthrough.policy.decision_cache cimport Decision
from cutthrough.session.model.passage cimport Passage


@cython.no_gc
cdef class Extras:
    """A client without any of them has NOTHING, whose fields are always None: read them from
    client.extras, and set them by client.extras_of."""
    cdef Decision decision              # the hook's, or the reason of a refusal
    cdef Passage passage                # None: directly, or the origin is connected
    cdef Endpoint turn                  # to dial, or a wait for it: see turns
    cdef object filtering               # see filtering; None: neither filters nor a player have it
    cdef bytes tlvs                     # the connection's, of its PROXY header; see wire.proxy_header

cdef Extras NOTHING
