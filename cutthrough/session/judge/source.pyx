# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where the connection to the origin comes from, if the policy or the user has a source.

`authorize` sets request.hop.source for the request, and again for each address, because the
rule may depend on the address. An address of a family that the source lacks is not dialled, and
costs no time.

An idle connection keeps its address. Its key has the hop, which has the source's number. If the
user selects the address, the key has the user too (R46): another user has another address. So it
has if the operator's function resolves names, which may lead each user elsewhere.
"""

import logging
import os

from libc.stdint cimport uint16_t, uint64_t
from cutthrough.net.connector cimport FORBIDDEN, IF_PREPARED
from cutthrough.net.dns.by_function import FunctionResolver
from cutthrough.net.source_address cimport (
    STICKY_DESTINATION, STICKY_USER, Source, random_draw)
from cutthrough.outcome cimport SOURCE_MISMATCH, SOURCE_UNAVAILABLE
from cutthrough.policy.hop cimport HOP_NAMED_ORIGIN
from cutthrough.policy.siphash cimport keyed_hash
from cutthrough.session.model.client cimport asker_of, user_of
from cutthrough.session.model.inside cimport Inside, key_of_way

log = logging.getLogger("cutthrough")

cdef object by_function = FunctionResolver


cdef str name_of_source(Client c):
    return source_of(c).name if c.request.hop.source else None


cdef uint16_t source_named(Context context, str name) except? 0:
    cdef Source source
    if not name or context.sources is None:
        return 0
    return max([number for number, source in context.sources.items()
                if source.name == name], default=0)


cdef bytes key_of_pool(Client c):
    cdef bytes key
    if c.request.hop.kind == HOP_NAMED_ORIGIN:
        return b""                      # its server has them all, whatever Host is
    key = c.key if c.request.hop.source == 0 else key_with_source(c)
    if type(c.context.resolver) is by_function:
        key = b"%b@%b" % (user_of(c) or b"", key)       # no host contains "@"
    if c.request.hop.tls and (<Inside>c.entrance).suffix is not None:
        key += (<Inside>c.entrance).suffix
    return key


cdef bytes key_with_source(Client c):
    cdef Source source = source_of(c)
    # No host contains "@". A name and an address of four bytes may be equal
    return c.key if source.choice != STICKY_USER else b"%b%b@%b" % (
        b"\0" if user_of(c) is None else b"", asker_of(c), c.key)


cdef Leave leave_by_source(Client c, const Address *address) except FAULT:
    if source_of(c).serves(address.family):
        return IF_PREPARED
    c.request.denied = <unsigned char>SOURCE_MISMATCH
    return FORBIDDEN


cdef bint prepare_origin(Client c, const Socket *s, const Address *address) except -1:
    cdef Source source = source_of(c)
    cdef int failed = source.prepare(s, address.family, draw_of(c, source))
    if failed:
        c.request.denied = <unsigned char>SOURCE_UNAVAILABLE
        report_failure(source, failed)
    return failed == 0


cdef Source source_of(Client c):
    return <Source>c.context.sources[c.request.hop.source]


cdef uint64_t draw_of(Client c, Source source) except? 0:
    """The number that selects the source's address, the same in every worker."""
    cdef bytes key
    if source.choice == STICKY_USER:
        return hash_of(asker_of(c))
    if source.choice == STICKY_DESTINATION:
        key = key_of_way(c)
        return hash_of(key[:len(key) - 2])
    return random_draw()


cdef uint64_t hash_of(bytes text) noexcept:
    cdef uint64_t[2] key = [0, 0]       # no secret: workers and restarts must agree
    cdef uint64_t[2] out
    keyed_hash(key, text, len(text), out)
    return out[0]


cdef int report_failure(Source source, int error) except -1:
    source.failures += 1
    if source.failures & (source.failures - 1) == 0:    # 1, 2, 4, 8 …: never a flood
        log.warning("source %s: %s (%d times so far)", source.name, os.strerror(error),
                    source.failures)
    return 0
