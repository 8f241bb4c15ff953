# cython: language_level=3, boundscheck=False, wraparound=False
"""A transport that is not the kernel's: it treats bytes as TLS does, without secrets.

Bytes travel in records, `length (2 bytes) payload`, and the payload is inverted; an empty record
is the end of the stream, so that a FIN without one is a stream that was cut. As in TLS

- one read of the descriptor may bring many records, or a part of one: whether data can be read
  has nothing to do with the kernel's report that the descriptor is readable;
- a record that the kernel has not taken whole must be offered again, with the same bytes;
- nothing can be spliced, nothing peeked, and no tunnel can be handed over.

`tests.support.stream.Framed` is the other end.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove
from cutthrough.net cimport linux
from cutthrough.net.linux cimport EAGAIN, ECONNRESET, EINVAL, ENOMEM, MSG_NOSIGNAL, errno
from cutthrough.net.sysio cimport (
    CAN_READ, CAN_WRITE, note_kernel_events, set_kernel_abortive)
from cutthrough.net.transport cimport Socket, Transport, add_transport
from cutthrough.session.accept cimport ConnectionSink
from cutthrough.session.model.context cimport Context

cdef enum:
    RECORD = 1000           # payload bytes, at most: odd sizes against the pump's
    MOST_OPEN = 4096

cdef struct Framed:
    char read[4 * (RECORD + 2)]
    size_t read_n
    size_t payload_at, payload_n        # of the record at hand, decoded
    bint peer_ended
    char record[RECORD + 2]             # begun, and not taken whole
    size_t record_at, record_n
    bint ends, ended, abortive          # the empty record: due, sent

cdef Framed *opened[MOST_OPEN]
cdef int n_opened = 0


cdef inline Framed *of(const Socket *s) noexcept nogil:
    return opened[s.slot]


cdef int open_framed(Socket *s, int context, const char *name) noexcept nogil:
    global n_opened
    cdef int i
    for i in range(1, MOST_OPEN):
        if opened[i] == NULL:
            opened[i] = <Framed *>calloc(1, sizeof(Framed))
            if opened[i] == NULL:
                return -ENOMEM
            s.slot = <uint16_t>i
            n_opened += 1
            return 0
    return -ENOMEM


cdef void release(Socket *s) noexcept nogil:
    global n_opened
    cdef Framed *f = of(s)
    if not f.ended and not f.abortive and f.record_n == 0:
        f.ends = True
        write_out(s, f)                 # a close is an end, too
    opened[s.slot] = NULL
    s.slot = 0
    n_opened -= 1
    free(f)


cdef void set_abortive(Socket *s) noexcept nogil:
    of(s).abortive = True
    if s.fd >= 0:
        set_kernel_abortive(s.fd)


cdef ssize_t receive(Socket *s, void *buf, size_t n) noexcept nogil:
    cdef Framed *f = of(s)
    cdef ssize_t r
    while f.payload_n == 0:
        if f.peer_ended:
            return 0
        r = take_record(f)
        if r > 0:
            continue
        r = linux.recv(s.fd, f.read + f.read_n, sizeof(f.read) - f.read_n, 0)
        if r == 0:
            return -ECONNRESET          # a FIN, and no end before it
        if r < 0:
            r = -errno
            if r == -EAGAIN:
                s.ready &= ~CAN_READ
            return r
        f.read_n += r
    n = min(n, f.payload_n)
    memcpy(buf, f.read + f.payload_at, n)
    f.payload_at += n
    f.payload_n -= n
    if f.payload_n == 0:
        f.read_n -= f.payload_at
        memmove(f.read, f.read + f.payload_at, f.read_n)
        f.payload_at = 0
    return n


cdef bint take_record(Framed *f) noexcept nogil:
    """A whole record, decoded in its place. False: not there yet."""
    cdef size_t n, i
    if f.read_n < 2:
        return False
    n = (<uint8_t>f.read[0] << 8) | <uint8_t>f.read[1]
    if n == 0:
        f.peer_ended = True
        return True
    if f.read_n < n + 2:
        return False
    for i in range(2, n + 2):
        f.read[i] = ~f.read[i]
    f.payload_at = 2
    f.payload_n = n
    return True


cdef ssize_t write_out(Socket *s, Framed *f) noexcept nogil:
    """Sends the record that is begun, then the end if it is due. 0: all taken, or -errno."""
    cdef ssize_t r
    while f.record_n or (f.ends and not f.ended):
        if f.record_n == 0:
            f.record[0] = f.record[1] = 0
            f.record_at, f.record_n = 0, 2
            f.ended = True
        r = linux.send(s.fd, f.record + f.record_at, f.record_n - f.record_at, MSG_NOSIGNAL)
        if r < 0:
            if errno == EAGAIN:
                s.ready &= ~CAN_WRITE
            return -errno
        f.record_at += r
        if f.record_at == f.record_n:
            f.record_n = 0
    if f.ended:
        linux.shutdown(s.fd, linux.SHUT_WR)
    return 0


cdef ssize_t transmit(Socket *s, const void *a, size_t n, const void *b,
                      size_t m) noexcept nogil:
    cdef Framed *f = of(s)
    cdef size_t taken = 0
    cdef size_t size, i
    cdef ssize_t r
    cdef bint begun = f.record_n != 0
    while taken < n + m:
        size = f.record_n - 2 if begun else min(n + m - taken, RECORD)
        if begun and (size > n + m or not holds(f, a, n, b)):
            return -EINVAL              # other bytes than those that were begun
        if not begun:
            f.record[0] = <char>(size >> 8)
            f.record[1] = <char>(size & 255)
            for i in range(size):
                f.record[2 + i] = ~byte_of(a, n, b, taken + i)
            f.record_at, f.record_n = 0, size + 2
        begun = False
        r = write_out(s, f)
        if r == -EAGAIN:
            return taken
        if r < 0:
            return r
        taken += size
    return taken


cdef inline char byte_of(const void *a, size_t n, const void *b, size_t i) noexcept nogil:
    return (<const char *>a)[i] if i < n else (<const char *>b)[i - n]


cdef bint holds(const Framed *f, const void *a, size_t n, const void *b) noexcept nogil:
    cdef size_t i
    for i in range(f.record_n - 2):
        if <char>~f.record[2 + i] != byte_of(a, n, b, i):
            return False
    return True


cdef int64_t untaken(Socket *s) noexcept nogil:
    cdef int n = 0
    linux.ioctl(s.fd, linux.SIOCOUTQ, &n)
    return n


cdef bint holds_back(Socket *s) noexcept nogil:
    cdef Framed *f = of(s)
    return f.record_n != 0 or (f.ends and not f.ended)


cdef void note_events(Socket *s, unsigned int events) noexcept nogil:
    note_kernel_events(s, events)
    if of(s).ends and not of(s).abortive:
        write_out(s, of(s))


cdef void half_close(Socket *s) noexcept nogil:
    of(s).ends = True
    if of(s).record_n == 0:
        write_out(s, of(s))


cdef Transport functions
functions.open = open_framed
functions.recv = receive
functions.send = transmit
functions.untaken = untaken
functions.holds_back = holds_back
functions.note_events = note_events
functions.half_close = half_close
functions.set_abortive = set_abortive
functions.release = release
#: Its number in the table of transports.
KIND = add_transport(&functions)


def dress(Context context, ConnectionSink sink):
    """Both sides of this worker's connections, from now on."""
    sink.transport = KIND
    context.origin_transport = KIND
    return sink


def count_open():
    return n_opened
