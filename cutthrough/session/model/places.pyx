# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Connections that may be closed to make room, in the order of closing.

    kind ─> heap of parties, largest first ─> connections of a party, oldest first

A party is the connections of one kind from one client address, so that an address with
thousands of connections loses one before an address with two. Every operation takes
constant time, or the logarithm of the number of addresses.

A connection is listed when it comes to rest, and stays in the list when its next request
begins: a request on a kept-alive connection costs nothing here. The caller that takes the
first connection checks whether it is still at rest, and drops or renews it if not (see
session.model.shed). Each such step is paid for by the request that made it necessary.

The table of places is indexed, not linked by pointers: a connection holds its place in four
bytes, and a tunnel, which has no place, carries nothing more.
"""

import os

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from cutthrough.net.address cimport Address

cdef enum:
    LEAST_ROOM = 64             # places, parties and chains at first; all grow by doubling


cdef inline uint64_t bits_of(const Address *address) noexcept nogil:
    """For IPv6 the network: a host may use any address of its /64."""
    cdef uint64_t bits = 0
    memcpy(&bits, address.bytes, 4 if address.family == 4 else 8)
    return bits


cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    """splitmix64's finaliser. With the seed no client can choose addresses of one chain."""
    x = (x ^ (x >> 30)) * <uint64_t>0xbf58476d1ce4e5b9
    x = (x ^ (x >> 27)) * <uint64_t>0x94d049bb133111eb
    return x ^ (x >> 31)


cdef inline bint goes_before(const Party *a, const Party *b) noexcept nogil:
    return a.count > b.count or (a.count == b.count and a.number < b.number)


cdef class Places:

    def __cinit__(self):
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.room = LEAST_ROOM
        self.places = <Place *>calloc(LEAST_ROOM, sizeof(Place))
        self.n_chains = LEAST_ROOM
        self.chains = <Party **>calloc(LEAST_ROOM, sizeof(Party *))
        if self.places == NULL or self.chains == NULL:
            raise MemoryError
        self._chain_free(1)

    def __dealloc__(self):
        cdef uint32_t i
        cdef int kind
        for kind in range(<int>N_KINDS):
            for i in range(self.heaps[kind].n):
                free(self.heaps[kind].parties[i])
            free(self.heaps[kind].parties)
        free(self.chains)
        free(self.places)

    cdef uint32_t add(self, void *client, const Address *address, int kind,
                      int64_t since_ms) noexcept:
        cdef uint64_t bits = bits_of(address)
        cdef Party *party
        cdef uint32_t place = self._take()
        if place == 0:
            return 0
        party = self._find(bits, address.family, kind)
        if party == NULL:
            party = self._make(bits, address.family, kind)
            if party == NULL:
                self._give(place)
                return 0
        self.places[place].client = client
        self.places[place].since_ms = since_ms
        self._append(place, party)
        party.count += 1
        rise(&self.heaps[kind], party)
        self.listed += 1
        return place

    cdef void drop(self, uint32_t place) noexcept:
        cdef Party *party = self.places[place].party
        self._unlink(place)
        self._give(place)
        self.listed -= 1
        party.count -= 1
        if party.count == 0:
            self._end(party)
        else:
            sink(&self.heaps[party.kind], party)
        if self.listed == 0 and self.room > LEAST_ROOM:
            begin_anew(self)

    cdef void renew(self, uint32_t place, int64_t since_ms) noexcept:
        cdef Party *party = self.places[place].party
        self.places[place].since_ms = since_ms
        if party.newest != place:
            self._unlink(place)
            self._append(place, party)

    cdef uint32_t first(self, int kind) noexcept:
        return self.heaps[kind].parties[0].oldest if self.heaps[kind].n else 0

    cdef uint32_t first_of(self, const Address *address, int kind) noexcept:
        cdef Party *party = self._find(bits_of(address), address.family, kind)
        return party.oldest if party != NULL else 0

    cdef uint32_t file(self, uint32_t place, void *client, const Address *address, int kind,
                       int64_t since_ms) noexcept:
        if place:
            if self.places[place].party.kind == kind:
                return place
            self.drop(place)
        return self.add(client, address, kind, since_ms)

    cdef uint32_t most(self, int kind) noexcept:
        return self.heaps[kind].parties[0].count if self.heaps[kind].n else 0

    # --- parties -------------------------------------------------------------------

    cdef Party **_chain(self, uint64_t bits, int family, int kind) noexcept:
        cdef uint64_t tag = <uint64_t>(family * N_KINDS + kind)
        return &self.chains[mix(mix(bits ^ self.seed) + tag) & (self.n_chains - 1)]

    cdef Party *_find(self, uint64_t bits, int family, int kind) noexcept:
        cdef Party *party = self._chain(bits, family, kind)[0]
        while party != NULL and (
                party.bits != bits or party.family != family or party.kind != kind):
            party = party.next
        return party

    cdef Party *_make(self, uint64_t bits, int family, int kind) noexcept:
        cdef Heap *heap = &self.heaps[kind]
        cdef Party **chain
        cdef Party *party
        if not has_heap_room(heap):
            return NULL
        party = <Party *>calloc(1, sizeof(Party))
        if party == NULL:
            return NULL
        if self.n_parties >= self.n_chains:
            self._resize(self.n_chains * 2)
        self.n_parties += 1
        self.next_number += 1
        party.bits = bits
        party.family = <uint8_t>family
        party.kind = <uint8_t>kind
        party.number = self.next_number
        chain = self._chain(bits, family, kind)
        party.next = chain[0]
        chain[0] = party
        party.at = heap.n
        heap.parties[heap.n] = party
        heap.n += 1
        return party

    cdef void _end(self, Party *party) noexcept:
        cdef Heap *heap = &self.heaps[party.kind]
        cdef Party *last = heap.parties[heap.n - 1]
        cdef Party **link = self._chain(party.bits, party.family, party.kind)
        while link[0] != party:
            link = &link[0].next
        link[0] = party.next
        heap.n -= 1
        if last != party:
            last.at = party.at
            heap.parties[last.at] = last
            rise(heap, last)
            sink(heap, last)
        free(party)
        self.n_parties -= 1
        if self.n_chains > LEAST_ROOM and self.n_parties < self.n_chains // 8:
            self._resize(self.n_chains // 2)

    cdef void _resize(self, uint32_t n_chains) noexcept:
        """If there is no memory the chains get longer, and nothing else happens."""
        cdef Party **old = self.chains
        cdef Party **chain
        cdef Party *party
        cdef uint32_t i, n_old = self.n_chains
        cdef Party **chains = <Party **>calloc(n_chains, sizeof(Party *))
        if chains == NULL:
            return
        self.chains = chains
        self.n_chains = n_chains
        for i in range(n_old):
            while old[i] != NULL:
                party = old[i]
                old[i] = party.next
                chain = self._chain(party.bits, party.family, party.kind)
                party.next = chain[0]
                chain[0] = party
        free(old)

    # --- places --------------------------------------------------------------------

    cdef uint32_t _take(self) noexcept:
        cdef uint32_t place = self.free
        cdef Place *more
        if place == 0:
            more = <Place *>realloc(self.places, 2 * <size_t>self.room * sizeof(Place))
            if more == NULL:
                return 0
            place = self.room
            self.places = more
            self.room *= 2
            self._chain_free(place)
        self.free = self.places[place].newer
        return place

    cdef void _give(self, uint32_t place) noexcept:
        memset(&self.places[place], 0, sizeof(Place))
        self.places[place].newer = self.free
        self.free = place

    cdef void _chain_free(self, uint32_t begin) noexcept:
        """Chains the places from `begin` on as free."""
        cdef uint32_t i
        memset(&self.places[begin], 0, (self.room - begin) * sizeof(Place))
        for i in range(begin, self.room - 1):
            self.places[i].newer = i + 1
        self.free = begin

    cdef void _append(self, uint32_t place, Party *party) noexcept:
        self.places[place].party = party
        self.places[place].newer = 0
        self.places[place].older = party.newest
        if party.newest:
            self.places[party.newest].newer = place
        else:
            party.oldest = place
        party.newest = place

    cdef void _unlink(self, uint32_t place) noexcept:
        cdef Place *entry = &self.places[place]
        if entry.older:
            self.places[entry.older].newer = entry.newer
        else:
            entry.party.oldest = entry.newer
        if entry.newer:
            self.places[entry.newer].older = entry.older
        else:
            entry.party.newest = entry.older


cdef void begin_anew(Places self) noexcept:
    """No connection is listed: a crowd's memory goes back, 32 bytes a connection. The next
    crowd pays for it by doubling, as the first one did."""
    cdef Place *fewer = <Place *>realloc(self.places, LEAST_ROOM * sizeof(Place))
    cdef int kind
    for kind in range(<int>N_KINDS):
        free(self.heaps[kind].parties)
        self.heaps[kind].parties = NULL
        self.heaps[kind].room = 0
    if fewer != NULL:
        self.places = fewer
        self.room = LEAST_ROOM
        self._chain_free(1)


# --- the heap ----------------------------------------------------------------------

cdef bint has_heap_room(Heap *heap) noexcept:
    cdef uint32_t room = max(<uint32_t>LEAST_ROOM, heap.room * 2)
    cdef Party **more
    if heap.n < heap.room:
        return True
    more = <Party **>realloc(heap.parties, room * sizeof(Party *))
    if more == NULL:
        return False
    heap.parties = more
    heap.room = room
    return True


cdef void put(Heap *heap, uint32_t at, Party *party) noexcept nogil:
    heap.parties[at] = party
    party.at = at


cdef void rise(Heap *heap, Party *party) noexcept nogil:
    cdef uint32_t at = party.at
    cdef uint32_t above
    while at:
        above = (at - 1) // 2
        if not goes_before(party, heap.parties[above]):
            break
        put(heap, at, heap.parties[above])
        at = above
    put(heap, at, party)


cdef void sink(Heap *heap, Party *party) noexcept nogil:
    cdef uint32_t at = party.at
    cdef uint32_t below
    while True:
        below = 2 * at + 1
        if below >= heap.n:
            break
        if below + 1 < heap.n and goes_before(heap.parties[below + 1], heap.parties[below]):
            below += 1
        if not goes_before(heap.parties[below], party):
            break
        put(heap, at, heap.parties[below])
        at = below
    put(heap, at, party)
