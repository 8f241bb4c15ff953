# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Requests and tunnels under way are judged by a newer snapshot.

A reload judges each tunnel again. If the new rules, the floor or the ports of CONNECT refuse a tunnel,
it is cut if the rule that refuses it has `cut` set, or the rule that let it in had; if the tunnel is
intercepted, the requests inside are. The same holds if another process let a tunnel in, or if a
request becomes a tunnel after a reload.

If the newer rules name limits, these hold from the next turn on: see charge.

If a reload changes what client certificates are accepted (a list of revoked ones, for example),
whoever is a user by a certificate needs a new handshake for the next request, as nginx's clients do.
"""

from libc.string cimport memset
from cutthrough.net.address cimport Address
from cutthrough.outcome cimport DESTINATION_DENIED, OK
from cutthrough.policy.acl cimport NOT_ASKED, Verdict
from cutthrough.policy.auth cimport Account
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.judge.authenticate cimport account_in
from cutthrough.session.judge.authorize cimport (
    ask_connect, ask_rules, floor_outcome, is_upgrade, known_address, take_verdict)
from cutthrough.session.model.charge cimport limits_of_rule
from cutthrough.session.model.client cimport (
    Client, extras_of, is_between_requests, is_certified_before)
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.inside cimport Inside, is_intercepted
from cutthrough.session.model.state cimport DECIDE, HALF_CLOSED, PEEK, RELAY, REQUEST


def recheck(Context context):
    """Judges every tunnel by the newest snapshot, and cuts each one that is refused if a rule asks
    for that by `cut`; of one that is opened, the requests inside. Returns how many."""
    cdef Client client = <Client>context.newest
    cdef Client older
    count = 0
    context.poller.take_time()
    while client is not None:
        older = client.older
        if is_certified_before(client):
            end_soon(client)
        if PEEK <= client.state <= HALF_CLOSED and (
                client.origin is not None and must_cut(client, context.snapshot, True)):
            client.abort(DESTINATION_DENIED, True)
            count += 1
        elif is_request_inside(client) and must_cut(
                client, context.snapshot, client.request.is_tunnel):
            count += refuse_inside(client)
        elif REQUEST <= client.state <= RELAY and client.origin is not None:
            find_limits(client, context.snapshot)
        client = older
    return count


cdef int end_soon(Client c) except -1:
    """Ends a connection that takes no more requests: now, or with the response in hand."""
    c.request.persistent = False
    if is_between_requests(c):
        try:
            c.close_idle()
        except BaseException:
            c.poller.contain(c)
    return 0


cdef bint is_request_inside(Client c) noexcept:
    """Is this a request inside an interception whose tunnel runs and has been judged?"""
    return DECIDE <= c.state <= RELAY and is_intercepted(c) and (
        (<Inside>c.entrance).opening != NULL and c.is_open)


cdef int refuse_inside(Client c) except -1:
    c.request.persistent = False            # a reply is the connection's last
    try:
        c.refuse(DESTINATION_DENIED)
    except BaseException:
        c.poller.contain(c)
    return 1


cdef bint is_cut_meanwhile(Client c) except -1:
    return c.snapshot is not c.context.snapshot and must_cut(c, c.context.snapshot, True)


cdef bint must_cut(Client c, Snapshot newest, bint is_tunnel) except -1:
    """`is_tunnel`: it is one, or becomes one now."""
    cdef Verdict verdict
    cdef Account account = c.account
    cdef bint refused
    if newest is c.snapshot and not account.has_expired():
        return False
    refused = is_refused_by(c, newest, is_asked_for(c, is_tunnel), is_tunnel, &verdict)
    c.account = account                     # its subjects are those of c.snapshot's rules
    if is_tunnel and not refused:
        note_limits(c, newest, &verdict)
    return refused


cdef bint is_asked_for(Client c, bint is_tunnel) noexcept:
    """Has the rule that let the request in `cut` set? A request inside an interception that is no
    tunnel has its CONNECT's rule for that."""
    return c.snapshot.acl is not None and c.snapshot.acl.cuts(c.request.rule) and (
        is_tunnel or not is_intercepted(c))


cdef bint is_refused_by(Client c, Snapshot newest, bint asked_for, bint is_tunnel,
                        Verdict *verdict) except -1:
    """Is it to be cut? `asked_for`: the rule that let it in has `cut` set."""
    cdef Address literal
    cdef Verdict named
    cdef bint outer_asked_for = is_intercepted(c) and (<Inside>c.entrance).cuts
    memset(verdict, 0, sizeof(verdict[0]))  # what passes where there are no rules
    verdict.rule = NOT_ASKED
    account = account_in(c, newest)
    if account is None or (<Account>account).has_expired():
        return asked_for or outer_asked_for or (newest.acl is not None and newest.acl.cuts(-1))
    c.account = account
    if is_intercepted(c):                   # the tunnel around it
        named = verdict[0]
        if newest.acl is not None:
            ask_connect(c, <Inside>c.entrance, newest, verdict, &named)
        if is_cut_by(verdict, outer_asked_for) or is_cut_by(&named, outer_asked_for):
            return True
        if is_cut_by_port(newest, (<Inside>c.entrance).port, verdict, outer_asked_for):
            return True
        if c.origin is None:                # a tunnel of it is judged once more: is_cut_meanwhile
            return False
        if not named.opens_floor and is_cut_by_floor(c, newest, verdict, outer_asked_for):
            return True
        if not is_tunnel:
            return False
    if newest.acl is not None:
        ask_rules(c, newest, known_address(c, &literal), verdict)
    if not (is_intercepted(c) or is_upgrade(&c.request)) and (
            is_cut_by_port(newest, c.request.port, verdict, asked_for)):
        return True
    return is_cut_by(verdict, asked_for) or is_cut_by_floor(c, newest, verdict, asked_for)


cdef int find_limits(Client c, Snapshot newest) except -1:
    """Finds the limits of a request under way. If rules compare methods or paths, its head must still
    be there."""
    cdef Account account = c.account
    cdef Verdict verdict
    cdef Address literal
    verdict.rule = NOT_ASKED
    if c.snapshot is newest or (newest.acl is not None and c.head == NULL and (
            newest.acl.compares_paths or newest.acl.compares_methods)):
        return 0
    c.account = account_in(c, newest)
    if c.account is not None and newest.acl is not None:
        ask_rules(c, newest, known_address(c, &literal), &verdict)
    c.account = account
    return note_limits(c, newest, &verdict)


cdef int note_limits(Client c, Snapshot newest, const Verdict *verdict) except -1:
    """Notes the limits of the verdict. A request that the rules refuse, and that goes on, keeps its
    limits."""
    cdef object name = None
    if newest.acl is not None:
        if verdict.rule == NOT_ASKED or verdict.outcome != OK:
            return 0
        if not (verdict.maybe or verdict.waits):
            name = newest.acl.limits_of(verdict.rule)
    if c.extras.newer_limits is not None or name != limits_of_rule(c):
        extras_of(c).newer_limits = (name,)
    return 0


cdef bint is_cut_by(const Verdict *verdict, bint asked_for) noexcept nogil:
    # Without an address, what passes only until it is known does not pass
    return (verdict.outcome != OK or verdict.maybe) and (asked_for or verdict.cut)


cdef bint is_cut_by_port(Snapshot newest, int port, const Verdict *verdict,
                         bint asked_for) noexcept:
    return (asked_for or verdict.cut) and newest.judge_port(True, port) != OK


cdef bint is_cut_by_floor(Client c, Snapshot newest, const Verdict *verdict,
                          bint asked_for) except -1:
    cdef Address literal
    return (asked_for or verdict.cut) and (
        floor_outcome(c, newest, verdict, known_address(c, &literal)) != OK)


cdef bint readmit(Client c, bint asked_for) except -1:
    cdef Verdict verdict
    cdef Address literal
    cdef bint refused
    refused = is_refused_by(c, c.context.snapshot, asked_for, True, &verdict)
    c.snapshot = c.context.snapshot
    take_verdict(c, &verdict, known_address(c, &literal))
    return not refused
