# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Parents on a request's way: which one is taken, how it is dialled, and what follows a failure.

    choose_parent ─> (the destination is resolved and judged) ─> dial_parent ─> session.ways.dialogue
          ^                                                           │               │
          └─────────────────────────── lose_parent <──────────────────┴───────────────┘

Nothing of the client's has been sent when a parent is lost, so another member of the group may
be taken. If none is left, the request ends with the last one's reason; it never goes directly
unless `direct` is a member (R44). A parent that decides against the destination ends the request
at once: another parent, or the direct way, would undo its decision.
"""

import logging
from functools import partial

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from cutthrough.net.address cimport Address, Addresses, one_address
from cutthrough.net.connector cimport Upstream
from cutthrough.net.sysio cimport clock_us
from cutthrough.outcome cimport (
    NO_ORIGIN, OK, PARENT_AUTH, PARENT_CERTIFICATE, PARENT_CLOSED, PARENT_HANDSHAKE, PARENT_REFUSED,
    PARENT_UNREACHABLE)
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.hop cimport HOP_FORWARD, HOP_NAMED_ORIGIN, HOP_PARENT
from cutthrough.policy.parents cimport (
    KEYED_BY_CLIENT, KEYED_BY_DESTINATION, KEYED_BY_USER, Keying, Parent, Standing, Way)
from cutthrough.session.model.client cimport Client, asker_of, drop_parent, extras_of
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.flight_recorder cimport E_PARENT, E_PARENT_LOST, note
from cutthrough.session.model.inside cimport Inside, key_of_way
from cutthrough.session.model.passage cimport Passage
from cutthrough.session.model.phase cimport PHASE_TO_ORIGIN
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.standby cimport Standby
from cutthrough.session.model.state cimport DIAL, PARENT, RESOLVE
from cutthrough.session.ways.dialogue cimport set_target
from cutthrough.session.ways.dials cimport begin_dial, is_own_shortage
from cutthrough.session.ways.origins cimport outcome_of_way
from cutthrough.session.ways.reuse cimport is_of_connection
from cutthrough.wire.authority cimport HOST_IPV4, HOST_NAME
from cutthrough.wire.http1 cimport Field, Head
from cutthrough.wire.names cimport F_PROXY_AUTHORIZATION, F_VIA
from cutthrough.wire.parent cimport (
    BY_SOCKS4, SAY_CONNECT, SAY_SOCKS4, SAY_SOCKS5, is_decision)

log = logging.getLogger("cutthrough")


cdef int keep_fields(Client c, const Head *head, const char *data) except -1:
    cdef Context context = c.context
    cdef const Field *field
    cdef uint32_t i
    if c.extras.passage is None:
        extras_of(c).passage = Passage.__new__(Passage)
    c.extras.passage.credentials = None
    if c.snapshot.ways.pass_credentials and head.count[F_PROXY_AUTHORIZATION] == 1:
        field = &head.fields[head.first[F_PROXY_AUTHORIZATION] - 1]
        c.extras.passage.credentials = data[field.value:field.value + field.value_len]
    if c.entrance.is_inside:
        c.extras.passage.credentials = (<Inside>c.entrance).credentials
    earlier = []
    if head.count[F_VIA] and c.request.is_tunnel:
        for i in range(head.n_fields):
            field = &head.fields[i]
            if field.name == F_VIA:
                earlier.append(data[field.value:field.value + field.value_len])
    if context.pseudonym_len:
        earlier.append(b"1.%d %s" % (head.minor, context.pseudonym[:context.pseudonym_len]))
    c.extras.passage.via = b", ".join(earlier) if earlier else None
    return 0


cdef bint choose_parent(Client c) except -1:
    cdef Way way = way_of(c)
    cdef Passage p = c.extras.passage
    cdef int64_t wait_ms
    cdef int i
    if c.request.for_origin and way is None:
        c.refuse(NO_ORIGIN)
        return False
    if way is None:
        drop_parent(c)
        if p is not None:
            p.way = None
        return True
    if p is None:
        p = extras_of(c).passage = Passage.__new__(Passage)
    if p.way is not way:
        p.way = way
        p.tried = 0
        p.outcome = OK
    elif p.member >= 0:
        return True                     # again, or with the destination's address
    i = way.pick(p.tried, c.poller.time_ms(), key_for(c, way.keying), number_of(asker_of(c)))
    if i < 0:
        wait_ms = way.wait_ms(c.poller.time_ms())
        c.request.retry_s = <uint32_t>((wait_ms + 999) // 1000)
        c.refuse(outcome_of_way(way, p.outcome if p.outcome != OK else PARENT_UNREACHABLE))
        return False
    drop_parent(c)
    take_member(c, p, i)
    return True


cdef Way way_of(Client c):
    cdef Way way = <Way>c.snapshot.ways.by_route[c.request.route]
    if c.request.for_origin and (way is None or way.origin is None):
        return c.snapshot.ways.origin   # the rule, or the option, names a way of other requests
    return way


cdef int take_member(Client c, Passage p, int i) except -1:
    cdef Request *r = &c.request
    cdef Parent parent = p.way.members[i]
    p.member = i
    note(c.context.recorder, <void *>c, c.poller.now_us, E_PARENT, 0,
         0 if parent.standing is None else parent.standing.number)
    if parent.standing is None:         # `direct`
        return 0
    p.parent = parent
    chain = [parent]
    while parent.via is not None:
        parent = parent.via
        chain.append(parent)
    p.chain = tuple(chain[::-1])
    parent = p.parent
    if parent.origin is not None:
        r.hop.kind = HOP_NAMED_ORIGIN
    else:
        r.hop.kind = HOP_FORWARD if parent.forwards and not (
            r.is_tunnel or r.has_upgrade or c.entrance.transparent
            or c.entrance.is_inside) else HOP_PARENT
    r.hop.parent = <uint16_t>parent.standing.number
    parent.standing.in_hand += 1
    parent.standing.begun += 1
    p.source = 0
    set_source_aside(c)
    if names_client(p, r.hop.kind):
        r.marks_origin = True           # never pooled (R46, R50)
        r.can_retry = False
    elif parent.origin is not None and not parent.origin.reuses:
        r.marks_origin = r.dials = True
    return 0


cdef bint names_client(Passage p, int kind) except -1:
    """Is a connection this client's alone? By a PROXY header, or by its credentials in a
    CONNECT; those of a request in absolute form are the request's, unless their scheme is one
    that authenticates connections."""
    cdef Parent parent
    for parent in p.chain:
        if parent.proxy_protocol or (
                parent.passes_credentials and p.credentials is not None
                and not (kind == HOP_FORWARD and parent is p.parent
                         and not is_of_connection(p.credentials, len(p.credentials)))):
            return True
    return False


cdef void set_source_aside(Client c) noexcept:
    cdef Passage p = c.extras.passage
    if p is not None and p.parent is not None and c.request.hop.source and (
            not (<Parent>p.chain[0]).by_source):
        p.source = c.request.hop.source
        c.request.hop.source = 0


cdef bytes key_for(Client c, Keying keying):
    if keying == KEYED_BY_USER:
        return asker_of(c)
    if keying == KEYED_BY_CLIENT:
        return (<char *>c.address.bytes)[:4 if c.address.family == 4 else 16]
    return key_of_way(c) if keying == KEYED_BY_DESTINATION else None


cdef bint seeks_parent(Client c) noexcept:
    return c.extras.passage is not None and c.extras.passage.seeks_parent


cdef bint may_dial_parent(Client c, const Address *address) except -1:
    cdef Parent root = c.extras.passage.chain[0]
    cdef int outcome = c.snapshot.judge_loop(address.family, address.bytes, root.address.port)
    if outcome != OK:
        c.request.denied = <unsigned char>outcome
    return outcome == OK


cdef int dial_parent(Client c, const Address *checked, const Address *other) except -1:
    cdef Passage p = c.extras.passage
    cdef Upstream upstream
    set_target(c, p, checked)
    set_source_aside(c)
    p.other.family = 0
    if other != NULL and parent_may_have(p.parent, other):
        p.other = other[0]
    p.seeks_parent = True
    p.is_shaking = False
    p.code = 0
    upstream = take_standby(c)
    begin_setup(c)
    if upstream is None:
        return dial_first(c)
    p.by_standby = True
    c._set_state(DIAL)
    upstream.owner = c
    return c.on_dialled(None, upstream, 0)


cdef int begin_setup(Client c) except -1:
    cdef Parent parent
    cdef uint64_t user = number_of(asker_of(c))
    c.extras.passage.began_us = clock_us()
    c.extras.passage.by_standby = False
    for parent in c.extras.passage.chain:
        parent.standing.begin(c.poller.time_ms(), user)
    return 0


cdef Standby standby_of(Client c):
    """Returns the connections that are kept ready to the first parent; None if there are none."""
    cdef Parent parent = c.extras.passage.chain[0]
    if c.context.standbys is None:
        return None
    return <Standby>c.context.standbys.get(parent.standing.number)


cdef Upstream take_standby(Client c):
    """Takes a ready connection; none for a request in absolute form, because it may not be one that can
    be sent twice."""
    cdef Standby standby = standby_of(c)
    cdef Parent parent = c.extras.passage.chain[0]
    cdef Upstream upstream
    if standby is None or c.request.hop.kind != HOP_PARENT or parent.proxy_protocol:
        return None
    upstream = standby.take()
    if upstream is not None and not may_dial_parent(c, &upstream.address):
        upstream.close()                # we listen there since
        return None
    return upstream


cdef int dial_first(Client c) except -1:
    cdef Parent parent = c.extras.passage.chain[0]
    if parent.address.host_kind != HOST_NAME:
        return dial_addresses(c, one_address(
            4 if parent.address.host_kind == HOST_IPV4 else 6, parent.address.address))
    host = parent.address.host[:parent.address.host_len]
    addresses = c.context.resolver.cached(host)
    if addresses is not None:
        return dial_found(c, addresses)
    c._set_state(RESOLVE)
    c.context.resolver.resolve(host, partial(on_parent_resolved, c, c.request_id), asker_of(c),
                               c.request_id)
    return 0


cdef bint parent_may_have(Parent parent, const Address *address) noexcept:
    """Can its protocol name this address?"""
    return parent.protocol != BY_SOCKS4 or address.family == 4


def on_parent_resolved(Client c, request_id, answer):
    """The resolver's answer: Addresses, or the label of an outcome."""
    if c.state != RESOLVE or c.request_id != request_id:
        return                          # the request has ended meanwhile
    try:
        c.poller.take_time()
        dial_found(c, answer)
    except BaseException:
        c.poller.contain(c)


cdef int dial_found(Client c, answer) except -1:
    """`answer`: the resolver's, Addresses or the label of an outcome."""
    if isinstance(answer, Addresses) and (<Addresses>answer).n:
        return dial_addresses(c, answer)
    return c.refuse(OUTCOMES[answer]) if is_own_shortage(answer) else (
        lose_parent(c, PARENT_UNREACHABLE))


cdef int dial_addresses(Client c, Addresses addresses) except -1:
    cdef Parent root = c.extras.passage.chain[0]
    c._set_state(DIAL)
    return begin_dial(c, addresses, root.address.port)


cdef int praise_parents(Client c) except -1:
    cdef Passage p = c.extras.passage
    cdef Parent parent
    cdef int64_t took_us = clock_us() - p.began_us
    p.seeks_parent = False
    for parent in p.chain:
        if parent.origin is None:
            parent.standing.succeed(took_us)
        else:
            parent.standing.note_setup(took_us)     # an answer closes its circuit
    return 0


cdef int lose_parent(Client c, int outcome) except -1:
    cdef Passage p = c.extras.passage
    cdef Parent parent
    cdef int64_t now_ms = c.poller.time_ms()
    cdef Address other = p.other
    cdef Standing next
    cdef bint decided = False
    if p.by_standby and p.leg == 0 and (
            outcome == PARENT_CLOSED or outcome == PARENT_HANDSHAKE):
        return dial_again(c)
    p.outcome = outcome
    note(c.context.recorder, <void *>c, c.poller.now_us, E_PARENT_LOST,
         outcome_of_way(p.way, outcome),
         p.code if outcome == PARENT_REFUSED or outcome == PARENT_AUTH else 0)
    if c.context.observer is not None:
        c.context.observer.on_parent_lost(c, outcome_of_way(p.way, outcome))
    parent = p.chain[p.leg]
    if outcome == PARENT_CERTIFICATE:
        log_certificate(parent)
    if outcome == PARENT_REFUSED:
        decided = is_decision(parent.protocol, p.code)
        parent.standing.refuse()
        if p.leg + 1 < len(p.chain):    # the next parent cannot be reached
            next = (<Parent>p.chain[p.leg + 1]).standing
            if is_by_login(p, parent):
                next.suspect(now_ms, PARENT_UNREACHABLE, number_of(asker_of(c)),
                             number_of(key_of_way(c)))
            else:
                next.fail(now_ms, PARENT_UNREACHABLE)
            decided = False
        elif not decided and other.family:
            p.leg = 0
            c.close_origin(False)
            return dial_parent(c, &other, NULL)
    elif names_destination(c, outcome):
        parent.standing.suspect(now_ms, outcome, number_of(asker_of(c)),
                                number_of(key_of_way(c)))
    else:
        parent.standing.fail(now_ms, outcome)
    if c.state == RESOLVE:              # the parent's name is not awaited any more
        c.context.resolver.abandon(c.request_id)
    p.tried |= <uint64_t>1 << p.member
    p.member = -1
    p.leg = 0
    p.seeks_parent = False
    c.close_origin(False)
    c.request.dials = True
    return c.refuse(outcome) if decided else c.resume(PHASE_TO_ORIGIN)


cdef bint names_destination(Client c, int outcome) noexcept:
    """The parent had been told of the request's destination, or has refused its user's credentials:
    what it did may be the request's fault (R76)."""
    cdef Passage p = c.extras.passage
    if outcome == PARENT_AUTH:
        return is_by_login(p, p.chain[p.leg])
    return c.state == PARENT and not p.is_shaking and p.leg + 1 == len(p.chain) and (
        p.step == SAY_CONNECT or p.step == SAY_SOCKS5 or p.step == SAY_SOCKS4)


cdef inline bint is_by_login(Passage p, Parent parent) noexcept:
    """The parent gets the user's credentials."""
    return parent.passes_credentials and p.credentials is not None


cdef inline uint64_t number_of(bytes text) except? 0:
    """Never 0. Python keeps the hash in the object."""
    return <uint64_t>hash(text) | 1


cdef int dial_again(Client c) except -1:
    """The connection that was ready has died, which is no failure of the parent's."""
    cdef Standby standby = standby_of(c)
    if standby is not None:
        standby.note_dead()
    c.close_origin(False)
    begin_setup(c)
    return dial_first(c)


cdef int log_certificate(Parent parent) except -1:
    """The reason is the operator's, and no client's."""
    from cutthrough.net.tls import transport as tls          # here: it needs libssl

    log.warning("%s %s: its certificate is not accepted: %s",
                "parent" if parent.origin is None else "origin", parent.name, tls.why_denied())
    return 0
