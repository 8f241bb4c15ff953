# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The producer of bench/micro/capture.py."""

from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, nanosleep, timespec
from cutthrough.tape.record cimport DOWN, END, HEADS, Kind
from cutthrough.tape.ring cimport Producer, Ring, publish, reserve


cdef inline int64_t now_us(int clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef inline bint put(Producer *ring, Kind kind, uint64_t request, const char *data,
                     size_t n) noexcept nogil:
    cdef char *at = reserve(ring, n)
    cdef int64_t end_us
    if at == NULL:
        return False
    memcpy(at, data, n)
    if kind == END:
        end_us = now_us(CLOCK_REALTIME)
        memcpy(at, &end_us, sizeof(end_us))     # the first field of an EndRecord
    publish(ring, kind, <uint16_t>0, request, n)
    return True


def produce(Ring ring, bytes heads, bytes body, bytes end, double seconds, uint64_t first,
            uint64_t rate):
    """Puts exchanges of these payloads into the ring for `seconds`: `rate` a second, or, if it is
    0, as many as find room. Returns (exchanges, those without room)."""
    cdef Producer *out = &ring.producer
    cdef int64_t began = now_us(CLOCK_MONOTONIC), now = began
    cdef int64_t last = began + <int64_t>(seconds * 1e6)
    cdef timespec pause
    cdef uint64_t put_in = 0, dropped = 0, due
    cdef size_t n = len(heads) + len(body) + len(end) + 200
    cdef size_t n_heads = len(heads), n_body = len(body), n_end = len(end)
    cdef const char *p_heads = heads
    cdef const char *p_body = body
    cdef const char *p_end = end
    pause.tv_sec, pause.tv_nsec = 0, 200000
    with nogil:
        while now < last:
            due = <uint64_t>((now - began) * <int64_t>rate) // 1000000 if rate else (
                put_in + 100)
            while put_in + dropped < due:
                if reserve(out, n) == NULL:
                    if not rate:
                        break
                    dropped += 1
                    continue
                put(out, HEADS, first + put_in, p_heads, n_heads)
                if n_body:
                    put(out, DOWN, first + put_in, p_body, n_body)
                put(out, END, first + put_in, p_end, n_end)
                out.header.exchanges += 1
                put_in += 1
            if rate or put_in + dropped < due:
                nanosleep(&pause, NULL)
            now = now_us(CLOCK_MONOTONIC)
    out.header.dropped += dropped
    return put_in, dropped
