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


cdef class IdlePool(StreamOwner):

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

    cdef Stream take(self, const Hop *hop, bytes destination):
        cdef Shelf shelf = <Shelf>self.shelves.get(make_key(hop, destination))
        cdef Stream stream
        while shelf is not None and shelf.newest is not None:
            stream = shelf.newest
            self._unlink(stream)
            if not stream.sock.ready & (CAN_READ | PEER_DONE | BROKEN):
                stream.reused = True
                return stream
            self.discarded += 1
            stream.close()
        return None

    cdef int park(self, Stream stream, const Hop *hop, bytes destination, bint instead
                  ) except -1:
        cdef object key
        cdef Shelf shelf
        cdef Berth berth
        if is_stream(&stream.sock):         # its connection is kept: see origin_streams
            return stream.close()
        key = make_key(hop, destination)
        shelf = <Shelf>self.shelves.get(key)
        if not is_clean(stream) or self.most_per_key == 0 or self.timeout_ms == 0:
            self.discarded += 1
            return stream.close()
        if instead and shelf is not None and shelf.newest is not None:
            self._end(self._unlink(shelf.newest))
            shelf = <Shelf>self.shelves.get(key)        # it may have been swept away
        if self.most == 0 or stream.sock.fd > self.last_fd or (
                shelf is not None and shelf.n >= self.most_per_key):
            return self._end(stream)
        while self.idle + self.streams >= self.most:
            if self.eldest is None:
                return self._end(stream)
            self._end(self._unlink(self.eldest))
            shelf = <Shelf>self.shelves.get(key)        # it may have been swept away
        if shelf is None:
            shelf = Shelf.__new__(Shelf)
            shelf.key = key
            self.shelves[key] = shelf
            self.empty += 1
        if stream.berth is None:
            stream.berth = Berth.__new__(Berth)
        berth = <Berth>stream.berth
        if shelf.newest is not None:
            berth_of(shelf.newest).newer = stream
        else:
            self.empty -= 1
        berth.older = shelf.newest
        berth.shelf = shelf
        stream.owner = self
        shelf.newest = stream
        berth.elder = self.youngest
        if self.youngest is not None:
            berth_of(self.youngest).younger = stream
        else:
            self.eldest = stream
        self.youngest = stream
        shelf.n += 1
        self.idle += 1
        stream.set_deadline(self.timeout_ms)
        return 0

    cdef int give_up(self, int most) except -1:
        cdef int n = 0
        while n < most and self.eldest is not None:
            self._end(self._unlink(self.eldest))
            n += 1
        return n

    cdef int give_up_of(self, const Hop *hop, bytes destination, int most) except -1:
        cdef Shelf shelf = <Shelf>self.shelves.get(make_key(hop, destination))
        cdef int n = 0
        while shelf is not None and n < most and shelf.newest is not None:
            self._end(self._unlink(shelf.newest))
            n += 1
        return n

    cdef int give_up_through(self, const Hop *hop, int most) except -1:
        cdef bytes way = (<const char *>hop)[:sizeof(Hop)]
        cdef Stream stream = self.eldest
        cdef Stream younger
        cdef object key
        cdef int n = 0
        while n < most and stream is not None:
            younger = berth_of(stream).younger
            key = berth_of(stream).shelf.key
            if isinstance(key, tuple) and key[0] == way:
                self._end(self._unlink(stream))
                n += 1
            stream = younger
        return n

    cdef int _end(self, Stream stream) except -1:
        self.discarded += 1
        if untaken(&stream.sock) == 0:
            set_abortive(&stream.sock)
        return stream.close()

    cdef Stream _unlink(self, Stream stream):
        cdef Berth berth = berth_of(stream)
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
        stream.owner = None
        self.idle -= 1
        shelf.n -= 1
        if shelf.n == 0:
            self.empty += 1
            if self.empty > KEPT_EMPTY:
                self._sweep()
        return stream

    cdef int _sweep(self) except -1:
        cdef Shelf shelf
        for shelf in list(self.shelves.values()):
            if shelf.n == 0:
                del self.shelves[shelf.key]
        self.empty = 0
        return 0

    cdef int on_stream(self, Stream stream) except -1:
        if stream.sock.ready & (CAN_READ | PEER_DONE | BROKEN):
            return self.on_stream_deadline(stream)
        return 0

    cdef int on_stream_deadline(self, Stream stream) except -1:
        self._unlink(stream)
        self.discarded += 1
        return stream.close()

    cdef int on_stream_fault(self, Stream stream) except -1:
        return self.on_stream_deadline(stream)

    cdef int on_fault(self) except -1:
        return 0

    def clear(self):
        """Closes all of them. Returns how many."""
        cdef Shelf shelf
        cdef Stream stream
        count = self.idle
        for shelf in list(self.shelves.values()):
            while shelf.newest is not None:
                stream = shelf.newest
                self._unlink(stream)
                stream.close()
        return count


cdef inline Berth berth_of(Stream stream):
    return <Berth>stream.berth


cdef bint is_clean(Stream stream) noexcept:
    if stream.sock.ready & (PEER_DONE | BROKEN) or not stream.sock.ready & CAN_WRITE:
        return False
    # A read that came out exactly full has not shown that the socket is dry
    return not stream.sock.ready & CAN_READ or is_silent(stream)


cdef bint is_silent(Stream stream) noexcept:
    """No byte, no end and no error is waiting in the kernel."""
    cdef char octet
    return try_recv(&stream.sock, &octet, 1) == -EAGAIN
