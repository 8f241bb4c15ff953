# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The workers' knowledge of clients, on one page of memory that all of them share.

    header, key, claims | proofs: right credentials | marks: counts by name and by network

The supervisor makes the page. Its workers, their successors, and the next program of an
upgrade map the same memory, so one verification serves all of them.

A proof is the keyed hash of credentials, with the keyed hash of the user's record that they
were verified against: the name, the password's hash and the expiry. If a record has changed, its
old proofs are never found again, because it has another hash. A proof does not have the user's
rights, and its reader decides if it is recent enough (R23).

Every table is an array of sets of eight entries, and the key selects the set. Nothing is
linked: if a worker is killed during a write, the entry's time is 0, and the entry is free.
Tables have a fixed size, and if a set is full, it gives up its oldest entry. A user's proofs are
all in one set, and take half of it at most, because passwords that a hash cannot tell apart
(bcrypt reads 72 bytes) must not push out other users.
"""

import hmac
import mmap
import os

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy
from cutthrough.policy.mutex cimport (
    EOWNERDEAD, make_robust, ordered, pthread_mutex_consistent, pthread_mutex_lock,
    pthread_mutex_unlock)
from cutthrough.policy.siphash cimport keyed_hash

cdef enum:
    # 1.5 MiB of proofs and 1 MiB for each table of marks; untouched pages cost nothing
    PROOF_SETS = 4096
    MARK_SETS = 4096
    # A hash takes at most 4 s on a free core; the supervisor ends the claims of a dead worker
    # earlier
    CLAIM_US = 10000000

# Without a value, for its layout: an offset from NULL is undefined behaviour
cdef Header layout

# With the layout that this program was compiled with: an upgrade may bring another (R90)
MAGIC = (0x637574746872_6b02 ^ <uint64_t>sizeof(Header) << 8 ^ <uint64_t>sizeof(Proof) << 24
         ^ <uint64_t>sizeof(Mark) << 32 ^ <uint64_t>sizeof(Claim) << 40
         ^ <uint64_t>(<char *>&layout.lock - <char *>&layout) << 48
         ^ <uint64_t>(<char *>&layout.claims - <char *>&layout) << 52)

# The tables of marks. They are separate, because a client that fills one of them with names of
# its choice must not push marks out of the others.
GUESSES, STRANGERS, PLACES, RIGHT, REJECTED = range(N_MARKS)


def page_bytes(proof_sets=PROOF_SETS, mark_sets=MARK_SETS):
    """Returns the length of a page with this many sets."""
    return (sizeof(Header) + 63) // 64 * 64 + WAYS * (
        sizeof(Proof) * proof_sets + N_MARKS * sizeof(Mark) * mark_sets)


def create(fd=-1, proof_sets=PROOF_SETS, mark_sets=MARK_SETS, secret=b""):
    """Sets up a page and returns its mapping: of the file `fd`, which is resized to fit, or
    of anonymous memory. `secret`: the key of its hashes, 16 octets, if several hosts share
    proofs; b"": a new one."""
    cdef unsigned char[::1] view
    cdef Header *page
    cdef bytes key = secret or os.urandom(16)
    if proof_sets & (proof_sets - 1) or mark_sets & (mark_sets - 1):
        raise ValueError("the number of sets must be a power of two")
    if len(key) != 16:
        raise ValueError("the key of a page has 16 octets")
    length = page_bytes(proof_sets, mark_sets)
    if fd >= 0:
        os.ftruncate(fd, length)
    memory = mmap.mmap(fd, length)
    view = memory
    page = <Header *>&view[0]
    page.bytes = length
    page.proof_sets = proof_sets
    page.mark_sets = mark_sets
    memcpy(page.key, <char *>key, 16)
    if not make_robust(&page.lock):
        raise OSError("this system has no robust mutexes")
    page.magic = <uint64_t>MAGIC
    return memory


cdef class Known:

    def __init__(self, memory=None, pid=0):
        """A view of `memory`, which `create` has set up, for process `pid`, 0 for this one.
        Without `memory` the page is its own. Raises ValueError if the memory is no page."""
        cdef unsigned char[::1] view
        self.memory = create() if memory is None else memory
        view = self.memory
        self.page = <Header *>&view[0]
        if (<size_t>view.shape[0] < sizeof(Header) or self.page.magic != <uint64_t>MAGIC
                or <uint64_t>view.shape[0] < self.page.bytes
                or self.page.bytes != <uint64_t>page_bytes(
                    self.page.proof_sets, self.page.mark_sets)):
            raise ValueError("the memory does not hold a page of credentials")
        self.proofs = <Proof *>(<char *>self.page + (sizeof(Header) + 63) // 64 * 64)
        self.marks = <Mark *>(self.proofs + WAYS * self.page.proof_sets)
        self.pid = pid or os.getpid()

    cdef void _lock(self) noexcept nogil:
        if pthread_mutex_lock(&self.page.lock) == EOWNERDEAD:
            self.page.repairs += 1          # nothing is linked, so nothing needs a repair
            pthread_mutex_consistent(&self.page.lock)

    # --- proofs --------------------------------------------------------------------

    cdef int64_t recall(self, const Key *key) noexcept nogil:
        cdef Proof *proof
        cdef int64_t since_us
        self._lock()
        proof = self._find(key)
        since_us = proof.since_us if proof != NULL else 0
        pthread_mutex_unlock(&self.page.lock)
        return since_us

    cdef Proof *_find(self, const Key *key) noexcept nogil:
        cdef Proof *proof = self.proofs + WAYS * (key.name & (self.page.proof_sets - 1))
        cdef int _i
        for _i in range(WAYS):
            if proof.since_us and memcmp(&proof.key, key, sizeof(Key)) == 0:
                return proof
            proof += 1
        return NULL

    cdef void prove(self, const Key *key, int64_t now_us) noexcept nogil:
        cdef Proof *proof
        self._lock()
        proof = self._find(key)
        if proof == NULL:
            proof = self._place(key.name)
        proof.since_us = 0
        ordered()
        proof.key = key[0]
        ordered()
        proof.since_us = now_us
        self.page.proved += 1
        pthread_mutex_unlock(&self.page.lock)

    cdef Proof *_place(self, uint64_t name) noexcept nogil:
        """Returns the entry for a new proof of this user: a free one, or the oldest; if the
        user has MOST_OF_USER, the user's oldest."""
        cdef Proof *proof = self.proofs + WAYS * (name & (self.page.proof_sets - 1))
        cdef Proof *free = NULL
        cdef Proof *oldest = NULL
        cdef Proof *own = NULL
        cdef int owned = 0
        cdef int _i
        for _i in range(WAYS):
            if proof.since_us == 0:
                free = proof
            elif oldest == NULL or proof.since_us < oldest.since_us:
                oldest = proof
            if proof.since_us and proof.key.name == name:
                owned += 1
                if own == NULL or proof.since_us < own.since_us:
                    own = proof
            proof += 1
        if owned < MOST_OF_USER and free != NULL:
            return free
        self.evicted += 1
        return own if owned >= MOST_OF_USER else oldest

    # --- proofs of other hosts, which have the same key ---------------------------------

    def has_key(self, bytes secret):
        """Whether this is the key of the page's hashes."""
        return hmac.compare_digest((<char *>self.page.key)[:16], secret)

    def export(self, int64_t after_us):
        """Returns the proofs verified after this time of CLOCK_MONOTONIC, each with its time:
        [(key, since_us)]."""
        cdef list rows = []
        cdef Proof copy
        cdef uint64_t i
        for i in range(<uint64_t>WAYS * self.page.proof_sets):
            if self.proofs[i].since_us > after_us:      # looked at once more, locked
                self._lock()
                copy = self.proofs[i]
                pthread_mutex_unlock(&self.page.lock)
                if copy.since_us > after_us:
                    rows.append(((<char *>&copy.key)[:sizeof(Key)], copy.since_us))
        return rows

    def admit(self, bytes key, int64_t since_us):
        """Records a verification that another host made. False: a newer one is known, or all
        entries that it could have are newer. Raises ValueError for what is no key."""
        cdef const Key *wanted = <const Key *><const char *>key
        cdef Proof *proof
        cdef bint is_newer
        if len(key) != sizeof(Key):
            raise ValueError("not a key of credentials")
        if since_us <= 0:                   # before this host was started
            return False
        self._lock()
        proof = self._find(wanted)
        if proof == NULL:
            proof = self._place(wanted.name)
        is_newer = proof.since_us < since_us
        if is_newer:
            proof.since_us = 0
            ordered()
            proof.key = wanted[0]
            ordered()
            proof.since_us = since_us
            self.page.proved += 1
        pthread_mutex_unlock(&self.page.lock)
        return is_newer

    # --- claims: hashes under computation ------------------------------------------

    def claim(self, bytes key, int64_t now_us):
        """Claims the hash of these credentials for this worker; `key` is from
        Authenticator.key_of. False: another worker computes it at this moment."""
        cdef const Key *wanted = <const Key *><const char *>key
        cdef Claim *free = NULL
        cdef Claim *claim
        cdef bint is_ours = True
        cdef int _i
        self._lock()
        for i in range(CLAIMS):
            claim = &self.page.claims[i]
            if claim.until_us <= now_us:
                free = claim
            elif memcmp(&claim.key, wanted, sizeof(Key)) == 0:
                is_ours = claim.pid == self.pid
                free = NULL
                break
        if free != NULL:                    # else it is claimed, or the table is full
            free.until_us = 0
            ordered()
            free.key = wanted[0]
            free.pid = self.pid
            ordered()
            free.until_us = now_us + CLAIM_US
        pthread_mutex_unlock(&self.page.lock)
        return is_ours

    def disclaim(self, bytes key):
        """Ends this worker's claim of that hash."""
        self._end_claims(self.pid, <const Key *><const char *>key)

    def reap(self, int64_t pid):
        """Ends all claims of the worker with this process id, which is dead."""
        self._end_claims(pid, NULL)

    cdef void _end_claims(self, int64_t pid, const Key *key) noexcept nogil:
        cdef Claim *claim
        cdef int i
        self._lock()
        for i in range(CLAIMS):
            claim = &self.page.claims[i]
            if claim.pid == pid and (
                    key == NULL or memcmp(&claim.key, key, sizeof(Key)) == 0):
                claim.until_us = 0
        pthread_mutex_unlock(&self.page.lock)

    # --- marks ---------------------------------------------------------------------

    cdef Mark *_mark(self, int table, const uint64_t *tag, bint make) noexcept nogil:
        cdef Mark *oldest = NULL
        cdef Mark *mark = self.marks + WAYS * (
            table * self.page.mark_sets + (tag[0] & (self.page.mark_sets - 1)))
        cdef int _i
        for _i in range(WAYS):
            if mark.at_us and mark.tag[0] == tag[0] and mark.tag[1] == tag[1]:
                return mark
            if oldest == NULL or mark.at_us < oldest.at_us:
                oldest = mark
            mark += 1
        if not make:
            return NULL
        if oldest.at_us:
            self.forgotten += 1
        oldest.at_us = 0
        ordered()
        oldest.tag[0] = tag[0]
        oldest.tag[1] = tag[1]
        oldest.count = 0
        return oldest

    cdef void _tag_of(self, bytes name, uint64_t *tag) noexcept:
        keyed_hash(self.page.key, <const unsigned char *><const char *>name, len(name), tag)

    def read_mark(self, int table, bytes name):
        """Returns the count of a mark and the time of its last event in microseconds; (0, 0):
        there is no mark."""
        cdef uint64_t tag[2]
        cdef uint64_t count = 0
        cdef int64_t at_us = 0
        cdef Mark *mark
        self._tag_of(name, tag)
        self._lock()
        mark = self._mark(table, tag, False)
        if mark != NULL:
            count = mark.count
            at_us = mark.at_us
        pthread_mutex_unlock(&self.page.lock)
        return count, at_us

    def mark(self, int table, bytes name, int64_t now_us, int64_t forget_us):
        """Counts one event more and returns the count, which starts at 1 again if the last
        event was more than `forget_us` ago."""
        cdef uint64_t tag[2]
        cdef uint64_t count
        cdef Mark *mark
        self._tag_of(name, tag)
        self._lock()
        mark = self._mark(table, tag, True)
        if now_us - mark.at_us > forget_us:
            mark.count = 0
        mark.count += 1
        count = mark.count
        ordered()
        mark.at_us = max(now_us, <int64_t>1)
        pthread_mutex_unlock(&self.page.lock)
        return count

    def unmark(self, int table, bytes name):
        """Removes a mark."""
        cdef uint64_t tag[2]
        cdef Mark *mark
        self._tag_of(name, tag)
        self._lock()
        mark = self._mark(table, tag, False)
        if mark != NULL:
            mark.at_us = 0
        pthread_mutex_unlock(&self.page.lock)

    # --- for operators and tests -----------------------------------------------------

    @property
    def proved(self):
        """Number of verifications that all workers recorded."""
        return self.page.proved

    def read(self):
        """Returns the numbers of proofs, claims, repairs, and marks in each table."""
        cdef uint64_t n = <uint64_t>WAYS * self.page.mark_sets
        cdef uint64_t n_proofs = <uint64_t>WAYS * self.page.proof_sets
        cdef uint64_t proofs = 0
        cdef uint64_t claims = 0
        cdef uint64_t marks[N_MARKS]
        cdef uint64_t i
        cdef int table
        self._lock()
        for i in range(n_proofs):
            proofs += self.proofs[i].since_us != 0
        for i in range(<uint64_t>CLAIMS):
            claims += self.page.claims[i].until_us != 0
        for table in range(N_MARKS):
            marks[table] = 0
            for i in range(n):
                marks[table] += self.marks[table * n + i].at_us != 0
        pthread_mutex_unlock(&self.page.lock)
        return {"proofs": proofs, "claims": claims, "repairs": self.page.repairs,
                "marks": tuple([marks[table] for table in range(N_MARKS)])}
