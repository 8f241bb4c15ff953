"""The heads that go on, with the fields that the deciding rule changes (`headers`)."""

from cutthrough.net.pump cimport Pump
from cutthrough.session.model.client cimport Client
from cutthrough.wire.rewrite cimport Writing

# The request's head as it goes up: in the form for a parent if there is one, and with the
# rule's changes. Valid until the next head is written. NULL: too large.
cdef const char *head_up(Client client, size_t *n) except? NULL
# For a head that is sent with more than the tap may have: the tap gets it without.
cdef void show_head(Client client, Pump *up) noexcept
# The traceparent that the deciding rule gives to a request without a valid one: its bytes at
# `out`, TRACE_BYTES. The same each time. 0: the rule gives none.
cdef size_t put_begun_trace(Client client, char *out) except? 0
# Applies the rule's changes to a response's head of `n` bytes at writing.out. Returns the new
# number of bytes, or minus the Outcome.
cdef int change_response(Client client, const Writing *writing, int n) except? -1
