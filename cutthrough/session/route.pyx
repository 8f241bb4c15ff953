# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The way to the origin: a connection from the idle pool, or a new one.

    answer_by_function  a function of this process is the origin
    choose_way          directly, or by a parent
    reuse               a connection that is open ──────────────┐
    take_turn_to_dial   another request's, in a moment          ├─> send ─> forward, tunnel
    connect             resolver ─> take_answer ─> dial_by_way ─┬─> take_origin ─┘
                                                                └─> a parent ─^

The phases of a request that look for its way, in the order of the table in `phases`.

Each address is judged before it is dialled, and before an idle connection to it is used
(R26). If the user's limits depend on the address, they are charged here.
"""

from functools import partial

from libc.stdint cimport int64_t, uint16_t, uint32_t
from cutthrough.net.address cimport Address, Addresses, one_address
from cutthrough.net.connector cimport Connector, Upstream
from cutthrough.net.linux cimport ETIMEDOUT
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.sysio cimport clock_us
from cutthrough.net.transport cimport KERNEL, open_transport
from cutthrough.outcome cimport (
    DESTINATION_DENIED, DNS_NOT_FOUND, LOOP_DETECTED, OK, OVERLOADED, PARENT_TIMEOUT,
    PARENT_UNREACHABLE)
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.hop cimport HOP_NAMED_ORIGIN
from cutthrough.policy.parents cimport Way
from cutthrough.session.judge.authorize cimport judge_address
from cutthrough.session.judge.under_way cimport is_cut_meanwhile
from cutthrough.session.model.charge cimport admit_user, renew_meanwhile
from cutthrough.session.model.client cimport (
    Client, Observer, asker_of, drop_parent, extras_of, forget_dial, user_of)
from cutthrough.session.model.counters cimport count_dial
from cutthrough.session.model.destination cimport read_destination
from cutthrough.session.model.flight_recorder cimport (
    E_DIALLED, E_NOT_DIALLED, E_RESOLVED, E_REUSED, note)
from cutthrough.session.model.idle_pool cimport make_key
from cutthrough.session.model.inside cimport key_of_way
from cutthrough.session.model.narrowing cimport CERTIFIED, NARROWED, PROVEN
from cutthrough.session.model.origin_streams cimport share, take_stream, takes_turns
from cutthrough.session.model.phase cimport (
    PARKED, PHASE_FAULTS, PHASE_JUDGE, PHASE_REPLAY, PHASE_ROOM, PHASE_SEND, parked)
from cutthrough.session.model.recording_mode cimport plays
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport DIAL, PARENT, RESOLVE
from cutthrough.session.replay.replay cimport Replay, replay_at
from cutthrough.session.stages.target cimport outcome_of_loop
from cutthrough.session.stages.transparent cimport destination_alone, forget_name, prove
from cutthrough.session.transfer.act cimport is_due
from cutthrough.session.transfer.forward cimport send_request
from cutthrough.session.transfer.intercept cimport secure_origin, take_spare
from cutthrough.session.transfer.recording_room cimport takes_room, wants_room
from cutthrough.session.transfer.to_filters cimport leave_filters
from cutthrough.session.transfer.tunnel cimport start_tunnel
from cutthrough.session.ways.dials cimport begin_dial, dial_anew, outcome_of_errno, relieve
from cutthrough.session.ways.dialogue cimport (
    STILL_TALKING, begin_dialogue, go_on_talking, is_resolved_there)
from cutthrough.session.ways.local cimport connect_function
from cutthrough.session.ways.parents cimport (
    choose_parent, dial_parent, lose_parent, praise_parents, seeks_parent, set_source_aside,
    way_of)
from cutthrough.session.ways.tether cimport take_tethered
from cutthrough.wire.authority cimport HOST_NAME
from cutthrough.wire.names cimport M_CONNECT, M_TUNNEL
from cutthrough.wire.parent cimport BY_SOCKS4
from cutthrough.wire.socks cimport MOST_SOCKS_REPLY, build_socks_success

cdef enum:
    ESTABLISHED_BYTES = 39

cdef const char *ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
assert len(ESTABLISHED) == ESTABLISHED_BYTES


cdef int answer_by_function(Client c) except -1:
    if c.extras.replay is not None and (<Replay>c.extras.replay).function is not None:
        return parked(connect_function(c, (<Replay>c.extras.replay).function))
    if c.context.local_origins is None or (
            c.request.narrowed and c.request.narrowed != CERTIFIED):
        return OK
    function = c.context.local_origins.get(key_of_way(c))
    return OK if function is None else parked(connect_function(c, function))


cdef int choose_way(Client c) except -1:
    if c.snapshot.ways is not None and not choose_parent(c):
        return PARKED
    # If the parent resolves the name, no address will say that the request may pass
    return DESTINATION_DENIED if goes_by_name(c) and c.request.address_dependent else OK


cdef inline bint goes_by_name(Client c) except -1:
    return c.extras.passage is not None and is_resolved_there(c)


cdef int reuse(Client c) except -1:
    """Takes a connection that is open, if the request may reach its address by the same way."""
    cdef Request *r = &c.request
    cdef Upstream upstream = None
    cdef uint16_t source = r.hop.source
    cdef uint16_t route = r.route
    cdef int outcome, phase
    cdef bint may
    if r.dials or not (r.can_retry or c.entrance.is_inside or c.extras.tether is not None):
        return OK
    if c.extras.tether is not None:
        upstream = take_tethered(c)
    if upstream is None and c.entrance.is_inside:
        upstream = take_spare(c)
        if upstream is None:
            upstream = take_stream(c)
    if upstream is None and r.can_retry:
        upstream = c.context.idle_pool.take(make_key(&r.hop, c.pool_key()))
    if upstream is None:
        return OK
    c.origin = upstream
    upstream.owner = c
    may = r.hop.kind == HOP_NAMED_ORIGIN or (not r.narrowed or prove(c, &upstream.address, 1)) and (
        upstream.address.family == 0 or may_reach(c, &upstream.address))
    set_source_aside(c)
    if not may or r.hop.source != source or r.route != route:
        c.close_origin(False)           # dialled for a user who may reach its address
        return OK
    outcome = admit_late(c, &upstream.address, 1)
    if outcome != OK:
        return outcome
    if is_stream(&upstream.sock):
        share(c)
    phase = phase_of_rule(c)
    if phase != PHASE_SEND:
        c.origin = None
        c.park(upstream, False)
        return parked(c.resume(phase))
    upstream.set_deadline(0)
    c.context.counters.reused += 1
    note(c.context.recorder, <void *>c, c.poller.now_us, E_REUSED, 0, 0)
    return OK


cdef int phase_of_rule(Client c) except -1:
    """The phase to go back to, now that an address has told the rule; PHASE_SEND: none."""
    if is_due(c):
        return PHASE_FAULTS
    if plays(c):
        return PHASE_REPLAY
    return PHASE_ROOM if wants_room(c) and not takes_room(c) else PHASE_SEND


cdef int take_turn_to_dial(Client c) except -1:
    """If another request makes a connection that this one can share, it is waited for."""
    return PARKED if c.origin is None and c.entrance.is_inside and takes_turns(c) else OK


cdef int connect(Client c) except -1:
    """Resolves the name, unless the parent does, and dials."""
    cdef Address literal
    cdef bytes host
    if c.origin is not None:
        return OK
    if c.request.dials:                 # the wait for a connection that was none in the end
        c.stamps.connect_us += end_brief_phase(&c.stamps)
    if goes_by_name(c):
        return parked(dial_parent(c, NULL, NULL))
    if c.request.narrowed >= PROVEN:    # again; a name is followed once in a request
        return parked(take_answer(c, destination_alone(c)))
    if c.request.host_kind != HOST_NAME:
        read_destination(c, &literal)
        return parked(take_answer(c, one_address(literal.family, literal.bytes)))
    host = c.key[:len(c.key) - 2]
    answer = c.context.resolver.cached(host)
    if answer is not None:
        return parked(take_answer(c, answer))
    c._set_state(RESOLVE)
    c.context.resolver.resolve(host, partial(on_resolved, c, c.request_id),
                               asker_of(c), c.request_id, c.request.port, user_of(c))
    return PARKED


def on_resolved(Client c, request_id, answer):
    """The resolver's answer: Addresses, or the label of an outcome."""
    if c.state != RESOLVE or c.request_id != request_id:
        return                          # the request has ended meanwhile
    try:
        c.poller.take_time()
        take_answer(c, answer)
    except BaseException:
        c.poller.contain(c)


cdef int take_answer(Client c, answer) except -1:
    """`answer`: the resolver's, Addresses or the label of an outcome."""
    cdef Addresses addresses
    cdef int outcome
    if c.request.host_kind == HOST_NAME:
        c.stamps.dns_us += end_brief_phase(&c.stamps)
    if c.request.narrowed == NARROWED and answer != "question_limit":
        if not isinstance(answer, Addresses) or not prove(
                c, (<Addresses>answer).items, (<Addresses>answer).n):
            return follow_address(c)
        answer = destination_alone(c)
    if not isinstance(answer, Addresses):
        return c.refuse(OUTCOMES[answer])
    addresses = answer
    note(c.context.recorder, <void *>c, c.poller.now_us, E_RESOLVED, 0, addresses.n)
    outcome = admit_addresses(c, addresses)
    if outcome != OK:
        return c.refuse(outcome)
    return 0 if goes_back(c, addresses) else dial_by_way(c, addresses)


cdef int admit_addresses(Client c, Addresses addresses) except -1:
    """Returns an Outcome."""
    cdef int i
    if addresses.n == 0:
        return DNS_NOT_FOUND
    for i in range(addresses.n):        # if one of them is us, none is tried (R20)
        if not may_reach(c, &addresses.items[i]) and c.request.denied == LOOP_DETECTED:
            return outcome_of_loop(c)
    return admit_late(c, addresses.items, addresses.n)


cdef bint goes_back(Client c, Addresses addresses) except -1:
    """The first address that may be reached has told the rule. True: the request was at the phase of
    it that is due."""
    cdef int i = 0, phase
    while c.context.player is not None and i < addresses.n and (
            not may_reach(c, &addresses.items[i])):
        i += 1
    phase = phase_of_rule(c) if i < addresses.n else PHASE_SEND
    if phase == PHASE_SEND:
        return False
    leave_turn(c)
    if phase == PHASE_REPLAY:
        replay_at(c, &addresses.items[i])
    else:
        c.resume(phase)
    return True


cdef int dial_by_way(Client c, Addresses addresses) except -1:
    """Dials the addresses, or the parent that the way of the first one has."""
    cdef int i, other
    if c.snapshot.ways is not None:
        i = first_choice(c, addresses, &other)
        if i < 0:
            return c.refuse(c.request.denied)
        if not choose_parent(c):        # by the rule of this address
            return 0
        if c.extras.passage is not None and c.extras.passage.parent is not None:
            return dial_parent(c, &addresses.items[i],
                               NULL if other < 0 else &addresses.items[other])
    c._set_state(DIAL)
    return begin_dial(c, addresses, c.request.port)


cdef inline int leave_turn(Client c) except -1:
    """Leaves the turn of a request that dials nothing now: those that wait for its connection need not.
    """
    return c.extras.turn.close() if c.extras.turn is not None else 0


cdef int follow_address(Client c) except -1:
    """The name of a transparent request is not its destination's: the address is judged."""
    drop_parent(c)                      # the address may have another route
    forget_name(c)
    return c.resume(PHASE_JUDGE)


cdef int first_choice(Client c, Addresses addresses, int *other) except -2:
    """Index of the first address that may be reached, -1: none; in *other that of the first one
    of the other family whose rule names the same way. SOCKS4 has IPv4 only."""
    cdef int i, index = -1
    cdef int family = 0
    cdef Way way = None
    other[0] = -1
    for i in range(addresses.n):
        if family != addresses.items[i].family and other[0] < 0 and (
                may_reach(c, &addresses.items[i])):
            if index < 0:
                index = i
                family = addresses.items[i].family
                way = way_of(c)
            elif way is way_of(c):
                other[0] = i
    if other[0] >= 0 and family == 6 and c.extras.passage is not None and (
            c.extras.passage.parent is not None and c.extras.passage.parent.protocol == BY_SOCKS4):
        index, other[0] = other[0], index
    if index >= 0:
        may_reach(c, &addresses.items[index])   # not the last one judged: sets its rule
    return index


cdef int admit_late(Client c, const Address *addresses, int n) except -1:
    """If the limits depend on the address: charges the limits of the first address that may
    be dialled. Returns an Outcome."""
    cdef int i
    for i in range(n):
        if c.request.address_dependent and may_reach(c, &addresses[i]):
            c.request.address_dependent = False
            return admit_user(c)
    return OK


cdef bint may_reach(Client c, const Address *address) except -1:
    cdef int outcome = judge_address(c, address)
    if outcome != OK:
        c.request.denied = <unsigned char>outcome
    return outcome == OK


cdef bint may_dial_directly(Client c, const Address *address) except -1:
    if not may_reach(c, address):
        return False
    if c.snapshot.ways is None or way_of(c) is (
            None if c.extras.passage is None else c.extras.passage.way):
        return True
    c.request.denied = DESTINATION_DENIED   # its rule names another way than the first one's
    return False


cdef int take_origin(Client c, Connector connector, Upstream upstream, int error) except -1:
    forget_dial(c)
    if seeks_parent(c):
        return take_parent(c, upstream, error)
    if upstream is None:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_NOT_DIALLED, 0, error)
        if relieve(c, error):
            return dial_anew(c)
        extras_of(c).connector = connector  # it has the last address tried, for the log
        return c.refuse(c.request.denied if error == 0 else outcome_of_errno(error))
    c.stamps.connect_us += end_brief_phase(&c.stamps)
    c.origin = upstream
    if c.context.origin_transport != KERNEL:
        error = -open_transport(&upstream.sock, c.context.origin_transport, 0, NULL)
        if error:
            return c.refuse(outcome_of_errno(error))
    if connector.i > 1:
        may_reach(c, &upstream.address)  # last judged for another address: sets this one's rule
    note(c.context.recorder, <void *>c, c.poller.now_us, E_DIALLED, 0, c.stamps.connect_us)
    count_dial(c.context.counters, upstream.address.family, c.stamps.connect_us)
    return secure_origin(c) if c.entrance.is_inside else c.resume(PHASE_SEND)


cdef int take_parent(Client c, Upstream upstream, int error) except -1:
    """The dial to a parent has ended."""
    if upstream is None:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_NOT_DIALLED, 0, error)
        if relieve(c, error):
            return dial_anew(c)
        if error == 0:
            return c.refuse(c.request.denied)
        if outcome_of_errno(error) == OVERLOADED:
            return c.refuse(OVERLOADED)     # not the parent's fault
        return lose_parent(c, PARENT_TIMEOUT if error == ETIMEDOUT else PARENT_UNREACHABLE)
    c.origin = upstream
    if c.extras.passage.by_standby:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_REUSED, 0, 0)
    else:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_DIALLED, 0,
             <int64_t>clock_us() - c.extras.passage.began_us)
        count_dial(c.context.counters, upstream.address.family,
                   clock_us() - c.extras.passage.began_us)
    if c.request.hop.kind != HOP_NAMED_ORIGIN:
        upstream.address = c.extras.passage.checked  # of the other end, as far as it is known
    c._set_state(PARENT)
    return go_through(c, begin_dialogue(c))


cdef int on_parent(Client c) except -1:
    return go_through(c, go_on_talking(c))


cdef int go_through(Client c, int outcome) except -1:
    if outcome == STILL_TALKING:
        return 0
    return reach_origin(c) if outcome == OK else lose_parent(c, outcome)


cdef int reach_origin(Client c) except -1:
    cdef uint32_t took_us = end_brief_phase(&c.stamps)
    cdef uint32_t tls_us = min(c.extras.passage.tls_us, took_us - 1)
    praise_parents(c)
    c.extras.passage.tls_us = 0
    c.stamps.origin_tls_us += tls_us
    c.stamps.connect_us += took_us - tls_us
    return secure_origin(c) if c.entrance.is_inside else c.resume(PHASE_SEND)


cdef int send(Client c) except -1:
    if c.request.is_tunnel and is_cut_meanwhile(c):
        return DESTINATION_DENIED
    renew_meanwhile(c)
    if c.context.observer is not None and not c.request.resumes:
        (<Observer>c.context.observer).on_route(c)
    return parked(answer_connect(c) if c.request.is_tunnel else send_request(c))


cdef int answer_connect(Client c) except -1:
    cdef char[MOST_SOCKS_REPLY] reply
    cdef bytes head = leave_filters(c) if c.snapshot.sees_connects else None
    if c.context.observer is not None:
        (<Observer>c.context.observer).on_response(c, NULL, NULL)
    if c.request.method == M_TUNNEL:
        return start_tunnel(c, NULL, 0)
    if c.request.method != M_CONNECT:
        return start_tunnel(c, reply, build_socks_success(reply, c.request.hint))
    if head is not None:
        return start_tunnel(c, head, len(head))
    return start_tunnel(c, ESTABLISHED, ESTABLISHED_BYTES)
