# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Clients that do not accept the certificate of an interception, and are passed by rule (R57).

    handshake ─> rejected ─> policy.rejections ─> the next tunnel from there passes unopened

An alert about the certificate is a rejection. So is an end of the connection after our
certificate went out and before the handshake is done. A connection that ends behind its
handshake tells nothing: browsers make some that they do not use.
"""

import logging

from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.transport cimport (
    HANDSHAKE_CLOSED, HANDSHAKE_REJECTED, HANDSHAKE_RESET, transport_of)
from cutthrough.policy.acl cimport passes_pinned
from cutthrough.policy.rejections import has_rejected, note_rejection
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.inside cimport Inside, name_in

log = logging.getLogger("cutthrough")

cdef long rejected = 0


cdef bint is_pinned(Client c) except -1:
    cdef bytes name
    if not passes_pinned(c.snapshot.acl, c.request.rule):
        return False
    name = name_in(c)
    return name is not None and has_rejected(
        c.snapshot.users.known, network_of(c), name, c.key, c.poller.now_us)


cdef int note_failure(Client c, int failure) except -1:
    global rejected
    cdef Inside inside = <Inside>c.entrance
    cdef char[ADDRESS_TEXT] text
    cdef int n
    if not passes_pinned(c.snapshot.acl, c.request.rule) or not is_rejection(c, failure):
        return 0
    note_rejection(c.snapshot.users.known, network_of(c), inside.name, inside.key,
                   c.poller.now_us)
    rejected += 1
    if rejected & (rejected - 1) == 0:          # 1, 2, 4, 8 …: never a flood
        n = print_address(&c.address, text)
        log.warning("client %s rejects the certificate for %s: for an hour its network's tunnels "
                    "there pass unopened (%d times so far)",
                    text[:n].decode(), inside.name.decode(), rejected)
    return 0


cdef bint is_rejection(Client c, int failure) noexcept:
    return failure == HANDSHAKE_REJECTED or (
        (failure == HANDSHAKE_CLOSED or failure == HANDSHAKE_RESET)
        and transport_of(&c.sock).has_shown(&c.sock))


cdef bytes network_of(Client c):
    """An IPv4 address's /24, an IPv6 address's /64; a caller on a unix socket is alone."""
    return (<char *>c.address.bytes)[
        :3 if c.address.family == 4 else 8 if c.address.family == 6 else 16]
