"""Captures requests in a worker, and feeds recordings."""

from cutthrough.session.model.client cimport Client

# OK as long as what is recorded of the exchange in hand is whole, else an Outcome.
cdef int loss_of(Client client) noexcept
