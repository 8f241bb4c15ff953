"""Bytes inside an intercepted connection that are no HTTP pass as they are."""

from cutthrough.net.connector cimport Upstream
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.stage cimport Reply

# A Step, and its Finish: HTTP goes on with its head, anything else is a tunnel's request.
cdef int read_inside(void *state, const char *data, size_t n, size_t *used) noexcept nogil
cdef bint take_inside(Client client, const void *state, Reply *reply) except -1
# The handshake is done: adds the stage, if bytes that are no HTTP may pass.
cdef int look_inside(Client client) except -1
# The origin's connection that waits has something to read. True: it has a greeting, and
# the connection has become a tunnel, or has ended.
cdef bint begin_by_greeting(Client client, Upstream upstream) except -1
