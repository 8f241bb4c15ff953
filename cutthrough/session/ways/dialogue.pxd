"""The dialogue with a connected parent, up to the destination's first byte."""

from cutthrough.session.model.client cimport Client

cdef enum:
    STILL_TALKING = -1

# client.origin is connected to the first parent of client.extras.passage.chain. Both return
# STILL_TALKING, or an Outcome: OK, and the next byte of client.origin is the destination's.
cdef int begin_dialogue(Client client) except -2
# client.origin may be readable.
cdef int go_on_talking(Client client) except -2
