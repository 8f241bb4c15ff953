# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Host, user and way of an intercepted connection, for the requests inside.

A request inside is for the CONNECT's host, whatever its Host is (R56), by the CONNECT's user, and
goes the CONNECT's way. If a CONNECT names an address, and its client a server, then the origin's
certificate has to have this name, and all requests inside are for the name at that address: the
rules judge both, whichever of them Host is (R77). No other name is admitted.
"""

from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy
from cutthrough.net.address cimport parse_address
from cutthrough.net.connector cimport Upstream
from cutthrough.outcome cimport MISDIRECTED, OK
from cutthrough.session.model.client cimport Client, extras_of, own_opening, user_of
from cutthrough.session.model.narrowing cimport CERTIFIED, NARROWED
from cutthrough.wire.authority cimport HOST_NAME, Target
from cutthrough.wire.clienthello cimport HOST_NAMED, NO_NAME
from cutthrough.wire.openings cimport Opening, copy_opening, server_name
from cutthrough.wire.target cimport FORM_ABSOLUTE, FORM_AUTHORITY

cdef enum:
    DEFAULT_PORT = 80           # what read_target writes if Host has no port


cdef class Inside(Entrance):

    def __dealloc__(self):
        free(self.opening)

    cdef int leave(self) except -1:
        cdef Upstream upstream = self.spare
        self.spare = None
        return 0 if upstream is None else upstream.close()


cdef Inside enclose(Client c, bytes offer):
    cdef bytes name = name_in(c)
    cdef bytes host = c.key[:len(c.key) - 2]
    cdef bint by_parent = c.extras.passage is not None and c.extras.passage.parent is not None
    cdef Inside inside
    if name is None:
        return None
    inside = Inside()
    inside.is_inside = True
    inside.http2 = True                 # if the handshake agrees on it: see net.tls.leaves
    inside.transparent = c.entrance.transparent
    inside.has_peer, inside.peer, inside.client = c.entrance.has_peer, c.entrance.peer, c.address
    inside.needs_user = c.entrance.needs_user
    inside.user = c.entrance.user
    inside.outer = c.entrance.prints
    if inside.outer is not None and inside.outer.tcp is not None:   # the same connection of TCP
        inside.prints = Prints.__new__(Prints)
        inside.prints.tcp = inside.outer.tcp
    inside.key = c.key
    inside.name = name
    if c.origin is not None:
        inside.address = c.origin.address
    if name != host:
        inside.named = name + c.key[len(host):]
        inside.suffix = b"\0" + host
        parse_address(host, &inside.address)
    if offer is not None:               # another client's connection would have another's
        inside.offer = offer
        inside.suffix = b"\0%b\0%b" % (host, offer)
    inside.login = user_of(c)
    inside.account = c.account
    inside.vouched = c.vouched
    inside.snapshot = c.snapshot
    inside.port = c.request.port
    inside.host_kind = c.request.host_kind
    identify(inside, c.request.rule)
    inside.source = c.extras.passage.source if by_parent else c.request.hop.source
    inside.route = c.request.route
    inside.credentials = None if c.extras.passage is None else c.extras.passage.credentials
    return inside


cdef int identify(Inside inside, int rule) except -1:
    cdef uint16_t before = inside.tls
    name = inside.snapshot.acl.rules[rule].client_certificate if rule >= 0 else ""
    inside.cuts = inside.snapshot.acl is not None and inside.snapshot.acl.cuts(rule)
    inside.tls, inside.tls_11 = inside.snapshot.origins[name]
    if inside.tls != before:            # it would be kept for those of the new one
        inside.leave()
    return 0


cdef bytes name_in(Client c):
    cdef const Opening *o = own_opening(c)
    cdef bytes host = c.key[:len(c.key) - 2]
    cdef bytes name
    if o.name_kind == NO_NAME:
        return host
    name = server_name(o)[:o.name_len]
    return name if name == host or names_server(c) else None


cdef bint names_server(Client c) noexcept:
    return c.request.host_kind != HOST_NAME and own_opening(c).name_kind == HOST_NAMED


cdef int pin_target(Client c, Target *target) except -1:
    cdef Inside inside = <Inside>c.entrance
    cdef bytes key = inside.key if inside.named is None else inside.named
    cdef const char *host = key
    cdef size_t n = len(key) - 2
    if target.form == FORM_ABSOLUTE or target.form == FORM_AUTHORITY:
        return MISDIRECTED
    if target.host_len == 0:                # HTTP/1.0
        memcpy(target.host, host, n + 1)
        target.host[n] = 0
        target.host_len = n
        target.host_kind = inside.host_kind if inside.named is None else HOST_NAME
    elif not (is_host(target, host, n) or (inside.named is not None and is_host(
            target, inside.key, len(inside.key) - 2))) or (
            target.port != inside.port and target.port != DEFAULT_PORT):
        return MISDIRECTED
    target.port = inside.port
    pin(c, inside)
    return OK


cdef int pin_tunnel(Client c) except -1:
    cdef Inside inside = <Inside>c.entrance
    extras_of(c).opening = copy_opening(inside.opening)
    pin(c, inside)
    return 0


cdef void pin(Client c, Inside inside) noexcept:
    c.key = inside.key
    if inside.has_peer:
        c.address = inside.client
    c.request.port = inside.port
    c.request.host_kind = inside.host_kind
    c.request.hop.tls = inside.tls
    if inside.named is not None:
        c.key = inside.named
        c.request.host_kind = HOST_NAME
        c.request.narrowed = CERTIFIED
    elif inside.transparent and inside.host_kind == HOST_NAME:
        c.request.narrowed = NARROWED           # as the CONNECT's name was


cdef bint is_host(const Target *target, const char *host, size_t n) noexcept nogil:
    return target.host_len == n and memcmp(target.host, host, n) == 0


cdef const Opening *opening_of(Client c) noexcept:
    if own_opening(c) == NULL and is_intercepted(c):
        return (<Inside>c.entrance).opening
    return own_opening(c)
