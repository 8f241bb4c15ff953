# cython: language_level=3
"""The parts of an exchange until its END has come, in the writer's memory."""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from cutthrough.tape cimport record
from cutthrough.tape.end_record cimport N_TEXTS, EndRecord
from cutthrough.tape.record cimport TIME_BYTES, Kind
from cutthrough.exchange.messages import Piece
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.session.model.counters import METHODS
from cutthrough.wire.openings import PROTOCOLS

cdef int N_OUTCOMES = len(OUTCOMES), N_METHODS = len(METHODS), N_PROTOCOLS = len(PROTOCOLS)
cdef int HEAD = METHODS.index("HEAD")
cdef frozenset FAULTS = frozenset([n for n, row in enumerate(OUTCOMES) if row.fault])


cdef class OpenExchange:
    pass


cdef int64_t add_part(OpenExchange exchange, Kind kind, bytes payload) except -1:
    cdef int64_t size = PyBytes_GET_SIZE(payload) + PIECE_BYTES
    if kind == record.HEADS:
        exchange.heads = payload
        exchange.head_asked = exchange.n_up
    elif kind == record.UP:
        exchange.up = appended(exchange.up, payload)
        exchange.n_up += PyBytes_GET_SIZE(payload)
    elif kind == record.DOWN:
        exchange.down = appended(exchange.down, payload)
    elif kind == record.TIMED_DOWN:
        if PyBytes_GET_SIZE(payload) < TIME_BYTES:
            raise ValueError("a piece without its time")
        exchange.timed = appended(exchange.timed, payload)
        exchange.asked = appended(exchange.asked, exchange.n_up)
    elif kind == record.FRAMES_UP or kind == record.FRAMES_DOWN:
        exchange.pieces = appended(exchange.pieces, Piece(
            kind == record.FRAMES_UP, int.from_bytes(payload[:8], "little"), payload[8:]))
    exchange.size += size
    return size


cdef list untimed(list pieces):
    cdef bytes piece
    return [piece[TIME_BYTES:] for piece in pieces] if pieces is not None else []


cdef int check_end(const EndRecord *end, size_t n) except -1:
    cdef size_t wanted = sizeof(EndRecord)
    cdef int i = 0
    while n >= wanted and i < <int>N_TEXTS:
        wanted += end.lengths[i]
        i += 1
    if n < wanted:
        raise ValueError("the end of an exchange has not all of its fields")
    if end.outcome >= N_OUTCOMES or end.method >= N_METHODS or end.protocol >= N_PROTOCOLS:
        raise ValueError("fields of the end of an exchange have numbers that do not exist")
    return 0


cdef bint has_failed(const EndRecord *end):
    return end.outcome in FAULTS and (
        end.body_down != 0 or not (end.method == HEAD or end.status == 304))


cdef list appended(list pieces, object piece):
    if pieces is None:
        return [piece]
    pieces.append(piece)
    return pieces
