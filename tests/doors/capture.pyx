# cython: language_level=3
"""The producer's side of a ring, for records that no session made."""

from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcpy
from cutthrough.tape.ring cimport Kind, Ring, publish, reserve, reserve_or_hold


def put(Ring ring, int kind, uint16_t worker, uint64_t request, bytes payload, bint holds=False):
    """Puts one record into the ring; `holds`: or has it wait for room. False: it has no room, and
    nothing has changed."""
    cdef char *at = (reserve_or_hold if holds else reserve)(&ring.producer, len(payload))
    if at == NULL:
        return False
    memcpy(at, <const char *>payload, len(payload))
    publish(&ring.producer, <Kind>kind, worker, request, len(payload))
    return True
