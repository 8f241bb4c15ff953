# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The sends of a batch of events, in one submission to the kernel.

    batch begins -> collect, collect, ... -> submit_sends -> result hook -> wake -> batch ends

A send to a neighbour on the same processor wakes the neighbour, which then takes the processor
from the sender: with a hundred connections that is a hundred switches for a batch. One
submission to io_uring makes all sends before anybody else runs. The ring has no thread, waits
for nothing, and reports only sends that fell short.

A pump collects, because it has a place for bytes not taken, or its sink's TLS has; so does TLS
alone, if the batch hook sends, because nothing comes behind that. If there is no ring (kernel
before 5.19, seccomp, kernel.io_uring_disabled), each send is a system call, as it is outside of a
batch. The ring is this process's: one event loop drives it, and the GIL is never released here.
"""

from libc.errno cimport ENOSYS
from libc.stdint cimport uint32_t
from libc.string cimport memcpy
from posix.unistd cimport getpid
from cutthrough.net cimport linux
from cutthrough.net.linux cimport MSG_NOSIGNAL, errno
from cutthrough.net.transport cimport Socket

cdef extern from "uring.h" nogil:
    struct ring:
        int fd
    int ring_open(ring *r, uint32_t entries)
    void ring_close(ring *r)
    void ring_send(ring *r, uint32_t i, int fd, const void *data, uint32_t n)
    uint32_t ring_submit(ring *r, uint32_t n)
    int ring_report(ring *r, uint32_t *i, int *result)

cdef extern from "<sys/socket.h>" nogil:
    int SHUT_RD
    int socketpair(int domain, int type, int protocol, int *fds)

cdef enum:
    # Of one submission; a batch has 256 events. The ring has 28 KiB of the kernel's memory
    MOST_SENDS = 256
    ARENA_BYTES = 262144        # it is still in a processor's cache when it is sent
    MOST_WOKEN = 512            # of a batch: two directions for each event
    ALIGNMENT = 64

cdef struct Send:
    Sender sender
    int result
    uint32_t at
    uint32_t n

cdef ring the_ring
cdef int owner_pid = 0          # the owner of the ring: a fork has none
cdef bint enabled = False
cdef batch_end_t on_batch_end = NULL
cdef Send sends[MOST_SENDS]
cdef char arena[ARENA_BYTES]    # no memory until it is used
cdef uint32_t used = 0
cdef Socket *woken[MOST_WOKEN]
cdef int n_woken = 0
cdef size_t submissions = 0, collected = 0, short_sends = 0

in_batch = False
collecting = False
ending = False
pending = 0
the_ring.fd = -1


cdef void set_batch_hook(batch_end_t hook) noexcept nogil:
    global on_batch_end
    on_batch_end = hook


cdef bint can_collect(size_t n) noexcept nogil:
    return collecting and n <= MOST_COLLECTED and pending + n_woken < MOST_WOKEN


cdef bint collect(const Sender *sender, const char *a, size_t n, const char *b,
                  size_t m) noexcept nogil:
    global pending, used
    cdef Send *send
    if not can_collect(n + m):
        return False
    if pending == MOST_SENDS or used + n + m > ARENA_BYTES:
        submit_sends()
    send = &sends[pending]
    send.sender = sender[0]
    send.at = used
    send.n = <uint32_t>(n + m)
    if n:                               # `a` may be NULL, which memcpy never takes
        memcpy(arena + used, a, n)
    if m:
        memcpy(arena + used + n, b, m)
    used += (send.n + ALIGNMENT - 1) & ~<uint32_t>(ALIGNMENT - 1)
    pending += 1
    return True


cdef void submit_sends() noexcept nogil:
    global pending, used, submissions, collected, short_sends
    cdef int n = pending
    cdef int i, taken
    cdef Send *send
    cdef uint32_t at = 0
    cdef int result = 0
    if n == 0:
        return
    for i in range(n):
        send = &sends[i]
        send.result = <int>send.n
    taken = 0
    if n > 1:
        for i in range(n):
            send = &sends[i]
            ring_send(&the_ring, i, send.sender.fd, arena + send.at, send.n)
        taken = ring_submit(&the_ring, n)
        while ring_report(&the_ring, &at, &result):
            sends[at].result = result
            short_sends += 1
        submissions += 1
        collected += taken
    for i in range(taken, n):           # one alone, or the kernel is short of memory
        send = &sends[i]
        send.result = <int>linux.send(send.sender.fd, arena + send.at, send.n, MSG_NOSIGNAL)
        if send.result < 0:
            send.result = -errno
    pending = 0
    used = 0
    for i in range(n):                  # the hook collects nothing
        send = &sends[i]
        send.sender.on_result(send.sender.owner, arena + send.at, send.n, send.result)


cdef bint has_send(int fd) noexcept nogil:
    cdef int i
    for i in range(pending):
        if sends[i].sender.fd == fd:
            return True
    return False


cdef void end_reading(int fd) noexcept nogil:
    linux.shutdown(fd, SHUT_RD)


cdef void wake_later(Socket *s) noexcept nogil:
    global n_woken
    woken[n_woken] = s                  # see the bound in collect
    n_woken += 1


cdef Socket *next_woken() noexcept nogil:
    global n_woken
    if n_woken == 0:
        return NULL
    n_woken -= 1
    return woken[n_woken]


cdef void begin_batch(int events) noexcept nogil:
    global in_batch, collecting
    in_batch = events >= LEAST_EVENTS
    collecting = enabled and in_batch


cdef bint end_batch() noexcept nogil:
    global in_batch, collecting, ending
    if not in_batch:
        return False
    if on_batch_end != NULL:
        ending = collecting
        on_batch_end()
        ending = False
    in_batch = False
    submit_sends()
    collecting = False
    return n_woken != 0


# --- on and off


cdef int try_short_send(ring *r) noexcept:
    """Whether this kernel reports a send that falls short, and no other. 0, or -errno."""
    cdef int fds[2]
    cdef uint32_t at = 0
    cdef int result = 0
    cdef int error = ENOSYS
    cdef int size = 4096
    if socketpair(linux.AF_UNIX, linux.SOCK_STREAM | linux.SOCK_NONBLOCK | linux.SOCK_CLOEXEC,
                  0, fds) < 0:
        return -errno
    linux.setsockopt(fds[0], linux.SOL_SOCKET, linux.SO_SNDBUF, &size, sizeof(size))
    ring_send(r, 0, fds[0], arena, 1)
    ring_send(r, 1, fds[0], arena, ARENA_BYTES)
    if ring_submit(r, 2) == 2 and ring_report(r, &at, &result) and at == 1 and (
            0 < result < ARENA_BYTES) and not ring_report(r, &at, &result):
        error = 0
    linux.close(fds[0])
    linux.close(fds[1])
    return -error


def turn_on():
    """Collects from now on. Returns 0, or the errno of the refusal: then each send is a system
    call."""
    global enabled, owner_pid
    cdef int error
    if enabled and owner_pid == getpid():
        return 0
    enabled = False
    ring_close(&the_ring)
    error = ring_open(&the_ring, MOST_SENDS)
    if error == 0:
        error = try_short_send(&the_ring)
        if error:
            ring_close(&the_ring)
    owner_pid = getpid()
    enabled = error == 0
    return -error


def turn_off():
    global enabled
    enabled = False
    ring_close(&the_ring)


def is_on():
    return enabled


def stats():
    """Submissions, sends in them, and those that fell short."""
    return {"submissions": submissions, "collected": collected, "short": short_sends}
