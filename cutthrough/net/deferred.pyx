# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The last send of a pump's turn, made with those of others when their batch of events ends.

    push ──(plain)──> sends.collect ──submission──> kernel; the rest into the pump's block
         ──seal──> sends.collect ──submission──> kernel; the rest into the sink's TLS

A sealed record has its number already, so TLS submits before it seals another.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy
from cutthrough.net.buffers cimport OF_RELAYS, bytes_of, make_room
from cutthrough.net.linux cimport EAGAIN
from cutthrough.net.pipes cimport give_pipe
from cutthrough.net.pump cimport (
    SENDING_FAILED, SENDING_NONE, SENDING_SEALED, SENDING_UNWATCHED, SENDING_WATCHED, Pump,
    error_of_send)
from cutthrough.net.sends cimport Sender, collect, end_unnoticed, submit_sends, wake_later
from cutthrough.net.sysio cimport BROKEN, CAN_READ, CAN_WRITE, holds_back, try_send
from cutthrough.net.transport cimport KERNEL, Transport, transport_of


cdef inline bint may_wait(const Pump *p) noexcept nogil:
    """Whether the pump would do nothing behind this send. If the sink is broken, the send's error
    says why, and the caller needs the error at once."""
    return not p.sink.ready & BROKEN and (p.left == 0 or not p.source.ready & CAN_READ)


cdef bint leave_to_batch(Pump *p, const char *a, size_t n, const char *b,
                         size_t m) noexcept nogil:
    cdef Sender sender = Sender(p, on_sent, p.sink.fd)
    cdef const Transport *transport
    cdef const char *sealed = NULL
    cdef size_t size
    cdef bint is_taken
    if not may_wait(p):
        return False
    if p.sink.kind == KERNEL:
        is_taken = collect(&sender, a, n, b, m)
    else:
        transport = transport_of(p.sink)
        if transport.seal == NULL:
            return False
        sender.on_result = on_sealed_sent
        size = transport.seal(p.sink, a, n, b, m, &sealed)
        is_taken = size != 0 and collect(&sender, sealed, size, NULL, 0)
    if is_taken:
        p.sending = SENDING_UNWATCHED
        p.moved += n + m
    return is_taken


cdef void settle(Pump *p) noexcept nogil:
    if p.sending == SENDING_UNWATCHED or p.sending == SENDING_WATCHED:
        submit_sends()


cdef void on_sent(void *owner, const char *data, size_t n, ssize_t result) noexcept nogil:
    cdef Pump *p = <Pump *>owner
    cdef bint is_watched = p.sending == SENDING_WATCHED
    cdef size_t more = n - result if result > 0 else n
    p.sending = SENDING_NONE
    if result == <ssize_t>n:
        if is_watched:
            wake_later(p.sink)
        return
    if result >= 0 or result == -EAGAIN:
        p.sink.ready &= ~CAN_WRITE      # an EPOLLOUT will come, and send what is kept
        if p.is_piped:
            give_pipe(&p.held.pipe)     # empty, because a batch takes nothing behind held bytes
            p.is_piped = False
        if make_room(&p.held.block, more, OF_RELAYS):
            p.moved -= min(p.moved, <uint64_t>more)
            memcpy(bytes_of(p.held.block), data + n - more, more)
            p.held.block.end = <unsigned int>more
            return
    lose_sent(p, more, result)


cdef void on_sealed_sent(void *owner, const char *data, size_t n, ssize_t result) noexcept nogil:
    cdef Pump *p = <Pump *>owner
    cdef bint is_watched = p.sending == SENDING_WATCHED
    cdef size_t lost = transport_of(p.sink).note_sent(p.sink, data, n, result)
    p.sending = SENDING_NONE
    if lost:
        lose_sent(p, lost, result)
    elif holds_back(p.sink):
        p.sending = SENDING_SEALED      # an EPOLLOUT will come
    elif is_watched:
        wake_later(p.sink)


cdef void lose_sent(Pump *p, size_t n, ssize_t result) noexcept nogil:
    """`result`: the kernel's; if it is no error, there was no memory for the rest."""
    p.moved -= min(p.moved, <uint64_t>n)
    p.error = 0 if result >= 0 or result == -EAGAIN else error_of_send(result)
    end_unnoticed(p.sink.fd, <int>-result)
    p.sending = SENDING_FAILED
    wake_later(p.sink)


cdef bint leave_sealed(Pump *p) noexcept nogil:
    cdef ssize_t failed
    p.error = 0
    if holds_back(p.sink):
        return False
    p.sending = SENDING_NONE
    failed = try_send(p.sink, NULL, 0)
    if failed < 0:
        p.error = error_of_send(failed)
        p.sending = SENDING_FAILED
    return True
