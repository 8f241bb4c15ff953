"""One client's connection: what every journey of a request shares."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cutthrough.net.buffers cimport Block
from cutthrough.net.connector cimport Connector, Stream, StreamOwner
from cutthrough.net.address cimport Address
from cutthrough.net.poller cimport Poller
from cutthrough.net.relay cimport Pump, Relay
from cutthrough.policy.auth cimport Account
from cutthrough.policy.limits cimport Limiter, Terms, Usage
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.policy.decision_cache cimport Decision
from cutthrough.session.counters cimport Counters, Page
from cutthrough.session.phases cimport Stamps
from cutthrough.session.places cimport GUEST, STRANGER, Places
from cutthrough.session.request cimport Request
from cutthrough.session.flight_recorder cimport FlightRecorder
from cutthrough.session.state cimport DELIVER, HALF_CLOSED, IDLE, N_STATES, TUNNEL
from cutthrough.session.idle_pool cimport IdlePool
from cutthrough.wire.chunks cimport Chunks
from cutthrough.wire.http1 cimport Head, HeadLimits
from cutthrough.wire.target cimport Target

cdef class Journal:
    """Where endings are written down. Filled in by the room above."""
    cdef bint wants_fields              # of heads that are not kept to the end
    cdef int write(self, Client client, int outcome) except -1
    # Of a tunnel to be, before its head goes; asked where `wants_fields`.
    cdef int note_head(self, Client client, const Head *head, const char *data) except -1

cdef class Context:
    """What all sessions of a worker share. Options are copied into C fields once."""
    cdef Poller poller
    cdef IdlePool idle_pool
    cdef Snapshot snapshot
    cdef Limiter limiter
    cdef public Journal journal
    cdef Page page
    cdef Counters *counters
    cdef object resolver
    cdef dict local_origins             # key -> function, see local; None: there are none
    cdef FlightRecorder recorder
    cdef object verifier                # see verify.verifier; None: nothing needs one
    cdef HeadLimits limits
    cdef HeadLimits answer_limits       # of responses
    cdef int64_t timeout_ms[N_STATES]
    cdef int64_t lifetime_ms
    cdef int64_t grace_ms               # within which a peer owes
    cdef int64_t least_bytes            # so many bytes; 0: it owes none
    cdef int64_t most_body              # bytes; 0: no bound
    cdef int64_t most_clients
    cdef Py_ssize_t turned_away         # refused as they came, and not gone yet
    cdef Places places                  # connections that may be closed to make room
    cdef bint may_splice
    cdef public int origin_transport    # of all connections to origins; KERNEL: none
    cdef bint has_origin                # where requests in origin form go
    cdef Target origin
    cdef char pseudonym[64]             # in Via
    cdef size_t pseudonym_len
    cdef Client newest                  # of all clients, linked
    cdef bint draining
    cdef size_t pipes_refused           # of these, told so far
    cdef char date_text[32]             # of the second `date_s`
    cdef int64_t date_s

    # Into the list of what is open, and out of it; counted as open or not any more.
    cdef void link(self, Client client) noexcept
    cdef void unlink(self, Client client) noexcept
    # The time now, as a Date field says it; valid until the next call.
    cdef const char *date(self) noexcept

# A chunked body on its way through a pump: the scanner, and what followed the body. Made
# for the message, and gone with the request.
cdef struct Scan:
    Chunks chunks
    Pump *pump
    Block *surplus
    uint64_t most           # data bytes; 0: no bound
    size_t valid            # bytes before the one that was refused, in what came with it
    uint8_t no_room
    uint8_t too_large


# There are thousands of them at rest: small fields stand together, and what few of them
# need is made when it is needed. What each turn of a relay touches stands first, in five
# cache lines.
@cython.no_gc
cdef class Client(StreamOwner):
    cdef Context context
    cdef Stream origin
    cdef uint8_t state
    cdef uint8_t awaited                # whom the exchange waits for; see awaited.pxd
    cdef uint8_t up_open                # the request body is not yet whole
    cdef uint8_t until_close            # the response ends where the origin closes
    cdef uint32_t input_seen            # of input: parsed before as an unfinished head
    cdef Block *input                   # bytes of the client that nobody has taken yet
    cdef int64_t silent_ms              # the deadline without one byte
    cdef Usage usage                    # of what is limited; see usage
    cdef Relay relay
    cdef uint64_t told_up, told_down    # of what its pumps moved, counted so far
    cdef Stamps stamps

    cdef Snapshot snapshot              # of the generation that this request began with
    cdef Client older, newer            # neighbours in the context's list
    cdef Address address                # the client's
    cdef uint32_t place                 # in the context's places; 0: not listed
    cdef int64_t since_ms               # it is in its state
    # Where nobody is judged, of the last look: bytes moved by us, and past both peers
    # The deadline without enough bytes, and how many were past the peer when it began;
    # where nobody is awaited: at the last look, bytes moved and bytes past the kernel
    cdef int64_t judged_ms
    cdef int64_t judged_from

    # the request in hand; Python objects cannot stand in its struct
    cdef Request request
    cdef uint8_t turned_away            # refused as it came; see accept
    cdef uint8_t known                  # a request of this connection has authenticated
    cdef uint16_t id_worker             # gave it its identifier: 0: this one, else one more
    cdef Decision decision              # of the hook
    cdef Account account                # None: not authenticated
    cdef bytes user                     # its name, as logs have it
    cdef bytes tried                    # the name in credentials that are not verified
    cdef bytes key                      # canonical host and two bytes of port
    cdef uint64_t request_id
    cdef Block *head                    # the rewritten head, kept to the end of the exchange
    cdef Terms terms                    # of this request's user; None: no limits

    # the way to the origin
    cdef Connector connector
    cdef Block *partial                 # of a response head
    cdef Scan *up_scan                  # NULL: that body has no chunks
    cdef Scan *down_scan

    # A request begins: from here on there is something to write down.
    cdef int begin(self) except -1
    cdef int _set_state(self, int state) except -1
    # Moves the current state's deadline: something has moved.
    cdef int extend(self) except -1
    # Keeps bytes of the client for later. False: no room.
    cdef bint keep_input(self, const char *data, size_t n) noexcept nogil
    # Ends the request with an outcome: replies where a reply can be made.
    cdef int refuse(self, int outcome) except -1
    # Ends it when a part of the response is out already, or of a tunnel: see delivery.
    cdef int cut_short(self, int outcome) except -1
    # The exchange ran to its end: logs it, and goes on to the next request or closes.
    cdef int complete(self) except -1
    # Ends request and connection without a reply. `abortive`: RST, because what was
    # relayed so far must not look whole.
    cdef int abort(self, int outcome, bint abortive) except -1
    # Closes so that what was sent arrives. `at_once` where nothing can be unread.
    cdef int linger(self, bint at_once) except -1
    cdef int discard_input(self) except -1
    # Closes a connection without a request: counted, but nothing to write down. 0: it was
    # not, because a request waits to be read, and a close would be its reset.
    cdef int close_idle(self) except -1
    # Is a request or tunnel under way, and has it reached its greatest age?
    cdef bint waits_for_100(self) noexcept
    cdef bint is_too_old(self) noexcept
    # Finds a way to the origin for the request in hand; `fresh`: not from the idle pool.
    cdef int route(self, bint fresh) except -1
    cdef int close_origin(self, bint abortive) except -1
    # Adds what its pumps moved since the last call to the worker's counters; due after each
    # turn, so that a long one shows as it goes, and before a pump begins anew.
    cdef void count_moved(self) noexcept
    cdef int _record(self, int outcome) except -1
    cdef int _clear_request(self) except -1


# Bytes go both ways unread, or did until what is left is delivered. A CONNECT that came to
# no tunnel is a request.
cdef inline bint carries_tunnel(Client client) noexcept:
    return client.state == TUNNEL or client.state == HALF_CLOSED or (
        client.state == DELIVER and client.request.is_tunnel)


# The worker in a connection's identifier: the one where it began.
cdef inline int worker_of_id(Client client, int worker) noexcept:
    return client.id_worker - 1 if client.id_worker else worker


# The origin's address; while it is dialled, and where that fails, the last one that was
# tried. NULL: none was.
cdef inline const Address *peer_of(Client client) noexcept:
    if client.origin is not None and client.origin.address.family:
        return &client.origin.address
    if client.connector is not None and client.connector.tried.family:
        return &client.connector.tried
    return NULL


# Connections that count against max_connections: not those that were refused as they came,
# and have a bound of their own.
cdef inline int64_t places_taken(Context context) noexcept:
    return context.counters.live - context.turned_away


# It is at rest: lists it among those that may be closed to make room. Not one behind whose
# last request stands another one, which the next turn reads.
cdef inline void rest(Client client) noexcept:
    cdef bint has_part = client.input != NULL
    if not client.turned_away and (client.state != IDLE or not has_part):
        client.place = client.context.places.file(
            client.place, <void *>client, &client.address,
            (GUEST if client.known else STRANGER) + has_part, client.since_ms)


# It is not at rest any more, or of another kind.
cdef inline void leave_place(Client client) noexcept:
    if client.place:
        client.context.places.drop(client.place)
        client.place = 0
