"""Connections that may be closed to make room, in the order of closing."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from cutthrough.net.address cimport Address

# The kinds of a connection at rest, in the order of closing.
cdef enum Kind:
    STRANGER = 0            # never authenticated: idle, or before its first byte; or lingers
    STRANGER_HEAD           # never authenticated, and holds a part of a head
    GUEST                   # has authenticated, and is idle
    GUEST_HEAD              # the same, and holds a part of a head
    N_KINDS

# One listed connection. A Client holds its index, four bytes; 0: none.
cdef struct Place:
    void *client
    Party *party
    int64_t since_ms        # begin of its rest, as of when it was listed
    uint32_t older, newer   # of the same party; `newer` chains the free ones

# The connections of one kind from one client address (of IPv6: one /64).
cdef struct Party:
    uint64_t bits           # of the address
    uint64_t number         # order of making: of two parties of one size the older goes first
    Party *next             # in its chain of the hash table
    uint32_t oldest, newest
    uint32_t count
    uint32_t at             # index in the heap of its kind
    uint8_t family
    uint8_t kind

# The parties of one kind, the largest first: a binary heap.
cdef struct Heap:
    Party **parties
    uint32_t n
    uint32_t room

cdef class Places:
    cdef Place *places
    cdef uint32_t room          # of `places`; index 0 is not used
    cdef uint32_t free          # first free place
    cdef readonly uint32_t listed
    cdef Party **chains
    cdef uint32_t n_chains      # a power of two
    cdef uint32_t n_parties
    cdef uint64_t seed
    cdef uint64_t next_number
    cdef Heap heaps[N_KINDS]

    # Lists it as the newest of its party; returns its place. 0: no memory.
    cdef uint32_t add(self, void *client, const Address *address, int kind,
                      int64_t since_ms) noexcept
    cdef void drop(self, uint32_t place) noexcept
    # Makes it the newest of its party.
    cdef void renew(self, uint32_t place, int64_t since_ms) noexcept
    # The oldest of this kind's largest party, or of this address's party; 0: none.
    cdef uint32_t first(self, int kind) noexcept
    cdef uint32_t first_of(self, const Address *address, int kind) noexcept
    # Returns `place` if that is of this kind already; else lists it, as add does.
    cdef uint32_t file(self, uint32_t place, void *client, const Address *address, int kind,
                       int64_t since_ms) noexcept
    # The size of the largest party.
    cdef uint32_t most(self, int kind) noexcept
    cdef Party *_find(self, uint64_t bits, int family, int kind) noexcept
    cdef Party *_make(self, uint64_t bits, int family, int kind) noexcept
    cdef void _end(self, Party *party) noexcept
    cdef Party **_chain(self, uint64_t bits, int family, int kind) noexcept
    cdef void _resize(self, uint32_t n_chains) noexcept
    cdef uint32_t _take(self) noexcept
    cdef void _give(self, uint32_t place) noexcept
    cdef void _chain_free(self, uint32_t begin) noexcept
    cdef void _append(self, uint32_t place, Party *party) noexcept
    cdef void _unlink(self, uint32_t place) noexcept
