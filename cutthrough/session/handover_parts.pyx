# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Parts of a tunnel's record: addresses, directions, and an upgrade's method and path."""

from libc.stdint cimport UINT16_MAX, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy
from cutthrough.net.address cimport Address
from cutthrough.net.buffers cimport OF_RELAYS, Block, bytes_of, keep_bytes
from cutthrough.net.pipes cimport adopt_pipe
from cutthrough.net.pump cimport Pump, block_of
from cutthrough.policy.limits cimport Lane
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.filtering cimport Shown, shown_of
from cutthrough.session.handover_record import Direction


cdef object address_of(const Address *address):
    return (address.family, (<char *>address.bytes)[:4 if address.family == 4 else 16],
            address.port)


cdef object direction_of(Pump *pump, bint shut, const Lane *lane):
    cdef Block *block = block_of(pump)
    return Direction(
        moved=pump.moved,
        unsent=bytes_of(block)[block.start:block.end] if block != NULL else b"",
        piped=pump.held.pipe.held if pump.is_piped else 0,
        bulk=pump.bulk, eof=bool(pump.eof), shut=bool(shut),
        may_splice=bool(pump.may_splice), spliced=bool(pump.spliced),
        tokens=lane.tokens if lane != NULL else 0.0,
        tokens_us=lane.tokens_us if lane != NULL else 0)


cdef bytes request_of(Client c):
    """Method and path, as tunnel's shorten_head has left them, and the log may have them."""
    cdef Shown shown = shown_of(c)
    return b"" if c.head == NULL else (
        bytes_of(c.head)[:c.request.path_at] + shown.data[shown.path_at:shown.path_at + shown.path_len])


cdef int read_request(Client c, bytes request) except -1:
    cdef Py_ssize_t at = request.find(b" ") + 1
    if not request:
        return 0
    if at == 0 or at > UINT16_MAX or len(request) - at > UINT16_MAX:
        raise ValueError("a request without a path, or with too long a path")
    c.request.has_upgrade = True
    c.head = keep_bytes(request, len(request), OF_RELAYS)
    if c.head != NULL:
        c.request.path_at = <uint16_t>at
        c.request.path_len = <uint16_t>(len(request) - at)
    return 0


cdef int read_address(Address *address, parts) except -1:
    cdef bytes packed
    cdef uint8_t family
    family, packed, port = parts
    if len(packed) != (4 if family == 4 else 16):
        raise ValueError("an address of another length")
    address.family = family
    address.port = port
    memcpy(address.bytes, <const char *>packed, len(packed))
    return 0


cdef int read_direction(Pump *pump, direction, bint may_splice, list fds) except -1:
    cdef bytes rest = direction.unsent
    cdef uint64_t moved = direction.moved
    pump.moved = moved
    pump.bulk = direction.bulk
    pump.eof = direction.eof
    pump.may_splice = may_splice and direction.may_splice
    pump.spliced = direction.spliced
    if rest and direction.piped:
        raise ValueError("bytes in a block and in a pipe")
    if rest:
        pump.held.block = keep_bytes(rest, len(rest), OF_RELAYS)
        if pump.held.block == NULL:
            raise MemoryError
    elif direction.piped:
        pump.held.pipe = adopt_pipe(fds[2], fds[3], direction.piped)
        if pump.held.pipe == NULL:
            raise MemoryError
        pump.is_piped = True
        del fds[2:4]
    return 0
