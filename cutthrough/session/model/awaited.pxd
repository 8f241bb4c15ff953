"""The peer that an exchange waits for: it owes a minimum rate of bytes (see min_rate)."""

cdef enum:                  # unnamed, as the states are
    NOBODY = 0              # no peer owes a rate
    SENDER                  # the client, for more of its request's body
    TAKER                   # the origin, to take the body's bytes held here
    READER                  # the client, to take the response's bytes held here
