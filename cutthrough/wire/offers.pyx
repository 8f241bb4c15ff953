# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The offer of a ClientHello, in a form that another one can repeat: see net.tls.offer."""

from libc.stdint cimport uint8_t
from cutthrough.wire.clienthello cimport ClientHello, Span, is_grease, parse_client_hello

cdef enum:
    MOST_OFFERED = 100          # the recorded clients have 59 at most
    STATUS_REQUEST = 5          # extensions, by IANA's numbers
    ENCRYPT_THEN_MAC = 22
    SESSION_TICKET = 35
    # Flags; net.tls.offer has them too
    OFFERS_STATUS = 1
    OFFERS_ENCRYPT_THEN_MAC = 2
    OFFERS_TICKET = 4


cdef bytes offer_of(const ClientHello *hello):
    return b"%b%b%b%b" % (
        bytes((hello.version >> 8, hello.version & 0xff, flags_of(&hello.extensions))),
        listed(&hello.ciphers), listed(&hello.groups), listed(&hello.signatures))


cdef bytes listed(const Span *span):
    cdef uint8_t[1 + 2 * MOST_OFFERED] out
    cdef size_t i = 0, n = 1
    while i + 2 <= span.n and n < sizeof(out):
        if not is_grease(span.at[i] << 8 | span.at[i + 1]):
            out[n] = span.at[i]
            out[n + 1] = span.at[i + 1]
            n += 2
        i += 2
    out[0] = <uint8_t>(n // 2)
    return (<char *>out)[:n]


cdef uint8_t flags_of(const Span *extensions) noexcept:
    cdef const uint8_t *at = extensions.at
    cdef const uint8_t *end = at + extensions.n
    cdef uint8_t flags = 0
    cdef int kind
    while end - at >= 4:
        kind = at[0] << 8 | at[1]
        if kind == STATUS_REQUEST:
            flags |= OFFERS_STATUS
        elif kind == ENCRYPT_THEN_MAC:
            flags |= OFFERS_ENCRYPT_THEN_MAC
        elif kind == SESSION_TICKET:
            flags |= OFFERS_TICKET
        at += 4 + (at[2] << 8 | at[3])
    return flags


def read_offer(bytes data):
    """Returns the offer in records with a ClientHello; b"" if there is none. For tests and tools."""
    cdef ClientHello hello
    return offer_of(&hello) if parse_client_hello(&hello, data, len(data)) > 0 else b""
