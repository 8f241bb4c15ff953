# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The heads that go on, with the fields that the deciding rule changes (`headers`).

The heads change as they are sent. So log, captures, recordings, filters and the hook have the
fields of the client and the origin: a field of the operator may hold a secret (R82). A trace that
begins here is none, so captures have it.
"""

import os

from libc.stdint cimport uint64_t
from libc.string cimport memcpy
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.buffers cimport HEAD_ROOM, bytes_of, head_scratch
from cutthrough.net.pump cimport Pump
from cutthrough.outcome cimport RESPONSE_HEAD_TOO_LARGE
from cutthrough.policy.acl cimport BY_HEADERS
from cutthrough.policy.hop cimport HOP_FORWARD, HOP_NAMED_ORIGIN
from cutthrough.policy.siphash cimport keyed_hash
from cutthrough.session.model.client cimport user_of, worker_of_id
from cutthrough.session.model.inside cimport prints_of
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.ways.dialogue cimport head_for_parent
from cutthrough.session.ways.origins cimport head_for_server
from cutthrough.wire.connect cimport Value
from cutthrough.wire.edits cimport (
    KNOWN_CLIENT, KNOWN_HTTP2, KNOWN_JA3, KNOWN_JA4, KNOWN_JA4_O, KNOWN_JA4_R, KNOWN_JA4_RO,
    KNOWN_TCP, KNOWN_TRACE, KNOWN_USER, N_KNOWN, HeadEdits)
from cutthrough.wire.trace cimport MOST_TRACE, TRACE_BYTES, find_trace, print_trace

# Of this process, so that nobody can tell the next trace
cdef bytes _key = os.urandom(16)
cdef uint64_t[2] TRACES
memcpy(TRACES, <const char *>_key, 16)


cdef const char *head_up(Client c, size_t *n) except? NULL:
    cdef const char *head = bytes_of(c.head)
    cdef HeadEdits edits
    n[0] = c.head.end
    if c.request.hop.kind == HOP_FORWARD:
        head = head_for_parent(c, n)
    elif c.request.hop.kind == HOP_NAMED_ORIGIN:
        head = head_for_server(c, n)
    if head == NULL or not c.request.acts & BY_HEADERS:
        return head
    edits = c.snapshot.edits[c.request.rule][0]
    if edits is None:
        return head
    if head != head_scratch():
        memcpy(head_scratch(), head, n[0])
    n[0] = apply(c, edits, head_scratch(), n[0], HEAD_ROOM, True)
    return head_scratch() if n[0] else NULL


cdef void show_head(Client c, Pump *up) noexcept:
    """The tap gets the head without credentials for a parent alone (R45), and without what a
    rule sets (R82)."""
    if up.tap != NULL:
        up.tap.take(up.tap, bytes_of(c.head), c.head.end)


cdef int change_response(Client c, const Writing *writing, int n) except? -1:
    cdef HeadEdits edits
    if not c.request.acts & BY_HEADERS:
        return n
    edits = c.snapshot.edits[c.request.rule][1]
    if edits is None:
        return n
    n = <int>apply(c, edits, writing.out, n, writing.cap, False)
    return n if n else -RESPONSE_HEAD_TOO_LARGE


cdef size_t apply(Client c, HeadEdits edits, char *head, size_t n, size_t cap,
                  bint is_request) except? 0:
    cdef Value[N_KNOWN] known
    cdef char client[ADDRESS_TEXT]
    cdef char trace[MOST_TRACE]
    cdef Prints prints = prints_of(c)
    known[<int>KNOWN_USER] = value_of(user_of(c))
    known[<int>KNOWN_CLIENT] = Value(&client[0], print_address(&c.address, client))
    known[<int>KNOWN_JA4] = value_of(None if prints is None else prints.ja4)
    known[<int>KNOWN_HTTP2] = value_of(None if prints is None else prints.http2)
    known[<int>KNOWN_TCP] = value_of(None if prints is None else prints.tcp)
    known[<int>KNOWN_JA4_R] = value_of(None if prints is None else prints.ja4_r)
    known[<int>KNOWN_JA4_O] = value_of(None if prints is None else prints.ja4_o)
    known[<int>KNOWN_JA4_RO] = value_of(None if prints is None else prints.ja4_ro)
    known[<int>KNOWN_JA3] = value_of(None if prints is None else prints.ja3)
    known[<int>KNOWN_TRACE] = Value(NULL, 0)
    if edits.names_trace and is_request:
        known[<int>KNOWN_TRACE] = Value(&trace[0], put_trace(c, edits, head, n, trace))
    return edits.apply(head, n, cap, known)


cdef size_t put_trace(Client c, HeadEdits edits, const char *head, size_t n, char *out) noexcept:
    cdef size_t length
    cdef const char *there = find_trace(head, n, &length)
    if there == NULL:
        return begin_trace(c, edits, out)
    memcpy(out, there, length)              # the head moves
    return length


cdef size_t begin_trace(Client c, HeadEdits edits, char *out) noexcept:
    """The numbers are a keyed hash of the request's identifier, so that nothing keeps them until
    its end."""
    cdef uint64_t[4] data
    cdef uint64_t[2] trace
    cdef uint64_t[2] span
    data = [<uint64_t><size_t><void *>c.context, <uint64_t>c.context.worker, c.request_id, 0]
    keyed_hash(TRACES, <const unsigned char *>&data[0], sizeof(data), trace)
    data[3] = 1
    keyed_hash(TRACES, <const unsigned char *>&data[0], sizeof(data), span)
    print_trace(out, trace, span[0] or 1, <double>trace[1] < edits.ratio * 18446744073709551616.0)
    return TRACE_BYTES


cdef size_t put_begun_trace(Client c, char *out) except? 0:
    cdef HeadEdits edits
    if not c.request.acts & BY_HEADERS or c.request.is_tunnel or c.request.has_upgrade or (
            worker_of_id(c, c.context.worker) != c.context.worker):
        return 0
    edits = c.snapshot.edits[c.request.rule][0]
    return begin_trace(c, edits, out) if edits is not None and edits.names_trace else 0


cdef Value value_of(bytes text):
    return Value(NULL, 0) if text is None else Value(text, len(text))
