# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The other proxies on the way: Max-Forwards and Via (R20)."""

from libc.stdint cimport int64_t, uint32_t
from cutthrough.outcome cimport BAD_REQUEST, FINAL_RECIPIENT, LOOP_DETECTED, OK, TRACE_REFUSED
from cutthrough.wire.chars cimport CC_DIGIT, is_class, is_same
from cutthrough.wire.http1 cimport Field, Head
from cutthrough.wire.names cimport F_MAX_FORWARDS, F_VIA, M_OPTIONS, M_TRACE

cdef enum:
    # For Max-Forwards, "the recipient's maximum supported value": put_number writes nine
    # digits. A larger value is sent on as this one (R11).
    MAX_HOPS = 999999999


# RFC 9110 section 7.6.2: for OPTIONS and TRACE the field limits the proxies that they may still
# pass; other methods ignore it. Two fields, or a value that is not a number, are BAD_REQUEST,
# because each proxy on the way could read them differently.
cdef int read_hops(const Head *head, const char *buf, int64_t *hops) noexcept nogil:
    cdef const Field *field
    cdef int64_t number = 0
    cdef uint32_t i
    cdef char c
    hops[0] = UNCOUNTED
    if head.count[F_MAX_FORWARDS] == 0 or not (
            head.method == M_OPTIONS or head.method == M_TRACE):
        return 0
    field = &head.fields[head.first[F_MAX_FORWARDS] - 1]
    if head.count[F_MAX_FORWARDS] > 1 or field.value_len == 0:
        return -BAD_REQUEST
    for i in range(field.value_len):
        c = buf[field.value + i]
        if not is_class(c, CC_DIGIT):
            return -BAD_REQUEST
        number = min(number * 10 + (c - c'0'), <int64_t>MAX_HOPS + 1)
    hops[0] = number
    return 0


# A proxy that receives 0 answers as if it were the origin. RFC 9110 section 9.3.8 would have
# TRACE echoed. This proxy refuses, because the head has fields that other hops added,
# credentials and cookies among them, and no part of a request is ever sent back (R13). Servers
# that refuse TRACE answer 405 too.
cdef int answer_as_last(const Head *head, const char *buf) noexcept nogil:
    cdef int64_t hops
    if read_hops(head, buf, &hops) != 0 or hops != 0:
        return OK
    return FINAL_RECIPIENT if head.method == M_OPTIONS else TRACE_REFUSED


# Via = #( received-protocol RWS received-by [ RWS comment ] ), RFC 9110 section 7.6.3.
# -LOOP_DETECTED if a received-by is our pseudonym (R20). -BAD_REQUEST if a comment does not
# end, because the ends of the members are then unknown.
cdef int find_loop(const Head *head, const char *buf, const char *pseudonym,
                   size_t pseudonym_len) noexcept nogil:
    cdef uint32_t left = head.count[F_VIA]
    cdef const Field *field = head.fields + head.first[F_VIA] - 1
    cdef const char *p
    cdef const char *end
    cdef const char *word
    cdef int words, depth
    while left:
        if field.name == F_VIA:
            left -= 1
            p = buf + field.value
            end = p + field.value_len
            words = 0
            while p < end:
                if p[0] == c',':
                    words = 0
                    p += 1
                elif p[0] == c' ' or p[0] == c'\t':
                    p += 1
                elif p[0] == c'(':
                    depth = 0
                    while p < end:
                        if p[0] == c'\\':
                            p += 1
                        elif p[0] == c'(':
                            depth += 1
                        elif p[0] == c')':
                            depth -= 1
                        p += 1
                        if depth == 0:
                            break
                    if depth:
                        return -BAD_REQUEST
                else:
                    word = p
                    while p < end and not (p[0] == c',' or p[0] == c' ' or p[0] == c'\t'
                                           or p[0] == c'('):
                        p += 1
                    words += 1
                    if (words == 2 and <size_t>(p - word) == pseudonym_len
                            and is_same(word, pseudonym, pseudonym_len)):
                        return -LOOP_DETECTED
        field += 1
    return 0
