# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A rule's demands of a tunnel's first bytes: protocol, server name, fingerprint.

An invalid server name meets no demand, because origins may differ in reading it. If a ClientHello
has no server name, it matches a request for an address, because RFC 6066 section 3 sends no
address as a server name.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp
from cutthrough.outcome cimport DESTINATION_DENIED, JA4_DENIED, PROTOCOL_DENIED, SNI_DENIED
from cutthrough.policy.fingerprints cimport FingerprintSets
from cutthrough.wire.clienthello cimport ADDRESS_NAMED, HOST_NAMED, INVALID_NAME, NO_NAME
from cutthrough.wire.fingerprints cimport JA4_BYTES
from cutthrough.wire.openings cimport TLS, Opening, opening_of, server_name
from cutthrough.wire.openings import PROTOCOLS
from cutthrough.wire.authority cimport HOST_NAME, Target, parse_authority

cdef dict SERVER_NAMES = {
    "": 0, "match": NAME_MATCHES, "allowed": NAME_ALLOWED, "any": NAME_GIVEN}
cdef dict TLS_ACTIONS = {
    "pass": TLS_PASSES, "intercept": TLS_IS_INTERCEPTED, "refuse": TLS_IS_REFUSED,
    "intercept_http": ONLY_HTTP_IS_INTERCEPTED}


cdef int read_demand(Demand *demand, rule, FingerprintSets sets) except -1:
    demand.sni = SERVER_NAMES[rule.sni]
    demand.tls = TLS_ACTIONS[rule.tls]
    demand.pinned = rule.pinned == "pass"
    demand.ja4 = sets.number(rule.ja4)
    demand.protocols = 0
    for word in rule.protocol:
        demand.protocols |= <uint32_t>1 << <int>PROTOCOLS.index(word)
    return 0


cdef Met meets(const Demand *demand, const Opening *o, FingerprintSets sets, const char *host,
               size_t host_len, bint is_name) noexcept nogil:
    cdef Met by_name = IS_MET
    if demand.protocols and not demand.protocols >> o.protocol & 1:
        return NOT_PROTOCOL
    if demand.sni:
        by_name = NOT_NAME
        if o.protocol == TLS:
            by_name = meets_name(demand.sni, o, host, host_len, is_name)
        if by_name == NOT_NAME:
            return NOT_NAME
    if demand.ja4 and (o.protocol != TLS or not sets.contains(demand.ja4, o.ja4, JA4_BYTES)):
        return NOT_JA4
    return by_name


cdef Met meets_name(int how, const Opening *o, const char *host, size_t host_len,
                    bint is_name) noexcept nogil:
    if o.name_kind == INVALID_NAME:
        return NOT_NAME
    if o.name_kind == NO_NAME:
        return NOT_NAME if is_name else IS_MET
    if how == NAME_GIVEN or (
            o.name_len == host_len and memcmp(server_name(o), host, host_len) == 0):
        return IS_MET
    return IF_ALLOWED if how == NAME_ALLOWED and o.name_kind == HOST_NAMED else NOT_NAME


cdef Met last_of(const Demand *demand) noexcept nogil:
    if demand.ja4:
        return NOT_JA4
    if demand.sni:
        return NOT_NAME
    return NOT_PROTOCOL if demand.protocols else IS_MET


cdef int outcome_of(Met why) noexcept nogil:
    if why == NOT_PROTOCOL:
        return PROTOCOL_DENIED
    if why == NOT_NAME or why == IF_ALLOWED:
        return SNI_DENIED
    return JA4_DENIED if why == NOT_JA4 else DESTINATION_DENIED


cdef Opening *opening_in_words(tuple words) except NULL:
    cdef Target target
    cdef bytes text
    protocol, name, ja4 = words
    text = name.encode()
    kind = NO_NAME
    if text:
        kind = INVALID_NAME
        if parse_authority(&target, text, len(text), 1) == 0 and target.port == 1:
            text = target.host[:target.host_len]
            kind = HOST_NAMED if target.host_kind == HOST_NAME else ADDRESS_NAMED
    return opening_of((PROTOCOLS.index(protocol), kind, False, 0, text, b"", ja4.encode(), b""))
