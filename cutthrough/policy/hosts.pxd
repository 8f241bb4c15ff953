"""Which rules name this host? Exact names and suffixes, one probe for each label."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    MAX_LABELS = 128        # 253 octets hold 127 labels of one

cdef struct Candidate:      # a rule that one question points to; the others are not asked yet
    uint32_t rule
    uint32_t who            # the first of the others, because most candidates fail there

cdef struct Run:            # candidates in the order of their rules
    const Candidate *at
    uint32_t n
    uint32_t kind           # for the caller

cdef struct Slot:
    uint32_t tag            # the hash's upper half
    uint32_t at             # where the record begins in the arena, in words, + 1; 0: free

cdef struct Draft:          # a record that still grows
    uint64_t hash
    uint64_t text
    uint32_t length
    uint32_t first[2]       # index + 1 in links; [0] the name itself, [1] names below it
    uint32_t last[2]
    uint32_t count[2]

cdef struct Link:
    Candidate candidate
    uint32_t next

cdef class HostIndex:
    cdef uint64_t key[4]
    cdef Slot *slots
    cdef uint32_t mask
    cdef uint32_t *arena    # records: counts, length, text, candidates
    cdef readonly size_t bytes
    # while it is made
    cdef Draft *drafts
    cdef Link *links
    cdef char *texts
    cdef size_t n_drafts, room_drafts, n_links, room_links, n_texts, room_texts

    # "example.com" or "*.example.com", canonical; rules come in ascending order.
    cdef int add(self, const char *pattern, size_t n, Candidate candidate) except -1
    # No more names: makes what is searched.
    cdef int seal(self) except -1
    # Writes the runs of this host and of what it is below of; how many, < MAX_LABELS.
    cdef int find(self, const char *host, size_t n, Run *runs) noexcept nogil

    cdef void drop_drafts(self) noexcept nogil
    cdef size_t draft_of(self, const char *text, size_t n) except? 0
    cdef uint64_t hash_name(self, const char *text, size_t n) noexcept nogil
    cdef int widen(self) except -1
