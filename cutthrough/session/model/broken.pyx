# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A client's socket that failed: reset, closed, given up by the kernel, or by us?"""

from cutthrough.net.address cimport Address, from_sockaddr
from cutthrough.net.linux cimport ENOMEM, sockaddr_storage
from cutthrough.net.multiplex cimport PEER_BROKE_RULES, STREAM_BROKE_RULES
from cutthrough.net.sysio cimport BROKEN, is_given_up, read_own_name, take_error
from cutthrough.outcome cimport (
    BAD_HTTP2, BAD_STREAM, CLIENT_CLOSED, CLIENT_RESET, OK, OVERLOADED, WRITE_TIMEOUT)
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.phase cimport parked


cdef int watch_client(Client c) except -1:
    return parked(c.abort(outcome_of_break(c), True)) if c.sock.ready & BROKEN else OK


cdef int outcome_of_break(Client c) noexcept:
    cdef sockaddr_storage name
    cdef Address own
    cdef int error = take_error(&c.sock)
    if error:
        return outcome_of_client(error)
    return CLIENT_RESET if not read_own_name(&c.sock, &name) or from_sockaddr(&name, &own) else (
        CLIENT_CLOSED)


cdef int outcome_of_client(int error) noexcept nogil:
    if error == 0 or error == ENOMEM:
        return OVERLOADED
    if is_given_up(error):
        return WRITE_TIMEOUT
    if error == STREAM_BROKE_RULES:
        return BAD_STREAM
    return BAD_HTTP2 if error == PEER_BROKE_RULES else CLIENT_RESET
