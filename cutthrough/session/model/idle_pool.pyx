# cython: language_level=3, boundscheck=False, wraparound=False
"""Idle connections to origins, kept for the next request, the warmest first.

Only a clean connection is kept (R19): no unread byte, no error, no end of stream. It is
closed if bytes or an end arrive while it waits. A connection belongs to one key: the hop that
it was made with, TLS identity included, and the canonical host and port that it leads to.

If the pool is full, the connection that has waited longest gives its place: else those of hosts
that are asked once would keep the others out until they time out. If descriptors are few (the
kernel gives the lowest free number), nothing is kept, and each accepted client takes the places
of two.

A clean connection without a place is ended by a reset. Each POST brings a connection of its
own, and a connection that we close by FIN keeps its port in TIME_WAIT for 60 s: with 28 232
ports that would be 470 POSTs a second to one origin, and 502 for the rest. Its last response
is whole and its request is acknowledged, so the reset takes nothing away (HAProxy ends idle
connections the same way).
"""

cimport cython
from libc.limits cimport INT_MAX
from cutthrough.net.linux cimport EAGAIN
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.sysio cimport (
    BROKEN, CAN_READ, CAN_WRITE, PEER_DONE, set_abortive, try_recv, untaken)

cdef enum:
    # Shelves kept when their last connection is taken: it will be back. Making and dropping
    # a shelf each time cost a request 2000 of its 12 400 instructions.
    KEPT_EMPTY = 256


@cython.no_gc
cdef class Berth:
    pass


cdef class Shelf:
    pass


cdef class IdlePool(UpstreamOwner):

    def __init__(self, most, most_per_key, timeout, *, last_fd=INT_MAX):
        """`last_fd`: a connection with a higher descriptor is not kept, so that others find one."""
        self.shelves = {}
        self.last_fd = last_fd
        self.configure(most, most_per_key, timeout)

    def configure(self, most, most_per_key, timeout):
        """Keeps at most `most` connections, `most_per_key` for one origin, each for
        `timeout` seconds, if it is parked from now on."""
        self.most = most
        self.most_per_key = most_per_key
        self.timeout_ms = int(timeout * 1000)

    cdef Upstream take(self, object key):
        cdef Shelf shelf = <Shelf>self.shelves.get(key)
        cdef Upstream upstream
        while shelf is not None and shelf.newest is not None:
            upstream = shelf.newest
            self._unlink(upstream)
            if not upstream.sock.ready & (CAN_READ | PEER_DONE | BROKEN):
                upstream.reused = True
                return upstream
            self.discarded += 1
            upstream.close()
        return None

    cdef int park(self, Upstream upstream, object key, bint instead) except -1:
        cdef Shelf shelf
        cdef Berth berth
        if is_stream(&upstream.sock):       # its connection is kept: see origin_streams
            return upstream.close()
        shelf = <Shelf>self.shelves.get(key)
        if not is_clean(upstream) or self.most_per_key == 0 or self.timeout_ms == 0:
            self.discarded += 1
            return upstream.close()
        if instead and shelf is not None and shelf.newest is not None:
            self._end(self._unlink(shelf.newest))
            shelf = <Shelf>self.shelves.get(key)        # it may have been swept away
        if self.most == 0 or upstream.sock.fd > self.last_fd or (
                shelf is not None and shelf.n >= self.most_per_key):
            return self._end(upstream)
        while self.idle + self.streams >= self.most:
            if self.eldest is None:
                return self._end(upstream)
            self._end(self._unlink(self.eldest))
            shelf = <Shelf>self.shelves.get(key)        # it may have been swept away
        if shelf is None:
            shelf = Shelf.__new__(Shelf)
            shelf.key = key
            self.shelves[key] = shelf
            self.empty += 1
        if upstream.berth is None:
            upstream.berth = Berth.__new__(Berth)
        berth = <Berth>upstream.berth
        if shelf.newest is not None:
            berth_of(shelf.newest).newer = upstream
        else:
            self.empty -= 1
        berth.older = shelf.newest
        berth.shelf = shelf
        upstream.owner = self
        shelf.newest = upstream
        berth.elder = self.youngest
        if self.youngest is not None:
            berth_of(self.youngest).younger = upstream
        else:
            self.eldest = upstream
        self.youngest = upstream
        shelf.n += 1
        self.idle += 1
        upstream.set_deadline(self.timeout_ms)
        return 0

    cdef int give_up(self, int most) except -1:
        cdef int n = 0
        while n < most and self.eldest is not None:
            self._end(self._unlink(self.eldest))
            n += 1
        return n

    cdef int give_up_of(self, object key, int most) except -1:
        cdef Shelf shelf = <Shelf>self.shelves.get(key)
        cdef int n = 0
        while shelf is not None and n < most and shelf.newest is not None:
            self._end(self._unlink(shelf.newest))
            n += 1
        return n

    cdef int give_up_through(self, const Hop *hop, int most) except -1:
        cdef bytes way = (<const char *>hop)[:sizeof(Hop)]
        cdef Upstream upstream = self.eldest
        cdef Upstream younger
        cdef object key
        cdef int n = 0
        while n < most and upstream is not None:
            younger = berth_of(upstream).younger
            key = berth_of(upstream).shelf.key
            if isinstance(key, tuple) and key[0] == way:
                self._end(self._unlink(upstream))
                n += 1
            upstream = younger
        return n

    cdef int _end(self, Upstream upstream) except -1:
        self.discarded += 1
        if untaken(&upstream.sock) == 0:
            set_abortive(&upstream.sock)
        return upstream.close()

    cdef Upstream _unlink(self, Upstream upstream):
        cdef Berth berth = berth_of(upstream)
        cdef Shelf shelf = berth.shelf
        if berth.newer is not None:
            berth_of(berth.newer).older = berth.older
        else:
            shelf.newest = berth.older
        if berth.older is not None:
            berth_of(berth.older).newer = berth.newer
        if berth.younger is not None:
            berth_of(berth.younger).elder = berth.elder
        else:
            self.youngest = berth.elder
        if berth.elder is not None:
            berth_of(berth.elder).younger = berth.younger
        else:
            self.eldest = berth.younger
        berth.older = berth.newer = berth.elder = berth.younger = None
        berth.shelf = None
        upstream.owner = None
        self.idle -= 1
        shelf.n -= 1
        if shelf.n == 0:
            self.empty += 1
            if self.empty > KEPT_EMPTY:
                self._sweep()
        return upstream

    cdef int _sweep(self) except -1:
        cdef Shelf shelf
        for shelf in list(self.shelves.values()):
            if shelf.n == 0:
                del self.shelves[shelf.key]
        self.empty = 0
        return 0

    cdef int on_upstream(self, Upstream upstream) except -1:
        if upstream.sock.ready & (CAN_READ | PEER_DONE | BROKEN):
            return self.on_upstream_deadline(upstream)
        return 0

    cdef int on_upstream_deadline(self, Upstream upstream) except -1:
        self._unlink(upstream)
        self.discarded += 1
        return upstream.close()

    cdef int on_upstream_fault(self, Upstream upstream) except -1:
        return self.on_upstream_deadline(upstream)

    cdef int on_fault(self) except -1:
        return 0

    def clear(self):
        """Closes all of them. Returns how many."""
        cdef Shelf shelf
        cdef Upstream upstream
        count = self.idle
        for shelf in list(self.shelves.values()):
            while shelf.newest is not None:
                upstream = shelf.newest
                self._unlink(upstream)
                upstream.close()
        return count


cdef inline Berth berth_of(Upstream upstream):
    return <Berth>upstream.berth


cdef bint is_clean(Upstream upstream) noexcept:
    if upstream.sock.ready & (PEER_DONE | BROKEN) or not upstream.sock.ready & CAN_WRITE:
        return False
    # A read that came out exactly full has not shown that the socket is dry
    return not upstream.sock.ready & CAN_READ or is_silent(upstream)


cdef bint is_silent(Upstream upstream) noexcept:
    """No byte, no end and no error is waiting in the kernel."""
    cdef char octet
    return try_recv(&upstream.sock, &octet, 1) == -EAGAIN
