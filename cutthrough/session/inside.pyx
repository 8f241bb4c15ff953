# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Host, user and way of an intercepted connection, for the requests inside.

A request inside is for the CONNECT's host, whatever its Host is (R56), by the CONNECT's user, and
goes the CONNECT's way. If a CONNECT names an address, and the origin's certificate has the
client's server name, then Host may also be this name, and the rules judge the address.
"""

from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy
from cutthrough.net.connector cimport Stream
from cutthrough.outcome cimport MISDIRECTED, OK
from cutthrough.session.client cimport Client
from cutthrough.wire.clienthello cimport INVALID_NAME, NO_NAME
from cutthrough.wire.openings cimport Opening, copy_opening, server_name
from cutthrough.wire.target cimport FORM_ASTERISK, FORM_ORIGIN, HOST_NAME, Target

cdef enum:
    DEFAULT_PORT = 80           # what read_target writes if Host has no port


cdef class Inside(Entrance):

    def __dealloc__(self):
        free(self.opening)

    cdef int leave(self) except -1:
        cdef Stream stream = self.spare
        self.spare = None
        return 0 if stream is None else stream.close()


cdef Inside enclose(Client c, bytes offer):
    cdef bytes name = name_in(c)
    cdef bint by_parent = c.passage is not None and c.passage.parent is not None
    cdef Inside inside
    if name is None:
        return None
    inside = Inside()
    inside.is_inside = True
    inside.http2 = True                 # if the handshake agrees on it: see net.leaves
    inside.transparent = c.entrance.transparent
    inside.needs_user = c.entrance.needs_user
    inside.user = c.entrance.user
    inside.key = c.key
    inside.name = name
    if name != c.key[:len(c.key) - 2]:
        inside.suffix = b"\0" + name
    if offer is not None:               # another client's connection would have another's
        inside.offer = offer
        inside.suffix = b"\0%b\0%b" % (name, offer)
    inside.login = c.user
    inside.account = c.account
    inside.snapshot = c.snapshot
    inside.port = c.request.port
    inside.host_kind = c.request.host_kind
    if c.origin is not None:
        inside.address = c.origin.address
    identify(inside, c.request.rule)
    inside.source = c.passage.source if by_parent else c.request.hop.source
    inside.route = c.request.route
    inside.credentials = None if c.passage is None else c.passage.credentials
    return inside


cdef int identify(Inside inside, int rule) except -1:
    cdef uint16_t before = inside.tls
    name = inside.snapshot.acl.rules[rule].client_certificate if rule >= 0 else ""
    inside.tls, inside.tls_11 = inside.snapshot.origins[name]
    if inside.tls != before:            # it would be kept for those of the new one
        inside.leave()
    return 0


cdef bytes name_in(Client c):
    """The name that the origin has to prove; None: the client wants another one than the
    CONNECT's."""
    cdef const Opening *o = c.opening
    cdef bytes host = c.key[:len(c.key) - 2]
    cdef bytes name
    if o.name_kind == NO_NAME:
        return host
    name = server_name(o)[:o.name_len]
    if o.name_kind == INVALID_NAME or (c.request.host_kind == HOST_NAME and name != host):
        return None
    return name


cdef int pin_target(Client c, Target *target) except -1:
    cdef Inside inside = <Inside>c.entrance
    cdef const char *host = inside.key
    cdef size_t n = len(inside.key) - 2
    if target.form != FORM_ORIGIN and target.form != FORM_ASTERISK:
        return MISDIRECTED
    if target.host_len == 0:                # HTTP/1.0
        memcpy(target.host, host, n + 1)
        target.host[n] = 0
        target.host_len = n
        target.host_kind = inside.host_kind
    elif not (is_host(target, host, n)
              or (inside.suffix is not None and is_host(target, inside.name, len(inside.name)))
              ) or (target.port != inside.port and target.port != DEFAULT_PORT):
        return MISDIRECTED
    target.port = inside.port
    c.key = inside.key
    c.request.port = inside.port
    c.request.host_kind = inside.host_kind
    c.request.hop.tls = inside.tls
    return OK


cdef int pin_tunnel(Client c) except -1:
    cdef Inside inside = <Inside>c.entrance
    c.opening = copy_opening(inside.opening)
    c.key = inside.key
    c.request.port = inside.port
    c.request.host_kind = inside.host_kind
    c.request.hop.tls = inside.tls
    return 0


cdef bint is_host(const Target *target, const char *host, size_t n) noexcept nogil:
    return target.host_len == n and memcmp(target.host, host, n) == 0


cdef const Opening *opening_of(Client c) noexcept:
    if c.opening == NULL and is_intercepted(c):
        return (<Inside>c.entrance).opening
    return c.opening
