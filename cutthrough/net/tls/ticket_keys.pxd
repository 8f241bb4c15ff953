"""The keys of session tickets, on a page that all workers read."""

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    N_KEYS = 3                  # the one in use, and those before it

cdef struct TicketKey:
    unsigned char name[16]      # in the ticket, in clear; all zero: no key
    unsigned char cipher[32]    # AES-256
    unsigned char mac[32]       # HMAC-SHA256

cdef struct KeyPage:
    unsigned char magic[16]
    uint32_t version            # odd while the keys are being written
    uint32_t n
    int64_t since_s             # of the epoch; when the first key came into use
    TicketKey keys[N_KEYS]      # the newest first

cdef class TicketKeys:
    cdef object memory          # keeps the page mapped
    cdef KeyPage *page
    cdef KeyPage own            # the copy that look-ups use

    # Copies the page if it has changed.
    cdef void refresh(self) noexcept
    # The key for new tickets; NULL: none was read yet.
    cdef const TicketKey *newest(self) noexcept
    # The key of this name; NULL: it is gone, and the session with it.
    cdef const TicketKey *find(self, const unsigned char *name) noexcept
