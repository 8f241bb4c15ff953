"""Where sessions begin and, all together, end."""

from cutthrough.net.acceptor cimport Sink
from cutthrough.session.client cimport Context
from cutthrough.session.session cimport Session

cdef class SessionSink(Sink):
    cdef Context context
    cdef int listener               # its number among the page's
    cdef public int transport       # of its connections; KERNEL: none above the socket

    # May it stay? An Outcome.
    cdef int admit(self, Session session) except -1
