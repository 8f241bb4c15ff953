"""Reuse: the connections to origins that a request may take, and leave behind."""

from cutthrough.session.model.client cimport Client
from cutthrough.wire.framing cimport Framing
from cutthrough.wire.http1 cimport Head

# Do these credentials authenticate the connection, and not the request alone?
cdef bint is_of_connection(const char *credentials, size_t n) noexcept nogil
# Judges the request's head: sets can_retry, awaits_100, is_tethered and marks_origin.
cdef void judge_reuse(Client client, const Head *head, const char *data,
                      const Framing *framing) noexcept nogil
