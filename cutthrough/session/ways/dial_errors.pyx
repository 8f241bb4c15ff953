# cython: language_level=3
"""Failed dials: the idle connections closed because of them, and their Outcome."""

import logging
import os

from libc.limits cimport INT_MAX
from libc.stdint cimport uint64_t
from cutthrough.net cimport linux
from cutthrough.outcome cimport (
    CONNECTION_FAILED, CONNECTION_REFUSED, CONNECTION_RESET, CONNECT_TIMEOUT, OVERLOADED,
    UNREACHABLE)
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.phase cimport PHASE_WAY
from cutthrough.session.model.shed cimport shed_for_descriptors

cdef enum:
    SHED_FOR_A_DIAL = 8     # this dial needs one descriptor, and the next dials do too

log = logging.getLogger("cutthrough")


cdef bint relieve(Client c, int error) except -1:
    cdef Context context = c.context
    cdef int shed
    cdef uint64_t times
    if error == linux.EADDRNOTAVAIL:
        # Idle connections to the same address have ports; those of other keys, if both go to
        # one parent
        return context.idle_pool.give_up_of(
            &c.request.hop, c.pool_key(), SHED_FOR_A_DIAL) > 0 or (
                context.idle_pool.give_up(INT_MAX) > 0)
    if error not in (linux.EMFILE, linux.ENFILE, linux.ENOBUFS, linux.ENOMEM):
        return False
    shed = shed_for_descriptors(context, SHED_FOR_A_DIAL)
    times = context.counters.starved
    if times & (times - 1) == 0:            # 1, 2, 4, 8 …: never a flood
        log.warning("dial: %s (%d times so far); closed %d idle connections",
                    os.strerror(error), times, shed)
    return shed > 0


cdef int dial_anew(Client c) except -1:
    c.request.dials = True
    return c.resume(PHASE_WAY)


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
