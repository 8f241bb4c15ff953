"""The parts of a stage; session.stages.runner has the table of stages, and runs them."""

from cutthrough.session.model.client cimport Client

# Bits of Client.stages: the stages that are left, the lowest bit first. TLS has no row in the
# table: it comes after the PROXY header and before all others, and so does the choice of it.
cdef enum Stage:
    STAGE_PROXY = 1             # a header of the PROXY protocol names the client
    STAGE_SOCKS = 2             # a greeting of version 5, or the request of version 4
    STAGE_SOCKS_USER = 4        # the credentials of RFC 1929
    STAGE_SOCKS_REQUEST = 8
    STAGE_TRANSPARENT = 16      # the first bytes of a client that knows of no proxy, or in a tunnel
    N_STAGES = 5
    STAGE_TLS_IF_BEGUN = 32     # the first byte decides if STAGE_TLS follows
    STAGE_TLS = 64              # a handshake; see secure
    STAGE_TLS_LATE = 128        # it was put off to a later turn

cdef enum:
    MOST_REPLY = 22             # octets of the longest reply

# Bytes to send when a stage is done; n 0: none.
cdef struct Reply:
    int n
    char bytes[MOST_REPLY]

# A function without I/O. 1: done, and `used` bytes are consumed; 0: more is needed; or minus an
# Outcome. `state` takes its result.
ctypedef int (*Step)(void *state, const char *data, size_t n, size_t *used) noexcept nogil
# Applies the result of a step that is done; may add stages. True: the connection goes on with
# the next stage, in state HEAD now, or when it is there again.
ctypedef bint (*Finish)(Client client, const void *state, Reply *reply) except -1
