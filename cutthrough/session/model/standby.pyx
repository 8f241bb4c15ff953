# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Connections to a parent, made before a request needs them.

    set-up (one at a time) ──> waits ──> taken by a request
       ^                         ├─────> its age is reached: closed
       └──── back-off <── fails, or is ended by the parent soon after it was made

A CONNECT then saves the round trips of TCP and TLS. The connection has no client and no
destination: nothing was sent on it. It is not used if the parent gets a PROXY header, which
would name the client before the first message (R50).

One set-up is under way at a time, so a parent that comes back is not flooded; squid's `standby=N`
has the same rule. No connection is kept while the parent's circuit is open or its check fails: a
request tries the parent.

A connection may die at the moment it is taken. Nothing of the client's has been sent then, so
its request dials (`session.ways.parents`).
"""

from libc.stdint cimport int64_t
from cutthrough.net.connector cimport Upstream, UpstreamOwner
from cutthrough.net.linux cimport EAGAIN
from cutthrough.net.poller cimport Endpoint, Poller
from cutthrough.net.sysio cimport BROKEN, PEER_DONE, try_recv
from cutthrough.policy.parents cimport Standing

cdef enum:
    LOOK_MS = 1000              # between two looks: the parent may be up or down again
    YOUNG_MS = 2000             # an end so soon is the parent's refusal, not its idle timeout
    FIRST_BACKOFF_MS = 1000     # as of a circuit
    MOST_BACKOFF_MS = 60000


cdef class Standby(UpstreamOwner):

    def __init__(self, Poller poller, Standing standing):
        """Keeps none before it is configured. The owner calls close_now."""
        self.standing = standing
        self.waiting = {}
        poller.add(self)                # without a descriptor: for its timer
        self.set_deadline(LOOK_MS)

    def configure(self, int most, timeout, begin):
        """Keeps `most` connections, each for `timeout` seconds. `begin`: called with this
        object; begins a set-up, which calls keep or miss once, and returns an object with
        close_now. Connections that wait stay."""
        self.most = most
        self.timeout_ms = int(timeout * 1000)
        self.begin = begin
        while self.standing.standby > self.most:
            self.end_newest()
        self.poller.call_again(self)

    @property
    def held(self):
        """Endpoints of the poller that it has, itself included; each has a timer."""
        return self.standing.standby + 1 if self.is_open else 0

    def close_now(self):
        """Closes all connections, and the set-up that is under way. Idempotent."""
        self.close()

    cdef Upstream take(self):
        cdef Upstream upstream
        while self.waiting and self.standing.is_up():
            upstream = next(reversed(self.waiting))
            self.unlink(upstream)
            self.poller.call_again(self)
            if upstream.is_open and is_silent(upstream):
                upstream.set_deadline(0)
                self.standing.standby_used += 1
                self.wait_ms = 0
                return upstream
            self.standing.standby_lost += 1
            upstream.close()
        return None

    cdef int keep(self, Upstream upstream) except -1:
        self.is_under_way = False
        self.under_way = None
        if not self.is_open or self.standing.standby >= self.most or not self.standing.is_up():
            return upstream.close()
        upstream.owner = self
        self.waiting[upstream] = None
        self.standing.standby += 1
        upstream.set_deadline(self.timeout_ms)
        if self.standing.standby < self.most:
            self.poller.call_again(self)
        return self.on_upstream(upstream)   # the event of what has arrived already is spent

    cdef int miss(self) except -1:
        self.is_under_way = False
        self.under_way = None
        self.standing.standby_lost += 1
        self.back_off()
        return 0

    cdef int give_up(self) except -1:
        cdef int n = self.standing.standby
        self.back_off()
        self.clear()
        return n

    cdef void note_dead(self) noexcept:
        self.standing.standby_lost += 1

    cdef int look(self) except -1:
        """Begins a set-up, if one is due."""
        self.set_deadline(LOOK_MS)
        if not self.standing.is_up():
            return self.clear()
        if self.is_under_way or self.begin is None or self.standing.standby >= self.most or (
                self.poller.time_ms() < self.not_before_ms):
            return 0
        self.is_under_way = True
        under_way = self.begin(self)
        if self.is_under_way:           # else it has ended already
            self.under_way = under_way
        return 0

    cdef int on_ready(self) except -1:
        return self.look()

    cdef int on_deadline(self) except -1:
        return self.look()

    cdef int on_upstream(self, Upstream upstream) except -1:
        if is_silent(upstream):         # a session ticket of TLS 1.3, for one
            return 0
        # The deadline was set when the connection was made. If that is long ago, the parent
        # accepts connections, and its idle timeout is below ours
        if upstream.timer.deadline_ms - self.timeout_ms + YOUNG_MS > self.poller.time_ms():
            self.back_off()
        else:
            self.wait_ms = 0
        self.standing.standby_lost += 1
        return self.on_upstream_deadline(upstream)

    cdef int on_upstream_deadline(self, Upstream upstream) except -1:
        self.unlink(upstream)
        self.poller.call_again(self)
        return upstream.close()

    cdef int clear(self) except -1:
        while self.waiting:
            self.end_newest()
        return 0

    cdef int end_newest(self) except -1:
        cdef Upstream upstream = next(reversed(self.waiting))
        self.unlink(upstream)
        return upstream.close()

    cdef int unlink(self, Upstream upstream) except -1:
        del self.waiting[upstream]
        upstream.owner = None
        self.standing.standby -= 1
        return 0

    cdef void back_off(self) noexcept:
        cdef int64_t now_ms = self.poller.time_ms()
        if now_ms < self.not_before_ms:
            return                      # several that failed together
        self.wait_ms = min(max(2 * self.wait_ms, <int64_t>FIRST_BACKOFF_MS),
                           <int64_t>MOST_BACKOFF_MS)
        self.not_before_ms = now_ms + self.wait_ms

    cdef int close(self) except -1:
        """Idempotent."""
        under_way = self.under_way
        self.under_way = self.begin = None
        self.is_under_way = False
        if under_way is not None:
            under_way.close_now()
        self.clear()
        return Endpoint.close(self)


cdef bint is_silent(Upstream upstream) noexcept:
    """No byte, no end and no error has arrived, in the kernel either. Takes what belongs to
    TLS alone."""
    cdef char octet
    if upstream.sock.ready & (PEER_DONE | BROKEN):
        return False
    return try_recv(&upstream.sock, &octet, 1) == -EAGAIN
