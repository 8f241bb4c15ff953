# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A chunked body on its way through a pump, and the filter for its end."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from cutthrough.net.buffers cimport OF_REQUESTS, give_block, keep_bytes
from cutthrough.net.pump cimport Filter, Pump
from cutthrough.wire.chunks cimport scan_chunks, start_chunks


cdef bint scan_through(Pump *pump, bint decode, bint trailers, bint lenient,
                       uint64_t most) noexcept nogil:
    """False: no memory."""
    cdef Scan *scan = <Scan *>malloc(sizeof(Scan))
    if scan == NULL:
        return False
    start_chunks(&scan.chunks, decode, trailers, lenient)
    scan.pump = pump
    scan.surplus = NULL
    scan.no_room = scan.too_large = False
    scan.valid = 0
    scan.most = most
    pump.left = -1
    scan.filter.run = scan_filter
    pump.filter = &scan.filter
    return True


cdef int64_t scan_filter(Filter *filter, char *data, size_t n, size_t *out_len,
                         const char **before, size_t *before_len) noexcept nogil:
    cdef Scan *scan = <Scan *>filter
    cdef int64_t used = scan_chunks(&scan.chunks, data, n, out_len)
    if scan.chunks.before_len:
        before[0] = scan.chunks.before
        before_len[0] = scan.chunks.before_len
    if scan.most and scan.chunks.announced > scan.most:
        scan.too_large = True
        return -1
    if used < 0:
        # 0 if it begins in the middle of a trailer's name: the first part would stay here
        scan.valid = 0 if scan.chunks.before_len else out_len[0]
    elif scan.chunks.done:
        scan.pump.left = 0
        if used < <int64_t>n:
            scan.surplus = keep_bytes(data + used, n - used, OF_REQUESTS)
            scan.no_room = scan.surplus == NULL
    return used


cdef void drop_scan(Pump *pump) noexcept nogil:
    cdef Scan *scan = scan_of(pump)
    if scan != NULL:
        pump.filter = NULL
        give_block(&scan.surplus)
        free(scan)
