# cython: language_level=3, boundscheck=False, wraparound=False
"""The keys of session tickets, on a page that all workers read.

The keys are no worker's own, because a client may resume its session with any worker, before and
after a reload or an upgrade. The supervisor writes the page and workers read it. Its version is
odd while it is being written. If a reader sees that, or another version afterwards, it keeps the
keys that it has: new keys are used a moment later.

A key encrypts tickets for one period and decrypts them for two more; then it is overwritten. A
recorded connection with a resumed session can be decrypted if its key is read from memory within
that time (RFC 5077 section 5.5). A key is never derived from another one.
"""

import mmap
import os
import time

from libc.string cimport memcmp, memcpy, memset

cdef extern from * nogil:
    """
    #define read_version(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define write_version(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define before_reading() __atomic_thread_fence(__ATOMIC_ACQUIRE)
    #define before_writing() __atomic_thread_fence(__ATOMIC_RELEASE)
    """
    uint32_t read_version(const uint32_t *p)
    void write_version(uint32_t *p, uint32_t version)
    void before_reading()
    void before_writing()

# Without a value, for its layout: an offset from NULL is undefined behaviour
cdef KeyPage layout

# With the layout that this program was compiled with: an upgrade may bring another (R90)
MAGIC = b"cutthrough k" + (
    sizeof(KeyPage) ^ sizeof(TicketKey) << 12
    ^ <size_t>(<char *>&layout.keys - <char *>&layout) << 22).to_bytes(4, "little")
PAGE_BYTES = 4096
assert sizeof(KeyPage) <= PAGE_BYTES and len(MAGIC) == 16


def create(int fd):
    """Gives the file its size, and a first key. Returns the mapping."""
    os.ftruncate(fd, PAGE_BYTES)
    memory = mmap.mmap(fd, PAGE_BYTES)
    memory[:16] = MAGIC
    TicketKeys(memory).rotate()
    return memory


cdef class TicketKeys:

    def __init__(self, memory=None):
        """A view of the page in `memory`, which `create` has made; None: a page of its own.
        Raises ValueError if it is none."""
        cdef unsigned char[::1] view
        if memory is None:
            memory = bytearray(PAGE_BYTES)
            memory[:16] = MAGIC
            self.memory = memory
            view = memory
            self.page = <KeyPage *>&view[0]
            self.rotate()
            return
        view = memory
        if view.shape[0] < <Py_ssize_t>sizeof(KeyPage) or bytes(memory[:16]) != MAGIC:
            raise ValueError("not a page of ticket keys")
        self.memory = view
        self.page = <KeyPage *>&view[0]

    def rotate(self):
        """Puts a new key in front; the oldest is overwritten. Only the page's one writer
        may call it."""
        cdef TicketKey fresh
        cdef bytes drawn = os.urandom(sizeof(TicketKey))
        cdef KeyPage *page = self.page
        cdef int i
        memcpy(&fresh, <char *>drawn, sizeof(fresh))
        write_version(&page.version, page.version | 1)
        before_writing()
        for i in range(N_KEYS - 1, 0, -1):
            page.keys[i] = page.keys[i - 1]
        page.keys[0] = fresh
        page.n = min(page.n + 1, N_KEYS)
        page.since_s = <int64_t>time.time()
        write_version(&page.version, page.version + 1)

    def put(self, keys):
        """Puts keys of a file in place of all: 80 octets each, name, cipher and mac, the
        newest first. They count as old, so that a program without the file makes a key of its
        own at once. Only the page's one writer may call it. Raises ValueError."""
        cdef KeyPage *page = self.page
        cdef TicketKey fresh[N_KEYS]
        cdef bytes key
        cdef int i
        if not 1 <= len(keys) <= N_KEYS or any(len(key) != sizeof(TicketKey) for key in keys):
            raise ValueError("not keys of session tickets")
        memset(fresh, 0, sizeof(fresh))
        for i, key in enumerate(keys):
            memcpy(&fresh[i], <char *>key, sizeof(TicketKey))
        write_version(&page.version, page.version | 1)
        before_writing()
        memcpy(page.keys, fresh, sizeof(fresh))
        page.n = <uint32_t>len(keys)
        page.since_s = 0
        write_version(&page.version, page.version + 1)

    @property
    def age(self):
        """Seconds since the newest key came into use. If the clock was set back behind that, nobody
        knows, and the key counts as old."""
        age = <int64_t>time.time() - self.page.since_s
        return age if age >= 0 else float("inf")

    @property
    def names(self):
        """The names of the keys, the newest first: a name is in clear in each ticket."""
        self.refresh()
        return [(<char *>self.own.keys[i].name)[:16] for i in range(self.own.n)]

    cdef void refresh(self) noexcept:
        cdef uint32_t version = read_version(&self.page.version)
        cdef KeyPage copy
        if version == self.own.version or version & 1:
            return
        memcpy(&copy, self.page, sizeof(copy))
        before_reading()
        if read_version(&self.page.version) == version:
            self.own = copy
        memset(&copy, 0, sizeof(copy))

    cdef const TicketKey *newest(self) noexcept:
        self.refresh()
        return &self.own.keys[0] if self.own.n else NULL

    cdef const TicketKey *find(self, const unsigned char *name) noexcept:
        cdef uint32_t i
        self.refresh()
        for i in range(self.own.n):
            if memcmp(self.own.keys[i].name, name, sizeof(self.own.keys[i].name)) == 0:
                return &self.own.keys[i]
        return NULL
