# cython: language_level=3
"""Dials: their start, the idle connections closed because of failed ones, and their Outcome; those
closed for a question to a name server, or for datagrams."""

import logging
import os

from libc.stdint cimport uint64_t
from cutthrough.net cimport linux
from cutthrough.net.udp cimport open_datagrams
from cutthrough.outcome cimport (
    CONNECTION_FAILED, CONNECTION_REFUSED, CONNECTION_RESET, CONNECT_TIMEOUT, OVERLOADED,
    QUESTION_LIMIT, UNREACHABLE)
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.session.model.client cimport Client, extras_of
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.idle_pool cimport IdlePool, make_key
from cutthrough.session.model.phase cimport PHASE_TO_ORIGIN
from cutthrough.session.model.shed cimport shed_for_descriptors

cdef enum:
    SHED_FOR_A_DIAL = 8     # this dial needs one descriptor, and the next dials do too

log = logging.getLogger("cutthrough")


cdef bint relieve(Client c, int error) except -1:
    if c.extras.relieved:                   # it did not help, and others need their connections
        return False
    extras_of(c).relieved = True
    return (make_room_for_port(c) if error == linux.EADDRNOTAVAIL
            else make_room_for_socket(c.context, error))


cdef bint make_room_for_port(Client c) except -1:
    """Closes idle connections to the same address: only these have its ports."""
    cdef IdlePool pool = c.context.idle_pool
    return pool.give_up_of(make_key(&c.request.hop, c.pool_key()), SHED_FOR_A_DIAL) > 0 or (
        c.request.hop.parent and pool.give_up_through(&c.request.hop, SHED_FOR_A_DIAL) > 0)


cdef bint make_room_for_socket(Context context, int error) except -1:
    """Closes idle clients only if this process lacks descriptors: if the host lacks them, or
    memory, others may have what a client gave up."""
    cdef int shed
    cdef uint64_t times
    if error not in (linux.EMFILE, linux.ENFILE, linux.ENOBUFS, linux.ENOMEM):
        return False
    shed = shed_for_descriptors(context, SHED_FOR_A_DIAL, error == linux.EMFILE)
    times = context.counters.starved
    if times & (times - 1) == 0:            # 1, 2, 4, 8 …: never a flood
        log.warning("dial: %s (%d times so far); closed %d idle connections",
                    os.strerror(error), times, shed)
    return shed > 0


def make_room_for_question(Context context not None, int error):
    """As for a dial: the question to a name server lacks a descriptor or memory."""
    return make_room_for_socket(context, error)


cdef int dial_anew(Client c) except -1:
    c.request.dials = True
    return c.resume(PHASE_TO_ORIGIN)


cdef Datagrams open_with_room(Client c, DatagramOwner owner, const Address *at):
    try:
        return open_datagrams(c.poller, owner, at)
    except OSError as refusal:
        if not make_room_for_socket(c.context, refusal.errno or 0):
            raise
    return open_datagrams(c.poller, owner, at)


cdef bint is_own_shortage(answer) except -1:
    return isinstance(answer, str) and (
        OUTCOMES[answer] == OVERLOADED or OUTCOMES[answer] == QUESTION_LIMIT)


cdef int outcome_of_errno(int error) except -1:
    if error == linux.ECONNREFUSED:
        return CONNECTION_REFUSED
    if error == linux.ETIMEDOUT:
        return CONNECT_TIMEOUT
    if error in (linux.ECONNRESET, linux.EPIPE, linux.ECONNABORTED):
        return CONNECTION_RESET
    if error in (linux.EHOSTUNREACH, linux.ENETUNREACH, linux.EHOSTDOWN, linux.ENETDOWN):
        return UNREACHABLE
    # Our resources, not the origin's fault. EADDRNOTAVAIL: every local port towards that
    # address is taken, and one is free again after TIME_WAIT's minute at the latest.
    if error in (linux.EMFILE, linux.ENFILE, linux.ENOBUFS, linux.ENOMEM,
                 linux.EADDRNOTAVAIL):
        return OVERLOADED
    return CONNECTION_FAILED
