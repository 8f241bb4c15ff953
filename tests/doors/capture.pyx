# cython: language_level=3
"""The producer's side of a ring, for records that no session made; and what comes out of it."""

from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcpy
from cutthrough.tape.record cimport TIME_BYTES, Kind
from cutthrough.tape.ring cimport Ring, publish, reserve, reserve_or_hold
from cutthrough.tape.ring_exchange cimport RingExchange
from cutthrough.tape.texts cimport text_of


def put(Ring ring, int kind, uint16_t worker, uint64_t request, bytes payload, bint holds=False):
    """Puts one record into the ring; `holds`: or has it wait for room. False: it has no room, and
    nothing has changed."""
    cdef char *at = (reserve_or_hold if holds else reserve)(&ring.producer, len(payload))
    if at == NULL:
        return False
    memcpy(at, <const char *>payload, len(payload))
    publish(&ring.producer, <Kind>kind, worker, request, len(payload))
    return True


def make_ring_exchange(dict values):
    """An exchange that was in no ring, by the names of its attributes."""
    cdef RingExchange t = RingExchange.__new__(RingExchange)
    cdef bytes user = values["user"].encode(), host = values["host"].encode("latin-1")
    cdef bytes up_head = values["up_head"].encode("latin-1")
    cdef bytes down_head = values["down_head"].encode("latin-1")
    t.owners = user, host, up_head, down_head
    t.user_text, t.host_text = text_of(user), text_of(host)
    t.up_text, t.down_text = text_of(up_head), text_of(down_head)
    t.is_intercepted, t.port, t.reason = (
        values["is_intercepted"], values["port"], values["reason"])
    t.up, t.pieces = values["up"], values["pieces"]
    t.timed = [at_us.to_bytes(TIME_BYTES, "little") + data
               for at_us, data in zip(values["times"], values["down"], strict=True)]
    t.up_bytes, t.down_bytes = values["up_bytes"], values["down_bytes"]
    t.up_chunked, t.down_chunked = values["up_chunked"], values["down_chunked"]
    t.was_cut, t.is_unanswered = values["was_cut"], values["is_unanswered"]
    t.begun_us, t.head_at_us, t.wait_us = (
        values["begun_us"], values["head_at_us"], values["wait_us"])
    t.asked, t.head_asked = values["asked"], values["head_asked"]
    return t
