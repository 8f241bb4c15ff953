# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A tunnel leaves this process, or comes from another, and its peers do not notice.

    pack ─> Parcel ─ sent, taken ──────> forget     the sockets live on in the taker
                   └ refused, or gone ─> restore    it goes on here

A tunnel in a parcel is frozen: out of the epoll set, out of the list of open clients, and no
byte of it is touched, neither in a block nor in a pipe. So it can go back as it was.
Descriptors are copies of each other: the peers do not notice that ours are closed.

Its charges on the page of limits change hands before the parcel is sent, under one lock: the
sum is right all the time, and each process gives back its own at its end. See policy.ledger.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memset
from cutthrough.net cimport linux
from cutthrough.net.address cimport Address
from cutthrough.net.buffers cimport give_block
from cutthrough.net.connector cimport Upstream
from cutthrough.net.pipes cimport give_pipe
from cutthrough.net.poller cimport Endpoint, Poller
from cutthrough.net.pump cimport Pump
from cutthrough.net.relay cimport start_pump, stop_pump
from cutthrough.net.sysio cimport clock_us, set_abortive, sys_close
from cutthrough.net.transport cimport KERNEL, Socket
from cutthrough.outcome cimport DESTINATION_DENIED, OK, OVERLOADED
from cutthrough.policy.auth cimport Account
from cutthrough.policy.decision_cache cimport Decision
from cutthrough.policy.hop cimport HOP_LOCAL, HOP_NAMED_ORIGIN, HOP_PARENT
from cutthrough.policy.parents cimport Standing
from cutthrough.session.connection cimport Connection
from cutthrough.session.handover_parts cimport (
    address_of, read_address, read_request, read_direction, request_of, direction_of)
from cutthrough.session.judge.under_way cimport is_cut_meanwhile, readmit
from cutthrough.session.model.client cimport (
    Client, drop_extras, extras_of, leave_parent, link, own_opening, parent_of, set_tlvs, set_user,
    unlink, worker_of_id)
from cutthrough.session.model.context cimport Context, places_taken
from cutthrough.session.model.counters cimport BOUND_CONNECTIONS, N_METHODS
from cutthrough.session.handover_record import FORMAT, Tunnel
from cutthrough.session.judge.source cimport name_of_source, source_named
from cutthrough.session.model.charge cimport caller_of, counted_of, move_row, readmit_user
from cutthrough.session.model.entrance cimport Entrance
from cutthrough.session.model.flight_recorder cimport E_TAKEN, note
from cutthrough.session.model.inside cimport prints_of
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.shed cimport shed_one
from cutthrough.session.model.stamps cimport within_32_bits
from cutthrough.session.model.state cimport CLOSED, HALF_CLOSED, TUNNEL
from cutthrough.session.transfer.messages cimport has_messages
from cutthrough.session.stages.proxied cimport number_of_sender, sender_of
from cutthrough.wire.openings cimport opening_of, parts_of


def tunnels(Context context):
    """The tunnels that can be handed over, oldest first."""
    cdef Client client = <Client>context.newest
    clients = []
    while client is not None:
        if is_movable(client):
            clients.append(client)
        client = client.older
    clients.reverse()
    return clients


cdef bint is_movable(Client c) noexcept:
    """Relayed, and nothing else: no early byte of it is kept any more. A frozen tunnel is in a
    parcel already. The state of a transport above the kernel's socket cannot
    be handed over, nor a socket whose other end is in this process, nor filters."""
    return (c.state == TUNNEL or c.state == HALF_CLOSED) and c.is_open and (
        c.sock.kind == KERNEL and c.origin is not None and c.origin.sock.kind == KERNEL
        and c.account is not None and c.input == NULL
        and c.request.hop.kind != HOP_LOCAL and not has_messages(c))


def pack(Client c, int number, int worker, int holder):
    """Freezes a tunnel; None if it has ended or cannot be moved. `worker`: our slot. `holder`:
    the taker's number on the page of limits, -1 if it has a page of its own."""
    cdef Parcel parcel
    if not is_movable(c):
        return None
    c.poller.take_time()
    c.count_moved()
    if c.usage.meter != NULL:
        c.context.limiter.settle(&c.usage, c.terms, &c.relay.up.allowance,
                                 &c.relay.down.allowance, c.poller.now_us)
    parcel = Parcel.__new__(Parcel)
    parcel.client = c
    parcel.holder = holder
    parcel.record = describe(c, number, worker, holder >= 0)
    parcel.freeze()
    return parcel


cdef object describe(Client c, int number, int worker, bint same_page):
    cdef const Request *r = &c.request
    cdef bint has_rules = c.snapshot is not None and c.snapshot.acl is not None
    return Tunnel(
        format=FORMAT, number=number, frozen_us=clock_us(),
        worker=worker_of_id(c, worker), request_id=c.request_id,
        client=address_of(&c.address), peer=named_by(c),
        sender=None if sender_of(c) == NULL else address_of(sender_of(c)),
        tlvs=c.extras.tlvs or b"", tcp=tcp_of(c) or b"",
        origin=address_of(&c.origin.address), source=name_of_source(c) or "",
        parent=None if r.hop.parent == 0 else (
            parent_of(c).decode(), c.context.parents.identity_of(r.hop.parent)),
        for_origin=bool(r.for_origin), key=c.key, host_kind=r.host_kind, port=r.port,
        method=r.method, minor=r.minor, status=r.status,
        stamps=(c.stamps.start_us, c.stamps.mark_us, c.stamps.first_byte_us,
                c.stamps.head_us, c.stamps.auth_us, c.stamps.hook_us, c.stamps.dns_us,
                c.stamps.connect_us),
        half_closed=c.state == HALF_CLOSED, deadline_ms=c.silent_ms,
        opening=None if own_opening(c) == NULL else parts_of(own_opening(c)),
        user=c.account.name, groups=c.account.groups, expires=c.account.expires,
        vouched=bool(c.vouched), pinned=bool(r.pinned), request=request_of(c),
        reported=bool(r.reported), cuts=has_rules and c.snapshot.acl.cuts(r.rule),
        decision=(None if c.extras.decision is None
                  else (c.extras.decision.reason, c.extras.decision.limits)),
        holding=(c.usage.holding.client_row, c.usage.holding.user_row,
                 bool(c.usage.holding.is_counted), bool(c.usage.holding.has_tunnel),
                 ) if same_page else None,
        up=direction_of(&c.relay.up, c.relay.up.shut,
                        &c.usage.meter.up if c.usage.meter != NULL else NULL),
        down=direction_of(&c.relay.down, c.relay.down.shut,
                          &c.usage.meter.down if c.usage.meter != NULL else NULL))


cdef object named_by(Client c):
    """None: its request names no client."""
    return address_of(&c.entrance.peer) if c.entrance is not None and (
        c.entrance.has_peer) else None


cdef bytes tcp_of(Client c):
    return None if prints_of(c) is None else prints_of(c).tcp


cdef class Parcel:
    """One tunnel between two processes. Ended by `restore` or `forget`, once."""
    cdef Client client
    cdef int client_fd, origin_fd
    cdef int holder
    cdef uint32_t tally
    cdef readonly object record
    cdef readonly list fds

    cdef int freeze(self) except -1:
        cdef Client c = self.client
        self.client_fd = c.poller.release(c)
        self.origin_fd = c.poller.release(c.origin)
        unlink(c.context, c)
        self.fds = [self.client_fd, self.origin_fd]
        self._add_pipe(&c.relay.up)
        self._add_pipe(&c.relay.down)
        if self.holder >= 0:
            self.tally = c.context.limiter.lend(&c.usage, self.holder)
            self.record.tally = self.tally
        return 0

    cdef int _add_pipe(self, Pump *pump) except -1:
        if not pump.is_piped:
            return 0
        if pump.held.pipe.held:
            self.fds.append(pump.held.pipe.read_fd)
            self.fds.append(pump.held.pipe.write_fd)
        else:
            give_pipe(&pump.held.pipe)
            pump.is_piped = False
        return 0

    def restore(self):
        """The tunnel goes on here; it is cut if it cannot be watched any more, or if a reload
        would have cut it meanwhile."""
        cdef Client c = self.client
        cdef const Address *caller = caller_of(c)
        cdef bint watched = False
        self.client = None
        c.poller.take_time()
        c.sock.fd = self.client_fd
        c.origin.sock.fd = self.origin_fd
        link(c.context, c)
        if self.holder >= 0:
            c.context.limiter.reclaim(&c.usage, self.holder, self.tally, counted_of(c, c.terms),
                                      caller.family, caller.bytes, c.poller.now_us)
        try:
            c.poller.add(c)
            watched = True
            c.poller.add(c.origin)
        except OSError:                     # no memory, or no watch left for this user
            cut_unwatched(&c.origin.sock)
            if not watched:
                cut_unwatched(&c.sock)
            c.abort(OVERLOADED, True)
            return
        if is_cut_meanwhile(c):
            c.abort(DESTINATION_DENIED, True)
            return
        c.poller.arm(c, c.silent_ms)
        c.poller.call_again(c)

    def forget(self):
        """The tunnel is another process's: drops it here, without a log line."""
        cdef Client c = self.client
        self.client = None
        if self.holder >= 0:
            memset(&c.usage.holding, 0, sizeof(c.usage.holding))
        if c.context.observer is not None:
            c.context.observer.on_handover(c)
        c._clear_request()
        c.context.limiter.leave(&c.usage, c.poller.now_us)
        linux.close(self.client_fd)
        linux.close(self.origin_fd)
        c.origin.owner = None
        c.origin = None
        c.state = CLOSED                    # not by _set_state: it is uncounted already


cdef void cut_unwatched(Socket *sock) noexcept:
    set_abortive(sock)
    sys_close(sock)


def unpack(Context context, record, list fds):
    """Takes a tunnel and its descriptors, which are ours from here on. Returns the client,
    frozen until the poller's next turn, and whether the policy lets it go on: if not, it is
    to be ended after the giver has its answer.

    Raises ValueError, OSError or MemoryError if it cannot be taken; then the giver still has
    it, and the descriptors are closed."""
    cdef Connection c = Connection.__new__(Connection)
    cdef Upstream origin = Upstream.__new__(Upstream)
    cdef bint passes
    lent = record.holding
    if lent is None or record.tally != context.limiter.ledger.tally():
        lent = (0, 0, False, False)         # counted elsewhere, or nowhere: see recount
    c.context = context
    c.poller = context.poller
    c.origin = origin
    origin.owner = c
    mine = list(fds)
    try:
        if record.format != FORMAT:
            raise ValueError(f"a record of format {record.format}")
        if len(fds) != 2 + 2 * (record.up.piped > 0) + 2 * (record.down.piped > 0):
            raise ValueError("descriptors were lost on the way")
        if context.draining or (places_taken(context) >= context.options.max_connections
                                and not shed_one(context, BOUND_CONNECTIONS, NULL)):
            raise ValueError("no more connections are taken")
        c.poller.take_time()
        read_record(c, record, lent, mine)
        passes = readmit(c, record.cuts)
        if readmit_user(c) != OK:
            raise ValueError("the table of limits is full")
        watch(context.poller, c, mine[0])
        watch(context.poller, origin, mine[1])
        move_row(c)                         # nothing fails behind it: it could not be undone
        carry_rate(c, record)
    except BaseException:
        give_up(c, origin, lent)
        for fd in mine:
            linux.close(fd)
        raise
    link(context, c)
    note(context.recorder, <void *>c, c.poller.now_us, E_TAKEN, 0, c.address.port)
    context.counters.peak = max(context.counters.peak, context.counters.live)
    context.counters.next_id = max(context.counters.next_id, c.request_id)
    c._set_state(TUNNEL)
    if record.half_closed:
        c._set_state(HALF_CLOSED)
    c.silent_ms = record.deadline_ms
    c.poller.arm(c, c.silent_ms)
    c.poller.call_again(c)
    return c, bool(passes)


cdef int read_record(Client c, record, lent, list fds) except -1:
    cdef Request *r = &c.request
    cdef Account account = Account(record.user, record.groups, record.expires)
    cdef Decision decision
    cdef Address sender
    cdef Standing standing
    c.account = account
    set_user(c, account.name or None)       # empty: without credentials
    c.vouched = record.vouched
    read_address(&c.address, record.client)
    read_address(&c.origin.address, record.origin)
    if record.sender is not None:
        read_address(&sender, record.sender)
        c.sender = number_of_sender(&sender)
    set_tlvs(c, record.tlvs or None)
    if record.tcp or record.peer is not None:
        c.entrance = Entrance()
    if record.peer is not None:
        read_address(&c.entrance.peer, record.peer)
        c.entrance.has_peer = True
    if record.tcp:
        c.entrance.prints = Prints.__new__(Prints)
        c.entrance.prints.tcp = record.tcp
    r.is_tunnel = True
    if record.opening is not None:
        extras_of(c).opening = opening_of(record.opening)
    c.id_worker = record.worker + 1
    c.request_id = record.request_id
    c.key = record.key
    r.hop.source = source_named(c.context, record.source)
    r.host_kind = record.host_kind
    r.port = record.port
    r.pinned = record.pinned
    r.for_origin = record.for_origin
    read_request(c, record.request)
    if not 0 <= record.method < N_METHODS:
        raise ValueError("a method of another version")
    r.method = record.method
    r.minor = record.minor
    r.status = record.status
    (c.stamps.start_us, mark_us, c.stamps.first_byte_us, c.stamps.head_us,
     c.stamps.auth_us, c.stamps.hook_us, c.stamps.dns_us,
     c.stamps.connect_us) = record.stamps
    c.stamps.mark_us = within_32_bits(mark_us)      # earlier versions had more
    if record.parent is not None:
        name, identity = record.parent
        standing = c.context.parents.find(name, identity)
        standing.in_hand += 1
        r.hop.kind = HOP_NAMED_ORIGIN if record.for_origin else HOP_PARENT
        r.hop.parent = <unsigned short>standing.number
    if record.decision is not None:
        reason, limits = record.decision
        decision = Decision(True, reason, 0.0, limits)
        extras_of(c).decision = decision
    (c.usage.holding.client_row, c.usage.holding.user_row,
     c.usage.holding.is_counted, c.usage.holding.has_tunnel) = lent
    start_pump(&c.relay.up, &c.sock, &c.origin.sock, -1)
    start_pump(&c.relay.down, &c.origin.sock, &c.sock, -1)
    c.relay.up.shut = record.up.shut
    c.relay.down.shut = record.down.shut
    read_direction(&c.relay.up, record.up, c.context.options.splice, fds)
    read_direction(&c.relay.down, record.down, c.context.options.splice, fds)
    c.counted_up = <uint32_t>c.relay.up.moved  # counted by the giver
    c.counted_down = <uint32_t>c.relay.down.moved
    return 0


cdef int carry_rate(Client c, record) except -1:
    """Sets the tokens left of the tunnel's own rate; a user's are on the page."""
    if c.usage.meter != NULL and record.up.tokens_us and record.down.tokens_us:
        c.usage.meter.up.tokens = record.up.tokens
        c.usage.meter.up.tokens_us = record.up.tokens_us
        c.usage.meter.down.tokens = record.down.tokens
        c.usage.meter.down.tokens_us = record.down.tokens_us
    return 0


cdef int watch(Poller poller, Endpoint endpoint, int fd) except -1:
    endpoint.sock.fd = fd
    try:
        return poller.add(endpoint)
    except OSError:
        endpoint.sock.fd = -1
        raise


cdef int give_up(Client c, Upstream origin, lent) except -1:
    """Undoes a half-made client: gives back its resources; its sockets stay open, the
    caller's. The giver takes back by itself what it has `lent`."""
    c.context.poller.release(c)
    c.context.poller.release(origin)
    origin.owner = None
    c.origin = None
    if lent[0]:
        c.usage.holding.client_row = 0
    if lent[1]:
        c.usage.holding.user_row = 0
        c.usage.holding.has_tunnel = False
    if lent[2]:
        c.usage.holding.is_counted = False
    leave_parent(c)
    c.context.limiter.end_request(&c.usage, c.terms, &c.relay.up.allowance,
                                  &c.relay.down.allowance, c.context.poller.now_us)
    c.context.limiter.leave(&c.usage, c.context.poller.now_us)
    stop_pump(&c.relay.up)
    stop_pump(&c.relay.down)
    give_block(&c.head)
    drop_extras(c)
    return 0


def end_denied(Client client):
    """Cuts a tunnel that was taken over and that the present policy refuses."""
    client.poller.take_time()
    try:
        client.abort(DESTINATION_DENIED, True)
    except BaseException:
        client.poller.contain(client)


def recount(Context context):
    """Recounts our connections' charges on the page of limits. For a giver that died: it may
    have counted a tunnel as ours and never sent it. A tunnel under way from another giver is
    counted when it arrives, or by that giver again."""
    cdef Client client = <Client>context.newest
    context.limiter.ledger.begin_recount()
    while client is not None:
        context.limiter.ledger.add_recounted(&client.usage.holding)
        client = client.older
    context.limiter.ledger.end_recount()
