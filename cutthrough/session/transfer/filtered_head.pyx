# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A request's head from filters, read and rewritten as if a client had sent it (R41)."""

from cutthrough.net.buffers cimport HEAD_ROOM, give_block, head_scratch
from cutthrough.net.multiplex cimport is_stream
from cutthrough.outcome cimport FILTER_FAILED, OK, OVERLOADED
from cutthrough.session.model.context cimport writing_of
from cutthrough.session.model.destination cimport set_destination
from cutthrough.session.model.inside cimport Inside
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.shed cimport keep_head
from cutthrough.session.ways.reuse cimport judge_reuse
from cutthrough.wire.authority cimport Target
from cutthrough.wire.framing cimport BODY_CHUNKED, BODY_NONE, Framing, read_request_framing
from cutthrough.wire.http1 cimport (
    HTTP_11, MAX_FIELDS, Head, HeadLimits, has_token, parse_request)
from cutthrough.wire.names cimport F_CONNECTION, F_UPGRADE
from cutthrough.wire.rewrite cimport (
    BY_HTTP2, KEEP_UPGRADE, Span, Writing, build_request_head, offers_upgrade)
from cutthrough.wire.target cimport read_target

# Of the head at hand; used between `rebuild` and `move` only
cdef Head head
cdef Target target
cdef Framing framing


cdef int rebuild(Client c, bytes text) except -1:
    """Reads a head that filters made, and makes client.head of it. Returns an Outcome."""
    cdef HeadLimits limits = HeadLimits(HEAD_ROOM, HEAD_ROOM, MAX_FIELDS)
    cdef Request *r = &c.request
    cdef const char *data = text
    cdef Writing writing
    cdef Span path
    cdef int n
    if parse_request(&head, data, len(text), 0, &limits) != <int>len(text) or (
            read_target(&target, &head, data, c.entrance.is_inside) != 0
            or read_request_framing(&head, data, &framing) != 0):
        return FILTER_FAILED
    r.method = head.method
    r.has_upgrade = (
        head.first[F_UPGRADE] != 0 and r.minor == HTTP_11 and framing.kind == BODY_NONE
        and has_token(&head, data, F_CONNECTION, b"upgrade", 7) and offers_upgrade(&head, data))
    writing = writing_of(
        c.context, r.has_upgrade * KEEP_UPGRADE | is_stream(&c.sock) * BY_HTTP2)
    n = build_request_head(
        &writing, &head, data, &target, 443 if c.entrance.is_inside else 80, &path)
    if n < 0:
        return -n
    give_block(&c.head)
    r.path_at = <unsigned short>path.at
    r.path_len = <unsigned short>path.n
    if not keep_head(c, head_scratch(), n):
        return OVERLOADED
    judge_reuse(c, &head, data, &framing)
    return OK


cdef bint is_chunked() noexcept:
    return framing.kind == BODY_CHUNKED


cdef bytes rewritten(Client c, bytes text, Span *path):
    """The result of `rebuild` for this head; b"": nothing. Not between rebuild and move."""
    cdef HeadLimits limits = HeadLimits(HEAD_ROOM, HEAD_ROOM, MAX_FIELDS)
    cdef const char *data = text
    cdef Writing writing
    cdef int n
    if parse_request(&head, data, len(text), 0, &limits) != <int>len(text) or (
            read_target(&target, &head, data, c.entrance.is_inside) != 0):
        return b""
    writing = writing_of(c.context, is_stream(&c.sock) * BY_HTTP2)
    n = build_request_head(
        &writing, &head, data, &target, 443 if c.entrance.is_inside else 80, path)
    return head_scratch()[:n] if n > 0 else b""


cdef bint is_same_target(Client c) except -1:
    """Is `target` the request's destination?"""
    return target.port == c.request.port and target.host[:target.host_len] == host_of(c)


cdef bytes host_of(Client c):
    """The host that filters see: inside an intercepted connection, the name of the certificate."""
    if c.entrance.is_inside:
        return (<Inside>c.entrance).name
    return c.key[:len(c.key) - 2]


cdef int move(Client c) except -1:
    """The request goes elsewhere; it is judged for there. Returns an Outcome."""
    # The kernel names the destination (R52), or the CONNECT (R56)
    if c.entrance.transparent or c.entrance.is_inside:
        return FILTER_FAILED
    set_destination(c, &target)
    return OK
