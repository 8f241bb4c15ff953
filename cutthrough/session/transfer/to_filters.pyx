# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The ways of an exchange into the hands of its filters: its head, its bodies, its response.
A body goes up to the player in the same way.

If the rule records, the response is tapped here, as the origin sends it: the filters' version goes
to this client alone, and a replayed answer goes through them again.
"""

from libc.stdint cimport int64_t
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.buffers cimport bytes_of
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.pump cimport Pump
from cutthrough.net.relay cimport start_pump
from cutthrough.outcome cimport FILTER_ANSWERED, OK
from cutthrough.policy.acl cimport BY_BREAKPOINT
from cutthrough.session.model.chunked_body cimport drop_scan, scan_of
from cutthrough.session.model.client cimport Client, Observer, extras_of
from cutthrough.session.model.context cimport writing_of
from cutthrough.session.model.inside cimport prints_of
from cutthrough.session.model.passage cimport Passage
from cutthrough.session.model.recording_mode cimport MUST_FIT, is_recorded
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.state cimport HELD, REQUEST
from cutthrough.session.transfer.filtered_head cimport host_of
from cutthrough.session.transfer.filtering cimport Filtering, filtering_of
from cutthrough.session.transfer.recording_room cimport bound_response
from cutthrough.session.transfer.responder cimport Responder, up_sluice
from cutthrough.session.transfer.sluice cimport open_sluice, run_sluice
from cutthrough.wire.framing cimport BODY_CHUNKED, BODY_LENGTH, BODY_NONE, Framing
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.rewrite cimport (
    BY_HTTP2, DROP_LENGTH, KEEP_CHUNKED, Writing, build_response_head)


cdef int begin_filters(Client c) except -1:
    cdef Filtering f = Filtering.__new__(Filtering)
    cdef char text[ADDRESS_TEXT]
    cdef int n = print_address(&c.address, text)
    cdef Request *r = &c.request
    rule = c.snapshot.acl.rules[r.rule]
    f.client = c
    f.ending = FILTER_ANSWERED
    extras_of(c).filtering = f
    facts = (                           # see Flow in filters
        c.account.name.decode("utf-8", "replace"), c.account.groups, text[:n].decode(),
        str(c.request_id), c.snapshot.acl.label(r.rule).decode(),
        {} if prints_of(c) is None else prints_of(c).texts())
    if r.is_tunnel:
        f.run = c.snapshot.filters.begin_connect(
            f, rule.filters, connect_head(c), host_of(c).decode(), r.port, facts)
    else:                               # see Arrival in filters
        f.run = c.snapshot.filters.begin(
            f, rule.filters, (
                with_via(c, bytes_of(c.head)[:c.head.end]), host_of(c).decode(), r.port,
                "https" if c.entrance.is_inside else "http", r.minor,
                bool(c.entrance.transparent)),
            facts, rule.breakpoint if r.acts & BY_BREAKPOINT else "")
    c._set_state(HELD)
    c.silent_ms = c.poller.time_ms() + <int>f.run.chain.head_ms
    c.poller.arm(c, c.silent_ms)
    f.run.start()
    return 0


cdef bytes connect_head(Client c):
    """b"": the tunnel came without one, by SOCKS or by a transparent listener."""
    cdef Passage p = c.extras.passage
    return b"" if p is None or p.head is None else with_via(c, p.head)


cdef bytes with_via(Client c, bytes head):
    """Filters leave out its last line, which is our Via, or stands for that."""
    return head if c.context.pseudonym_len else head[:len(head) - 2] + b"Via: off\r\n\r\n"


cdef bytes leave_filters(Client c):
    cdef Filtering f
    if c.extras.filtering is None:
        return None
    f = filtering_of(c)
    f.end("ok")
    c.extras.filtering = None
    return f.established


# --- the request's body ------------------------------------------------------------

cdef bint takes_upload(Client c) except -1:
    return c.up_open and uploader_of(c) is not None


cdef Responder uploader_of(Client c):
    """The owner of the request's body on its way up: the player, if it has read it; None: there is
    no owner."""
    if c.extras.replay is not None and (<Responder>c.extras.replay).run.wants_upload:
        return <Responder>c.extras.replay
    if c.extras.filtering is not None and filtering_of(c).run.wants_upload:
        return filtering_of(c)
    return None


cdef int begin_upload(Client c) except -1:
    cdef Responder uploader = uploader_of(c)
    cdef Pump *up = &c.relay.up
    cdef bint chunked = scan_of(up) != NULL
    cdef bint trailers = chunked and scan_of(up).chunks.trailers
    cdef int64_t left = up.left
    drop_scan(up)
    up.sink = &c.origin.sock
    up.left = -1                            # for the pace of limits: see charge
    start_pump(&c.relay.down, &c.origin.sock, &c.sock, 0)
    c._set_state(REQUEST)
    if uploader.collected:
        chunked, left = False, 0            # nothing more is read
    if up_sluice(c) is None:                # else it was read in part: see Replay
        c.extras.up = open_sluice(c, True, chunked, left, trailers)
    up_sluice(c).awaits_head = uploader is c.extras.filtering
    if not uploader.is_answered:
        uploader.run.on_upload(up_sluice(c) if uploader.behind is None else uploader.behind)
    return run_sluice(up_sluice(c))


# --- the response ------------------------------------------------------------------

cdef bint takes_response(Client c, const Head *read, const Framing *its, const char *data,
                         size_t n, int used) except -1:
    cdef Filtering f = filtering_of(c)
    cdef Writing writing
    cdef int out_len
    if f.passes or not f.run.wants_response:
        return False
    if c.context.observer is not None and is_recorded(c):
        c.relay.down.left = its.length if its.kind == BODY_LENGTH else 0
        out_len = bound_response(c) if c.request.room == MUST_FIT else OK
        c.relay.down.left = 0               # it may still hold a 1xx, and reads nothing
        if out_len != OK:
            c.refuse(out_len)
            return True
        f.taps_origin = True
        (<Observer>c.context.observer).on_response(c, read, data)
    writing = writing_of(
        c.context, (its.kind == BODY_CHUNKED) * KEEP_CHUNKED | its.contradicts * DROP_LENGTH
        | is_stream(&c.origin.sock) * BY_HTTP2)
    out_len = build_response_head(&writing, read, data, NULL)
    if out_len < 0:
        c.refuse(-out_len)
        return True
    if not its.persistent:
        c.request.marks_origin = True       # the head that comes back does not say so
    f.held = data[:n]
    f.used = used
    c.extend()
    f.run.on_response(with_via(c, writing.out[:out_len]), its.kind != BODY_NONE)
    return True
