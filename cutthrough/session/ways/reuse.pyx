# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reuse: the connections to origins that a request may take, and leave behind.

A pooled connection may die the moment it is used. A request that can be sent twice takes one
and is retried (R19). Any other (POST, PATCH, an upgrade, any body) gets a new connection: no
check of a socket shows whether its origin will read one more request.

A connection that this request may have changed is never the next request's (R18, R23). Those that
its credentials have authenticated are the client's own: see `tether`.
"""

from cutthrough.session.model.client cimport Client
from cutthrough.session.model.request cimport Request
from cutthrough.wire.chars cimport equals_lower
from cutthrough.wire.framing cimport BODY_NONE, Framing
from cutthrough.wire.http1 cimport HTTP_11, Field, Head, has_token
from cutthrough.wire.names cimport F_AUTHORIZATION, F_EXPECT, M_GET, M_HEAD, M_OTHER, M_POST


cdef void judge_reuse(Client c, const Head *head, const char *data,
                      const Framing *framing) noexcept nogil:
    cdef Request *r = &c.request
    cdef bint has_body = framing.kind != BODY_NONE
    r.can_retry = (not has_body and r.method != M_POST and r.method != M_OTHER
                   and not r.has_upgrade)
    r.awaits_100 = (
        head.first[F_EXPECT] != 0 and r.minor == HTTP_11 and has_body
        and has_token(head, data, F_EXPECT, b"100-continue", 12))
    # Or a body that the origin may not expect, and then takes for its next request: a GET's
    # has no meaning (RFC 9110 section 9.3.1), and some origins see a 100-continue that we do
    # not see. A mark is never taken back: the head may be the filters', and the way, whose
    # connection is marked if it names the client, was chosen before
    r.is_tethered |= marks_connection(head, data)
    r.marks_origin |= (
        has_body and (r.method == M_GET or r.method == M_HEAD
                      or (head.first[F_EXPECT] != 0 and not r.awaits_100)))


cdef bint marks_connection(const Head *head, const char *data) noexcept nogil:
    """NTLM and Negotiate authenticate the connection, not the request: later requests on it
    are that user's (R23). Such a connection is never another client's: see tether."""
    cdef const Field *field
    if head.first[F_AUTHORIZATION] == 0:
        return False
    field = &head.fields[head.first[F_AUTHORIZATION] - 1]
    return head.count[F_AUTHORIZATION] > 1 or (
        is_of_connection(data + field.value, field.value_len))


cdef bint is_of_connection(const char *credentials, size_t n) noexcept nogil:
    return (n >= 4 and equals_lower(credentials, b"ntlm", 4)) or (
        n >= 9 and equals_lower(credentials, b"negotiate", 9))
