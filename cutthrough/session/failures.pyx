# cython: language_level=3
"""What is done, and said, when no connection to an origin could be made."""

import logging
import os

from libc.stdint cimport uint64_t
from cutthrough.net cimport linux
from cutthrough.net.inet cimport Address, Addresses, has_source, parse_address
from cutthrough.outcome cimport (
    CONNECTION_FAILED, CONNECTION_REFUSED, CONNECTION_RESET, CONNECT_TIMEOUT, OVERLOADED,
    UNREACHABLE)
from cutthrough.session.client cimport Client, Context
from cutthrough.wire.target cimport HOST_NAME

log = logging.getLogger("cutthrough")


cdef bint relieve(Context context, int error) except -1:
    cdef int shed
    cdef uint64_t times
    if error not in (linux.EMFILE, linux.ENFILE, linux.ENOBUFS, linux.ENOMEM):
        return False
    shed = context.shed()
    times = context.counters.starved
    if times & (times - 1) == 0:            # 1, 2, 4, 8 …: never a flood
        log.warning("dial: %s (%d times so far); closed %d idle connections",
                    os.strerror(error), times, shed)
    return shed > 0


cdef int outcome_of_errno(Client c, int error) except -1:
    if error == linux.ECONNREFUSED:
        return CONNECTION_REFUSED
    if error == linux.ETIMEDOUT:
        return CONNECT_TIMEOUT
    if error in (linux.ECONNRESET, linux.EPIPE, linux.ECONNABORTED):
        return CONNECTION_RESET
    if error in (linux.EHOSTUNREACH, linux.ENETUNREACH, linux.EHOSTDOWN, linux.ENETDOWN):
        return UNREACHABLE
    if error in (linux.EMFILE, linux.ENFILE, linux.ENOBUFS, linux.ENOMEM):
        return OVERLOADED
    if error == linux.EADDRNOTAVAIL:
        # Every port of ours towards that address is taken: our resource, not the origin's
        # fault, and one is free again after TIME_WAIT's minute at the latest. The kernel
        # says the same where it has no address of that family at all.
        return OVERLOADED if may_come_from_here(c) else UNREACHABLE
    return CONNECTION_FAILED


cdef bint may_come_from_here(Client c) except -1:
    """Has this host an address to reach any of the destination's from?"""
    cdef Addresses addresses
    cdef Address literal
    cdef int i
    cdef bytes host = c.key[:len(c.key) - 2]
    if c.host_kind != HOST_NAME:
        parse_address(host, &literal)
        return has_source(&literal)
    addresses = c.context.resolver.cached(host)
    if addresses is None:
        return True
    for i in range(addresses.n):
        if has_source(&addresses.items[i]):
            return True
    return False
