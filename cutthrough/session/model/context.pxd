"""The objects and options that a worker's sessions share."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from cutthrough.net.buffers cimport HEAD_ROOM, head_scratch
from cutthrough.net.connector cimport UpstreamOwner
from cutthrough.net.poller cimport Poller
from cutthrough.policy.limits cimport Limiter
from cutthrough.policy.parents cimport Registry
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.model.counters cimport Counters, Page
from cutthrough.session.model.flight_recorder cimport FlightRecorder
from cutthrough.session.model.idle_pool cimport IdlePool
from cutthrough.session.model.places cimport Places
from cutthrough.session.model.state cimport N_STATES
from cutthrough.wire.authority cimport Target
from cutthrough.wire.http1 cimport HeadLimits
from cutthrough.wire.rewrite cimport Writing

cdef enum:
    PEEK_ALWAYS = 4         # for log, metrics and live page, not only if a rule needs it

# The options that connections read, each by its name, and in C's units. Context.configure is the
# table of their values.
cdef struct Options:
    int64_t timeout_ms[N_STATES]        # of each state the option that its row in `states` names
    int64_t lifetime_ms
    int64_t min_rate_grace_ms           # the period over which a peer's rate is judged
    int64_t min_rate_bytes              # bytes that a peer owes in that period; 0: none
    int64_t max_body                    # bytes; 0: no bound
    int64_t max_connections
    HeadLimits request_limits           # max_line, max_head, max_fields
    HeadLimits response_limits          # max_response_head
    uint32_t http2_streams              # of one connection of HTTP/2, at a time
    uint16_t client_tls                 # TLS context of intercepted clients
    uint8_t peeks                       # of tunnels' first bytes: PEEK_ALWAYS, Fingerprint
    uint8_t prints                      # of clients' connections: a set of Print
    bint passes_offers                  # a ClientHello to an origin offers what the client's does
    bint retry_without_sni
    bint splice

cdef class Context:
    """The objects and options that a worker's sessions share."""
    cdef Poller poller
    cdef IdlePool idle_pool
    cdef Snapshot snapshot
    cdef Limiter limiter
    cdef public object journal          # the Journal of client
    cdef public object observer         # an Observer; None: none
    cdef Page page
    cdef public int worker              # its number, in requests' ids
    cdef public object tally            # see worker.tally; None: nobody counts by rule
    cdef Counters *counters
    cdef object resolver
    cdef public dict sources            # number -> Source, of all generations; None: none
    cdef public list pacs               # see pac: a Pac, or None; by listener
    cdef dict associations              # request_id -> Association; see associate
    cdef object association_places      # their Shares
    cdef readonly Registry parents
    cdef public dict standbys           # a parent's number -> Standby; None: none are kept
    cdef public object carriers         # Carriers, see origin_streams; None: none
    cdef public object player           # see session.replay; None: no rule has recorded yet
    cdef public object answer_cache     # AnswerCache, see session.replay; None: there is no player
    cdef public object room             # see recording_room; None: nothing was ever recorded
    cdef public object rate_queue       # see rate_queue; None: no request has waited
    cdef public int recording           # policy's Recording, in place of the rules'; < 0: theirs
    cdef dict local_origins             # key -> function, see local; None: there are none
    cdef public FlightRecorder recorder
    cdef public object verifier         # see verify.verifier; None: no user has a hash
    cdef Options options
    cdef Py_ssize_t turned_away         # open connections that were refused at accept
    cdef Places places                  # connections that may be closed to make room
    cdef uint8_t acts                   # those of policy.acl.Act that are heeded
    cdef public int origin_transport    # of all connections to origins; KERNEL: none
    cdef bint has_origin                # `origin` is set, for requests in origin form
    cdef Target origin
    cdef char pseudonym[64]             # in Via
    cdef size_t pseudonym_len
    cdef UpstreamOwner newest           # of all clients: see client.link
    cdef bint draining
    cdef uint32_t client_checks         # counts the changes of what certificates are accepted
    cdef int64_t ended_us               # CLOCK_MONOTONIC at the ending in hand, for who counts it
    cdef size_t pipes_refused           # refused pipes counted so far
    cdef char date_text[32]             # Date field of the second `date_s`
    cdef int64_t date_s

    # The time now, in a Date field's format; valid until the next call.
    cdef const char *date(self) noexcept


# Of a rewritten head, into head_scratch. `options`: a set of WritingOption.
cdef inline Writing writing_of(Context context, int options) noexcept:
    return Writing(
        head_scratch(), HEAD_ROOM, &context.pseudonym[0], context.pseudonym_len, options)

# Connections that count against max_connections: those refused at accept do not, and have a
# bound of their own.
cdef inline int64_t places_taken(Context context) noexcept:
    return context.counters.live - context.turned_away
