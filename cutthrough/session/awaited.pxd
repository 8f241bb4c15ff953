"""The peer that an exchange waits for, because it owes a least rate of bytes (see pace)."""

cdef enum:                  # unnamed, as the states are
    NOBODY = 0              # no peer owes a rate
    SENDER                  # the client, for more of its request's body
    TAKER                   # the origin, to take what is here of that body
    READER                  # the client, to take what is here of the response
