"""System calls as values, and what the kernel last said about a socket.

`sys_*` return a count or -errno. `try_*` make one non-blocking attempt and keep the
readiness bits right. Registration is edge-triggered and made once for each fd, so
these bits are the only memory of readiness: nothing else may clear them.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset
from cutthrough.net cimport linux
from cutthrough.net.linux cimport (
    errno, EAGAIN, EINTR, MSG_NOSIGNAL, iovec, msghdr, timespec)

cdef enum:
    CAN_READ = 1            # until a read says EAGAIN
    CAN_WRITE = 2           # until a write says EAGAIN
    PEER_DONE = 4           # EPOLLRDHUP: a FIN is queued behind the bytes
    BROKEN = 8              # EPOLLERR or EPOLLHUP: reads and writes will tell the errno
    URGENT = 16             # EPOLLPRI: reads stop short at the urgent mark

cdef struct Socket:
    int fd                  # -1: none, or closed
    uint8_t ready


cdef inline int64_t clock_us() noexcept nogil:
    """Microseconds of CLOCK_MONOTONIC; 20 to 30 ns through the vDSO."""
    cdef timespec now
    linux.clock_gettime(linux.CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef inline void note_events(Socket *s, unsigned int events) noexcept nogil:
    if events & (linux.EPOLLIN | linux.EPOLLRDHUP | linux.EPOLLHUP | linux.EPOLLERR):
        s.ready |= CAN_READ
    if events & (linux.EPOLLOUT | linux.EPOLLHUP | linux.EPOLLERR):
        s.ready |= CAN_WRITE
    if events & linux.EPOLLRDHUP:
        s.ready |= PEER_DONE
    if events & (linux.EPOLLHUP | linux.EPOLLERR):
        s.ready |= BROKEN
    if events & linux.EPOLLPRI:
        s.ready |= URGENT


cdef inline ssize_t try_recv(Socket *s, void *buf, size_t n) noexcept nogil:
    """> 0 bytes, 0 EOF, or -errno. A short read means that the socket is dry (epoll(7)),
    which saves the read that would say EAGAIN; not so before a FIN or an urgent mark."""
    cdef ssize_t r = linux.recv(s.fd, buf, n, 0)
    if r < 0:
        r = -errno
        if r == -EAGAIN:
            s.ready &= ~CAN_READ
        return r
    if <size_t>r < n and not s.ready & (PEER_DONE | BROKEN | URGENT):
        s.ready &= ~CAN_READ
    return r


cdef inline ssize_t try_send(Socket *s, const void *buf, size_t n) noexcept nogil:
    """Bytes taken (0 when the socket is full), or -errno."""
    cdef ssize_t r = linux.send(s.fd, buf, n, MSG_NOSIGNAL)
    if r < 0:
        r = -errno
        if r != -EAGAIN:
            return r
        r = 0
    if <size_t>r < n:
        s.ready &= ~CAN_WRITE
    return r


cdef inline ssize_t try_send2(Socket *s, const void *a, size_t n, const void *b,
                              size_t m) noexcept nogil:
    """The same for two pieces in one call."""
    cdef iovec pieces[2]
    cdef msghdr message
    cdef ssize_t r
    if m == 0:
        return try_send(s, a, n)
    pieces[0].iov_base = <void *>a
    pieces[0].iov_len = n
    pieces[1].iov_base = <void *>b
    pieces[1].iov_len = m
    memset(&message, 0, sizeof(message))
    message.msg_iov = pieces
    message.msg_iovlen = 2
    r = linux.sendmsg(s.fd, &message, MSG_NOSIGNAL)
    if r < 0:
        r = -errno
        if r != -EAGAIN:
            return r
        r = 0
    if <size_t>r < n + m:
        s.ready &= ~CAN_WRITE
    return r


cdef inline int64_t untaken(Socket *s) noexcept nogil:
    """Bytes that the kernel holds for the peer: not sent, or not acknowledged (tcp(7))."""
    cdef int n = 0
    linux.ioctl(s.fd, linux.SIOCOUTQ, &n)
    return n


cdef inline void sys_close(Socket *s) noexcept nogil:
    """Idempotent (R33). EINTR included, Linux has released the descriptor on return."""
    if s.fd >= 0:
        linux.close(s.fd)
        s.fd = -1


cdef inline void set_abortive(Socket *s) noexcept nogil:
    """The coming close sends RST, not FIN: what was relayed ended by force, and the
    other side must not take it for a regular end."""
    cdef linux.linger option
    if s.fd >= 0:
        option.l_onoff = 1
        option.l_linger = 0
        linux.setsockopt(s.fd, linux.SOL_SOCKET, linux.SO_LINGER, &option, sizeof(option))
