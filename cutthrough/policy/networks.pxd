"""Indexes of networks, searched by address.

An address is 16 bytes, IPv4 as ::ffff:a.b.c.d. An IPv6 network never contains an IPv4
address: ::/0 is all of IPv6 and nothing else.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cutthrough.policy.address cimport MOST_CARRIED, Carried, find_carried
from cutthrough.policy.hosts cimport Candidate, Run

cdef enum:
    MAX_NESTED = 130        # networks around one address: there are 129 prefix lengths

cdef struct Key:
    uint64_t high
    uint64_t low

cdef struct Span:
    Key first
    Key last

cdef struct Net:
    uint32_t at             # index of its first candidate
    uint32_t n              # number of its candidates
    uint32_t parent         # index + 1 of the next wider network; 0: none

cdef struct Edge:           # a range of addresses, up to the next edge
    Key first
    uint32_t net            # index + 1 of the narrowest network around them; 0: none

# Where the dialled address leads, beside itself: IPv4 addresses inside an IPv6 one, and loopback behind
# the unspecified ones. Only deny rules compare them.
cdef struct CarriedKeys:
    int n
    Key keys[MOST_CARRIED]

# Numbered sets of networks. Number 0 is no condition.
cdef class NetworkSets:
    cdef Span *spans        # of all sets; within a set sorted and disjoint
    cdef uint32_t *starts   # set i has the spans from starts[i] to starts[i + 1]
    cdef uint32_t n_sets
    cdef readonly size_t bytes
    cdef dict numbers
    cdef list added

    cdef bint contains(self, uint32_t number, Key key) noexcept nogil
    cdef bint contains_carried(self, uint32_t number, const CarriedKeys *carried) noexcept nogil

cdef class NetworkIndex:
    cdef Edge *edges
    cdef Net *nets
    cdef Candidate *candidates
    cdef uint32_t n_edges
    cdef readonly size_t bytes
    cdef dict added

    # Writes a run for each network around the address, narrowest first. Returns their number.
    cdef int find(self, Key key, Run *runs) noexcept nogil

cdef extern from *:
    """
    static inline uint64_t load_big8(const uint8_t *p) {
        uint64_t w;
        memcpy(&w, p, 8);
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        w = __builtin_bswap64(w);
    #endif
        return w;
    }
    """
    uint64_t load_big8(const uint8_t *p) noexcept nogil

cdef inline Key key_of(const uint8_t *address) noexcept nogil:
    return Key(load_big8(address), load_big8(address + 8))

cdef inline Key key_of_v4(const uint8_t *address) noexcept nogil:
    return Key(0, <uint64_t>0xffff << 32 | <uint64_t>address[0] << 24
               | <uint64_t>address[1] << 16 | <uint64_t>address[2] << 8 | address[3])

# Where the kernel connects to, if the unspecified address of a family is dialled; 0: it is another.
cdef inline Key loopback_behind(Key key) noexcept nogil:
    if key.high == 0 and key.low == 0:
        return Key(0, 1)                        # ::1
    if key.high == 0 and key.low == <uint64_t>0xffff << 32:
        return Key(0, key.low | 0x7f000001)     # 127.0.0.1
    return Key(0, 0)

# `address` may be NULL.
cdef inline void read_carried(const uint8_t *address, CarriedKeys *carried) noexcept nogil:
    cdef Carried embedded
    cdef Key loopback
    cdef int i
    carried.n = 0
    if address != NULL:
        carried.n = find_carried(address, &embedded)
        for i in range(carried.n):
            carried.keys[i] = key_of_v4(embedded.v4[i])
        loopback = loopback_behind(key_of(address))
        if loopback.low:
            carried.keys[0] = loopback
            carried.n = 1
