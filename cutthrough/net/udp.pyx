# cython: language_level=3, boundscheck=False, wraparound=False
"""Datagram sockets in the epoll set.

The set watches it level-triggered, and a turn is bounded: the rest raises another event. No
datagram is kept: what cannot be sent at once is lost, as it may be anywhere on its way.
"""

import os

from cutthrough.net cimport linux
from cutthrough.net.address cimport Address, from_sockaddr, to_sockaddr
from cutthrough.net.buffers cimport COPY_BYTES, scratch
from cutthrough.net.linux cimport errno, sockaddr, sockaddr_storage, socklen_t
from cutthrough.net.poller cimport Endpoint, Poller

cdef enum:
    DATAGRAMS_A_TURN = 64


cdef class DatagramOwner:

    cdef int on_datagram(self, Datagrams at, const Address *sender, char *data,
                         size_t n) except -1:
        return 0

    cdef int on_datagram_fault(self) except -1:
        return 0


cdef class Datagrams(Endpoint):

    cdef int on_ready(self) except -1:
        cdef sockaddr_storage name
        cdef socklen_t name_len
        cdef Address sender
        cdef char *data = scratch() + DATAGRAM_ROOM
        cdef ssize_t n
        cdef int _i
        for _i in range(DATAGRAMS_A_TURN):
            name_len = sizeof(name)
            n = linux.recvfrom(self.sock.fd, data, COPY_BYTES, linux.MSG_DONTWAIT,
                               <sockaddr *>&name, &name_len)
            if n < 0:
                if errno == linux.EAGAIN:
                    return 0
                continue                    # a peer's ICMP error: it concerns one datagram
            if from_sockaddr(&name, &sender):
                self.owner.on_datagram(self, &sender, data, n)
            if not self.is_open:
                return 0                    # closed by its owner
        return 0

    cdef int on_fault(self) except -1:
        return self.close() if self.owner is None else self.owner.on_datagram_fault()

    cdef bint is_timed(self) noexcept:
        return True                         # its owner has the deadline

    cdef bint send(self, const Address *to, const char *data, size_t n) noexcept:
        cdef sockaddr_storage name
        cdef socklen_t name_len = to_sockaddr(to, &name)
        return linux.sendto(self.sock.fd, data, n, linux.MSG_DONTWAIT | linux.MSG_NOSIGNAL,
                            <sockaddr *>&name, name_len) >= 0


cdef Datagrams open_datagrams(Poller poller, DatagramOwner owner, const Address *at):
    cdef Datagrams made = Datagrams.__new__(Datagrams)
    cdef sockaddr_storage name
    cdef socklen_t n = to_sockaddr(at, &name)
    made.owner = owner
    made.sock.fd = linux.socket(
        name.ss_family, linux.SOCK_DGRAM | linux.SOCK_NONBLOCK | linux.SOCK_CLOEXEC, 0)
    if made.sock.fd < 0:
        raise OSError(errno, os.strerror(errno))
    if linux.bind(made.sock.fd, <sockaddr *>&name, n) < 0:
        error = errno
        linux.close(made.sock.fd)
        raise OSError(error, os.strerror(error))
    n = sizeof(name)
    linux.getsockname(made.sock.fd, <sockaddr *>&name, &n)
    from_sockaddr(&name, &made.bound)
    try:
        poller.add_level(made)
    except OSError:
        linux.close(made.sock.fd)
        made.sock.fd = -1
        raise
    return made
