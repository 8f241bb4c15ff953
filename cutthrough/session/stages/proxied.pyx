# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Connections through a load balancer: the stage of the PROXY protocol.

The header names the client. From then on the client's address is the connection's address, for
limits, rules, back-off, logs and shedding (R50). So the connection is counted against the bounds
of connections when the header is complete; before that it takes a place in the worker only. If
the header names no client (LOCAL: a health check), the load balancer counts as the client.

Load balancers are few and connections are many: a connection keeps the number of its load
balancer, one byte, and the process keeps one list of their addresses.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcpy
from cutthrough.net.address cimport UNIX_CALLER, Address, is_same_address
from cutthrough.outcome cimport OK, SENDER_DENIED
from cutthrough.session.judge.admit cimport admit, make_place, turn_away
from cutthrough.session.model.client cimport Client, set_tlvs
from cutthrough.session.model.stage cimport Reply
from cutthrough.wire.proxy_header cimport (
    MOST_KEPT, ProxyHeader, keep_tlvs, parse_proxy_header)

cdef enum:
    MOST_SENDERS = 254          # load balancers that are remembered
    ANOTHER = 255               # number of all further ones

# By number; 0 is unused
cdef Address[MOST_SENDERS + 1] senders
cdef int n_senders = 0


cdef int admit_sender(Client c) except -1:
    return make_place(c.context) if may_name_clients(c) else SENDER_DENIED


cdef bint may_name_clients(Client c) noexcept:
    if c.address.family == UNIX_CALLER:     # the file's permissions let it in
        return True
    if c.entrance.has_senders:
        return c.entrance.admits_sender(&c.address)
    return c.context.snapshot.may_name_clients(c.address.family, c.address.bytes)


cdef int read_header(void *state, const char *data, size_t n, size_t *used) noexcept nogil:
    cdef int length = parse_proxy_header(<ProxyHeader *>state, data, n)
    if length <= 0:
        return length
    used[0] = length
    return 1


cdef bint name_client(Client c, const void *state, Reply *reply) except -1:
    cdef const ProxyHeader *header = <const ProxyHeader *>state
    cdef int outcome
    if header.family:
        c.sender = number_of_sender(&c.address)
        c.address.family = header.family
        c.address.port = header.port
        memcpy(c.address.bytes, header.address, sizeof(c.address.bytes))
        set_tlvs(c, kept_tlvs(header))
    outcome = admit(c)
    if outcome != OK:
        turn_away(c, outcome)
    return outcome == OK


cdef bytes kept_tlvs(const ProxyHeader *header):
    cdef char[MOST_KEPT] out
    cdef size_t n = keep_tlvs(out, header)
    return out[:n] if n else None


cdef const Address *sender_of(Client c) noexcept nogil:
    return NULL if c.sender == 0 or c.sender == ANOTHER else &senders[c.sender]


cdef uint8_t number_of_sender(const Address *address) noexcept nogil:
    global n_senders
    cdef int i
    for i in range(1, n_senders + 1):
        if is_same_address(&senders[i], address):
            return <uint8_t>i
    if n_senders == MOST_SENDERS:
        return ANOTHER
    n_senders += 1
    senders[n_senders] = address[0]
    return <uint8_t>n_senders
