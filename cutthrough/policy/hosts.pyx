# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""An index of the hosts in rules: exact names and suffixes, one probe for each label.

A hash table in C memory, open addressing, at most half full. A name is hashed from its
right end, label by label, because the hashes of all its suffixes then cost one pass. The hash has
a random key, against long probes, because clients choose the hosts that are looked up; and the
text is compared, because a collision must not match the rule of another name.

A hit touches three cache lines: the slot, the record (counts, text and candidates together)
and the rule. 100 000 names take 6 MB.
"""

import os

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, calloc, realloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* wyhash's step (Wang Yi, public domain): both halves of a 128-bit product. */
    static inline uint64_t fold(uint64_t a, uint64_t b) {
        unsigned __int128 r = (unsigned __int128)a * b;
        return (uint64_t)r ^ (uint64_t)(r >> 64);
    }

    /* 1 to 8 bytes as one word, reading no others; texts of one length give distinct words. */
    static inline uint64_t load_tail(const char *p, size_t n) {
        uint32_t low, high;
        if (n >= 4) {
            memcpy(&low, p, 4);
            memcpy(&high, p + n - 4, 4);
            return (uint64_t)high << 32 | low;
        }
        return (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[n >> 1] << 8
            | (uint8_t)p[n - 1];
    }
    """
    uint64_t fold(uint64_t a, uint64_t b) noexcept nogil
    uint64_t load_tail(const char *p, size_t n) noexcept nogil

cdef enum:
    EXACT = 0
    BELOW = 1
    HEADER = 3              # words of a record before its text: two counts, the length


cdef class HostIndex:

    def __cinit__(self):
        cdef bytes key = os.urandom(32)
        memcpy(self.key, <const char *>key, 32)
        self.key[1] |= 1
        self.key[3] |= 1
        self.slots = <Slot *>calloc(16, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError
        self.mask = 15

    def __dealloc__(self):
        free(self.slots)
        free(self.arena)
        self.drop_drafts()

    cdef void drop_drafts(self) noexcept nogil:
        free(self.drafts)
        free(self.links)
        free(self.texts)
        self.drafts = NULL
        self.links = NULL
        self.texts = NULL

    cdef int find(self, const char *host, size_t n, Run *runs) noexcept nogil:
        cdef uint64_t h = self.key[0]
        cdef size_t end = n, start
        cdef const uint32_t *record
        cdef int n_runs = 0, which
        while True:
            start = end
            while start > 0 and host[start - 1] != c'.':
                start -= 1
            h = hash_label(self.key, h, host + start, end - start)
            record = look_up(self, h, host + start, n - start)
            if record != NULL:
                which = BELOW if start else EXACT
                if record[which]:
                    runs[n_runs].at = candidates(record) + (record[EXACT] if which else 0)
                    runs[n_runs].n = record[which]
                    n_runs += 1
            # No valid name has more labels.
            if start == 0 or n_runs == MAX_LABELS - 1:
                return n_runs
            end = start - 1

    # Construction: drafts with linked candidates; until seal() a slot has the draft's index + 1.

    cdef int add(self, const char *pattern, size_t n, Candidate candidate) except -1:
        cdef int which = EXACT
        cdef Draft *draft
        cdef Link *link
        if n > 2 and pattern[0] == c'*' and pattern[1] == c'.':
            which = BELOW
            pattern += 2
            n -= 2
        draft = self.drafts + self.draft_of(pattern, n)
        if draft.count[which] and (
                self.links[draft.last[which] - 1].candidate.rule == candidate.rule):
            return 0
        self.links = <Link *>grow(self.links, &self.room_links, self.n_links + 1, sizeof(Link))
        link = self.links + self.n_links
        self.n_links += 1
        link.candidate = candidate
        link.next = 0
        if draft.count[which]:
            self.links[draft.last[which] - 1].next = self.n_links
        else:
            draft.first[which] = self.n_links
        draft.last[which] = self.n_links
        draft.count[which] += 1
        return 0

    cdef size_t draft_of(self, const char *text, size_t n) except? 0:
        cdef uint64_t h = self.hash_name(text, n)
        cdef uint32_t at = h & self.mask
        cdef Draft *draft
        while self.slots[at].at:
            draft = self.drafts + (self.slots[at].at - 1)
            if (draft.hash == h and draft.length == n
                    and memcmp(self.texts + draft.text, text, n) == 0):
                return self.slots[at].at - 1
            at = (at + 1) & self.mask
        self.drafts = <Draft *>grow(
            self.drafts, &self.room_drafts, self.n_drafts + 1, sizeof(Draft))
        self.texts = <char *>grow(self.texts, &self.room_texts, self.n_texts + n, 1)
        draft = self.drafts + self.n_drafts
        memset(draft, 0, sizeof(Draft))
        draft.hash = h
        draft.text = self.n_texts
        draft.length = n
        memcpy(self.texts + self.n_texts, text, n)
        self.n_texts += n
        self.n_drafts += 1
        self.slots[at].tag = h >> 32
        self.slots[at].at = self.n_drafts
        if self.n_drafts * 2 > self.mask:
            self.widen()
        return self.n_drafts - 1

    cdef uint64_t hash_name(self, const char *text, size_t n) noexcept nogil:
        cdef uint64_t h = self.key[0]
        cdef size_t end = n, start
        while True:
            start = end
            while start > 0 and text[start - 1] != c'.':
                start -= 1
            h = hash_label(self.key, h, text + start, end - start)
            if start == 0:
                return h
            end = start - 1

    cdef int widen(self) except -1:
        cdef uint32_t mask = self.mask * 2 + 1
        cdef Slot *slots = <Slot *>calloc(<size_t>mask + 1, sizeof(Slot))
        cdef uint32_t at
        cdef size_t i
        if slots == NULL:
            raise MemoryError
        for i in range(self.n_drafts):
            at = self.drafts[i].hash & mask
            while slots[at].at:
                at = (at + 1) & mask
            slots[at].tag = self.drafts[i].hash >> 32
            slots[at].at = i + 1
        free(self.slots)
        self.slots = slots
        self.mask = mask
        return 0

    cdef int seal(self) except -1:
        cdef size_t words = 0, i, j
        cdef uint32_t link
        cdef Draft *draft
        cdef Candidate *out
        cdef uint32_t *where
        cdef int which
        for i in range(self.n_drafts):
            words += record_words(&self.drafts[i])
        if words >> 32:
            raise MemoryError("more than 16 GiB of host names")
        self.arena = <uint32_t *>malloc(words * 4 + 4)
        where = <uint32_t *>malloc(self.n_drafts * 4 + 4)
        if self.arena == NULL or where == NULL:
            free(where)
            raise MemoryError
        words = 0
        for i in range(self.n_drafts):
            draft = &self.drafts[i]
            where[i] = words + 1
            self.arena[words] = draft.count[EXACT]
            self.arena[words + 1] = draft.count[BELOW]
            self.arena[words + 2] = draft.length
            memcpy(self.arena + words + HEADER, self.texts + draft.text, draft.length)
            out = <Candidate *>candidates(self.arena + words)
            for which in range(2):
                link = draft.first[which]
                while link:
                    out[0] = self.links[link - 1].candidate
                    out += 1
                    link = self.links[link - 1].next
            words += record_words(draft)
        for j in range(<size_t>self.mask + 1):
            if self.slots[j].at:
                self.slots[j].at = where[self.slots[j].at - 1]
        free(where)
        self.drop_drafts()
        self.bytes = words * 4 + (<size_t>self.mask + 1) * sizeof(Slot)
        return 0


# Returns the hash of a name from the hash h of its suffix and the label to the left of that.
cdef inline uint64_t hash_label(const uint64_t *key, uint64_t h, const char *p,
                                size_t n) noexcept nogil:
    cdef size_t left = n
    while left > 8:
        h = fold(h ^ load_tail(p, 8), key[1])
        p += 8
        left -= 8
    if left:
        h = fold(h ^ load_tail(p, left), key[1])
    return fold(h ^ n ^ key[2], key[3])


cdef inline const uint32_t *look_up(HostIndex self, uint64_t h, const char *text,
                                    size_t n) noexcept nogil:
    cdef uint32_t at = h & self.mask
    cdef const uint32_t *record
    while self.slots[at].at:
        if self.slots[at].tag == h >> 32:
            record = self.arena + (self.slots[at].at - 1)
            if record[2] == n and memcmp(record + HEADER, text, n) == 0:
                return record
        at = (at + 1) & self.mask
    return NULL


cdef inline const Candidate *candidates(const uint32_t *record) noexcept nogil:
    return <const Candidate *>(record + HEADER + (record[2] + 3) // 4)


cdef inline size_t record_words(const Draft *draft) noexcept nogil:
    return HEADER + (draft.length + 3) // 4 + 2 * (
        <size_t>draft.count[EXACT] + draft.count[BELOW])


cdef Candidate *candidates_of(list pairs) except NULL:
    cdef Candidate *out = <Candidate *>malloc(len(pairs) * sizeof(Candidate) + 1)
    cdef size_t i
    if out == NULL:
        raise MemoryError
    for i, (rule, subject) in enumerate(pairs):
        out[i] = Candidate(rule, subject)
    return out


# Makes room for at least n items. Returns the block, the old one if it is large enough.
cdef void *grow(void *block, size_t *room, size_t n, size_t size) except NULL:
    cdef size_t more
    if block != NULL and n <= room[0]:
        return block
    more = max(n, room[0] * 2, <size_t>64)
    block = realloc(block, more * size)
    if block == NULL:
        raise MemoryError
    room[0] = more
    return block
