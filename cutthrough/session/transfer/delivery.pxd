"""An exchange that ends early: the bytes received so far are delivered."""

from cutthrough.session.model.client cimport Client

# The sides with bytes still on their way to them.
cdef enum:
    TO_CLIENT = 1
    TO_ORIGIN = 2

# Ends a response, or a tunnel, that is partly sent. Nothing more is read.
cdef int cut_exchange(Client client, int outcome) except -1
# Ends a tunnel after one peer's reset: passes that peer's last bytes on to the other peer
# (`sides`), then the reset.
cdef int deliver(Client client, int outcome, int sides) except -1
# An event at either side of a connection in DELIVER.
cdef int go_on(Client client) except -1
# Its timer has expired.
cdef int look_again(Client client) except -1
