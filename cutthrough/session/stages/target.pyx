# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The target of a request of HTTP, by its head and by the way it came.

    inside an intercepted connection    the CONNECT's, whatever the head names (R56)
    on a transparent listener           the kernel's address, narrowed by Host (R52)
    origin form elsewhere               the PAC file; Host, for a named origin; or the one origin
    else                                the head's
"""

from libc.string cimport memcpy, strlen
from cutthrough.net.buffers cimport HEAD_ROOM, bytes_of
from cutthrough.outcome cimport (
    BAD_TARGET, LOOP_DETECTED, MISDIRECTED, NO_ORIGIN, OK, UNSUPPORTED_PROTOCOL)
from cutthrough.net.transport cimport Agreed
from cutthrough.session.judge.secure cimport agreed_by
from cutthrough.session.model.destination cimport set_destination
from cutthrough.session.model.inside cimport pin_target
from cutthrough.session.model.shed cimport keep_refused
from cutthrough.session.stages.pac cimport asks_for_pac
from cutthrough.session.stages.transparent cimport narrow
from cutthrough.wire.authority cimport HOST_NAME
from cutthrough.wire.chars cimport equals_lower
from cutthrough.wire.http1 cimport MAX_FIELDS, HeadLimits, has_token, parse_request
from cutthrough.wire.names cimport F_UPGRADE, M_CONNECT
from cutthrough.wire.refused cimport hint_of
from cutthrough.wire.target cimport FORM_ORIGIN, read_target


cdef bint asks_for_datagrams(const Head *head, const char *data) noexcept nogil:
    return head.count[F_UPGRADE] != 0 and (
        has_token(head, data, F_UPGRADE, b"connect-udp", 11)
        or has_token(head, data, F_UPGRADE, b"connect-ip", 10))


cdef int outcome_of_loop(Client c) noexcept:
    cdef Head head
    cdef HeadLimits limits = HeadLimits(HEAD_ROOM, HEAD_ROOM, MAX_FIELDS)
    if c.request.has_upgrade and c.head != NULL and parse_request(
            &head, bytes_of(c.head), c.head.end, 0, &limits) > 0 and (
            asks_for_datagrams(&head, bytes_of(c.head))):
        return UNSUPPORTED_PROTOCOL
    return LOOP_DETECTED


cdef int find_target(Client c, Head *head, const char *data, Target *target) except -1:
    cdef int outcome = look_for_target(c, head, data, target)
    if (outcome == BAD_TARGET or outcome == NO_ORIGIN) and asks_for_datagrams(head, data):
        return UNSUPPORTED_PROTOCOL
    return outcome


cdef int look_for_target(Client c, Head *head, const char *data, Target *target) except -1:
    cdef int outcome = -read_target(target, head, data, c.entrance.is_inside)
    if outcome:
        if outcome == BAD_TARGET:
            c.request.hint = hint_of(head, data)
            keep_refused(c, head, data)
        return outcome
    c.request.is_tunnel = c.request.method == M_CONNECT
    if c.entrance.is_inside:
        outcome = pin_target(c, target)
        if outcome != OK:
            set_destination(c, target)              # for the log
        return outcome
    if c.entrance.transparent:
        outcome = narrow(c, target)
        if outcome != OK:
            keep_refused(c, head, data)
            return outcome
    elif target.form == FORM_ORIGIN:
        if c.pac and asks_for_pac(c, head, data, target):
            keep_refused(c, head, data)             # for the log
            return IS_PAC
        if c.snapshot.ways is not None and c.snapshot.ways.has_origins and target.host_len:
            c.request.for_origin = True
            set_destination(c, target)
            return MISDIRECTED if c.entrance.host_strict and not is_named(c, target) else OK
        if not c.context.has_origin:
            keep_refused(c, head, data)
            return NO_ORIGIN
        target.port = c.context.origin.port
        target.host_kind = c.context.origin.host_kind
        target.host_len = c.context.origin.host_len
        memcpy(target.host, c.context.origin.host, target.host_len + 1)
    set_destination(c, target)
    return OK


cdef bint is_named(Client c, const Target *target) noexcept:
    """Is Host the server name that the client has sent? An address is none (RFC 6066 section 3)."""
    cdef const Agreed *agreed = agreed_by(c)
    if agreed == NULL or agreed.name == NULL:
        return agreed == NULL or target.host_kind != HOST_NAME
    return target.host_kind == HOST_NAME and strlen(agreed.name) == target.host_len and (
        equals_lower(agreed.name, target.host, target.host_len))
