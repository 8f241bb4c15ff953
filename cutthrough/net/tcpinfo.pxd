"""The kernel's measures of a TCP connection's path: one getsockopt, 0.4 µs."""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset
from cutthrough.net.linux cimport IPPROTO_TCP, getsockopt, socklen_t
from cutthrough.net.transport cimport Socket

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_INFO, TCP_CLOSE, TCP_SAVED_SYN
    struct tcp_info:
        uint8_t tcpi_state
        uint32_t tcpi_rtt               # smoothed, microseconds
        uint32_t tcpi_total_retrans     # segments retransmitted since the connection began

cdef enum:
    MOST_SYN = 256          # IPv4 and TCP have 120 at most, of IPv6 what its extensions need

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


cdef inline ssize_t take_syn(int fd, unsigned char *out) noexcept nogil:
    """Writes the headers of the SYN of an accepted connection, MOST_SYN bytes at most, and has the
    kernel free them. Returns how many. 0: the listener has no TCP_SAVE_SYN, or the kernel has not
    kept them (a SYN cookie, another kind of socket, longer headers)."""
    cdef socklen_t n = MOST_SYN
    return n if getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, out, &n) == 0 else 0
