"""A client's connection: the fields and endings that tunnels and plain requests share."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from cutthrough.net.address cimport Address
from cutthrough.net.buffers cimport Block, bytes_of, give_block
from cutthrough.net.connector cimport Upstream, UpstreamOwner
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.relay cimport Relay
from cutthrough.policy.auth cimport Account
from cutthrough.policy.hop cimport HOP_DIRECT
from cutthrough.policy.limits cimport Terms, Usage
from cutthrough.policy.parents cimport Standing
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.entrance cimport Entrance
from cutthrough.session.model.extras cimport NOTHING, Extras, has_responder, is_empty
from cutthrough.session.model.passage cimport Passage
from cutthrough.session.model.places cimport GUEST, STRANGER
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport Stamps
from cutthrough.session.model.state cimport (
    DELIVER, HALF_CLOSED, HEAD, IDLE, LINGER, PEEK, STREAMS)
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.names cimport M_CONNECT
from cutthrough.wire.openings cimport Opening
from cutthrough.wire.reply cimport is_head_of_call

cdef class Journal:
    """The log of endings. Implemented by `log`."""
    cdef bint wants_fields              # reads fields of heads that are not kept to the end
    cdef int write(self, Client client, int outcome) except -1
    # Before the head of a tunnel to be is dropped; called if `wants_fields`.
    cdef int note_head(self, Client client, const Head *head, const char *data) except -1

# The moments of each request, for what is built above the session: a capture, a store.
# Context.observer; without one, each moment costs the test of a pointer.
#
#     request ─> route ─> response ─> end
#
# For an activity tracker there are seven more, of connections, handshakes, parents and hand-over.
# These are functions of Python, because captures, which are at each request, do not have them.
#
# At any moment an observer may set a Tap on either pump of client.relay, to be passed the bytes
# from then on. The taps are removed when the request ends, or its tunnel is handed over. If a
# request goes to a parent in absolute form, the tap is passed the head as an origin would get it,
# without the parent's credentials.
cdef class Observer:
    # The request was read. `head`, rewritten already, and `data`, the bytes it points into, are
    # valid during the call only. `head` is NULL for a request without one: by SOCKS, and by a
    # transparent listener for all protocols but HTTP. An association of datagrams has port 0,
    # and only this moment and the end. A request by HTTP is not yet authenticated. A name from a
    # transparent client may prove wrong: then the address takes its place before the route.
    cdef int on_request(self, Client client, const Head *head, const char *data) except -1
    # A connection to the origin is there: dialled, pooled, or a function of this process. A
    # request that is retried has this moment twice.
    cdef int on_route(self, Client client) except -1
    # The final head of the response was read, and no byte of it was sent. `head` is NULL for a
    # tunnel whose reply is the proxy's own, if it has one: all but those by an upgrade.
    cdef int on_response(self, Client client, const Head *head, const char *data) except -1
    # The request has ended with this Outcome: once for each request that was begun, before the
    # log, also if an earlier moment was never reached.
    cdef int on_end(self, Client client, int outcome) except -1

# The awaited peer owes bytes until a deadline.
cdef struct Rate:
    int64_t until_ms        # the deadline
    int64_t from_bytes      # bytes past the peer when the period began

# No rate is owed: the exchange as it was when it was last looked at.
cdef struct Look:
    int64_t moved           # bytes that the pumps had moved
    int64_t passed          # bytes of these that the peers' kernels had acknowledged

cdef union Watch:
    Rate rate               # while `awaited` is a peer
    Look look               # else


# There are thousands of them at rest: small fields stand together, and fields that few of
# them need are made on demand. The fields that each turn of a relay touches stand first, in
# five cache lines.
@cython.no_gc
cdef class Client(UpstreamOwner):
    cdef Context context
    cdef Upstream origin
    cdef uint8_t state
    cdef uint8_t awaited                # the peer that the exchange waits for; see awaited.pxd
    cdef uint8_t up_open                # the request body is not yet whole
    cdef uint8_t until_close            # the response ends when the origin closes
    cdef uint8_t stages                 # bits of the stages that are left; see stages
    cdef uint8_t sender                 # load balancer that named the client; see proxied; 0: none
    cdef uint8_t turned_away            # refused at accept
    cdef uint8_t known                  # a request of this connection has authenticated
    cdef uint8_t pac                    # its listener's place in Context.pacs, plus 1; 0: none
    # Its door vouches for the user in hand, by a certificate or as the listener's: the name may be
    # in no table, and no credentials prove it
    cdef uint8_t vouched
    cdef uint16_t id_worker             # worker of its identifier, plus 1; 0: this worker
    # Bytes that its pumps moved, counted so far: the low 32 bits. Less is moved in a turn
    cdef uint32_t counted_up
    cdef Block *input                   # bytes of the client that are not taken yet
    cdef int64_t silent_ms              # the deadline without one byte
    cdef Usage usage                    # charges against limits; see charge
    cdef Relay relay
    cdef Stamps stamps
    cdef uint32_t counted_down          # as counted_up
    # Its user is a certificate's: Context.client_checks at the handshake. 0: it is not
    cdef uint32_t checks

    cdef Entrance entrance              # what its listener serves; None: taken over as a tunnel
    cdef Snapshot snapshot              # the one that this request began with
    cdef Client older, newer            # neighbours in the context's list
    cdef Address address                # the client's
    cdef uint32_t input_seen            # bytes of `input` parsed before as an unfinished head
    cdef int64_t since_ms               # time when it entered its state
    cdef Watch watch                    # what the peers are judged by; see min_rate

    # the request in hand; Python objects cannot stand in its struct
    cdef Request request
    cdef Account account                # None: not authenticated
    cdef bytes login                    # see user_of, tried_of
    cdef bytes key                      # canonical host and two bytes of port
    cdef uint64_t request_id
    cdef Block *head                    # the rewritten head, kept to the end of the exchange
    cdef Terms terms                    # of this request's user; None: no limits

    cdef Extras extras                  # what few requests need; else NOTHING

    # A request begins: from here on its end is logged.
    cdef int begin(self) except -1
    cdef int _set_state(self, int state) except -1
    # Restarts the current state's deadline, because bytes have moved.
    cdef int extend(self) except -1
    # Keeps bytes of the client for later. False: no room.
    cdef bint keep_input(self, const char *data, size_t n) noexcept nogil
    # Ends the request with an outcome: replies if a reply can be made.
    cdef int refuse(self, int outcome) except -1
    # Ends the request in hand with this reply; `close`: it is the connection's last.
    cdef int reply(self, int outcome, int status, const char *text, size_t n,
                   bint close) except -1
    # Ends a request whose response is partly out, or a tunnel: see delivery.
    cdef int cut_short(self, int outcome) except -1
    # The exchange ran to its end: logs it, and goes on to the next request or closes.
    cdef int complete(self) except -1
    # Ends request and connection without a reply. `abortive`: RST, because the bytes relayed
    # so far must not look whole.
    cdef int abort(self, int outcome, bint abortive) except -1
    # Closes so that sent bytes arrive. `at_once` if nothing can be unread.
    cdef int linger(self, bint at_once) except -1
    cdef int discard_input(self) except -1
    # Closes a connection without a request: counted, not logged. 0: still open, because a
    # request waits to be read, and a close would reset it.
    cdef int close_idle(self) except -1
    cdef bint waits_for_100(self) noexcept
    # Is a request or tunnel under way, and has it reached its greatest age?
    cdef bint is_too_old(self) noexcept
    # A session has the next two; a call at a probe is an error, see refuse_call.
    # The request in hand goes on at this phase; see phases.
    cdef int resume(self, int phase) except -1
    # Goes on with a final response whose head filters have let pass.
    cdef int resume_response(self, char *data, size_t n) except -1
    # The destination as the idle pool knows it, which may depend on the user.
    cdef bytes pool_key(self)
    # Keeps a connection to the request's origin for later requests: see tether.
    cdef int park(self, Upstream upstream, bint instead) except -1
    cdef int close_origin(self, bint abortive) except -1
    # Adds the bytes that its pumps moved since the last call to the worker's counters; due
    # after each turn, so that a long transfer shows as it goes, and before a pump restarts.
    cdef void count_moved(self) noexcept
    cdef int log_end(self, int outcome) except -1
    cdef int _count_end(self, int outcome) except -1
    cdef int _clear_request(self) except -1
    cdef int _abandon_waits(self) except -1
    cdef int _give_back(self) except -1


# The account's name, for rules, shares and logs.
cdef inline bytes user_of(Client client):
    return None if client.request.is_tried else client.login


# The address that the connection comes from, or that its PROXY header names.
cdef inline const Address *address_of_connection(Client client) noexcept:
    return &client.entrance.peer if client.entrance.has_peer else &client.address


# The key of the share that its queries to name servers and to the hook count against: the user; if
# the client has none, its address, or its network for IPv6.
cdef inline bytes asker_of(Client client):
    if user_of(client) is not None:
        return user_of(client)
    return (<char *>client.address.bytes)[:4 if client.address.family == 4 else 8]


# The name in credentials that are not verified, for logs.
cdef inline bytes tried_of(Client client):
    return client.login if client.request.is_tried else None


cdef inline void set_user(Client client, bytes user) noexcept:
    client.login = user
    client.request.is_tried = False


cdef inline void set_tried(Client client, bytes name) noexcept:
    client.login = name
    client.request.is_tried = True


# The client's own Extras, to set a field.
cdef inline Extras extras_of(Client client):
    if client.extras is NOTHING:
        client.extras = Extras.__new__(Extras)
    return client.extras


cdef inline void free_empty_extras(Client client) noexcept:
    if client.extras is not NOTHING and is_empty(client.extras):
        client.extras = NOTHING


# Ends the request's fields; a dial and a turn end by themselves, filters and player have to see the
# end.
cdef inline void drop_extras(Client client) noexcept:
    cdef Extras extras = client.extras
    if extras is not NOTHING:
        extras.decision = extras.passage = None
        extras.newer_limits = None
        give_block(&extras.partial)
        free(extras.opening)
        extras.opening = NULL
        extras.relieved = False
        free_empty_extras(client)


cdef inline void forget_dial(Client client) noexcept:
    client.extras.connector = None
    free_empty_extras(client)


cdef inline int set_tlvs(Client client, bytes tlvs) except -1:
    if tlvs is not None:
        extras_of(client).tlvs = tlvs
    return 0


# Bytes go both ways unread, or are about to, or did until DELIVER sends the rest. A CONNECT
# that became no tunnel is a request.
cdef inline bint carries_tunnel(Client client) noexcept:
    return PEEK <= client.state <= HALF_CLOSED or (
        client.state == DELIVER and client.request.is_tunnel)


# No request is begun, or a stream has it: an end is not logged.
cdef inline bint is_between_requests(Client client) noexcept:
    return client.state == IDLE or client.state == STREAMS or (
        client.state == HEAD and client.stamps.start_us == 0)


# Has a reload changed what client certificates are accepted since this one was?
cdef inline bint is_certified_before(Client client) noexcept:
    return client.checks != 0 and client.checks != client.context.client_checks


# Does a reply of our own now end the connection?
cdef inline bint is_last(Client client) noexcept:
    return (not client.request.persistent or client.up_open
            or client.request.method == M_CONNECT or client.context.draining)


# Whether the request in hand is a call of gRPC, by HTTP/2.
cdef inline bint is_call(Client client):
    return is_stream(&client.sock) and client.head != NULL and is_head_of_call(
        bytes_of(client.head)[:client.head.end])

# The reply that refuses the request in hand; `close`: it is the connection's last. Returns a
# borrowed pointer to memory that is valid until the next call; NULL: this outcome has none.
cdef const char *refusal_of(Client client, int outcome, bint close, size_t *length) noexcept


# The worker in a connection's identifier: the worker that accepted it.
cdef inline int worker_of_id(Client client, int worker) noexcept:
    return client.id_worker - 1 if client.id_worker else worker


# The origin's address; during a dial, and if it fails, the last address tried. NULL: none was.
cdef inline const Address *peer_of(Client client) noexcept:
    if client.origin is not None and client.origin.address.family:
        return &client.origin.address
    if client.extras.connector is not None and client.extras.connector.tried.family:
        return &client.extras.connector.tried
    return NULL


cdef inline Opening *own_opening(Client client) noexcept:
    return client.extras.opening


# The name of the parent that the request goes through; None: directly.
cdef inline bytes parent_of(Client client):
    if client.request.hop.parent == 0:
        return None
    return (<Standing>client.context.parents.standings[client.request.hop.parent]).name


# The request goes through no parent any more; it is counted by the number in its hop.
cdef inline void leave_parent(Client client) noexcept:
    if client.request.hop.parent:
        (<Standing>client.context.parents.standings[client.request.hop.parent]).in_hand -= 1
        client.request.hop.parent = 0


# As leave_parent, and the request may get another way.
cdef inline void drop_parent(Client client) noexcept:
    cdef Passage p = client.extras.passage
    leave_parent(client)
    client.request.hop.kind = HOP_DIRECT
    if p is not None:
        if p.parent is not None and client.request.hop.source == 0:
            client.request.hop.source = p.source
        p.member = -1
        p.parent = p.chain = None
        p.seeks_parent = False


# The client is at rest: lists it as one that may be closed to make room. Not if another
# request stands behind its last, because the next turn reads it. A guest that lingers has had its
# last answer, so it is closed as early as strangers.
cdef inline void rest(Client client) noexcept:
    cdef bint is_guest = client.known and client.state != LINGER
    cdef bint has_part = client.input != NULL or (
        client.stages != 0 and client.stamps.start_us != 0)
    if not client.turned_away and (client.state != IDLE or not has_part):
        client.usage.place = client.context.places.file(
            client.usage.place, <void *>client, &client.address,
            (GUEST if is_guest else STRANGER) + has_part, client.since_ms)


# The client is not at rest any more, or of another kind.
cdef inline void leave_place(Client client) noexcept:
    if client.usage.place:
        client.context.places.drop(client.usage.place)
        client.usage.place = 0


# Into and out of the list of open clients; both update the counters.
cdef inline void link(Context context, Client client) noexcept:
    context.counters.live += 1
    context.counters.states[client.state] += 1
    client.older = <Client>context.newest
    if context.newest is not None:
        (<Client>context.newest).newer = client
    context.newest = client


cdef inline void unlink(Context context, Client client) noexcept:
    context.counters.live -= 1
    context.counters.states[client.state] -= 1
    if client.newer is not None:
        client.newer.older = client.older
    elif context.newest is client:
        context.newest = client.older
    if client.older is not None:
        client.older.newer = client.newer
    client.older = client.newer = None
