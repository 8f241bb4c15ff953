# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a worker counts, in a page that the supervisor can read while it runs.

The page has one writer: the worker, or its replacement on the same slot. Each word is
written whole, so a reader never sees half of one. No name here comes from the wire (R38):
an unknown method is OTHER, and so is a status beyond 599. A listener's name is the address
that it is bound to.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
from cutthrough.net.sysio cimport clock_us
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.policy.parents cimport N_LOSSES
from cutthrough.policy.parents import LOSSES
from cutthrough.session.model.states import TABLE as STATES
from cutthrough.wire.openings import PROTOCOLS

# Room for the counters, some 7 200 words, and for the rows behind them. mmap(2) takes offsets in
# whole pages, and a page of arm64 may have 64 KiB
PAGE_BYTES = 131072

# Upper bounds in milliseconds, for a dial, a first byte, a request, a tunnel's life
BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000, 600_000,
           3_600_000, 36_000_000)

# In the order of wire's Method
METHODS = ("OTHER", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT",
           "SOCKS5", "SOCKS4", "UDP", "TUNNEL")
CODES = (*range(100, 600), "OTHER")

# In the order of Bound, and of Gone
BOUNDS = ("connections", "client", "memory", "descriptors", "handshakes")
GONE = ("stranger", "head", "guest", "pooled")

# Totals of the room above: read from its objects now and then, not counted here
TOTALS_ABOVE = ("log_dropped", "dns_answered", "dns_not_found", "dns_failed", "dns_hit",
                "dns_stale", "dns_prefetched", "drain_finished", "dns_dropped", "dns_refused",
                "hook_asked", "hook_failed", "hook_dropped", "hook_refused",
                "filter_calls", "filter_failed", "filter_overran",
                "breakpoint:held", "breakpoint:edited", "breakpoint:passed",
                "breakpoint:aborted", "breakpoint:expired", "breakpoint:skipped",
                "no_room:relays", "no_room:requests", "no_room:strangers",
                "auth_hashes", "auth_evicted", "tls:full", "tls:resumed",
                "leaf:made", "leaf:kept", "recording:waited", "recording:passed",
                "activity:calls", "activity:failed", "activity:overran", "activity:dropped",
                "activity_us")
GAUGES_ABOVE = ("lag_us", "due_us", "upstream_idle", "dns_entries", "dns_open", "hook_open",
                "held:relays", "held:requests", "held:strangers", "auth_queue", "auth_held",
                "tls_open", "tls_under_way", "breakpoint_holds", "recording_waiting")


# Words of a parent's row; its state is 0 if no configuration in force has it
PARENT_GAUGES = ("state", "retry_ms", "setup_us", "standby", "open")
PARENT_TOTALS = ("requests", "connects", "connects_us", "checks ok", "checks failed",
                 "standby used", "standby lost", *(f"lost {reason}" for reason in LOSSES))
TALLIES = ("passed", "refused", "id", "worker", "at_ms")
PARENT_STATES = ("", "up", "open", "down")

cdef enum:
    # Parents over the life of a page; any beyond these share the last row
    N_PARENTS = 32
    PARENT_BYTES = 64           # of a name, NUL included
    # Rules and groups over the life of a page, likewise
    N_TALLIES = 96
    N_PARENT_GAUGES = 5
    N_PARENT_TOTALS = 7 + N_LOSSES

# Behind the Counters. A name stands in the page itself, as a listener's does
cdef struct ParentRow:
    char name[PARENT_BYTES]     # "": free
    int64_t gauges[N_PARENT_GAUGES]
    int64_t totals[N_PARENT_TOTALS]

# Behind the rows of parents
cdef struct TallyRow:
    char name[PARENT_BYTES]     # "": free
    int64_t counts[5]           # as TALLIES; the three last are of the request refused last


def _of_histogram(name):
    return (*(f"{name}:{bound}" for bound in (*BUCKETS, "more")), f"{name}:sum_us")


FIELDS = (
    "accepted", "refused", "requests", "tunnels", "bytes_up", "bytes_down", "spliced_up",
    "spliced_down", "dialled", "reused", "retried", "identified", "verified",
    "intercepted", "pinned", "faults", "starved", "shed",
    *(f"shed:{bound} {gone}" for bound in BOUNDS for gone in GONE),
    "next_id", "peak", *TOTALS_ABOVE, *GAUGES_ABOVE, "live",
    *(f"state:{row.name}" for row in STATES),
    *(f"outcome:{row.label}" for row in OUTCOMES),
    *(f"tunnel:{row.label}" for row in OUTCOMES),
    *(f"protocol:{word}" for word in PROTOCOLS),
    *(f"reply:{method} {code}" for method in METHODS for code in CODES),
    *_of_histogram("tunnel_ms"), *_of_histogram("connect_ipv4_ms"),
    *_of_histogram("connect_ipv6_ms"), *_of_histogram("first_byte_ms"),
    *_of_histogram("request_ms"),
    *_of_histogram("auth_wait_ms"),
)

assert len(BUCKETS) == N_BUCKETS and len(METHODS) == N_METHODS and len(CODES) == N_CODES
assert len(BOUNDS) == N_BOUNDS and len(GONE) == N_GONE
assert len(PARENT_GAUGES) == N_PARENT_GAUGES and len(PARENT_TOTALS) == N_PARENT_TOTALS
assert sizeof(Counters) + N_PARENTS * sizeof(ParentRow) + (
    N_TALLIES * sizeof(TallyRow)) <= PAGE_BYTES
if len(FIELDS) * 8 + N_LISTENERS * sizeof(Listener) != sizeof(Counters):
    # The fields come from other modules, and C has their number
    raise ImportError("the compiled modules do not belong together, or not to this source: "
                      "run `make build`")

_numbers = {name: number for number, name in enumerate(FIELDS)}

cdef int64_t bounds_us[N_BUCKETS]
for _number, _bound in enumerate(BUCKETS):
    bounds_us[_number] = _bound * 1000

cdef size_t n_fields = len(FIELDS)
cdef size_t first_reply = _numbers["reply:OTHER 100"]


cdef class Page:

    def __init__(self, memory=None):
        """Makes counters on writable `memory` of PAGE_BYTES bytes, or on memory of their own."""
        cdef unsigned char[::1] view
        cdef int i
        self.memory = bytearray(PAGE_BYTES) if memory is None else memory
        view = self.memory
        if view.shape[0] < PAGE_BYTES:
            raise ValueError("a counters page has %d bytes" % PAGE_BYTES)
        self.c = <Counters *>&view[0]
        # A replacement uses the page of a dead worker: totals go on, gauges restart at 0
        self.c.live = 0
        memset(self.c.gauges_above, 0, sizeof(self.c.gauges_above))
        memset(self.c.states, 0, sizeof(self.c.states))
        for i in range(N_PARENTS):
            memset(parents_of(self.c)[i].gauges, 0, sizeof(parents_of(self.c)[i].gauges))
        # A replacement, on another page or in the next program too, numbers from above:
        # operators cut by these numbers. No worker serves a request every 16 us
        self.c.next_id = max(self.c.next_id, <uint64_t>clock_us() >> 4)

    @property
    def live(self):
        """Client connections open now."""
        return self.c.live

    def read(self):
        """All counters by name."""
        return read_page(self.memory)

    def add(self, name, count):
        """Adds to a counter of the room above."""
        (<int64_t *>self.c)[<size_t>_numbers[name]] += count

    def set(self, name, value):
        """Sets a gauge of the room above."""
        (<int64_t *>self.c)[<size_t>_numbers[name]] = value

    def observe_auth(self, int64_t us):
        """Counts one more request that waited `us` for its credentials to be verified."""
        observe(&self.c.auth_wait, us)

    def add_listener(self, str name):
        """Gives the listener of this address its number; if it had one before, that number.

        If all are taken it shares the last one, which is then named "others"."""
        cdef Listener *listeners = self.c.listeners
        return row_number(listeners[0].name, sizeof(Listener), N_LISTENERS, LISTENER_BYTES,
                          name)

    def write_parents(self, rows):
        """`rows`: (name, gauges, the increase of each total), as PARENT_GAUGES and
        PARENT_TOTALS have them. Parents that find no row of their own share the last one,
        which is then named "others" and has no gauges."""
        cdef ParentRow *parents = parents_of(self.c)
        cdef int number, i
        for name, gauges, increases in rows:
            number = row_number(parents[0].name, sizeof(ParentRow), N_PARENTS, PARENT_BYTES, name)
            if number != N_PARENTS - 1:
                for i, value in enumerate(gauges):
                    parents[number].gauges[i] = value
            for i, value in enumerate(increases):
                parents[number].totals[i] += value

    def write_tallies(self, rows):
        """`rows`: (name, counts) of rules and groups, as TALLIES has them; of the first two the
        increase. Those that find no row of their own share the last one, "others"."""
        cdef TallyRow *tallies = tallies_of(self.c)
        cdef TallyRow *row
        for name, counts in rows:
            row = &tallies[row_number(tallies[0].name, sizeof(TallyRow), N_TALLIES, PARENT_BYTES,
                                      name)]
            row.counts[0] += counts[0]
            row.counts[1] += counts[1]
            if counts[2]:
                row.counts[2] = counts[2]
                row.counts[3], row.counts[4] = counts[3], counts[4]


cdef inline TallyRow *tallies_of(const Counters *c) noexcept nogil:
    return <TallyRow *>(parents_of(c) + N_PARENTS)


cdef inline ParentRow *parents_of(const Counters *c) noexcept nogil:
    return <ParentRow *>(c + 1)


cdef int row_number(char *names, size_t stride, int rows, size_t room, str name) except -1:
    """The row with this name, else a free row, which gets it. `names` is the first row's,
    of `room` bytes, and each next one is `stride` further. If no row is free, the last one
    serves, which is then named "others"."""
    cdef bytes text = name.encode()[:room - 1]
    cdef char *row = names
    cdef int i
    for i in range(rows):
        row = names + i * stride
        if row == text:
            return i
        if i < rows - 1 and row[0]:
            continue
        if i == rows - 1:
            text = b"others"
        # The first byte last: a reader that sees it sees the rest
        memcpy(row + 1, <const char *>text + 1, len(text))
        row[0] = text[0]
        return i
    return rows - 1


def read_page(memory):
    """All counters of a page by name, those of replies only if they are not zero, and
    `accepted:address` for each listener, `parent:name word` for each parent, see
    PARENT_GAUGES, and `tally:name`, a line's end and a word of TALLIES. Changes nothing: for
    readers of another's page."""
    cdef const unsigned char[::1] view = memory
    cdef const int64_t *words
    cdef const Listener *listener
    cdef const ParentRow *row
    cdef const TallyRow *tally
    cdef size_t i
    cdef int n
    cdef bytes name
    if view.shape[0] < PAGE_BYTES:
        raise ValueError("a counters page has %d bytes" % PAGE_BYTES)
    words = <const int64_t *>&view[0]
    counts = {}
    for i in range(n_fields):
        if words[i] or not first_reply <= i < first_reply + N_METHODS * N_CODES:
            counts[FIELDS[i]] = words[i]
    for n in range(N_LISTENERS):
        listener = &(<const Counters *>words).listeners[n]
        if listener.name[0]:
            name = <const char *>listener.name
            counts["accepted:" + name.decode("utf-8", "replace")] = listener.accepted
    for n in range(N_PARENTS):
        row = &parents_of(<const Counters *>words)[n]
        if row.name[0]:
            name = <const char *>row.name
            key = f"parent:{name.decode('utf-8', 'replace')} "
            counts |= {key + PARENT_GAUGES[k]: row.gauges[k]
                       for k in range(<int>N_PARENT_GAUGES)}
            counts |= {key + PARENT_TOTALS[k]: row.totals[k]
                       for k in range(<int>N_PARENT_TOTALS)}
    for n in range(N_TALLIES):
        tally = &tallies_of(<const Counters *>words)[n]
        if tally.name[0]:
            name = <const char *>tally.name
            key = f"tally:{name.decode('utf-8', 'replace')}\n"
            counts |= {key + TALLIES[k]: tally.counts[k] for k in range(5)}
    return counts


cdef void observe(Histogram *histogram, int64_t us) noexcept nogil:
    cdef int i = 0
    if us < 0:
        us = 0
    while i < N_BUCKETS and us > bounds_us[i]:
        i += 1
    histogram.counts[i] += 1
    histogram.sum_us += us


cdef void count_accept(Counters *c, int listener) noexcept nogil:
    c.accepted += 1
    c.listeners[listener].accepted += 1
    if c.live > c.peak:
        c.peak = c.live


cdef void count_dial(Counters *c, int family, int64_t us) noexcept nogil:
    c.dialled += 1
    observe(&c.connects[0 if family == 4 else 1], us)


cdef void count_shed(Counters *c, int bound, int gone) noexcept nogil:
    c.shed += 1
    c.sheds[bound][gone] += 1


cdef void count_reply(Counters *c, int method, int status) noexcept nogil:
    if status:
        c.replies[method if 0 <= method < N_METHODS else 0][
            status - 100 if 100 <= status < 600 else N_CODES - 1] += 1


cdef void count_end(
        Counters *c, int outcome, bint is_tunnel, int64_t first_byte_us, int64_t us) noexcept nogil:
    c.outcomes[outcome] += 1
    if first_byte_us:
        observe(&c.first_byte, first_byte_us)
        if not is_tunnel:
            observe(&c.request, us)
    if is_tunnel:
        c.tunnels += 1
        c.tunnel_ends[outcome] += 1
        observe(&c.tunnel, us)
    else:
        c.requests += 1
