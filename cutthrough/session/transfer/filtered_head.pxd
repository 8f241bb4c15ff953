"""A request's head from filters."""

from cutthrough.session.model.client cimport Client
from cutthrough.wire.rewrite cimport Span

# Reads a head from filters, and puts it into client.head. Returns an Outcome.
cdef int rebuild(Client client, bytes text) except -1
# The result of `rebuild` for this head, and the place of its path; b"" if the text is no head.
# Not between `rebuild` and `move`.
cdef bytes rewritten(Client client, bytes text, Span *path)
# Is the destination of the last rebuilt head the request's?
cdef bint is_same_target(Client client) except -1
# Has the last rebuilt head a body in chunks?
cdef bint is_chunked() noexcept
# Sends the request to that destination, if the caller judges it again. Returns an Outcome.
cdef int move(Client client) except -1
# The host for filters: the name of the certificate if the connection is intercepted.
cdef bytes host_of(Client client)
