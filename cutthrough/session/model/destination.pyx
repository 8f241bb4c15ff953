# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where a request goes: the same fields, whatever protocol named it (R41)."""

from libc.string cimport memcmp
from cutthrough.session.model.client cimport Client
from cutthrough.wire.authority cimport Target


cdef int set_destination(Client c, Target *target) except -1:
    """An equal key stays the same object."""
    cdef size_t n = target.host_len
    cdef const char *old
    target.host[n] = <char>(target.port >> 8)
    target.host[n + 1] = <char>(target.port & 255)
    if c.key is not None:
        old = c.key
    if c.key is None or <size_t>len(c.key) != n + 2 or memcmp(old, target.host, n + 2) != 0:
        c.key = target.host[:n + 2]
    target.host[n] = 0
    c.request.port = target.port
    c.request.host_kind = target.host_kind
    return 0
