"""Requests whose rule replays, or records beside that: the player has them first."""

from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.responder cimport Responder


cdef class Replay(Responder):
    """One request in the hands of the player."""
    cdef object function        # a function that answers as the origin, see local; None: none does
    cdef bint chunked           # the collected body

    cdef int leave(self) except -1


# The phase: an answer in memory, or the player looks for one; in HELD.
cdef int replay(Client client) except -1
# The same once an address, which has told the rule, is known; NULL: it is not. Of a tunnel it is the
# one by which its first bytes are judged.
cdef int replay_at(Client client, const Address *address) except -1
