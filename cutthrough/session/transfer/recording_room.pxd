"""Room for exchanges that are recorded: which may begin, wait, or go without."""

from libc.stdint cimport uint64_t
from cutthrough.net.poller cimport Endpoint
from cutthrough.outcome cimport OK
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.recording_mode cimport MUST_FIT, UNASKED, is_recorded


cdef class Room(Endpoint):
    """Context.room; None: nothing was ever recorded. Its subclass knows the way to the writer."""
    cdef dict waiting           # Client -> its rule's label, in the order in which they came
    cdef dict depths            # label -> how many of them
    cdef Py_ssize_t admitted    # exchanges under way
    cdef bint is_behind         # the writer is: nobody is let in
    cdef bint is_holding        # records wait for room in the ring
    cdef bint is_failing        # the writer cannot write recordings
    cdef uint64_t low, high     # bytes on their way to the writer: see has_room
    cdef uint64_t most          # for which there is room
    cdef uint64_t most_body     # bytes that are recorded of each body
    cdef uint64_t waited, passed

    # Bytes on their way to the writer.
    cdef uint64_t fill(self) noexcept
    # OK as long as the exchange in hand can be recorded whole, else an Outcome.
    cdef int lost(self, Client client) noexcept
    # Looks again soon, as long as a request or a record waits.
    cdef int watch(self) except -1


# Is the request in hand to be recorded, and has not asked for room?
cdef inline bint wants_room(Client client) noexcept:
    return client.context.room is not None and client.request.room == UNASKED and (
        is_recorded(client))


# OK as long as it can be recorded whole, or need not be; else an Outcome.
cdef inline int outcome_of_loss(Client client) noexcept:
    return OK if client.request.room != MUST_FIT else (<Room>client.context.room).lost(client)


# Takes room for it. False: there is none, or others wait for it.
cdef bint takes_room(Client client) except -1
# The phase: if there is no room, the request waits in HELD, goes on unrecorded or is refused, as
# its rule says. If the rule is known only by the address, the phase comes again.
cdef int take_room(Client client) except -1
# It has waited long enough.
cdef int end_waiting(Client client) except -1
# Its rule refuses exchanges that cannot be recorded: bounds its response of known framing. Returns
# an Outcome.
cdef int bound_response(Client client) noexcept
# A chunked request was refused for its length. Returns an Outcome.
cdef int outcome_of_length(Client client) noexcept
