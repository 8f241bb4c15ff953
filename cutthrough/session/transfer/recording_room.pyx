# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Room for exchanges that are recorded: some begin, some wait, some go on unrecorded.

    take_room ──────────────────────────────> the origin     the writer keeps up: the usual case
         └─ HELD, in the order of arrival ──> the way is looked for again
              └─ its rule's time, or too many wait ─> refused, or unrecorded

Records wait in a ring for one writer. If the writer is behind, recorded requests do not begin until
it has caught up, because the record of an exchange under way would be lost. Other requests never
come here. The origin is dialled afterwards, because its connection would be idle meanwhile. If the
rule refuses an exchange without a record, a body beyond the bound ends the exchange: before a byte
of it is sent, if its length is known.
"""

cimport cython
import logging

from libc.stdint cimport int64_t, uint64_t
from cutthrough.outcome cimport BODY_TOO_LARGE, OK, RECORDING_FULL, RECORDING_TOO_LARGE
from cutthrough.policy.acl cimport Row
from cutthrough.session.model.chunked_body cimport Scan, scan_of
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.phase cimport PHASE_TO_ORIGIN, parked
from cutthrough.session.model.recording_mode cimport (
    AWAITS_ROOM, GOES_UNRECORDED, HAS_ROOM, MUST_FIT, UNASKED)
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport HELD

log = logging.getLogger("cutthrough")

cdef enum:
    LOOK_MS = 5
    # Of an exchange under way: heads, its end, and a body that comes at once
    OF_EXCHANGE = 16384


@cython.no_gc
cdef class Room(Endpoint):

    def attach(self, Context context):
        self.poller = context.poller
        self.waiting = {}
        self.depths = {}

    def bound(self, uint64_t low, uint64_t high, uint64_t most, uint64_t most_body):
        self.low, self.high, self.most, self.most_body = low, high, most, most_body

    @property
    def waiting_now(self):
        return len(self.waiting)

    def counts(self):
        """Counts of requests: waited for room, went on unrecorded."""
        return {"waited": self.waited, "passed": self.passed}

    def leave(self, Client c):
        """The client's request has ended: there is room for another."""
        forget(self, c)

    def end(self):
        """Ends the wait before its poller is detached, when no client is left."""
        self.poller.wheel.disarm(&self.timer)

    cdef uint64_t fill(self) noexcept:
        return 0

    cdef int lost(self, Client client) noexcept:
        return OK

    cdef int watch(self) except -1:
        return 0 if self.timer.filed_tick else self.set_deadline(LOOK_MS)

    cdef int on_deadline(self) except -1:
        cdef Client c
        for c in list(self.waiting):
            if c.request.room != AWAITS_ROOM:
                continue                # it has ended meanwhile
            if not has_room(self, c):
                if self.is_failing:
                    continue            # another one may go unrecorded
                break
            enter(self, c)
            try:
                c.poller.take_time()
                c.stamps.hook_us += end_brief_phase(&c.stamps)
                c.resume(PHASE_TO_ORIGIN)
            except BaseException:
                c.poller.contain(c)
        self.fill()
        return self.watch() if self.waiting or self.is_holding else 0

    cdef int close(self) except -1:
        return 0


cdef bint has_room(Room room, Client c) noexcept:
    """Once the writer is behind, it has to catch up: else each request would wait a little."""
    cdef uint64_t level = room.fill()
    cdef uint64_t body = <uint64_t>c.relay.up.left if c.relay.up.left > 0 else 0
    room.is_behind = level > (room.low if room.is_behind else room.high)
    return not room.is_behind and not (room.is_failing and refuses(c)) and (
        level + <uint64_t>room.admitted * OF_EXCHANGE + min(body, room.most_body) <= room.most)


cdef int enter(Room room, Client c) except -1:
    cdef Scan *scan = scan_of(&c.relay.up)
    forget(room, c)
    c.request.room = MUST_FIT if refuses(c) else HAS_ROOM
    if c.request.room == MUST_FIT and scan != NULL and (
            scan.most == 0 or scan.most > room.most_body):
        scan.most = room.most_body
    room.admitted += 1
    return 0


cdef inline bint refuses(Client c) noexcept:
    return c.snapshot.acl.rows[c.request.rule].refuses_unrecorded


cdef bint is_too_large(Room room, Client c) noexcept:
    """The length that the request declares, if its rule refuses exchanges that cannot be recorded."""
    return refuses(c) and c.relay.up.left > <int64_t>room.most_body


cdef bint takes_room(Client c) except -1:
    cdef Room room = <Room>c.context.room
    if room.waiting or is_too_large(room, c) or not has_room(room, c):
        return False
    enter(room, c)
    return True


cdef int take_room(Client c) except -1:
    if not wants_room(c) or c.request.address_dependent or takes_room(c):
        return OK
    return await_room(c)


cdef int await_room(Client c) except -1:
    """As a phase returns: it waits, it goes on unrecorded, or it is refused."""
    cdef Room room = <Room>c.context.room
    cdef const Row *row = &c.snapshot.acl.rows[c.request.rule]
    cdef bytes label = c.snapshot.acl.label(c.request.rule)
    cdef uint64_t depth = room.depths.get(label, 0)
    if is_too_large(room, c):
        return RECORDING_TOO_LARGE
    if depth >= row.queue:
        return go_without(c)
    room.depths[label] = depth + 1
    room.waiting[c] = label
    room.waited += 1
    c.request.room = AWAITS_ROOM
    c._set_state(HELD)
    c.silent_ms = c.poller.time_ms() + row.queue_ms
    c.poller.arm(c, c.silent_ms)
    return parked(room.watch())


cdef int end_waiting(Client c) except -1:
    cdef int outcome
    c.stamps.hook_us += end_brief_phase(&c.stamps)
    outcome = go_without(c)
    return c.refuse(outcome) if outcome != OK else c.resume(PHASE_TO_ORIGIN)


cdef int go_without(Client c) except -1:
    """Returns an Outcome."""
    cdef Room room = <Room>c.context.room
    forget(room, c)
    if refuses(c):
        return RECORDING_FULL
    c.request.room = GOES_UNRECORDED
    room.passed += 1
    if room.passed & (room.passed - 1) == 0:        # 1, 2, 4, 8 …: never a flood
        log.warning("a request to %s is not recorded: the writer is behind (%d so far)",
                    c.key[:len(c.key) - 2].decode("latin-1"), room.passed)
    return OK


cdef int forget(Room room, Client c) except -1:
    cdef int before = c.request.room
    cdef bytes label
    c.request.room = UNASKED
    if before == HAS_ROOM or before == MUST_FIT:
        room.admitted -= 1
    elif before == AWAITS_ROOM:
        label = room.waiting.pop(c)
        room.depths[label] -= 1
        if not room.depths[label]:
            del room.depths[label]
    return 0


cdef int bound_response(Client c) noexcept:
    cdef Room room = <Room>c.context.room
    cdef int64_t left = c.relay.down.left
    if scan_of(&c.relay.down) != NULL:
        scan_of(&c.relay.down).most = room.most_body
    elif left > <int64_t>room.most_body:
        return RECORDING_TOO_LARGE
    elif left > 0 and room.fill() + <uint64_t>left > room.most:
        return RECORDING_FULL
    return OK


cdef int outcome_of_length(Client c) noexcept:
    cdef int64_t most = c.context.options.max_body
    return RECORDING_TOO_LARGE if c.request.room == MUST_FIT and (
        most == 0 or scan_of(&c.relay.up).most < <uint64_t>most) else BODY_TOO_LARGE
