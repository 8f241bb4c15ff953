"""Datagram sockets in the epoll set."""

from cutthrough.net.address cimport Address
from cutthrough.net.poller cimport Endpoint, Poller

cdef enum:
    # Before the data of a received datagram, for a header that its receiver adds
    DATAGRAM_ROOM = 32

# Receives datagrams. Implemented by the layer above.
cdef class DatagramOwner:
    # `data` is in the scratch buffer, with DATAGRAM_ROOM bytes before it, valid until this
    # returns. May close the socket.
    cdef int on_datagram(self, Datagrams at, const Address *sender, char *data,
                         size_t n) except -1
    # The network, or the host at `peer`, has rejected an earlier datagram to it. May close the
    # socket.
    cdef int on_rejected(self, Datagrams at, const Address *peer, int error) except -1
    # An exception was caught in one of the above: must only close (R34).
    cdef int on_datagram_fault(self) except -1

cdef class Datagrams(Endpoint):
    """A datagram socket that is connected to nobody. Its creator closes it."""
    cdef DatagramOwner owner
    cdef Address bound              # its own address, the port included

    # Returns 0, or the errno with which the kernel rejects it. Datagrams may be lost, so nobody
    # waits for room.
    cdef int send(self, const Address *to, const char *data, size_t n) noexcept
    cdef int read_errors(self) except -1

# Opens one on a free port of this address (family 4 or 6; zeros: every address of the host), and
# adds it to the set. Raises OSError.
cdef Datagrams open_datagrams(Poller poller, DatagramOwner owner, const Address *at)
