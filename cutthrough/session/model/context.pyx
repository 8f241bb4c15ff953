# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The objects and options that a worker's sessions share."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from libc.stdint cimport uint8_t
from libc.string cimport memcpy
from cutthrough.net cimport linux
from cutthrough.net.pipes cimport pipes_refused
from cutthrough.net.shares import Shares
from cutthrough.policy.acl cimport (
    BY_BREAKPOINT, BY_CONNECT, BY_FAULTS, BY_FILTERS, BY_HEADERS)
from cutthrough.session.model.places cimport Places
from cutthrough.session.model.state cimport IDLE, LINGER
from cutthrough.session.model.states import TABLE
from cutthrough.wire.authority cimport parse_authority
from cutthrough.wire.date cimport build_date
from cutthrough.wire.http1 cimport MAX_FIELDS, HeadLimits
from cutthrough.wire.openings cimport WITH_JA3, WITH_JA4

log = logging.getLogger("cutthrough")

cdef enum:
    # UDP by SOCKS: each has up to three descriptors, of which RESERVED_FDS knows nothing
    MOST_ASSOCIATIONS = 256


class ConnectionOptions(NamedTuple):
    """The options of connections that a reload may change, by their names, and what a generation
    makes of others. Sizes are in bytes, times in seconds."""

    timeouts: Mapping[str, float]       # by the names in the table of states
    lifetime: float
    max_line: int
    max_head: int
    max_fields: int
    max_response_head: int
    max_body: int                       # 0: no bound
    max_connections: int
    splice: bool
    min_rate: int                       # bytes per second; 0: none
    min_rate_grace: float               # over which it is judged
    http2_streams: int                  # of one connection
    retry_without_sni: bool
    peeks: bool                         # the first bytes of each tunnel are looked at,
    peeks_ja4: bool                     # and these fingerprints of them are made
    peeks_ja3: bool
    prints: int                         # fingerprints of clients: a set of prints.Print
    client_tls: int                     # number of the TLS context of intercepted clients
    passes_offers: bool                 # a ClientHello's are offered to the origin


cdef class Context:

    def __init__(self, *, Poller poller, IdlePool idle_pool, journal, Page page,
                 resolver, origin, via):
        """`origin`: host:port for requests in origin form, or "". `via`: the pseudonym, or none.
        `resolver`: see net.dns.resolver. `configure` sets the rest, before the first connection,
        but for `verifier` and `recorder`, which some workers have."""
        cdef bytes text
        self.client_checks = 1
        self.poller = poller
        self.idle_pool = idle_pool
        self.journal = journal
        self.page = page
        self.counters = page.c
        self.places = Places()
        self.recording = -1
        self.associations = {}
        self.association_places = Shares(MOST_ASSOCIATIONS)
        self.parents = Registry()
        self.resolver = resolver
        self.pipes_refused = pipes_refused()    # earlier ones are not ours
        self.recorder = FlightRecorder()
        self.heed_breakpoints(False)
        if origin:
            text = origin.encode()
            if parse_authority(&self.origin, text, len(text), 80) != 0:
                raise ValueError(f"origin {origin!r} cannot be read")
            self.has_origin = True
        text = via.encode()
        if len(text) > 64:
            raise ValueError("the pseudonym has more than 64 bytes")
        memcpy(self.pseudonym, <char *>text, len(text))
        self.pseudonym_len = len(text)

    def configure(self, Snapshot snapshot, Limiter limiter, options not None):
        """Takes over the ConnectionOptions that a reload may change; a request keeps its snapshot.
        Running deadlines stay until bytes move."""
        cdef Options values
        for number, row in enumerate(TABLE):
            values.timeout_ms[number] = int(options.timeouts[row.timeout] * 1000) if row.timeout else 0
        values.lifetime_ms = int(options.lifetime * 1000)
        values.min_rate_grace_ms = int(options.min_rate_grace * 1000)
        values.min_rate_bytes = int(options.min_rate * options.min_rate_grace)
        values.max_body = options.max_body
        values.max_connections = options.max_connections
        values.request_limits = HeadLimits(options.max_line, options.max_head, options.max_fields)
        values.response_limits = HeadLimits(
            options.max_response_head, options.max_response_head, MAX_FIELDS)
        values.http2_streams = options.http2_streams
        values.client_tls = options.client_tls
        values.peeks = <uint8_t>(
            (PEEK_ALWAYS if options.peeks else 0) | (WITH_JA4 if options.peeks_ja4 else 0)
            | (WITH_JA3 if options.peeks_ja3 else 0))
        values.prints = options.prints
        values.passes_offers = options.passes_offers
        values.retry_without_sni = options.retry_without_sni
        values.splice = options.splice
        # Only now, because a number that does not fit must leave the old ones in force (R73)
        self.options = values
        self.snapshot = snapshot
        self.limiter = limiter

    def note_pipes(self):
        """Bulk was copied because no pipe was available. That costs CPU time and breaks no
        connection, so no connection is closed for it, and it is logged seldom."""
        cdef size_t before = self.pipes_refused
        self.pipes_refused = pipes_refused()
        self.counters.starved += self.pipes_refused - before
        if before == 0 or before.bit_length() != self.pipes_refused.bit_length():
            log.warning("pipe: none to be had (%d times so far); bulk is copied meanwhile",
                        self.pipes_refused)

    cdef const char *date(self) noexcept:
        cdef linux.timespec now
        linux.clock_gettime(linux.CLOCK_REALTIME, &now)
        if now.tv_sec != self.date_s:
            self.date_s = now.tv_sec
            build_date(self.date_text, self.date_s)
        return self.date_text

    def heed_breakpoints(self, bint on):
        """Whether a rule's `breakpoint` is heeded, in requests that are judged from now on."""
        self.acts = BY_FAULTS | BY_FILTERS | BY_HEADERS | BY_CONNECT | (
            BY_BREAKPOINT if on else 0)

    def renew_client_checks(self):
        """Who has a user by a certificate needs a new handshake for the next request."""
        self.client_checks += 1

    def start_draining(self):
        """From now on each response is the last of its connection."""
        self.draining = True

    @property
    def live(self):
        """Client connections open now."""
        return self.counters.live

    @property
    def busy(self):
        """Client connections with work in hand: all but the idle and the lingering."""
        return (self.counters.live - self.counters.states[IDLE]
                - self.counters.states[LINGER])
