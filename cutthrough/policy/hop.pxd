"""Which way a request goes to its destination."""

from libc.stdint cimport uint16_t

cdef enum HopKind:
    HOP_DIRECT = 0          # a connection to the destination itself
    HOP_PARENT              # a connection to the destination through a parent
    HOP_FORWARD             # a connection to a parent; the request in absolute form goes to it
    HOP_NAMED_ORIGIN        # a connection to a server of a named origin
    HOP_LOCAL               # an origin in Python: see session.ways.local

# All zero: direct, in plain text, from the address that the kernel selects. A number stands for
# the same parent, identity or address in every generation, because idle connections are
# pooled by it. Four fields of one size: no padding, so bytes compare as hops do. In C, because a
# Request has it.
cdef extern from *:
    """
    typedef struct {
        uint16_t kind, tls, parent, source;
    } cutthrough_hop;
    """
    ctypedef struct Hop "cutthrough_hop":
        uint16_t kind           # HopKind
        uint16_t tls            # number of the TLS identity shown and expected; 0: no TLS
        uint16_t parent         # number of the parent; 0: none. See policy.parents
        uint16_t source         # number of the source address; 0: the kernel selects it


cdef inline bint is_plain_direct(const Hop *hop) noexcept nogil:
    return not (hop.kind | hop.tls | hop.parent | hop.source)
