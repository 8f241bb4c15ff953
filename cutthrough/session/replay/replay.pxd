"""Requests whose rule replays, or records beside that: the player has them first."""

from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.responder cimport Responder


cdef class Replay(Responder):
    """One request in the hands of the player."""
    cdef object function        # it answers as an origin, see local; None: no function does
    cdef bint chunked           # the collected body

    cdef int resume(self) except -1


# The phase: sends an answer in memory, or the player looks for a recording, in HELD.
cdef int replay(Client client) except -1
# The same for a rule that depends on the address. The first bytes of a tunnel are judged by this
# address; NULL: it is not known.
cdef int replay_at(Client client, const Address *address) except -1
