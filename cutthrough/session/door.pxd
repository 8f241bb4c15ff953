"""Where sessions begin and, all together, end."""

from cutthrough.net.acceptor cimport Sink
from cutthrough.session.client cimport Context

cdef class Door(Sink):
    cdef Context context
    cdef int listener               # its number among the page's
