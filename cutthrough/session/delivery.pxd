"""An exchange that ends before its time: what has come of it is delivered."""

from cutthrough.session.client cimport Client

# Whose bytes are still on their way.
cdef enum:
    TO_CLIENT = 1
    TO_ORIGIN = 2

# Ends a response, or a tunnel, of which a part is out. Nothing more is read.
cdef int cut_exchange(Client client, int outcome) except -1
# Ends a tunnel that one peer has reset: what had come from that peer goes to the other one
# (`sides`), then the reset.
cdef int deliver(Client client, int outcome, int sides) except -1
# Something has happened at either side of a connection in DELIVER.
cdef int go_on(Client client) except -1
# Its timer has come.
cdef int look_again(Client client) except -1
