# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""UDP by SOCKS5: an association, and the datagrams that it relays (RFC 1928 section 7; R51).

    client ── header, data ──> client_side ─ judged ─> peer_side ── data ──> peer
           <── header, data ──             <─ asked? ─            <── data ──

Every datagram of the client is judged by itself, as a CONNECT to its destination would be: port,
rules, address floor, by the newest policy. It goes directly or not at all: if a rule sends the
destination through a parent or from another source, it is dropped. A peer may answer after a
datagram has gone to its address and port. Fragments are dropped, which section 7 permits. If the
kernel or the network rejects an address, the next one of the name is used.

The association ends with its TCP connection, with which it shares the idle deadline, and counts as
one tunnel of its user. The bytes of a datagram, and of what its peer answers, count against the
limits that its rule names. It is not handed over. Datagrams that are refused, or too many, are
lost. The log has the reason of the first few.
"""

from functools import partial

from libc.stdint cimport int64_t, uint8_t, uint16_t
from libc.string cimport memcpy, memset
from cutthrough.net cimport linux
from cutthrough.net.address cimport (
    Address, Addresses, from_sockaddr, is_same_address, one_address)
from cutthrough.net.buffers cimport COPY_BYTES, give_block, scratch
from cutthrough.net.linux cimport sockaddr_storage
from cutthrough.net.pump cimport Pump
from cutthrough.net.shares import ALL_TAKEN
from cutthrough.net.sysio cimport CAN_READ, clock_us, read_own_name, try_recv, try_send
from cutthrough.net.udp cimport DatagramOwner, Datagrams
from cutthrough.outcome cimport (
    AUTH_EXPIRED, AUTH_FAILED, CLIENT_RESET, DNS_NOT_FOUND, OK, OVERLOADED, QUOTA_EXCEEDED,
    RECORDING_MISSED, UNSUPPORTED_COMMAND, USER_LIMIT)
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.acl cimport NOT_ASKED, REPLAYS
from cutthrough.policy.hop cimport is_plain_direct
from cutthrough.policy.limits cimport Lane
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.judge.authenticate cimport account_in
from cutthrough.session.judge.authorize cimport judge_address, judge_request
from cutthrough.session.model.broken cimport outcome_of_client
from cutthrough.session.model.charge cimport admit_user, named_limits, take_limits
from cutthrough.session.model.client cimport Client, Journal, asker_of, leave_place, user_of
from cutthrough.session.model.destination cimport read_destination, set_destination
from cutthrough.session.model.flight_recorder cimport E_DOWN, E_UP, note
from cutthrough.session.model.recording_mode cimport recording_of
from cutthrough.session.model.state cimport DATAGRAMS
from cutthrough.session.ways.dials cimport open_with_room, outcome_of_errno
from cutthrough.session.ways.parents cimport way_of
from cutthrough.wire.authority cimport HOST_NAME, Target, set_address
from cutthrough.wire.socks cimport (
    MOST_SOCKS_REPLY, SOCKS_GRANTED, build_datagram_header, build_socks5_reply,
    parse_datagram_header)

cdef enum:
    MOST_PEERS = 64             # that may answer; the one asked longest ago makes room
    # Of names that are being resolved, in all and in bytes
    MOST_WAITING = 16
    MOST_WAITING_BYTES = 65536
    MOST_LOGGED = 8             # refused datagrams, of one association
    MOST_REJECTED = 16          # addresses that reject datagrams

cdef struct Peer:
    Address address
    int64_t asked_us

# The destination of the datagram being relayed
cdef Target target


cdef int associate(Client c) except -1:
    cdef Association association
    cdef char[MOST_SOCKS_REPLY] reply
    cdef sockaddr_storage name
    cdef Address here
    cdef int n
    cdef int outcome = admit_user(c)
    if outcome != OK:
        return c.refuse(outcome)
    # A hook answers later than a datagram can wait
    if c.snapshot.hook is not None or not read_own_name(&c.sock, &name) or (
            not from_sockaddr(&name, &here)):
        return c.refuse(UNSUPPORTED_COMMAND)
    association = Association.__new__(Association)
    association.asker = asker_of(c)
    label = c.context.association_places.take(association.asker)
    if label:
        return c.refuse(OVERLOADED if label == ALL_TAKEN else USER_LIMIT)
    here.port = 0
    try:
        association.client_side = open_with_room(c, association, &here)
    except OSError:                         # no descriptor, no port, no memory
        c.context.association_places.give(association.asker)
        return c.refuse(OVERLOADED)
    association.client = c
    association.caller = c.address
    association.caller.port = 0
    association.waiting = set()
    association.limits, association.names = [None] * <int>MOST_PEERS, [None] * <int>MOST_PEERS
    association.left = {}
    c.context.associations[c.request_id] = association
    give_block(&c.input)                    # what follows the request means nothing
    leave_place(c)
    c.request.status = 200
    c._set_state(DATAGRAMS)
    n = build_socks5_reply(reply, SOCKS_GRANTED, here.family, here.bytes,
                           association.client_side.bound.port)
    if try_send(&c.sock, reply, n) != n:
        return c.abort(CLIENT_RESET, False)
    return watch_association(c)


cdef int watch_association(Client c) except -1:
    cdef ssize_t n
    if not c.sock.ready & CAN_READ:
        return 0
    n = try_recv(&c.sock, scratch(), COPY_BYTES)
    if n == 0:
        c.log_end(OK)
        return c.close()
    if n < 0 and n != -linux.EAGAIN:
        return c.abort(outcome_of_client(<int>-n), False)
    if c.sock.ready & CAN_READ:
        c.poller.call_again(c)
    return 0


cdef class Association(DatagramOwner):
    """The sockets of an association. `end` closes them; called once, by the client's
    _clear_request."""
    cdef Client client
    cdef Datagrams client_side
    cdef Datagrams v4, v6           # towards peers; None until a datagram goes there
    cdef Address caller             # the client's address; its port, once it is known
    cdef Peer[MOST_PEERS] peers
    cdef int n_peers
    cdef list limits                # of the peers: names
    cdef list names                 # of the peers: key and kind of the host, as it was asked for
    cdef dict left                  # see take_limits
    cdef Address[MOST_REJECTED] rejected
    cdef int n_rejected             # ever: later ones take the places of earlier ones
    cdef int n_logged
    cdef set waiting                # tokens of the resolver
    cdef size_t waiting_bytes
    cdef bytes asker

    cdef int on_datagram(self, Datagrams at, const Address *sender, char *data,
                         size_t n) except -1:
        if at is not self.client_side:
            return self.pass_down(sender, data, n)
        if not is_same_address(sender, &self.caller) or (
                self.caller.port and sender.port != self.caller.port):
            return 0
        return self.pass_up(data, n, sender.port, None)

    cdef int on_datagram_fault(self) except -1:
        return self.client.on_fault() if self.client is not None else 0

    # --- from the client -----------------------------------------------------------

    cdef int pass_up(self, const char *data, size_t n, uint16_t port, answer) except -1:
        """`answer`: the resolver's, if the datagram has waited for it."""
        cdef Client c = self.client
        cdef int outcome = self.keep_up()
        cdef int length = parse_datagram_header(&target, data, n)
        if outcome != OK:
            return c.refuse(outcome)
        if length == 0:
            return 0
        self.caller.port = port             # its first datagram says which
        set_destination(c, &target)
        outcome = judge_request(c)
        if outcome == OK:
            outcome = self.send_up(data, n, length, answer)
        if outcome != OK and self.client is not None:
            self.log(outcome)
        c.request.port = 0                  # its destination is not the association's
        return 0

    cdef int send_up(self, const char *data, size_t n, int length, answer) except -1:
        """Returns an Outcome."""
        cdef Client c = self.client
        cdef bytes host = c.key[:len(c.key) - 2]
        cdef Addresses addresses
        cdef Address to
        cdef int i, error
        cdef int outcome = DNS_NOT_FOUND
        if recording_of(c) == REPLAYS and not c.request.address_dependent:
            return RECORDING_MISSED         # and nothing is resolved (R60)
        if c.request.host_kind != HOST_NAME:
            read_destination(c, &to)
            answer = one_address(to.family, to.bytes)
        elif answer is None:
            answer = c.context.resolver.cached(host)
            if answer is None:
                return self.wait_for(host, data[:n])
        if not isinstance(answer, Addresses):
            return OUTCOMES[answer]
        addresses = answer
        n -= length
        # Addresses that were rejected come last: no other may be left
        for i in range(2 * addresses.n):
            to = addresses.items[i % addresses.n]
            to.port = c.request.port
            if (self.find_rejected(&to) >= 0) != (i >= addresses.n):
                continue
            error = 0
            outcome = judge_address(c, &to)
            if outcome == OK:
                c.request.address_dependent = False
                outcome = self.send_to(&to, data + length, n, &error)
                if error == 0:
                    return outcome
                self.reject(&to, error)
        return outcome

    cdef int send_to(self, const Address *to, const char *data, size_t n, int *error) except -1:
        """Returns an Outcome. *error is set if another address may be tried."""
        cdef Client c = self.client
        cdef Datagrams side
        cdef int outcome
        if recording_of(c) == REPLAYS:      # the rule that the address has told
            return RECORDING_MISSED
        if not goes_directly(c):
            return UNSUPPORTED_COMMAND
        limits = named_limits(c)
        outcome = take_limits(c, limits, self.left)
        if outcome != OK or not self.allows(&c.relay.up, True, n):
            return outcome
        try:
            side = self.socket_for(to.family)
        except OSError as refusal:          # no descriptor, no port, or not this family
            error[0] = refusal.errno or linux.EAGAIN
            return OVERLOADED
        error[0] = side.send(to, data, n)
        if error[0]:
            return outcome_of_errno(error[0])
        self.remember(to, limits)
        c.relay.up.moved += n
        c.count_moved()
        note(c.context.recorder, <void *>c, c.poller.now_us, E_UP, 0, n)
        c.extend()
        return OK

    cdef int on_rejected(self, Datagrams at, const Address *peer, int error) except -1:
        if self.client is not None and at is not self.client_side:
            self.reject(peer, error)
        return 0

    cdef int reject(self, const Address *peer, int error) except -1:
        """Notes it, once in the log: the next datagram to its name goes to another address."""
        cdef Client c = self.client
        cdef int i = self.find_rejected(peer)
        cdef bytes key = c.key
        cdef uint16_t port = c.request.port
        cdef uint8_t host_kind = c.request.host_kind
        if i >= 0:
            return 0
        self.rejected[self.n_rejected % <int>MOST_REJECTED] = peer[0]
        self.n_rejected += 1
        name_address(c, peer)
        self.log(outcome_of_errno(error))
        c.key = key
        c.request.port = port
        c.request.host_kind = host_kind
        return 0

    cdef int find_rejected(self, const Address *peer) noexcept:
        cdef int i
        for i in range(min(self.n_rejected, <int>MOST_REJECTED)):
            if is_same_address(&self.rejected[i], peer) and self.rejected[i].port == peer.port:
                return i
        return -1

    cdef int wait_for(self, bytes host, bytes datagram) except -1:
        """A datagram to a name that is not cached; beyond the bound it is lost."""
        cdef Client c = self.client
        if len(self.waiting) >= MOST_WAITING or (
                self.waiting_bytes + len(datagram) > MOST_WAITING_BYTES):
            return OK
        token = object()
        self.waiting.add(token)
        self.waiting_bytes += len(datagram)
        c.context.resolver.resolve(
            host, partial(self.on_resolved, token, datagram), self.asker, token,
            c.request.port, user_of(c))
        return OK

    def on_resolved(self, token, bytes datagram, answer):
        """The resolver's answer: Addresses, or the label of an outcome."""
        cdef Client c = self.client
        if c is None:
            return
        self.waiting.discard(token)
        self.waiting_bytes -= len(datagram)
        try:
            c.poller.take_time()
            self.pass_up(datagram, len(datagram), self.caller.port, answer)
        except BaseException:
            c.poller.contain(c)

    cdef Datagrams socket_for(self, int family):
        cdef Address anywhere
        cdef Datagrams datagrams = self.v4 if family == 4 else self.v6
        if datagrams is None:
            memset(&anywhere, 0, sizeof(anywhere))
            anywhere.family = <uint8_t>family
            datagrams = open_with_room(self.client, self, &anywhere)
            if family == 4:
                self.v4 = datagrams
            else:
                self.v6 = datagrams
        return datagrams

    cdef int remember(self, const Address *peer, limits) except -1:
        cdef Client c = self.client
        cdef int i, oldest = 0
        for i in range(self.n_peers):
            if is_asked(&self.peers[i], peer):
                self.peers[i].asked_us = self.client.poller.now_us
                self.limits[i], self.names[i] = limits, (c.key, c.request.host_kind)
                return 0
            if self.peers[i].asked_us < self.peers[oldest].asked_us:
                oldest = i
        if self.n_peers < MOST_PEERS:
            oldest = self.n_peers
            self.n_peers += 1
        self.peers[oldest].address = peer[0]
        self.peers[oldest].asked_us = self.client.poller.now_us
        self.limits[oldest], self.names[oldest] = limits, (c.key, c.request.host_kind)
        return 0

    # --- from a peer ---------------------------------------------------------------

    cdef int pass_down(self, const Address *sender, char *data, size_t n) except -1:
        cdef Client c = self.client
        cdef char[MOST_SOCKS_REPLY] head
        cdef int length, i
        cdef int outcome = self.keep_up()
        if outcome != OK:
            return c.refuse(outcome)
        for i in range(self.n_peers):
            if is_asked(&self.peers[i], sender):
                break
        else:
            return 0                        # nobody asked it
        if take_limits(c, self.limits[i], self.left) != OK or (
                not self.allows(&c.relay.down, False, n)):
            return 0
        length = build_datagram_header(head, sender.family, sender.bytes, sender.port)
        memcpy(data - length, head, length)
        if self.client_side.send(&self.caller, data - length, n + length) == 0:
            c.relay.down.moved += n
            c.count_moved()
            note(c.context.recorder, <void *>c, c.poller.now_us, E_DOWN, 0, n)
            c.extend()
        return 0

    # --- both ----------------------------------------------------------------------

    cdef int keep_up(self) except -1:
        """Takes over the newest policy: a peer that it denies may not answer any more. An Outcome."""
        cdef Client c = self.client
        cdef int i = 0 if c.snapshot is c.context.snapshot else self.n_peers
        cdef int outcome = renew(c)
        while i > 0 and outcome == OK:
            i -= 1
            c.key, c.request.host_kind = self.names[i]
            c.request.port = self.peers[i].address.port
            if judge_request(c) == OK and (
                    judge_address(c, &self.peers[i].address) == OK) and goes_directly(c):
                c.request.address_dependent = False
                self.limits[i] = named_limits(c)
                continue
            self.n_peers -= 1
            self.peers[i] = self.peers[self.n_peers]
            self.limits[i], self.names[i] = self.limits[self.n_peers], self.names[self.n_peers]
        c.request.port = 0
        return outcome

    cdef bint allows(self, Pump *pump, bint up, size_t n) except -1:
        """Within the user's limits in bytes? If the quota is used up, the association ends."""
        cdef Client c = self.client
        cdef Lane *lane
        if c.usage.meter == NULL:
            return True
        lane = &c.usage.meter.up if up else &c.usage.meter.down
        if pump.allowance < <int64_t>n and not c.context.limiter.refill(
                &c.usage, lane, c.terms, True, &pump.allowance, c.poller.now_us):
            c.refuse(QUOTA_EXCEEDED)
            return False
        if pump.allowance < <int64_t>n:
            return False
        pump.allowance -= n
        return True

    cdef int log(self, int outcome) except -1:      # a refused datagram has a line of its own
        cdef Client c = self.client
        if self.n_logged < MOST_LOGGED:
            self.n_logged += 1
            c.request.status = 0
            c.context.ended_us = clock_us()
            (<Journal>c.context.journal).write(c, outcome)
            c.request.status = 200
        return 0

    def end(self):
        cdef Client c = self.client
        cdef Datagrams side
        for side in (self.client_side, self.v4, self.v6):
            if side is not None:
                side.close()
                side.owner = None
        for token in self.waiting:
            c.context.resolver.abandon(token)
        c.context.association_places.give(self.asker)
        self.client = None


cdef bint goes_directly(Client c) except -1:
    return is_plain_direct(&c.request.hop) and (c.snapshot.ways is None or way_of(c) is None)


cdef int name_address(Client c, const Address *address) except -1:
    """For a line of the log: the destination is this address."""
    set_address(&target, address.family, address.bytes)
    target.port = address.port
    return set_destination(c, &target)


cdef inline bint is_asked(const Peer *peer, const Address *sender) noexcept nogil:
    return peer.address.port == sender.port and is_same_address(&peer.address, sender)


cdef int renew(Client c) except -1:
    """Takes over the newest policy: a datagram is no part of a request that began earlier.
    Returns an Outcome."""
    cdef Snapshot newest = c.context.snapshot
    if newest is not c.snapshot:
        if newest.hook is not None:
            return UNSUPPORTED_COMMAND
        account = account_in(c, newest)
        if account is None:
            return AUTH_FAILED
        c.account = account
        c.snapshot = newest
        c.request.rule = NOT_ASKED          # these numbers are of the policy before
        c.request.route = 0
    return AUTH_EXPIRED if c.account.has_expired() else OK
