"""The dialogue with a connected parent, up to the destination's first byte, and the destination in
its words."""

from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.passage cimport Passage

cdef enum:
    STILL_TALKING = -1

# Does the parent resolve the destination's name, so that we do not?
cdef bint is_resolved_there(Client client) except -1
# Sets passage.target, the destination as the last parent gets it: the checked address, or if there
# is none, or if the parent resolves names, the name (R43).
cdef int set_target(Client client, Passage passage, const Address *checked) except -1
# The request's head in absolute form, for HOP_FORWARD, in head_scratch(); NULL: no room for it.
cdef const char *head_for_parent(Client client, size_t *n) except? NULL
# client.origin is connected to the first parent of client.extras.passage.chain. Both return
# STILL_TALKING, or an Outcome: OK, and the next byte of client.origin is the destination's.
cdef int begin_dialogue(Client client) except -2
# client.origin may be readable.
cdef int go_on_talking(Client client) except -2
