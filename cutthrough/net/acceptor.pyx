# cython: language_level=3
"""Incoming connections: some accept4 calls for each wake-up, as many as the last ones were worth.

A call that finds nobody is not free: the kernel makes a descriptor before it looks at the queue. So
one client is accepted for an event, and the level-triggered set reports the rest again. If events
follow each other all the same, their calls double.

If descriptors run out (EMFILE), idle connections are shed and accepting goes on, because a pause
would only let a flood of clients queue up. If shedding does not help, or if the whole host is
short of something (ENFILE, ENOBUFS, ENOMEM), accepting pauses for a moment: the worker
neither ends nor spins (R32). The clients wait in the kernel's queue meanwhile. It pauses, too, at
any error but those of a client that has gone (EACCES, EPERM: a policy of the kernel refuses the
call), because such an error leaves the client in the queue.

accept4 also reports EMFILE if nobody waits, because it takes a descriptor before it looks at the
queue. Then nothing is shed, because it could be the client that has just got the last descriptor.
"""

import logging
import os

from libc.errno cimport ENONET, ENOPROTOOPT, EOPNOTSUPP, EPROTO

from cutthrough.net cimport linux
from cutthrough.net.address cimport Address, from_sockaddr
from cutthrough.net.linux cimport (
    EAGAIN, ECONNABORTED, EHOSTDOWN, EHOSTUNREACH, EINTR, EMFILE, ENETDOWN, ENETUNREACH, ENFILE,
    ENOBUFS, ENOMEM, ETIMEDOUT, errno, sockaddr, sockaddr_storage, socklen_t)
from cutthrough.net.poller cimport Endpoint, Poller

cdef enum:
    MOST_ACCEPTS = 64       # of an event
    FULL_EVENTS = 4         # in a row that found as many clients as they have calls
    PAUSE_MS = 100

# At the accept of a client that has gone: accept(2), "Error handling"
GONE = {ECONNABORTED, EINTR, EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ETIMEDOUT, EPROTO,
        EOPNOTSUPP, ENOPROTOOPT, ENONET}
SHORT = {EMFILE, ENFILE, ENOBUFS, ENOMEM}

log = logging.getLogger("cutthrough")


cdef class Sink:

    cdef int on_accept(self, int fd, const Address *client) except -1:
        linux.close(fd)
        return 0

    cdef int shed(self, bint clients_too) except -1:
        return 0


cdef class Acceptor(Endpoint):

    def __init__(self, Poller poller, listener, Sink sink):
        """Accepts from a duplicate of `listener`; the caller still owns that socket."""
        self.sink = sink
        self.listener = listener
        self.calls = 1
        self.sock.fd = os.dup(listener.fileno())
        try:
            poller.add_level(self)
        except OSError:
            linux.close(self.sock.fd)
            self.sock.fd = -1
            raise

    cdef int on_ready(self) except -1:
        cdef sockaddr_storage name
        cdef socklen_t name_len
        cdef Address client
        cdef int fd, error
        cdef int n = 0
        cdef bint has_shed = False
        while n < self.calls:
            name_len = sizeof(name)
            fd = linux.accept4(self.sock.fd, <sockaddr *>&name, &name_len,
                               linux.SOCK_NONBLOCK | linux.SOCK_CLOEXEC)
            if fd < 0:
                error = errno
                if error == EAGAIN:
                    self.calls = max(n, 1)
                    self.full_events = 0
                    return 0
                if error in GONE:
                    n += 1
                    continue
                if not self._is_waited_for():
                    return 0
                if has_shed or not self._find_room(error):
                    return self._pause()
                has_shed = True
                continue
            n += 1
            self.accepted += 1
            from_sockaddr(&name, &client)
            self.sink.on_accept(fd, &client)
            if not self.is_open:
                return 0                # the sink has stopped this acceptor
        self.full_events += 1
        if self.full_events == FULL_EVENTS:
            self.full_events = 0
            self.calls = min(2 * self.calls, MOST_ACCEPTS)
        return 0

    cdef int on_deadline(self) except -1:
        self.paused = False
        self.poller.want_level(self, True)
        return 0

    cdef int on_fault(self) except -1:
        return 0                        # R34: a fault in one connection never ends accepting

    cdef bint is_timed(self) noexcept:
        return True

    cdef bint _is_waited_for(self) noexcept:
        cdef linux.pollfd waiting = linux.pollfd(self.sock.fd, linux.POLLIN, 0)
        return linux.poll(&waiting, 1, 0) != 0

    cdef bint _find_room(self, int error) except -1:
        """Sheds connections at rest if something is short: clients only if this process lacks
        descriptors. True: retry accept4 at once."""
        cdef int shed = self.sink.shed(error == EMFILE) if error in SHORT else 0
        self.failed += 1
        if self.failed & (self.failed - 1) == 0:        # 1, 2, 4, 8 …: never a flood of lines
            log.warning("accept: %s (%d times so far); closed %d connections at rest",
                        os.strerror(error), self.failed, shed)
        return shed > 0 and error == EMFILE

    cdef int _pause(self) except -1:
        self.paused = True
        self.poller.want_level(self, False)
        return self.set_deadline(PAUSE_MS)

    def stop(self):
        """Stops accepting. Queued connections stay with the listening socket."""
        self.close()
