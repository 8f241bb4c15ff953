"""The states of a client's connection, and the moves between them."""

cdef enum:                  # State; unnamed, because Cython indexes by plain ints only
    HEAD = 0                # a request head is awaited, or partly here
    IDLE                    # between two requests of a kept-alive connection
    AUTH                    # credentials are being verified
    DECIDE                  # an operator's function is being called
    HELD                    # by a rule's latency, filters, a player, a rate, or the recorder
    RESOLVE                 # a name is being resolved
    DIAL                    # a connection to the origin, or to a parent, is being made
    PARENT                  # a parent is connected, and connects on to the origin
    SECURE                  # a TLS handshake with the origin of an intercepted connection
    REQUEST                 # the request goes up, its body not yet whole
    RESPONSE                # the request is up; the response head is awaited
    RELAY                   # the response body comes down
    PEEK                    # a tunnel's first bytes are awaited, and nothing moves
    TUNNEL                  # bytes both ways, unread
    DATAGRAMS               # an association of SOCKS, as long as its connection
    HALF_CLOSED             # a tunnel of which one side has ended
    DELIVER                 # cut short: the bytes received go out before the reset
    STREAMS                 # a connection of HTTP/2: its requests are sessions of their own
    LINGER                  # the last reply is out; later input is discarded
    CLOSED
    N_STATES

cdef bint may_follow(int state, int new) noexcept nogil
# The Outcome when a state's deadline expires.
cdef int outcome_at_deadline(int state) noexcept nogil
