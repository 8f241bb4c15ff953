"""The dialogue with a parent: the messages to send, and the meaning of its answers. No I/O."""

from libc.stdint cimport uint8_t
from cutthrough.wire.connect cimport Value
from cutthrough.wire.socks_client cimport Login
from cutthrough.wire.authority cimport Target

# The protocol of a parent.
cdef enum Protocol:
    BY_CONNECT = 0
    BY_SOCKS5
    BY_SOCKS4

cdef enum:
    MOST_SAID = 24576           # octets of one message; credentials and Via have most of them
    MOST_HEARD = 65536          # octets of one answer

# One message and its answer. SAY_NOTHING: the dialogue is over, and the next octet is the
# destination's.
cdef enum Step:
    SAY_NOTHING = 0
    SAY_CONNECT
    SAY_GREETING
    SAY_LOGIN
    SAY_SOCKS5
    SAY_SOCKS4

# Valid during one call: it points into memory of the caller.
cdef struct Errand:
    const Target *target        # the destination, or the next parent of a chain
    Value credentials           # for Proxy-Authorization
    Value via
    Login login                 # for SOCKS
    uint8_t has_login
    uint8_t protocol            # Protocol

cdef Step first_step(int protocol) noexcept nogil
# Writes the step's message. Returns its length; 0: the destination cannot be named in this
# protocol, or the message does not fit.
cdef size_t say(Step step, const Errand *errand, char *out, size_t cap) noexcept nogil
# > 0: length of the step's answer, and *step is the next step; 0: more is needed; or minus an
# Outcome. *code is the answer's status or code, 0: none was read. May write into `data`.
cdef int hear(Step *step, const Errand *errand, char *data, size_t n, int *code) noexcept nogil
# Whether a refusal with this code is the parent's decision about the destination, so that no
# other parent may be tried (R44); else the parent could not reach it.
cdef bint is_decision(int protocol, int code) noexcept nogil
