"""The kernel's measures of a TCP connection's path: one getsockopt, 0.4 µs."""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset
from cutthrough.net.linux cimport IPPROTO_TCP, getsockopt, socklen_t
from cutthrough.net.transport cimport Socket

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_INFO, TCP_CLOSE
    struct tcp_info:
        uint8_t tcpi_state
        uint32_t tcpi_rtt               # smoothed, microseconds
        uint32_t tcpi_total_retrans     # segments retransmitted since the connection began

cdef struct PathInfo:
    uint32_t rtt_us
    uint32_t retransmits


cdef inline bint read_path(const Socket *s, PathInfo *out) noexcept nogil:
    """False: not a TCP socket, or closed."""
    cdef tcp_info info
    cdef socklen_t n = sizeof(info)
    memset(&info, 0, sizeof(info))
    if s.fd < 0 or getsockopt(s.fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0:
        return False
    out.rtt_us = info.tcpi_rtt
    out.retransmits = info.tcpi_total_retrans
    return True


cdef inline bint has_ended(const Socket *s) noexcept nogil:
    """Whether the connection has ended, by a reset or otherwise. Both ends may be shut before that."""
    cdef tcp_info info
    cdef socklen_t n = sizeof(info)
    memset(&info, 0, sizeof(info))
    return (s.fd < 0 or getsockopt(s.fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0
            or info.tcpi_state == TCP_CLOSE)
