# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The heads that go on, with the fields that the deciding rule changes (`headers`).

The heads change as they are sent. So log, captures, recordings, filters and the hook have the
fields of the client and the origin: a field of the operator may hold a secret (R82).
"""

from libc.string cimport memcpy
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.buffers cimport HEAD_ROOM, bytes_of, head_scratch
from cutthrough.net.relay cimport Pump
from cutthrough.outcome cimport HEAD_TOO_LARGE, RESPONSE_HEAD_TOO_LARGE
from cutthrough.policy.acl cimport BY_HEADERS
from cutthrough.policy.hop cimport HOP_FORWARD, HOP_ORIGIN
from cutthrough.session.model.client cimport user_of
from cutthrough.session.model.inside cimport prints_of
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.transfer.sluice cimport Sluice
from cutthrough.session.ways.origins cimport head_for_server
from cutthrough.session.ways.parents cimport head_for_parent
from cutthrough.wire.connect cimport Value
from cutthrough.wire.edits cimport (
    KNOWN_CLIENT, KNOWN_HTTP2, KNOWN_JA4, KNOWN_TCP, KNOWN_USER, N_KNOWN, HeadEdits)


cdef const char *head_up(Client c, size_t *n) except? NULL:
    cdef const char *head = bytes_of(c.head)
    cdef HeadEdits edits
    n[0] = c.head.end
    if c.request.hop.kind == HOP_FORWARD:
        head = head_for_parent(c, n)
    elif c.request.hop.kind == HOP_ORIGIN:
        head = head_for_server(c, n)
    if head == NULL or not c.request.acts & BY_HEADERS:
        return head
    edits = c.snapshot.edits[c.request.rule][0]
    if edits is None:
        return head
    if head != head_scratch():
        memcpy(head_scratch(), head, n[0])
    n[0] = apply(c, edits, head_scratch(), n[0], HEAD_ROOM)
    return head_scratch() if n[0] else NULL


cdef bint write_head_up(Client c, Sluice up) except -1:
    cdef size_t n
    cdef const char *head = head_up(c, &n)
    cdef bint is_shown = head == bytes_of(c.head)
    if head == NULL:
        c.refuse(HEAD_TOO_LARGE)
        return False
    if not is_shown:
        show_head(c, up.pump)
    up.put(head, n, is_shown)
    return True


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
    n = <int>apply(c, edits, writing.out, n, writing.cap)
    return n if n else -RESPONSE_HEAD_TOO_LARGE


cdef size_t apply(Client c, HeadEdits edits, char *head, size_t n, size_t cap) except? 0:
    cdef Value[N_KNOWN] known
    cdef char client[ADDRESS_TEXT]
    cdef Prints prints = prints_of(c)
    known[<int>KNOWN_USER] = value_of(user_of(c))
    known[<int>KNOWN_CLIENT] = Value(&client[0], print_address(&c.address, client))
    known[<int>KNOWN_JA4] = value_of(None if prints is None else prints.ja4)
    known[<int>KNOWN_HTTP2] = value_of(None if prints is None else prints.http2)
    known[<int>KNOWN_TCP] = value_of(None if prints is None else prints.tcp)
    return edits.apply(head, n, cap, known)


cdef Value value_of(bytes text):
    return Value(NULL, 0) if text is None else Value(text, len(text))
