# cython: language_level=3
"""Outgoing connections.

A name's addresses are raced (RFC 8305 section 5): an attempt begins a quarter of a second
after the one before it, or at once if one fails. The first to connect wins, and the others
are closed. All attempts share one deadline. The resolver sets the order.

    first ──────────────────────── (SYN lost) ──> closed
      └─ 250 ms ─> second ── refused ─> third ── connected ──> the answer
"""

cimport cython
from libc.stdint cimport int64_t
from cutthrough.net.address cimport (
    Address, Addresses, from_sockaddr, has_source, is_same_address, to_sockaddr)
from cutthrough.net.linux cimport (
    EACCES, EADDRNOTAVAIL, EAFNOSUPPORT, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, EINPROGRESS, EINVAL,
    EMFILE, ENETUNREACH, ENFILE, ENOBUFS, ENOMEM, EPERM, ETIMEDOUT, sockaddr_storage, socklen_t)
from cutthrough.net.poller cimport Endpoint, Poller
from cutthrough.net.sysio cimport (
    BROKEN, CAN_WRITE, begin_connect, open_tcp, read_own_name, sys_close, take_kernel_error)
from cutthrough.net.transport cimport KERNEL, Socket, open_transport, transport_of

cdef enum:
    STAGGER_MS = 250    # RFC 8305 section 8: Connection Attempt Delay
    # Attempts at a time: Chromium has two, one for each family. With eight, the oldest has
    # had two seconds (its SYN and one more) before the ninth replaces it.
    MOST_ATTEMPTS = 8


@cython.no_gc
cdef class UpstreamOwner(Endpoint):

    cdef int on_upstream(self, Upstream upstream) except -1:
        return 0

    cdef int on_upstream_deadline(self, Upstream upstream) except -1:
        return 0

    cdef int on_upstream_fault(self, Upstream upstream) except -1:
        upstream.close()
        return self.on_fault()

    cdef int on_dialled(self, Connector connector, Upstream upstream, int error) except -1:
        return 0

    cdef Leave may_dial(self, const Address *address) except FAULT:
        return ALLOWED

    cdef bint prepare_socket(self, const Socket *s, const Address *address) except -1:
        return True


@cython.no_gc
cdef class Upstream(Endpoint):

    cdef int on_ready(self) except -1:
        cdef UpstreamOwner owner = self.owner   # a reference: the call may drop ours
        return owner.on_upstream(self) if owner is not None else self.close()

    cdef int on_deadline(self) except -1:
        cdef UpstreamOwner owner = self.owner
        return owner.on_upstream_deadline(self) if owner is not None else self.close()

    cdef int on_fault(self) except -1:
        cdef UpstreamOwner owner = self.owner
        return owner.on_upstream_fault(self) if owner is not None else self.close()

    cdef bint is_timed(self) noexcept:
        # Its own deadline while connecting and in the idle pool; else its session's
        return Endpoint.is_timed(self) or (
            self.owner is not None and self.owner.is_timed())

    cdef int close(self) except -1:
        self.owner = None
        return Endpoint.close(self)


cdef Connector dial(Poller poller, UpstreamOwner owner, Addresses addresses, int port,
                    int64_t timeout_ms):
    cdef Connector c = Connector.__new__(Connector)
    c.poller = poller
    c.owner = owner
    c.addresses = addresses
    c.port = port
    c.deadline_ms = poller.time_ms() + timeout_ms
    c.next()
    return c if c.owner is not None else None


cdef int cancel(Connector c) except -1:
    return c.close()


cdef int tells(int error) noexcept:
    """Ranks an errno by how well it explains a failed dial. First our own shortage, because the
    next try may well succeed. Then a host's answer, then silence. Last what this host does not let
    out: no route, or a rule, because that is usual on a host with one address family."""
    if error in (EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL):
        return 5
    if error in (ECONNREFUSED, ECONNRESET):
        return 4
    if error in (ENETUNREACH, EHOSTUNREACH, EACCES, EPERM):
        return 1
    if error == ETIMEDOUT:
        return 2
    return 3 if error else 0


cdef int meant_by(int error, const Address *address) noexcept:
    """EADDRNOTAVAIL: all our ports towards that address are in use. But if this host has no
    address of that family (a container without IPv6), it is ENETUNREACH. So is EINVAL: a route of
    the type blackhole, or a link-local address, which no link is named for."""
    if error in (EAFNOSUPPORT, EINVAL) or (
            error == EADDRNOTAVAIL and not has_source(address)):
        return ENETUNREACH
    return error


cdef bint is_itself(Upstream upstream) noexcept:
    """If a socket dials a free port of this host, it may get that very port as its own. It is
    then connected to itself (TCP's simultaneous open), and no listener exists."""
    cdef sockaddr_storage name
    cdef Address own
    return (read_own_name(&upstream.sock, &name)
            and from_sockaddr(&name, &own) and own.port == upstream.address.port
            and is_same_address(&own, &upstream.address))


cdef int error_of(Socket *s) noexcept nogil:
    if s.kind == KERNEL:
        return take_kernel_error(s.fd)
    return <int>max(<ssize_t>0, -transport_of(s).recv(s, NULL, 0))


@cython.no_gc
cdef class Connector:

    cdef int next(self) except -1:
        """Begins the next possible attempt; answers if no attempt is left."""
        cdef int64_t left_ms
        while self.i < self.addresses.n:
            left_ms = self.deadline_ms - self.poller.time_ms()
            if left_ms <= 0:
                return self._answer(None, ETIMEDOUT)
            if self._try(left_ms):
                return 0
        return 0 if self.attempts else self._answer(None, self.error)

    cdef bint _try(self, int64_t left_ms) except -1:
        """True: under way, or connected and answered. False: not allowed, or failed (`error`)."""
        cdef Leave leave
        cdef int failed
        cdef Upstream upstream = Upstream.__new__(Upstream)
        upstream.address = self.addresses.items[self.i]
        upstream.address.port = <unsigned short>self.port
        self.i += 1
        leave = self.owner.may_dial(&upstream.address)
        if leave == FORBIDDEN:
            return False
        self.tried = upstream.address
        if self.attempts is not None and len(self.attempts) == MOST_ATTEMPTS:
            self._end(<Upstream>self.attempts[0], ETIMEDOUT)
        failed = self._begin(upstream, leave)
        if failed == UNPREPARED:
            return False
        if failed and failed != -EINPROGRESS:
            return self._note(meant_by(-failed, &upstream.address))
        try:
            self.poller.add(upstream)
        except OSError as refusal:          # no memory, or this user's epoll watches are used up
            self._note(refusal.errno)
            sys_close(&upstream.sock)
            return False
        if failed == 0:                     # loopback often connects at once
            if is_itself(upstream):
                self._note(ECONNREFUSED)
                upstream.close()
                return False
            upstream.sock.ready = CAN_WRITE
            self._answer(upstream, 0)
            return True
        upstream.owner = self
        if self.attempts:                   # only the newest attempt's timer begins the next
            (<Upstream>self.attempts[-1]).set_deadline(left_ms)
        else:
            self.attempts = []
        self.attempts.append(upstream)
        if self.i < self.addresses.n:
            left_ms = min(left_ms, STAGGER_MS)
        upstream.set_deadline(left_ms)
        return True

    cdef int _begin(self, Upstream upstream, Leave leave) except? UNPREPARED:
        """0: connected; -EINPROGRESS; UNPREPARED, or another -errno, and nothing is open."""
        cdef sockaddr_storage name
        cdef socklen_t name_len
        cdef bint is_prepared = leave != IF_PREPARED
        cdef int failed
        if self.poller.dials != KERNEL:
            failed = open_transport(&upstream.sock, self.poller.dials, 0, NULL)
            return failed if failed or upstream.sock.ready & CAN_WRITE else -EINPROGRESS
        name_len = to_sockaddr(&upstream.address, &name)
        failed = open_tcp(&upstream.sock, name.ss_family)
        if failed:
            return failed
        try:
            is_prepared = is_prepared or self.owner.prepare_socket(
                &upstream.sock, &upstream.address)
        finally:
            if not is_prepared:             # or preparing it has raised
                sys_close(&upstream.sock)
        return begin_connect(&upstream.sock, &name, name_len) if is_prepared else UNPREPARED

    cdef int on_upstream(self, Upstream upstream) except -1:
        cdef int error = error_of(&upstream.sock) if upstream.sock.ready & BROKEN else 0
        if error == 0 and is_itself(upstream):
            error = ECONNREFUSED
        if error == 0 and upstream.sock.ready & CAN_WRITE:
            self.attempts.remove(upstream)
            return self._answer(upstream, 0)
        if error == 0:
            return 0                        # an event before the handshake's end
        self._end(upstream, error)
        return self.next()

    cdef int on_upstream_deadline(self, Upstream upstream) except -1:
        """Time to begin the next attempt, or the deadline of the whole dial."""
        cdef int64_t left_ms = self.deadline_ms - self.poller.time_ms()
        if left_ms <= 0:
            return self._answer(None, ETIMEDOUT)
        upstream.set_deadline(left_ms)
        return self.next()

    cdef int _end(self, Upstream upstream, int error) except -1:
        """Ends a failed attempt."""
        self._note(error)
        self.attempts.remove(upstream)
        return upstream.close()

    cdef int _note(self, int error) except -1:
        if tells(error) > tells(self.error):
            self.error = error
        return 0

    cdef int _answer(self, Upstream upstream, int error) except -1:
        cdef UpstreamOwner owner = self.owner
        self.close()
        if upstream is not None:
            upstream.owner = owner
            upstream.set_deadline(0)
        if owner is None:
            return 0
        return owner.on_dialled(self, upstream, error)

    cdef int on_upstream_fault(self, Upstream upstream) except -1:
        cdef UpstreamOwner owner = self.owner
        self.close()
        return owner.on_fault() if owner is not None else 0

    cdef int close(self) except -1:
        """Ends the attempts under way. Idempotent; the owner is not called."""
        cdef Upstream upstream
        self.owner = None
        while self.attempts:
            upstream = <Upstream>self.attempts.pop()
            upstream.close()
        return 0
