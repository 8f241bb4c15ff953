# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where a request goes: the same fields, whatever protocol named it (R41).

The last keys are kept, because connections at rest often share a destination, and a key has 50
octets and more. If two destinations have one place in the table, the later key takes it.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memcpy
from cutthrough.net.address cimport ADDRESS_TEXT, Address, parse_address
from cutthrough.session.model.client cimport Client
from cutthrough.wire.authority cimport Target

cdef enum:
    N_KEYS = 512

cdef list keys = [b""] * N_KEYS


cdef int set_destination(Client c, Target *target) except -1:
    """An equal key stays the same object."""
    cdef size_t n = target.host_len
    target.host[n] = <char>(target.port >> 8)
    target.host[n + 1] = <char>(target.port & 255)
    if c.key is None or not is_key(c.key, target.host, n + 2):
        c.key = shared_key(target.host, n + 2)
    target.host[n] = 0
    c.request.port = target.port
    c.request.host_kind = target.host_kind
    return 0


cdef int read_destination(Client c, Address *address) except -1:
    cdef char[ADDRESS_TEXT] host
    cdef size_t n = min(len(c.key) - 2, <ssize_t>ADDRESS_TEXT - 1)
    memcpy(host, <const char *>c.key, n)
    host[n] = 0
    parse_address(host, address)
    return 0


cdef bytes shared_key(const char *text, size_t n):
    cdef uint32_t mixed = 2166136261        # FNV-1a
    cdef size_t i
    cdef bytes key
    for i in range(n):
        mixed = (mixed ^ <unsigned char>text[i]) * 16777619
    i = mixed % <uint32_t>N_KEYS
    key = <bytes>keys[i]
    if not is_key(key, text, n):
        key = keys[i] = text[:n]
    return key


cdef inline bint is_key(bytes key, const char *text, size_t n) noexcept:
    return <size_t>len(key) == n and memcmp(<const char *>key, text, n) == 0
