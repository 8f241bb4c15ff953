"""A rule's demands of a tunnel's first bytes: protocol, server name, fingerprint."""

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.policy.fingerprints cimport FingerprintSets
from cutthrough.wire.openings cimport Opening

# Conditions on the server name; each is met if the one before is met.
cdef enum ServerNameRule:
    NAME_MATCHES = 1        # it is the request's host; or there is none, and that is an address
    NAME_ALLOWED            # the rules would let a request for it pass
    NAME_GIVEN              # it is a host name or an address

# What becomes of TLS inside a tunnel; no condition.
cdef enum TlsAction:
    TLS_PASSES = 0
    TLS_IS_INTERCEPTED
    TLS_IS_REFUSED
    ONLY_HTTP_IS_INTERCEPTED    # as TLS_IS_INTERCEPTED; other protocols inside are refused

cdef struct Demand:         # 0: no condition
    uint32_t ja4            # number in FingerprintSets
    uint32_t protocols      # bits of wire's Protocol
    uint8_t sni             # ServerNameRule
    uint8_t tls             # TlsAction
    uint8_t pinned          # not intercepted where clients have rejected our certificate

cdef enum Met:
    IS_MET = 0
    NOT_PROTOCOL
    NOT_NAME
    NOT_JA4
    IF_ALLOWED              # if the rules would let a request for the server name pass

cdef int read_demand(Demand *demand, rule, FingerprintSets sets) except -1
# `host`: the request's, canonical; `is_name`: it is no address.
cdef Met meets(const Demand *demand, const Opening *o, FingerprintSets sets, const char *host,
               size_t host_len, bint is_name) noexcept nogil
# The narrowest of the conditions.
cdef Met last_of(const Demand *demand) noexcept nogil
# The Outcome of a tunnel that is refused because of this.
cdef int outcome_of(Met why) noexcept nogil
# From words: protocol, server name or "", JA4 or "". The caller frees it. Raises ValueError.
cdef Opening *opening_in_words(tuple words) except NULL
