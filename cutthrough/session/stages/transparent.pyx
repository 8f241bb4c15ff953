# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Transparent listeners: clients that know of no proxy (R52).

    first bytes ─> HTTP ─> head, Host ───┐
                └> TLS ─> server name ───┼─> name ─> rules ─> addresses of the name
                └> others ─> no name     │                     ├> the destination is one ─> dial
                                         └> address <──────────┴> none is: the name is forgotten

The kernel names the destination: an address and a port. A name from the client may narrow it,
never replace it. The rules judge the name first, as for every request. If the name resolves to
the destination, the destination alone is dialled. If it does not, the rules judge the request
once more, as one for the bare address: a name that is not proven opens nothing, and a name that
is denied stays denied.

Whatever an origin may read as a request is HTTP: a method that nobody knows, blanks in front of it,
HTTP/2's preface. Then it is judged, or refused as bad HTTP, and never a tunnel in which the next
request would pass unjudged (R78).

Nobody can log in: the listener admits clients without credentials. What is no HTTP gets no
reply, because no protocol would understand it.
"""

from cutthrough.net.address cimport is_same_address, one_address
from cutthrough.net.intercepted cimport read_destination
from cutthrough.net.multiplex cimport with_descriptor
from cutthrough.outcome cimport BAD_TARGET, LOOP_DETECTED, OK
from cutthrough.session.judge.authenticate cimport authenticate_nobody
from cutthrough.session.model.client cimport Observer
from cutthrough.session.model.destination cimport set_destination
from cutthrough.session.model.inside cimport Inside
from cutthrough.session.model.narrowing cimport CERTIFIED, NARROWED, NOT_NARROWED, PROVEN
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.wire.authority cimport HOST_NAME, parse_host, set_address
from cutthrough.wire.clienthello cimport HOST_NAMED
from cutthrough.wire.names cimport M_OTHER, M_TUNNEL
from cutthrough.wire.openings cimport (
    HTTP, TLS, UNDECIDED, read_client_opening, read_inner_opening)
from cutthrough.wire.target cimport FORM_AUTHORITY

cdef enum:
    TLS_HANDSHAKE = 22          # ContentType of the first record (RFC 8446 section 5.1)


cdef int read_first(void *state, const char *data, size_t n, size_t *used) noexcept nogil:
    cdef First *first = <First *>state
    if n and data[0] == TLS_HANDSHAKE:
        first.protocol = read_client_opening(&first.hello, data, n)
    else:
        first.protocol = read_inner_opening(data, n)
    return first.protocol != UNDECIDED


cdef bint take_first(Client c, const void *state, Reply *reply) except -1:
    cdef const First *first = <const First *>state
    cdef const ClientHello *hello = &first.hello
    cdef Target target
    cdef int outcome
    if first.protocol == HTTP:
        c.request.method = M_OTHER
        return True
    c.request.method = M_TUNNEL
    c.request.is_tunnel = True
    c.snapshot = c.context.snapshot
    c.stamps.head_us = end_brief_phase(&c.stamps)
    if not (first.protocol == TLS and hello.name_kind == HOST_NAMED and parse_host(
            &target, hello.name, hello.name_len) == OK):
        target.host_len = 0
    target.form = FORM_AUTHORITY
    outcome = name_destination(c, &target)
    if outcome == OK:
        set_destination(c, &target)
        if c.context.observer is not None:
            (<Observer>c.context.observer).on_request(c, NULL, NULL)
        outcome = authenticate_nobody(c)
    if outcome != OK:
        c.refuse(outcome)
    return outcome == OK


cdef int narrow(Client c, Target *target) except -1:
    # A client that knows of no proxy sends no CONNECT
    return BAD_TARGET if target.form == FORM_AUTHORITY else name_destination(c, target)


cdef int name_destination(Client c, Target *target) except -1:
    """Puts port and, without a name, address of the destination into the target. An Outcome."""
    cdef Address at
    if not read_destination(with_descriptor(&c.sock), c.entrance.transparent, &at):
        return LOOP_DETECTED
    if target.host_len and target.host_kind == HOST_NAME:
        c.request.narrowed = NARROWED
    else:
        c.request.narrowed = NOT_NARROWED
        set_address(target, at.family, at.bytes)
    target.port = at.port
    return OK


cdef bint read_pinned(Client c, Address *out) noexcept:
    """The address that the kernel names, or the CONNECT."""
    if c.request.narrowed == CERTIFIED:
        out[0] = (<Inside>c.entrance).address
        return True
    return read_destination(with_descriptor(&c.sock), c.entrance.transparent, out)


cdef bint prove(Client c, const Address *of_name, int n) noexcept:
    cdef Address at
    cdef int i
    if not read_pinned(c, &at):
        return False
    for i in range(n):
        if is_same_address(&of_name[i], &at):
            c.request.narrowed = max(<int>c.request.narrowed, <int>PROVEN)
            return True
    return False


cdef object destination_alone(Client c):
    cdef Address at
    if not read_pinned(c, &at):
        return "client_reset"
    return one_address(at.family, at.bytes)


cdef int forget_name(Client c) except -1:
    cdef Target target
    target.host_len = 0
    name_destination(c, &target)
    return set_destination(c, &target)
