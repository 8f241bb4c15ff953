# cython: language_level=3
"""A door to code that opens descriptors, with a poller that takes no more of them."""

import errno
import os
import socket

from cutthrough.net.acceptor cimport Acceptor, Sink
from cutthrough.net.address cimport Address, Addresses, one_address
from cutthrough.net.bridge import close_bridges
from cutthrough.net.bridge cimport put_bridge
from cutthrough.net.connector cimport FAULT, IF_PREPARED, Leave, UpstreamOwner, dial
from cutthrough.net.poller cimport Endpoint, Poller
from cutthrough.net.sysio cimport CAN_WRITE
from cutthrough.net.transport cimport KERNEL, Socket


cdef class Watches(Poller):
    """Takes `left` descriptors more."""
    cdef int left

    cdef int add(self, Endpoint endpoint) except -1:
        self._count()
        return Poller.add(self, endpoint)

    cdef int add_level(self, Endpoint endpoint) except -1:
        self._count()
        return Poller.add_level(self, endpoint)

    cdef int _count(self) except -1:
        if self.left == 0:
            raise OSError(errno.ENOSPC, "no watch")
        self.left -= 1
        return 0


cdef class Unprepared(UpstreamOwner):

    cdef Leave may_dial(self, const Address *address) except FAULT:
        return IF_PREPARED

    cdef bint prepare_socket(self, const Socket *s, const Address *address) except -1:
        raise ValueError("no source")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def bridge(int left):
    """Returns whether it was put, how many are watched, and the descriptors that were
    not there before, when all have been closed."""
    cdef Watches poller = Watches()
    cdef Endpoint user = Endpoint.__new__(Endpoint)
    before = descriptors()
    near, far = socket.socketpair()
    user.sock = Socket(near.detach(), CAN_WRITE, KERNEL, 0)
    poller.left = 1
    poller.add(user)
    poller.left = left
    put = put_bridge(user, 1000) == 0
    watched = poller.registered
    far.setblocking(False)
    ended = not put and far.recv(1) == b""
    far.close()
    user.close()
    close_bridges(poller)
    more = descriptors() - before
    poller.detach()
    return put, watched, ended, more


def accept():
    """Returns the descriptors that are left open by an acceptor that is not watched."""
    cdef Watches poller = Watches()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before = descriptors()
        try:
            Acceptor(poller, listener, Sink())
        except OSError:
            return descriptors() - before
        finally:
            poller.detach()


def prepare():
    """The same of a socket; its preparation raises."""
    cdef Watches poller = Watches()
    cdef Addresses addresses = one_address(4, b"\x7f\0\0\1")
    before = descriptors()
    try:
        dial(poller, Unprepared.__new__(Unprepared), addresses, 9, 1000)
    except ValueError:
        return descriptors() - before
    finally:
        poller.detach()
