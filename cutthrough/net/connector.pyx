# cython: language_level=3
"""Outgoing connections.

A name's addresses are tried in their order, one after the other, within one deadline;
each gets an equal share of the time that is left, so that a dead first address leaves
time for a live second one. RFC 8305's staggered race has its place in `Connector._next`.
"""

from libc.stdint cimport int64_t
from cutthrough.net cimport linux
from cutthrough.net.inet cimport (
    Address, Addresses, from_sockaddr, is_same_address, to_sockaddr)
from cutthrough.net.linux cimport (
    ECONNREFUSED, EINPROGRESS, ETIMEDOUT, IPPROTO_TCP, SO_ERROR, SOL_SOCKET, TCP_NODELAY, errno,
    setsockopt, sockaddr, sockaddr_storage, socklen_t)
from cutthrough.net.poller cimport Endpoint, Poller
from cutthrough.net.sysio cimport CAN_WRITE, sys_close


cdef class StreamOwner(Endpoint):

    cdef int on_stream(self, Stream stream) except -1:
        return 0

    cdef int on_stream_deadline(self, Stream stream) except -1:
        return 0

    cdef int on_dialled(self, Stream stream, int error) except -1:
        return 0

    cdef bint may_dial(self, const Address *address) except -1:
        return True


cdef class Stream(Endpoint):

    cdef int on_ready(self) except -1:
        if self.connector is not None:
            return self.connector.on_attempt(self)
        if self.owner is not None:
            return self.owner.on_stream(self)
        return self.close()

    cdef int on_deadline(self) except -1:
        if self.connector is not None:
            return self.connector.on_attempt_deadline(self)
        if self.owner is not None:
            return self.owner.on_stream_deadline(self)
        return self.close()

    cdef int on_fault(self) except -1:
        cdef StreamOwner owner = self.owner
        self.close()
        return owner.on_fault() if owner is not None else 0

    cdef int close(self) except -1:
        self.owner = None
        self.connector = None
        return Endpoint.close(self)


cdef Connector dial(Poller poller, StreamOwner owner, Addresses addresses, int port,
                    int64_t timeout_ms):
    cdef Connector c = Connector.__new__(Connector)
    c.poller = poller
    c.owner = owner
    c.addresses = addresses
    c.port = port
    c.deadline_ms = poller.time_ms() + timeout_ms
    c.next()
    return c if c.attempt is not None else None


cdef int cancel(Connector c) except -1:
    c.owner = None
    if c.attempt is not None:
        c.attempt.close()
        c.attempt = None
    return 0


cdef bint is_itself(Stream stream) noexcept:
    """A socket that dials a free port of this host may be given that very port as its
    own, and is then connected to itself (TCP's simultaneous open): nobody listens."""
    cdef sockaddr_storage name
    cdef socklen_t n = sizeof(name)
    cdef Address own
    return (linux.getsockname(stream.sock.fd, <sockaddr *>&name, &n) == 0
            and from_sockaddr(&name, &own) and own.port == stream.address.port
            and is_same_address(&own, &stream.address))


cdef class Connector:

    cdef int next(self) except -1:
        """Begins the next attempt that can be begun, or gives the answer."""
        cdef int64_t left
        while self.i < self.addresses.n:
            left = self.deadline_ms - self.poller.time_ms()
            if left <= 0:
                self.error = ETIMEDOUT
                break
            if self._try(left // (self.addresses.n - self.i)):
                return 0
        return self._answer(None)

    cdef bint _try(self, int64_t share_ms) except -1:
        """True: under way, or connected and answered. False: `error` says why not."""
        cdef sockaddr_storage name
        cdef socklen_t name_len
        cdef int one = 1
        cdef int failed
        cdef Stream stream = Stream.__new__(Stream)
        stream.address = self.addresses.items[self.i]
        stream.address.port = <unsigned short>self.port
        self.i += 1
        if not self.owner.may_dial(&stream.address):
            return False
        name_len = to_sockaddr(&stream.address, &name)
        stream.sock.fd = linux.socket(
            name.ss_family, linux.SOCK_STREAM | linux.SOCK_NONBLOCK | linux.SOCK_CLOEXEC, 0)
        if stream.sock.fd < 0:
            self.error = errno
            return False
        # A proxy passes on what it gets when it gets it: Nagle would add a round trip
        setsockopt(stream.sock.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
        failed = linux.connect(stream.sock.fd, <sockaddr *>&name, name_len)
        if failed < 0 and errno != EINPROGRESS:
            self.error = errno
            sys_close(&stream.sock)
            return False
        try:
            self.poller.add(stream)
        except OSError as refusal:          # no memory, or no watch left for this user
            self.error = refusal.errno
            sys_close(&stream.sock)
            return False
        self.attempt = stream
        stream.connector = self
        if failed == 0:                     # loopback often connects at once
            if is_itself(stream):
                self.attempt = None
                self.error = ECONNREFUSED
                stream.close()
                return False
            stream.sock.ready = CAN_WRITE
            self._answer(stream)
        else:
            stream.set_deadline(share_ms if share_ms > 0 else 1)
        return True

    cdef int on_attempt(self, Stream stream) except -1:
        cdef int error = 0
        cdef socklen_t n = sizeof(error)
        linux.getsockopt(stream.sock.fd, SOL_SOCKET, SO_ERROR, &error, &n)
        if error == 0 and is_itself(stream):
            error = ECONNREFUSED
        if error == 0 and stream.sock.ready & CAN_WRITE:
            return self._answer(stream)
        if error == 0:
            return 0                        # an event before the handshake's end
        return self._give_up(stream, error)

    cdef int on_attempt_deadline(self, Stream stream) except -1:
        return self._give_up(stream, ETIMEDOUT)

    cdef int _give_up(self, Stream stream, int error) except -1:
        self.error = error
        self.attempt = None
        stream.close()
        return self.next()

    cdef int _answer(self, Stream stream) except -1:
        cdef StreamOwner owner = self.owner
        self.owner = None
        self.attempt = None
        if stream is not None:
            stream.connector = None
            stream.owner = owner
            stream.set_deadline(0)
        if owner is None:
            return 0
        return owner.on_dialled(stream, 0 if stream is not None else self.error)
