# cython: language_level=3, boundscheck=False, wraparound=False
"""The table of transports. It is empty until a module adds one."""

from libc.string cimport memcpy
from cutthrough.net.linux cimport ENOSYS

cdef Transport[MOST_KINDS] table
cdef int n_kinds = TLS + 1      # KERNEL has no row


cdef int add_transport(const Transport *transport) except -1:
    global n_kinds
    if n_kinds == MOST_KINDS:
        raise ValueError(f"more than {MOST_KINDS} kinds of transport")
    table[n_kinds] = transport[0]
    n_kinds += 1
    return n_kinds - 1


cdef void set_tls(const Transport *transport) noexcept nogil:
    table[<int>TLS] = transport[0]


cdef int open_transport(Socket *s, int kind, int context, const char *name) noexcept nogil:
    cdef int failed
    if table[kind].open == NULL:
        return -ENOSYS
    failed = table[kind].open(s, context, name)
    if failed == 0:
        s.kind = <uint8_t>kind
    return failed


cdef void drop_transport(Socket *s) noexcept nogil:
    if s.kind != KERNEL:
        table[s.kind].release(s)
        s.kind = KERNEL


cdef enum:
    CLIENT_HELLO = 1

cdef Greeting greeting


cdef Greeting *greeting_at_hand() noexcept nogil:
    return &greeting


cdef void note_greeting(bint is_read, const void *data, size_t n) noexcept nogil:
    # A second hello answers a HelloRetryRequest, and is not what the client offered of itself
    if is_read and greeting.is_wanted and greeting.n == 0 and n <= sizeof(greeting.data) and (
            n and (<const uint8_t *>data)[0] == CLIENT_HELLO):
        memcpy(greeting.data, data, n)
        greeting.n = n


cdef const Transport *transport_of(const Socket *s) noexcept nogil:
    return &table[s.kind]
