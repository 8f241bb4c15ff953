"""The begin of sessions, and the end of all of them together."""

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.net.acceptor cimport Sink
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.entrance cimport Entrance

cdef class ConnectionSink(Sink):
    cdef Context context
    cdef int listener               # its number in the page
    cdef public int transport       # of its connections; KERNEL: none above the socket
    cdef uint8_t pac                # Client.pac of its connections
    cdef Entrance entrance          # of its connections
    cdef bint is_unix               # a unix socket
    cdef uint32_t tag               # if is_unix: part of its callers' addresses; see address
    cdef int stages                 # bits of Stage
    cdef int tls                    # number of its TLS context; -1: no TLS
    cdef bint keeps_syn             # the listener has the kernel keep SYNs, and they are read
    cdef bint plain_too             # with TLS: a connection may come without it
