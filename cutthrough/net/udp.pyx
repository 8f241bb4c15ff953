# cython: language_level=3, boundscheck=False, wraparound=False
"""Datagram sockets in the epoll set.

The set watches it level-triggered, because a turn is bounded, and the rest raises another event.
No datagram is kept: if it cannot be sent at once, it is lost, as it may be anywhere on its way.
"""

import os

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset
from cutthrough.net cimport linux
from cutthrough.net.address cimport Address, from_sockaddr, to_sockaddr
from cutthrough.net.buffers cimport COPY_BYTES, scratch
from cutthrough.net.linux cimport (
    cmsghdr, errno, msghdr, sockaddr, sockaddr_storage, socklen_t)
from cutthrough.net.poller cimport Endpoint, Poller

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_IP, IPPROTO_IPV6, IP_RECVERR, IPV6_RECVERR

cdef extern from *:
    """
    #include <time.h>
    #include <linux/errqueue.h>
    """
    struct sock_extended_err:
        uint32_t ee_errno
        uint8_t ee_origin
    int SO_EE_ORIGIN_LOCAL

cdef enum:
    DATAGRAMS_A_TURN = 64


cdef class DatagramOwner:

    cdef int on_datagram(self, Datagrams at, const Address *sender, char *data,
                         size_t n) except -1:
        return 0

    cdef int on_rejected(self, Datagrams at, const Address *peer, int error) except -1:
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
                    return self.read_errors()
                continue                    # of a peer: the queue of errors has it
            if from_sockaddr(&name, &sender):
                self.owner.on_datagram(self, &sender, data, n)
            if not self.is_open:
                return 0                    # closed by its owner
        return 0

    cdef int on_fault(self) except -1:
        return self.close() if self.owner is None else self.owner.on_datagram_fault()

    cdef bint is_timed(self) noexcept:
        return True                         # its owner has the deadline

    cdef int read_errors(self) except -1:
        """Tells the owner about ICMP errors, with the peer that each concerns."""
        cdef sockaddr_storage name
        cdef Address peer
        cdef msghdr message
        cdef char[256] control
        cdef const sock_extended_err *about
        cdef int _i
        for _i in range(DATAGRAMS_A_TURN):
            memset(&message, 0, sizeof(message))
            message.msg_name = &name
            message.msg_namelen = sizeof(name)
            message.msg_control = control
            message.msg_controllen = sizeof(control)
            if linux.recvmsg(self.sock.fd, &message,
                             linux.MSG_ERRQUEUE | linux.MSG_DONTWAIT) < 0:
                return 0
            about = error_in(&message)
            if about != NULL and from_sockaddr(&name, &peer):
                self.owner.on_rejected(self, &peer, <int>about.ee_errno)
            if not self.is_open:
                return 0
        return 0

    cdef int send(self, const Address *to, const char *data, size_t n) noexcept:
        cdef sockaddr_storage name
        cdef socklen_t name_len = to_sockaddr(to, &name)
        cdef int _i
        for _i in range(2):                 # the first may report an earlier datagram's error
            if linux.sendto(self.sock.fd, data, n, linux.MSG_DONTWAIT | linux.MSG_NOSIGNAL,
                            <sockaddr *>&name, name_len) >= 0:
                return 0
            if errno == linux.EAGAIN:
                return 0
        return errno


cdef const sock_extended_err *error_in(msghdr *message) noexcept:
    """NULL: none from the network. If it is one of this host, as of a datagram that is too long,
    it has no meaning for the peer."""
    cdef cmsghdr *header = linux.CMSG_FIRSTHDR(message)
    cdef const sock_extended_err *about
    while header != NULL:
        if header.cmsg_type == IP_RECVERR or header.cmsg_type == IPV6_RECVERR:
            about = <const sock_extended_err *>linux.CMSG_DATA(header)
            if about.ee_origin != SO_EE_ORIGIN_LOCAL:
                return about
        header = linux.CMSG_NXTHDR(message, header)
    return NULL


cdef Datagrams open_datagrams(Poller poller, DatagramOwner owner, const Address *at):
    cdef Datagrams datagrams = Datagrams.__new__(Datagrams)
    cdef sockaddr_storage name
    cdef socklen_t n = to_sockaddr(at, &name)
    cdef int on = 1
    datagrams.owner = owner
    datagrams.sock.fd = linux.socket(
        name.ss_family, linux.SOCK_DGRAM | linux.SOCK_NONBLOCK | linux.SOCK_CLOEXEC, 0)
    if datagrams.sock.fd < 0:
        raise OSError(errno, os.strerror(errno))
    linux.setsockopt(datagrams.sock.fd, IPPROTO_IPV6 if at.family == 6 else IPPROTO_IP,
                     IPV6_RECVERR if at.family == 6 else IP_RECVERR, &on, sizeof(on))
    if linux.bind(datagrams.sock.fd, <sockaddr *>&name, n) < 0:
        error = errno
        linux.close(datagrams.sock.fd)
        raise OSError(error, os.strerror(error))
    n = sizeof(name)
    linux.getsockname(datagrams.sock.fd, <sockaddr *>&name, &n)
    from_sockaddr(&name, &datagrams.bound)
    try:
        poller.add_level(datagrams)
    except OSError:
        linux.close(datagrams.sock.fd)
        datagrams.sock.fd = -1
        raise
    return datagrams
