# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""May it pass? The policy's rules and its floor, applied to one request.

The name is judged first, so that a request that no address could save is refused without a
query. Then each address is judged, because a name may resolve to anything (R26). Rules that
depend on a tunnel's first bytes are applied when these are there: see peek.

A reload judges again what is under way: see under_way.
"""

from libc.stdint cimport int64_t, uint16_t
from libc.string cimport memchr, memcpy, memset
from cutthrough.net.address cimport UNIX_CALLER, Address
from cutthrough.net.buffers cimport bytes_of
from cutthrough.outcome cimport BODY_TOO_LARGE, DESTINATION_DENIED, OK, SNI_DENIED, TLS_REFUSED
from cutthrough.policy.acl cimport (
    KIND_UPGRADE, MOST_METHOD, REPLAYS, Acl, Question, Verdict, read_capitals)
from cutthrough.policy.first_bytes cimport ONLY_HTTP_IS_INTERCEPTED, TLS_IS_INTERCEPTED
from cutthrough.policy.hop cimport HOP_LOCAL
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.model.client cimport Client, own_opening, user_of
from cutthrough.session.model.destination cimport read_destination
from cutthrough.session.model.inside cimport Inside, identify, names_server, prints_of
from cutthrough.session.model.narrowing cimport CERTIFIED
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.model.request cimport Request
from cutthrough.wire.authority cimport HOST_NAME
from cutthrough.wire.names cimport M_CONNECT, M_GET, M_OTHER, M_POST, M_UDP, is_connect
from cutthrough.wire.openings cimport server_name
from cutthrough.wire.paths cimport Path, set_path

# Of the request that is judged
cdef Path path
cdef char[MOST_METHOD] method_in_capitals


cdef int judge(Client c) except -1:
    cdef int64_t most = c.context.options.max_body
    cdef int outcome
    if most and c.up_open and c.relay.up.left > most:
        return BODY_TOO_LARGE           # whatever the rules say, and without asking them
    outcome = judge_request(c)
    return outcome if outcome != OK else c.request.final_recipient_outcome


cdef int judge_request(Client c) except -1:
    cdef Request *r = &c.request
    cdef Verdict verdict
    cdef Address literal
    cdef const Address *address
    cdef int outcome = c.snapshot.judge_port(r.is_tunnel, r.port)
    if c.entrance.is_inside and (<Inside>c.entrance).snapshot is not c.snapshot:
        outcome = judge_connect(c, <Inside>c.entrance)
    if c.snapshot.own_sources is not None:
        r.hop.source = own_source(c)
    if outcome != OK or c.snapshot.acl is None:
        return outcome
    address = literal_of(c, &literal)
    ask_rules(c, c.snapshot, address, &verdict)
    r.address_dependent = verdict.maybe
    if verdict.hop.source == 0:
        verdict.hop.source = r.hop.source
    r.hop = verdict.hop
    return take_verdict(c, &verdict, address)


cdef int judge_connect(Client c, Inside inside) except -1:
    """A reload came since the CONNECT was judged: judges it by the newer rules too. An Outcome."""
    cdef Verdict verdict, named
    cdef int outcome = c.snapshot.judge_port(True, inside.port)
    verdict.route = verdict.hop.source = 0
    verdict.rule = -1
    verdict.maybe = False
    if outcome == OK and c.snapshot.acl is not None:
        ask_connect(c, inside, c.snapshot, &verdict, &named)
        if verdict.outcome != OK or named.outcome != OK:
            outcome = DESTINATION_DENIED
    if outcome == OK:
        inside.snapshot, inside.account = c.snapshot, c.account
        inside.route = <uint16_t>verdict.route
        inside.source = verdict.hop.source or own_source(c)
        # A rule that depends on an unknown address might be another's
        identify(inside, -1 if verdict.maybe else verdict.rule)
        inside.leave()                  # the connection at hand went the way of before
        c.request.hop.tls = inside.tls
    return outcome


cdef int ask_connect(Client c, Inside inside, Snapshot snapshot, Verdict *verdict,
                     Verdict *named) except -1:
    """About the CONNECT around it. `named`: about the server that its client named, if any."""
    cdef const Address *address = &inside.address
    cdef Address literal
    cdef Question q
    cdef unsigned char mapped[16]
    if address.family == 0:
        address = literal_of(c, &literal)
    fill_question(c, snapshot, address, mapped, &q)
    q.host, q.host_len = inside.key, len(inside.key) - 2
    q.is_name = inside.host_kind == HOST_NAME
    q.method = q.own_method = M_CONNECT
    q.method_name = q.capitals = NULL
    q.has_opening, q.opening, q.path = True, inside.opening, NULL
    fill_prints(inside.outer, &q)
    snapshot.acl.judge(&q, verdict)
    named[0] = verdict[0]
    if inside.named is not None:
        q.host, q.host_len, q.is_name = inside.name, len(inside.name), True
        snapshot.acl.judge(&q, named)
    return 0


cdef const Address *literal_of(Client c, Address *out) except? NULL:
    """The address that the request itself names, or its CONNECT; NULL: it names a host."""
    if c.request.narrowed == CERTIFIED:
        out[0] = (<Inside>c.entrance).address
        return out
    if c.request.host_kind == HOST_NAME:
        return NULL
    read_destination(c, out)
    return out


cdef int judge_address(Client c, const Address *address) except -1:
    cdef Verdict verdict
    cdef int outcome = c.snapshot.judge_loop(address.family, address.bytes, c.request.port)
    if outcome != OK:
        return outcome
    if c.snapshot.acl is not None:
        ask_rules(c, c.snapshot, address, &verdict)
        outcome = take_verdict(c, &verdict, address)
        c.request.hop.source = verdict.hop.source or own_source(c)
        if outcome != OK or verdict.opens_floor:
            return outcome
    outcome = c.snapshot.judge_floor(address.family, address.bytes)
    return OK if outcome != OK and is_opened_by_connect(c, c.snapshot) else outcome


cdef int floor_outcome(Client c, Snapshot snapshot, const Verdict *verdict,
                       const Address *address) except -1:
    cdef int outcome
    if address == NULL or verdict.opens_floor or c.request.for_origin or (
            c.request.hop.kind == HOP_LOCAL):
        return OK
    outcome = snapshot.judge_floor(address.family, address.bytes)
    return OK if outcome != OK and is_opened_by_connect(c, snapshot) else outcome


cdef bint is_opened_by_connect(Client c, Snapshot snapshot) except -1:
    """The CONNECT named the address, and a rule opens the floor for it (R27)."""
    cdef Verdict verdict, named
    if c.request.narrowed != CERTIFIED or snapshot.acl is None:
        return False
    ask_connect(c, <Inside>c.entrance, snapshot, &verdict, &named)
    return verdict.outcome == OK and verdict.opens_floor


cdef uint16_t own_source(Client c) except? 0:
    """The number of the user's source; 0: it has none."""
    if c.snapshot.own_sources is None:
        return 0
    return c.snapshot.own_sources.get(user_of(c), 0)


cdef int take_verdict(Client c, const Verdict *verdict, const Address *address) except -1:
    """`address`: the destination's, by which it was found; NULL: it is not known yet."""
    c.request.rule = verdict.rule
    c.request.route = <unsigned short>verdict.route
    c.request.reported = verdict.report
    c.request.needs_opening = verdict.waits
    c.request.acts = verdict.acts & c.context.acts
    c.request.recording_inside = 0
    if c.request.is_tunnel and verdict.outcome == OK and (
            c.snapshot.acl is not None and c.snapshot.acl.replays):
        c.request.recording_inside = <unsigned char>find_replay_inside(c, address)
    return verdict.outcome


cdef int find_replay_inside(Client c, const Address *address) except -1:
    """A tunnel is opened by one rule, and another rule replays the requests inside: as far as
    that is certain before they come, no origin is asked (R60); not if a rule compares their
    client's fingerprints. The Recording, or 0."""
    cdef Acl acl = c.snapshot.acl
    cdef int fate = acl.tls_of(c.request.rule)
    cdef Question q
    cdef Verdict inner
    cdef unsigned char mapped[16]
    cdef int method
    if fate != TLS_IS_INTERCEPTED and fate != ONLY_HTTP_IS_INTERCEPTED or (
            acl.rows[c.request.rule].recording or acl.compares_prints):
        return 0
    fill_question(c, c.snapshot, address, mapped, &q)
    q.has_opening, q.opening = False, NULL
    for method in (M_GET, M_POST):
        q.method = q.own_method = method
        acl.judge(&q, &inner)
        if inner.outcome != OK or inner.maybe or inner.rule < 0:
            return 0
        if acl.rows[inner.rule].recording < REPLAYS:
            return 0
    return acl.rows[inner.rule].recording


cdef int judge_opening(Client c) except -1:
    cdef Acl acl = c.snapshot.acl
    cdef Address literal
    cdef const Address *address = known_address(c, &literal)
    cdef int before = c.request.rule
    cdef Question q
    cdef Verdict verdict
    cdef unsigned char mapped[16]
    cdef int outcome
    fill_question(c, c.snapshot, address, mapped, &q)
    acl.judge(&q, &verdict)
    outcome = take_verdict(c, &verdict, address)
    if outcome != OK:
        return acl.outcome_by_opening(&q, before, verdict.rule)
    if verdict.maybe or not acl.share_way(before, verdict.rule):
        return DESTINATION_DENIED       # it is connected by another way than this rule's
    return floor_outcome(c, c.snapshot, &verdict, address)


cdef int judge_late(Client c) except -1:
    """Judges a request again when its address is known. Captures, filters and the like stay those of
    the first rule (R41)."""
    cdef Verdict verdict
    cdef Address literal
    cdef const Address *address = known_address(c, &literal)
    if c.snapshot.acl is None:
        return OK
    ask_rules(c, c.snapshot, address, &verdict)
    if verdict.outcome != OK:
        c.request.rule = verdict.rule
    if verdict.outcome != OK or verdict.rule == c.request.rule:
        return verdict.outcome
    if verdict.maybe or not c.snapshot.acl.share_way(c.request.rule, verdict.rule):
        return DESTINATION_DENIED       # it is connected by another way than this rule's
    return floor_outcome(c, c.snapshot, &verdict, address)


cdef int judge_server_name(Client c) except -1:
    cdef Acl acl = c.snapshot.acl
    cdef Address literal
    cdef Question q
    cdef Verdict verdict
    cdef unsigned char mapped[16]
    if not names_server(c):
        return OK
    fill_question(c, c.snapshot, literal_of(c, &literal), mapped, &q)
    q.host, q.host_len, q.is_name = server_name(own_opening(c)), own_opening(c).name_len, True
    acl.judge(&q, &verdict)
    if verdict.outcome != OK:
        c.request.rule = verdict.rule
        return TLS_REFUSED if verdict.outcome == TLS_REFUSED else SNI_DENIED
    c.request.reported |= verdict.report
    return OK


cdef const Address *known_address(Client c, Address *out) except? NULL:
    """The destination's address; NULL: it is not known yet, a parent resolves its name, or the
    operator has named the server."""
    if c.origin is not None and c.origin.address.family and not c.request.for_origin:
        return &c.origin.address
    return literal_of(c, out)


cdef int ask_rules(Client c, Snapshot snapshot, const Address *address,
                   Verdict *verdict) except -1:
    cdef Question q
    cdef unsigned char mapped[16]
    fill_question(c, snapshot, address, mapped, &q)
    snapshot.acl.judge(&q, verdict)
    if c.entrance is not None and c.entrance.is_inside:     # goes its CONNECT's way
        verdict.route = (<Inside>c.entrance).route
        verdict.hop.source = (<Inside>c.entrance).source
        verdict.hop.tls = (<Inside>c.entrance).tls
    return 0


cdef int fill_question(Client c, Snapshot snapshot, const Address *address,
                       unsigned char *mapped, Question *q) except -1:
    """`mapped`: room for the address."""
    cdef const Request *r = &c.request
    if c.account.subjects is None:
        c.account.subjects = snapshot.acl.subjects_of(c.account.name, c.account.groups)
    q.subjects = c.account.subjects
    q.has_client = c.address.family != UNIX_CALLER
    map_address(&c.address, q.client)
    q.tlvs = NULL
    q.tlvs_len = 0
    if c.extras.tlvs is not None:
        q.tlvs = c.extras.tlvs
        q.tlvs_len = len(c.extras.tlvs)
    fill_prints(prints_of(c) if snapshot.acl.compares_prints else None, q)
    q.host = c.key
    q.host_len = len(c.key) - 2
    q.is_name = r.host_kind == HOST_NAME
    q.address = NULL
    if address != NULL:
        map_address(address, mapped)
        q.address = mapped
    q.port = r.port
    q.own_method = min(<int>r.method, <int>M_CONNECT)
    q.method = KIND_UPGRADE if is_upgrade(r) else q.own_method
    q.method_name = q.capitals = NULL
    q.method_name_len = 0
    if q.own_method == M_OTHER and snapshot.acl.compares_methods and c.head != NULL and r.path_len:
        q.method_name = bytes_of(c.head)
        q.method_name_len = <const char *>memchr(
            q.method_name, b" ", c.head.end) - q.method_name
        read_capitals(q, method_in_capitals)
    q.has_opening = q.method == M_CONNECT and r.method != M_UDP
    q.for_origin = r.for_origin
    q.opening = own_opening(c)
    q.path = NULL
    if q.method != M_CONNECT and snapshot.acl.compares_paths:
        q.path = path_of(c)
    return 0


cdef void fill_prints(Prints prints, Question *q) noexcept:
    """The connection keeps them."""
    q.ja4 = q.http2 = NULL
    q.http2_len = 0
    if prints is not None and prints.ja4 is not None:
        q.ja4 = prints.ja4
    if prints is not None and prints.http2 is not None:
        q.http2 = prints.http2
        q.http2_len = len(prints.http2)


cdef Path *path_of(Client c) noexcept:
    """NULL: it has none."""
    cdef const char *text = NULL
    if c.head != NULL and c.request.path_len:
        text = bytes_of(c.head) + c.request.path_at
        if text[0] == c'*':
            return NULL
    set_path(&path, text, c.request.path_len)
    return &path


cdef bint is_upgrade(const Request *r) noexcept:
    return r.has_upgrade or (r.is_tunnel and not is_connect(r.method))


cdef void map_address(const Address *address, unsigned char *out) noexcept nogil:
    """IPv4 as ::ffff:a.b.c.d: one address space for all rules."""
    if address.family == 6:
        memcpy(out, address.bytes, 16)
        return
    memset(out, 0, 10)
    out[10] = out[11] = 255
    memcpy(out + 12, address.bytes, 4)
