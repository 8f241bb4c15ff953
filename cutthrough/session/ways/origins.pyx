# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Named origins on a request's way: what differs from parents.

A server of a named origin is chosen, dialled and lost as a parent is (`parents`); its dialogue
ends with the TLS handshake. The request goes to it in origin form, so its circuit is about answers:
a server that accepts connections and answers none is passed over too.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp
from cutthrough.net.address cimport ADDRESS_TEXT, UNIX_CALLER, Address, print_address
from cutthrough.net.buffers cimport HEAD_ROOM, bytes_of, head_scratch
from cutthrough.net.transport cimport KERNEL
from cutthrough.outcome cimport (
    BAD_PARENT, CONNECT_TIMEOUT, ORIGIN_CERTIFICATE, ORIGIN_CLOSED, ORIGIN_TLS,
    ORIGIN_UNREACHABLE, PARENT_CERTIFICATE, PARENT_CLOSED, PARENT_HANDSHAKE, PARENT_TIMEOUT,
    PARENT_UNREACHABLE, RESPONSE_TIMEOUT)
from cutthrough.policy.hop cimport HOP_NAMED_ORIGIN
from cutthrough.policy.origins cimport Origin
from cutthrough.policy.parents cimport Parent, Standing
from cutthrough.session.model.client cimport address_of_connection
from cutthrough.session.model.flight_recorder cimport E_PARENT_LOST, note
from cutthrough.session.model.passage cimport Passage
from cutthrough.wire.connect cimport Value
from cutthrough.wire.origin_head cimport OriginHead, build_origin_head


cdef int outcome_of_way(Way way, int outcome) noexcept:
    return outcome if way.origin is None else outcome_of_server(outcome)


cdef int outcome_of_server(int outcome) noexcept:
    if outcome == PARENT_UNREACHABLE:   # as in policy.parents.LOSSES_OF_SERVERS
        return ORIGIN_UNREACHABLE
    if outcome == PARENT_TIMEOUT:
        return CONNECT_TIMEOUT
    if outcome == PARENT_CLOSED:
        return ORIGIN_CLOSED
    if outcome == PARENT_HANDSHAKE:
        return ORIGIN_TLS
    if outcome == PARENT_CERTIFICATE:
        return ORIGIN_CERTIFICATE
    return RESPONSE_TIMEOUT if outcome == BAD_PARENT else outcome


cdef int blame_server(Client c, int outcome) except -1:
    cdef Standing standing = c.context.parents.standings[c.request.hop.parent]
    note(c.context.recorder, <void *>c, c.poller.now_us, E_PARENT_LOST, outcome_of_server(outcome), 0)
    if c.context.observer is not None:
        c.context.observer.on_parent_lost(c, outcome_of_server(outcome))
    standing.fail(c.poller.time_ms(), outcome)
    return 0


cdef bint goes_elsewhere(Client c) except -1:
    cdef Passage p = c.extras.passage
    cdef uint64_t tried
    if c.request.hop.kind != HOP_NAMED_ORIGIN or not c.request.can_retry or p is None or p.member < 0:
        return False
    tried = p.tried | <uint64_t>1 << p.member
    if tried == (<uint64_t>-1 >> (64 - p.way.n)):
        return False                    # none is left
    blame_server(c, PARENT_CLOSED)
    p.tried = tried
    p.member = -1
    return True


cdef void praise_server(Client c) noexcept:
    cdef Standing standing = <Standing>c.context.parents.standings[c.request.hop.parent]
    if standing.failures or standing.retry_ms:
        standing.close_circuit()


cdef const char *head_for_server(Client c, size_t *n) except? NULL:
    cdef Parent server = c.extras.passage.parent
    cdef Origin origin = server.origin
    cdef char client[ADDRESS_TEXT]
    cdef OriginHead how
    cdef const Address *sender
    cdef tuple replaced = None
    if c.snapshot.replaced_paths is not None:
        replaced = c.snapshot.replaced_paths.get(c.request.rule)
    n[0] = c.head.end
    if server.host is None and not origin.forwarded and replaced is None:
        return bytes_of(c.head)
    how.host = Value(NULL, 0) if server.host is None else Value(server.host, len(server.host))
    how.forwarded = origin.forwarded
    sender = address_of_connection(c)
    how.is_trusted = origin.trusts(sender.family, sender.bytes)
    how.client = Value(&client[0], 0 if sender.family == UNIX_CALLER else (
        print_address(sender, client)))
    how.is_ipv6 = sender.family == 6
    how.is_tls = c.sock.kind != KERNEL
    replace_prefix(c, &how, replaced)
    n[0] = build_origin_head(head_scratch(), HEAD_ROOM, bytes_of(c.head), c.head.end, &how)
    return head_scratch() if n[0] else NULL


cdef int replace_prefix(Client c, OriginHead *how, tuple replaced) except -1:
    """The rule's `replace_path`, if the path begins so. A path's reading of another spelling does
    not come here: the rule's globs begin with the prefix, and match each reading."""
    cdef const char *path = bytes_of(c.head) + c.request.path_at
    cdef bytes prefix, other
    how.prefix = Value(NULL, 0)
    how.replaced_at, how.replaced = c.request.path_at, 0
    if replaced is None:
        return 0
    prefix, other = replaced
    if c.request.path_len >= len(prefix) and memcmp(path, <char *>prefix, len(prefix)) == 0 and (
            c.request.path_len == len(prefix) or path[len(prefix)] in b"/?"):
        how.prefix, how.replaced = Value(other, len(other)), len(prefix)
    return 0
