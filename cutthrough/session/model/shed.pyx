# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Making room: connections at rest are closed when one of our bounds is reached (R32).

    bound                       closed
    connections, descriptors    strangers at rest or with a part of a head, whichever an
                                address has more of; then guests at rest; then guests' parts
    connections of one address  the same, of that address
    blocks of memory            parts of heads, of the share that is used up

Strangers never authenticated; guests did. A guest that lingers has had its last answer, and is
listed as a stranger at rest. A stranger whose password is being verified counts as a part of a
head: if it is closed, the verification goes on, and its result is cached. In each kind the
address with most connections loses the one that has rested longest (see `places`). A tunnel, and a
user's request that is whole, are never closed for this; nor is a connection at rest with unread
bytes, because a close would reset their request.
"""

import logging

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from cutthrough.net.address cimport Address
from cutthrough.net.buffers cimport (
    HEAD_BLOCK, OF_REQUESTS, OF_STRANGERS, bytes_of, change_share, keep_bytes, take_block)
from cutthrough.net.multiplex cimport multiplexer
from cutthrough.net.sysio cimport has_unread, try_send
from cutthrough.outcome cimport OVERLOADED, status_of
from cutthrough.session.model.client cimport Client, leave_place, refusal_of
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.counters cimport (
    BOUND_DESCRIPTORS, BOUND_MEMORY, GONE_GUEST, GONE_HEAD, GONE_POOLED, GONE_STRANGER,
    count_shed)
from cutthrough.session.model.counters import BOUNDS
from cutthrough.session.model.origin_streams cimport Carriers
from cutthrough.session.model.places cimport (
    GUEST, GUEST_HEAD, STRANGER, STRANGER_HEAD, Places)
from cutthrough.session.model.standby cimport Standby
from cutthrough.session.model.state cimport AUTH, HEAD, IDLE, LINGER, STREAMS
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.refused cimport show_refused

log = logging.getLogger("cutthrough")


cdef enum:
    MOST_GUESTS = 8             # closed if only guests can give descriptors: see below


cdef bint shed_one(Context context, int bound, const Address *of) except -1:
    if not (shed_stranger(context, bound, of) or shed_guest(context, bound, of)):
        return False
    tell(context, bound)
    return True


cdef bint shed_stranger(Context context, int bound, const Address *of) except -1:
    cdef Places places = context.places
    cdef int kind = STRANGER
    if places.most(STRANGER_HEAD) > places.most(STRANGER):
        kind = STRANGER_HEAD
    return end_first(context, kind, bound, of) or end_first(
        context, STRANGER + STRANGER_HEAD - kind, bound, of)


cdef bint shed_guest(Context context, int bound, const Address *of) except -1:
    return end_first(context, GUEST, bound, of) or end_first(context, GUEST_HEAD, bound, of)


cdef int shed_for_descriptors(Context context, int most, bint clients_too) except -1:
    cdef int pooled = context.idle_pool.give_up(most)
    cdef int n = 0
    if context.standbys is not None:
        for standby in context.standbys.values():
            pooled += (<Standby>standby).give_up()
    if context.carriers is not None:
        pooled += (<Carriers>context.carriers).give_up()
    context.counters.starved += 1
    context.counters.shed += pooled
    context.counters.sheds[<int>BOUND_DESCRIPTORS][<int>GONE_POOLED] += pooled
    if not clients_too:
        return pooled
    while n < most and shed_stranger(context, BOUND_DESCRIPTORS, NULL):
        n += 1
    # The next caller without a descriptor sheds again
    if n + pooled == 0:
        while n < min(most, MOST_GUESTS) and shed_guest(context, BOUND_DESCRIPTORS, NULL):
            n += 1
    return pooled + n


def count_listed(Context context):
    """Connections listed: at rest, or at rest when their request in hand began."""
    return context.places.listed


cdef bint keep_part(Client c, const char *data, size_t n) except -1:
    while not c.keep_input(data, n):
        if not shed_head(c):
            return False
    return True


cdef bint keep_head(Client c, const char *data, size_t n) except -1:
    c.head = keep_bytes(data, n, OF_REQUESTS)
    while c.head == NULL:
        leave_place(c)                      # its own head is whole: it is not at rest
        if not end_first(c.context, GUEST_HEAD, BOUND_MEMORY, NULL):
            return False
        tell(c.context, BOUND_MEMORY)
        c.head = keep_bytes(data, n, OF_REQUESTS)
    return True


cdef void keep_refused(Client c, const Head *head, const char *data) noexcept:
    cdef uint32_t path_len
    c.head = take_block(HEAD_BLOCK, OF_REQUESTS)
    if c.head != NULL:
        c.head.end = show_refused(bytes_of(c.head), head, data, &path_len)
        c.request.path_at = <uint16_t>(c.head.end - path_len)
        c.request.path_len = <uint16_t>path_len


cdef bint lend_head(Client c) except -1:
    while not c.known and not change_share(c.head, OF_STRANGERS):
        if not shed_head(c):
            return False
    return True


cdef void list_waiting(Client c) noexcept:
    if not c.known:
        c.usage.place = c.context.places.file(
            c.usage.place, <void *>c, &c.address, STRANGER_HEAD, c.since_ms)


cdef bint shed_part(Client c, int bound) except -1:
    return shed_other(c, STRANGER_HEAD, bound)


cdef bint shed_head(Client c) except -1:
    return shed_other(c, GUEST_HEAD if c.known else STRANGER_HEAD, BOUND_MEMORY)


cdef bint shed_other(Client c, int kind, int bound) except -1:
    """False: the first to be closed is `c` itself, or there is none."""
    cdef Client first = find_first(c.context, kind, NULL)
    if first is None or first is c:
        return False
    end(first, bound)
    tell(c.context, bound)
    return True


cdef bint end_first(Context context, int kind, int bound, const Address *of) except -1:
    cdef Client first = find_first(context, kind, of)
    if first is None:
        return False
    end(first, bound)
    return True


cdef Client find_first(Context context, int kind, const Address *of):
    cdef Places places = context.places
    cdef Client client
    cdef uint32_t place
    while True:
        place = places.first(kind) if of == NULL else places.first_of(of, kind)
        if place == 0:
            return None
        client = <Client>places.places[place].client
        if not is_at_rest(client):
            leave_place(client)            # listed again at its next rest
        elif client.since_ms == places.places[place].since_ms:
            return client
        else:                               # it has had a request since it was listed
            places.renew(place, client.since_ms)


cdef bint is_at_rest(Client c) noexcept:
    if c.state == LINGER or (c.state == AUTH and not c.known):
        return True
    if c.state == STREAMS:
        return multiplexer().count(&c.sock) == 0
    # A part of a head has been parsed as far as it goes; other input has not
    if c.state != HEAD and (c.state != IDLE or c.input != NULL):
        return False
    return not has_unread(&c.sock)


cdef int end(Client c, int bound) except -1:
    cdef const char *reply
    cdef size_t n
    if c.stamps.start_us == 0:
        count_shed(c.context.counters, bound, GONE_GUEST if c.known else GONE_STRANGER)
        return c.close()
    # A request had begun, so it is answered and logged. No lingering: it would go on holding
    # the place, and read into the scratch buffer that our caller is using
    count_shed(c.context.counters, bound, GONE_HEAD)
    reply = refusal_of(c, OVERLOADED, True, &n)
    if reply != NULL and try_send(&c.sock, reply, n) == <ssize_t>n:
        c.request.status = <unsigned short>status_of(OVERLOADED)
        c.relay.down.moved += n
    return c.abort(OVERLOADED, False)


cdef int tell(Context context, int bound) except -1:
    cdef uint64_t times = 0
    cdef int gone
    if bound == BOUND_DESCRIPTORS:
        return 0                            # the caller that met it logs it
    for gone in range(<int>GONE_POOLED):
        times += context.counters.sheds[bound][gone]
    if times & (times - 1) == 0:            # 1, 2, 4, 8 …: never a flood
        log.warning("the bound of %s is reached (%d times so far); a connection at rest "
                    "is closed each time", BOUND_TEXTS[bound], times)
    return 0


BOUND_TEXTS = ("connections", "connections of one client address", "memory", "descriptors",
               "TLS handshakes under way")
assert len(BOUND_TEXTS) == len(BOUNDS)
