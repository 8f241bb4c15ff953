# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A client's socket that broke: reset, or closed?"""

from cutthrough.net.address cimport Address, from_sockaddr
from cutthrough.net.linux cimport sockaddr_storage
from cutthrough.net.sysio cimport BROKEN, read_own_name, take_error
from cutthrough.outcome cimport CLIENT_CLOSED, CLIENT_RESET, OK
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.phase cimport parked


cdef int watch_client(Client c) except -1:
    return parked(c.abort(outcome_of_break(c), True)) if c.sock.ready & BROKEN else OK


cdef int outcome_of_break(Client c) noexcept:
    cdef sockaddr_storage name
    cdef Address own
    if not read_own_name(&c.sock, &name) or from_sockaddr(&name, &own):
        return CLIENT_RESET
    return CLIENT_RESET if take_error(&c.sock) else CLIENT_CLOSED
