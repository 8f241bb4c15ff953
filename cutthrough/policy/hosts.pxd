"""An index of the hosts in rules: exact names and suffixes, one probe for each label."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    MAX_LABELS = 128        # 253 octets hold 127 labels of one

cdef struct Candidate:      # a rule that one condition found; the others are not checked yet
    uint32_t rule
    uint32_t subject        # the condition on users, checked first: most candidates fail it

cdef struct Run:            # candidates in the order of their rules
    const Candidate *at
    uint32_t n
    uint32_t kind           # for the caller's use

cdef struct Slot:
    uint32_t tag            # upper half of the hash
    uint32_t at             # offset of the record in the arena, in words, + 1; 0: free slot

cdef struct Draft:          # a record under construction
    uint64_t hash
    uint64_t text           # offset in texts
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
    # until seal()
    cdef Draft *drafts
    cdef Link *links
    cdef char *texts
    cdef size_t n_drafts, room_drafts, n_links, room_links, n_texts, room_texts

    # Adds "example.com" or "*.example.com", canonical. Rules must come in ascending order.
    cdef int add(self, const char *pattern, size_t n, Candidate candidate) except -1
    # Builds the table that `find` searches; nothing can be added afterwards.
    cdef int seal(self) except -1
    # Writes the runs of this host and of the suffixes above it. Returns their number, which
    # is below MAX_LABELS.
    cdef int find(self, const char *host, size_t n, Run *runs) noexcept nogil

    cdef void drop_drafts(self) noexcept nogil
    cdef size_t draft_of(self, const char *text, size_t n) except? 0
    cdef uint64_t hash_name(self, const char *text, size_t n) noexcept nogil
    cdef int widen(self) except -1

# The candidates of (rule, subject) pairs, in memory that the caller frees.
cdef Candidate *candidates_of(list pairs) except NULL
