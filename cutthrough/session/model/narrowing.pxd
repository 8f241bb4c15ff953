"""How the name of a request stands to its destination, if that is an address (R52, R77)."""

# Request.narrowed
cdef enum Narrowing:
    NOT_NARROWED = 0            # there is no name, or no such destination
    NARROWED                    # the name has not been resolved yet
    PROVEN                      # the destination is one of the name's addresses
    CERTIFIED                   # the certificate of the CONNECT's address has the name
