# cython: language_level=3, boundscheck=False, wraparound=False
"""Idle connections to origins, kept for the next request, the warmest first.

Only a clean connection is kept (R19): no unread byte, no error, no end of stream. Bytes or
an end that come while it waits close it. A connection belongs to one key, which is the
canonical host and the port that it was dialled for.
"""

from cutthrough.net.linux cimport EAGAIN
from cutthrough.net.sysio cimport BROKEN, CAN_READ, CAN_WRITE, PEER_DONE, try_recv


cdef class Upstreams(StreamOwner):

    def __init__(self, most, most_per_key, timeout):
        self.newest = {}
        self.counts = {}
        self.configure(most, most_per_key, timeout)

    def configure(self, most, most_per_key, timeout):
        """Keeps at most `most` connections, `most_per_key` for one origin, each for
        `timeout` seconds: those that are parked from now on."""
        self.most = most
        self.most_per_key = most_per_key
        self.timeout_ms = int(timeout * 1000)

    cdef Stream take(self, object key, bint sure):
        cdef Stream stream = <Stream>self.newest.get(key)
        while stream is not None:
            self._unlink(stream)
            if not stream.sock.ready & (CAN_READ | PEER_DONE | BROKEN) and (
                    not sure or is_silent(stream)):
                stream.reused = True
                return stream
            self.discarded += 1
            stream.close()
            stream = <Stream>self.newest.get(key)
        return None

    cdef int park(self, Stream stream, object key) except -1:
        cdef Stream newest
        if not is_clean(stream) or self.idle >= self.most or self.timeout_ms == 0:
            self.discarded += 1
            return stream.close()
        newest = <Stream>self.newest.get(key)
        if newest is not None:
            if <Py_ssize_t>self.counts[key] >= self.most_per_key:
                self.discarded += 1
                return stream.close()
            newest.newer = stream
            self.counts[key] = self.counts[key] + 1
        else:
            self.counts[key] = 1
        stream.older = newest
        stream.key = key
        stream.owner = self
        self.newest[key] = stream
        self.idle += 1
        stream.set_deadline(self.timeout_ms)
        return 0

    cdef int _unlink(self, Stream stream) except -1:
        if stream.newer is not None:
            stream.newer.older = stream.older
        elif stream.older is not None:
            self.newest[stream.key] = stream.older
        else:
            del self.newest[stream.key]
        if stream.older is not None:
            stream.older.newer = stream.newer
        if stream.newer is None and stream.older is None:
            del self.counts[stream.key]
        else:
            self.counts[stream.key] = self.counts[stream.key] - 1
        stream.older = stream.newer = None
        stream.owner = None
        stream.key = None
        self.idle -= 1
        return 0

    cdef int on_stream(self, Stream stream) except -1:
        if stream.sock.ready & (CAN_READ | PEER_DONE | BROKEN):
            return self.on_stream_deadline(stream)
        return 0

    cdef int on_stream_deadline(self, Stream stream) except -1:
        self._unlink(stream)
        self.discarded += 1
        return stream.close()

    cdef int on_fault(self) except -1:
        return 0

    def clear(self):
        """Closes all of them. Returns how many."""
        cdef Stream stream
        count = self.idle
        for stream in list(self.newest.values()):
            while stream is not None:
                older = stream.older
                self._unlink(stream)
                stream.close()
                stream = older
        return count


cdef bint is_clean(Stream stream) noexcept:
    if stream.sock.ready & (PEER_DONE | BROKEN) or not stream.sock.ready & CAN_WRITE:
        return False
    # A read that came out exactly full has not told that the socket is dry
    return not stream.sock.ready & CAN_READ or is_silent(stream)


cdef bint is_silent(Stream stream) noexcept:
    """Neither a byte nor an end nor an error is waiting in the kernel."""
    cdef char one
    return try_recv(&stream.sock, &one, 1) == -EAGAIN
