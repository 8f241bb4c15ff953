# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The resolver's cache of names: bounded; the least recently used entry is evicted first.

A hit is a look-up in a dict, a clock and a move within a linked list: 78 ns, and 116 if
every name is different; a dict of tuples in Python took 116 and had no order. The cache
deals with times, but not with the loop or DNS.

    put ──> fresh ──> last tenth, used often: refresh() ──> expired ──> forgotten
                                                               └─ revive() ─> stale
"""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from cutthrough.net.address cimport Addresses
from cutthrough.net.sysio cimport clock_us

cdef enum:
    LAST_PART = 10      # a hot answer is refreshed in this last part of its time: unbound's `prefetch`
    PREFETCH_HITS = 3   # hits that make an answer hot; our choice


cdef class Entry:
    cdef bytes host
    cdef object answer
    cdef int64_t due_us             # before this time a hit needs no further check
    cdef int64_t expires_us
    cdef int64_t stale_us           # before this time an expired answer may be served
    cdef uint32_t hits
    cdef int turn
    cdef bint is_stale, is_pinned
    cdef Entry older, newer


cdef class Cache:
    """`entries` bounds the names; 0: nothing is cached. In seconds: `stale`, how long an
    expired answer may be served during an outage; `recheck`, the time between two refreshes
    of it; `prefetch`, the least time of an answer that is refreshed before it expires."""

    cdef dict known
    cdef Entry newest, oldest
    cdef Py_ssize_t most, held
    cdef int64_t stale_for_us, recheck_us, prefetch_us
    cdef readonly uint64_t hits, evicted, prefetches
    cdef public uint64_t stale      # expired answers served

    def __init__(self, entries, *, stale, recheck, prefetch):
        self.known = {}
        self.most = entries
        self.stale_for_us = int(stale * 1e6)
        self.recheck_us = int(recheck * 1e6)
        self.prefetch_us = int(prefetch * 1e6)

    def __len__(self):
        return self.held

    def refresh(self, host):
        """Called if a cached name should be queried again. A subclass does it."""

    def cached(self, bytes host not None):
        """The current answer for `host`, or None."""
        cdef PyObject *item = PyDict_GetItem(self.known, host)
        cdef Entry entry
        cdef int64_t now
        if item == NULL:
            return None
        entry = <Entry>item
        now = clock_us()
        if now >= entry.due_us and not self._is_usable(entry, now):
            return None
        self.hits += 1
        entry.hits += 1
        self.stale += entry.is_stale
        if entry is not self.newest and not entry.is_pinned:
            self._unlink(entry)
            self._link(entry)
        return entry.answer

    cdef bint _is_usable(self, Entry entry, int64_t now) except -1:
        """Handles what is due: a refresh, or the end. False: the entry is gone or expired."""
        if now < entry.expires_us:
            entry.due_us = entry.expires_us
            if entry.hits >= PREFETCH_HITS:
                self.prefetches += 1
                self.refresh(entry.host)
            return True
        if now >= entry.stale_us:
            self._forget(entry)
            return False
        if entry.is_stale:                  # the outage goes on: refresh in the background
            entry.due_us = min(now + self.recheck_us, entry.stale_us)
            self.refresh(entry.host)
        return entry.is_stale

    def put(self, bytes host not None, answer, double keep, int turn=0):
        """Keeps an answer for `keep` seconds: Addresses, or the label of a failure.
        `turn`: the source that gave it, 0 or 1."""
        cdef PyObject *item = PyDict_GetItem(self.known, host)
        cdef Entry entry
        cdef int64_t now = clock_us()
        cdef int64_t keep_us = <int64_t>(keep * 1e6)
        if item != NULL:
            entry = <Entry>item
            if entry.is_pinned:
                return
            self._unlink(entry)
        elif self.most <= 0:
            return
        else:
            while self.held >= self.most:
                self.evicted += 1
                self._forget(self.oldest)
            entry = Entry.__new__(Entry)
            entry.host = host
            self.known[host] = entry
            self.held += 1
        self._link(entry)
        entry.answer = answer
        entry.turn = turn
        entry.hits = 0
        entry.is_stale = False
        entry.due_us = entry.expires_us = entry.stale_us = now + keep_us
        if isinstance(answer, Addresses):
            entry.stale_us += self.stale_for_us
            if keep_us >= self.prefetch_us:
                entry.due_us -= keep_us // LAST_PART

    def pin(self, bytes host not None, answer):
        """Keeps an answer for ever; it does not count against the bound."""
        cdef Entry entry = Entry.__new__(Entry)
        entry.host = host
        entry.answer = answer
        entry.is_pinned = True
        entry.due_us = entry.expires_us = entry.stale_us = INT64_MAX
        self.known[host] = entry

    def next_turn(self, bytes host not None):
        """The source to query next, 0 or 1: not the source of a fresh answer."""
        cdef PyObject *item = PyDict_GetItem(self.known, host)
        cdef Entry entry
        if item == NULL:
            return 0
        entry = <Entry>item
        return entry.turn ^ (clock_us() < entry.expires_us)

    def has_outlived(self, bytes host not None):
        """Whether the addresses of `host` have expired but may still be served."""
        cdef PyObject *item = PyDict_GetItem(self.known, host)
        cdef int64_t now = clock_us()
        return (item != NULL and now >= (<Entry>item).expires_us
                and now < (<Entry>item).stale_us)

    def revive(self, bytes host not None):
        """Called if a refresh fails: an expired answer is served from now on.
        Returns the addresses that stay in use, or None."""
        cdef PyObject *item = PyDict_GetItem(self.known, host)
        cdef Entry entry
        cdef int64_t now = clock_us()
        if item == NULL or now >= (<Entry>item).stale_us:
            return None
        entry = <Entry>item
        if not isinstance(entry.answer, Addresses):
            return None
        if now >= entry.expires_us:
            entry.is_stale = True
            entry.due_us = min(now + self.recheck_us, entry.stale_us)
        return entry.answer

    def clear(self):
        """Forgets all entries except the pinned ones."""
        while self.oldest is not None:
            self._forget(self.oldest)

    cdef int _forget(self, Entry entry) except -1:
        self._unlink(entry)
        self.held -= 1
        del self.known[entry.host]
        return 0

    cdef int _link(self, Entry entry) except -1:
        entry.older = self.newest
        if self.newest is not None:
            self.newest.newer = entry
        else:
            self.oldest = entry
        self.newest = entry
        return 0

    cdef int _unlink(self, Entry entry) except -1:
        if entry.newer is not None:
            entry.newer.older = entry.older
        else:
            self.newest = entry.older
        if entry.older is not None:
            entry.older.newer = entry.newer
        else:
            self.oldest = entry.newer
        entry.older = entry.newer = None
        return 0
