# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Requests beyond a rate wait for their turn: `queue` and `queue_timeout` of limits.

    charge ─ over the rate ─> HELD, in a line of its user, client or table ─> its phase again
                                └─ queue_timeout, or the line is full ─> rate_limited

A line is of one worker, and as long as `queue`. Its first request is charged again every LOOK_MS,
and a later one never before it. A tunnel waits as a request does. If limits are known only with the
address, they refuse at once. Without a queue in the policy, each charge tests a pointer.
"""

cimport cython

from cutthrough.outcome cimport RATE_LIMITED
from cutthrough.policy.limits cimport Terms
from cutthrough.session.model.charge cimport counted_of
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.phase cimport PHASE_CHARGE, PHASE_FAULTS
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport HELD

cdef enum:
    LOOK_MS = 10


@cython.no_gc
cdef class RateQueue(Endpoint):

    def attach(self, Context context):
        self.poller = context.poller
        self.waiting = {}

    def wait_s(self, Client c, key):
        """The seconds until the first of those who wait for the same has its token; 0: nobody
        waits before this one."""
        cdef list clients = self.waiting.get(key)
        if not clients or self.trying is c:
            return 0
        return max(1, (<Client>clients[0]).request.retry_s)

    def leave(self, Client c):
        """The client's request has ended."""
        for key, clients in self.waiting.items():
            if c in clients:
                clients.remove(c)
                if not clients:
                    del self.waiting[key]
                return

    @property
    def waiting_now(self):
        return sum(map(len, self.waiting.values()))

    def end(self):
        """Ends the queue before its poller is detached, when no client is left."""
        self.poller.wheel.disarm(&self.timer)

    cdef int watch(self) except -1:
        return 0 if self.timer.filed_tick else self.set_deadline(LOOK_MS)

    cdef int on_deadline(self) except -1:
        for key in list(self.waiting):
            clients = self.waiting[key]
            while clients and self.lets_go(clients[0]):
                clients.pop(0)
            if not clients:
                del self.waiting[key]
        return self.watch() if self.waiting else 0

    cdef bint lets_go(self, Client c) except -1:
        cdef int phase = c.request.queued - 1
        self.trying, self.stays = c, False
        c.request.queued = 0
        try:
            c.poller.take_time()
            c.stamps.hook_us += end_brief_phase(&c.stamps)
            c.resume(phase)
        except BaseException:
            c.poller.contain(c)
        self.trying = None
        return not self.stays

    cdef int close(self) except -1:
        return 0


cdef bint waits_for_rate(Client c, int phase) except -1:
    cdef Terms terms = c.terms
    cdef RateQueue queue = <RateQueue>c.context.rate_queue
    # Behind PHASE_CHARGE it may have a connection
    if phase > PHASE_CHARGE or terms is None or terms.plain.queue == 0:
        return False
    if queue is None:
        queue = c.context.rate_queue = RateQueue.__new__(RateQueue)
        queue.attach(c.context)
    if queue.trying is c:
        queue.stays = True                  # at its place, and until the same time
    else:
        clients = queue.waiting.setdefault((terms.name, counted_of(c, terms)), [])
        if len(clients) >= terms.plain.queue:
            return False
        clients.append(c)
        c._set_state(HELD)
        c.silent_ms = c.poller.time_ms() + <int>(terms.plain.queue_timeout * 1000)
        c.poller.arm(c, c.silent_ms)
        queue.watch()
    c.request.queued = <unsigned char>(phase + 1)
    if phase == PHASE_FAULTS:
        c.request.acted = False             # none was applied
    c.terms = None                          # nothing was charged
    return True


cdef int end_queueing(Client c) except -1:
    c.context.rate_queue.leave(c)
    c.request.queued = 0
    c.stamps.hook_us += end_brief_phase(&c.stamps)
    return c.refuse(RATE_LIMITED)
