"""System calls on sockets as values, and a socket's last known readiness.

`sys_*` return a count or -errno. `try_*` make one non-blocking attempt and keep the
readiness bits right. Nothing else may clear these bits: they are the only memory of readiness,
because registration is edge-triggered and made once for each fd.

A socket with a transport above it goes through that transport's table. The test of `kind`
has no measurable cost: sending and receiving 64 bytes over a socketpair took 544 ns without
it, 531 with it, and 551 through the table.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset
from cutthrough.net cimport linux
from cutthrough.net.clock cimport standing_us
from cutthrough.net.linux cimport (
    errno, EAGAIN, EINTR, MSG_MORE, MSG_NOSIGNAL, iovec, msghdr, sockaddr, sockaddr_storage, socklen_t,
    timespec)
from cutthrough.net.transport cimport KERNEL, Socket, drop_transport, transport_of

cdef enum:
    CAN_READ = 1            # until a read returns EAGAIN
    CAN_WRITE = 2           # until a write returns EAGAIN
    PEER_DONE = 4           # EPOLLRDHUP: a FIN is queued behind the bytes
    BROKEN = 8              # EPOLLERR or EPOLLHUP: reads and writes will return the errno
    URGENT = 16             # EPOLLPRI: reads stop short at the urgent mark


cdef inline int64_t clock_us() noexcept nogil:
    """Microseconds of CLOCK_MONOTONIC, 20 to 30 ns through the vDSO; or the time that stands."""
    cdef timespec now
    if standing_us:
        return standing_us
    linux.clock_gettime(linux.CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef inline void note_events(Socket *s, unsigned int events) noexcept nogil:
    if s.kind != KERNEL:
        transport_of(s).note_events(s, events)
        return
    note_kernel_events(s, events)


cdef inline void note_kernel_events(Socket *s, unsigned int events) noexcept nogil:
    """Adds the descriptor's epoll events to the readiness."""
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
    """> 0 bytes, 0 EOF, or -errno. A short read means that the socket is dry (epoll(7)): this
    saves the read that returns EAGAIN. It does not hold before a FIN or an urgent mark."""
    cdef ssize_t r
    if s.kind != KERNEL:
        return transport_of(s).recv(s, buf, n)
    r = linux.recv(s.fd, buf, n, 0)
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
    if s.kind != KERNEL:
        return transport_of(s).send(s, buf, n, NULL, 0)
    return try_kernel_send(s, buf, n, MSG_NOSIGNAL)


cdef inline ssize_t try_send_part(Socket *s, const void *buf, size_t n) noexcept nogil:
    """The same, of a kernel's socket, if more bytes or the end are sent at once behind these: then
    one segment can have both. After 0.2 s the kernel sends them alone (tcp(7), TCP_CORK)."""
    return try_kernel_send(s, buf, n, MSG_NOSIGNAL | MSG_MORE)


cdef inline ssize_t try_kernel_send(Socket *s, const void *buf, size_t n,
                                    int flags) noexcept nogil:
    cdef ssize_t r = linux.send(s.fd, buf, n, flags)
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
    if m == 0:
        return try_send(s, a, n)
    if s.kind != KERNEL:
        return transport_of(s).send(s, a, n, b, m)
    pieces[0].iov_base = <void *>a
    pieces[0].iov_len = n
    pieces[1].iov_base = <void *>b
    pieces[1].iov_len = m
    memset(&message, 0, sizeof(message))
    message.msg_iov = pieces
    message.msg_iovlen = 2
    return try_kernel_message(s, &message, n + m)


cdef inline ssize_t try_kernel_message(Socket *s, const msghdr *message, size_t n) noexcept nogil:
    """The same, of the kernel's socket, for the pieces of a message, `n` bytes in all."""
    cdef ssize_t r = linux.sendmsg(s.fd, message, MSG_NOSIGNAL)
    if r < 0:
        r = -errno
        if r != -EAGAIN:
            return r
        r = 0
    if <size_t>r < n:
        s.ready &= ~CAN_WRITE
    return r


cdef inline bint can_peek(const Socket *s) noexcept nogil:
    return s.kind == KERNEL or transport_of(s).peek != NULL


cdef inline ssize_t try_peek(Socket *s, void *buf, size_t n) noexcept nogil:
    """Like try_recv, but the bytes stay. Only valid if can_peek is true."""
    cdef ssize_t r
    if s.kind != KERNEL:
        return transport_of(s).peek(s, buf, n)
    r = linux.recv(s.fd, buf, n, linux.MSG_PEEK)
    if r < 0:
        r = -errno
        if r == -EAGAIN:
            s.ready &= ~CAN_READ
    return r


cdef inline ssize_t skip_peeked(Socket *s, size_t n) noexcept nogil:
    """Discards peeked bytes (tcp(7), MSG_TRUNC). Returns how many, or -errno."""
    cdef ssize_t r
    if s.kind != KERNEL:
        return transport_of(s).skip(s, n)
    r = linux.recv(s.fd, NULL, n, linux.MSG_TRUNC)
    return r if r >= 0 else -errno


cdef inline bint has_unread(Socket *s) noexcept nogil:
    """Whether a byte is waiting. If a transport cannot peek, its readiness decides."""
    cdef char byte
    if not can_peek(s):
        return s.ready & CAN_READ
    return try_peek(s, &byte, 1) > 0


cdef inline bint can_splice(const Socket *s) noexcept nogil:
    return s.kind == KERNEL or transport_of(s).begin_splice != NULL


cdef inline bint begin_splice(Socket *s, bint sends) noexcept nogil:
    """Prepares to splice, before the first byte in one direction. False: not now, or never."""
    return s.kind == KERNEL or (
        transport_of(s).begin_splice != NULL and transport_of(s).begin_splice(s, sends))


cdef inline ssize_t splice_from(Socket *s, int pipe_fd, size_t n) noexcept nogil:
    """From the socket into a pipe: bytes, 0 at an end, or -errno. The caller updates readiness,
    because it knows whether the pipe is full. Only valid after begin_splice."""
    cdef ssize_t r = linux.splice(s.fd, NULL, pipe_fd, NULL, n,
                                  linux.SPLICE_F_MOVE | linux.SPLICE_F_NONBLOCK)
    if r >= 0:
        return r
    r = -errno
    return r if s.kind == KERNEL else transport_of(s).note_unspliced(s, r)


cdef inline ssize_t splice_to(Socket *s, int pipe_fd, size_t n) noexcept nogil:
    """From a pipe that holds `n` bytes: bytes taken (0 if the socket is full), or -errno."""
    cdef ssize_t r = linux.splice(pipe_fd, NULL, s.fd, NULL, n,
                                  linux.SPLICE_F_MOVE | linux.SPLICE_F_NONBLOCK)
    if r < 0:
        r = -errno
        if r == -EAGAIN:
            s.ready &= ~CAN_WRITE
            return 0
    return r


cdef inline int64_t untaken(Socket *s) noexcept nogil:
    """Bytes held for the peer: not sent, or not acknowledged (tcp(7))."""
    cdef int n = 0
    if s.kind != KERNEL:
        return transport_of(s).untaken(s)
    linux.ioctl(s.fd, linux.SIOCOUTQ, &n)
    return n


cdef inline bint holds_back(Socket *s) noexcept nogil:
    """Whether a transport still holds sent bytes, or an end, that the kernel has not taken."""
    return s.kind != KERNEL and transport_of(s).holds_back(s)


cdef inline int take_error(const Socket *s) noexcept nogil:
    """The errno with which the socket has failed; 0: none. The kernel reports its own once."""
    if s.kind != KERNEL and transport_of(s).error != NULL:
        return transport_of(s).error(s)
    return take_kernel_error(s.fd)


cdef inline void half_close(Socket *s) noexcept nogil:
    """Ends the stream after all sent bytes; the peer may go on sending."""
    if s.kind != KERNEL:
        transport_of(s).half_close(s)
    else:
        linux.shutdown(s.fd, linux.SHUT_WR)


cdef inline void sys_close(Socket *s) noexcept nogil:
    """Idempotent (R33). EINTR included, Linux has released the descriptor on return."""
    if s.kind != KERNEL:
        drop_transport(s)
    if s.fd >= 0:
        linux.close(s.fd)
        s.fd = -1


cdef inline void set_abortive(Socket *s) noexcept nogil:
    """Makes the coming close send RST, not FIN, because the relay ended by force, and the other
    side must not take it for a regular end."""
    if s.kind != KERNEL:
        transport_of(s).set_abortive(s)
    elif s.fd >= 0:
        set_kernel_abortive(s.fd)


cdef inline void set_kernel_abortive(int fd) noexcept nogil:
    cdef linux.linger option
    option.l_onoff = 1
    option.l_linger = 0
    linux.setsockopt(fd, linux.SOL_SOCKET, linux.SO_LINGER, &option, sizeof(option))


cdef inline void keep_for_fin(Socket *s) noexcept nogil:
    """Holds back bytes that are sent from now on until the FIN, or for 0.2 s. Only for a kernel's
    socket."""
    cdef int enabled = 1
    if s.fd >= 0:
        linux.setsockopt(s.fd, linux.IPPROTO_TCP, linux.TCP_CORK, &enabled, sizeof(enabled))


# --- kernel sockets only: making and naming them


cdef inline int open_tcp(Socket *s, int family) noexcept nogil:
    """0, or -errno without a descriptor. `family`: of a sockaddr.

    With TCP_NODELAY, because a proxy passes bytes on as they arrive, and Nagle would add a
    round trip."""
    cdef int enabled = 1
    s.fd = linux.socket(
        family, linux.SOCK_STREAM | linux.SOCK_NONBLOCK | linux.SOCK_CLOEXEC, 0)
    if s.fd < 0:
        return -errno
    linux.setsockopt(s.fd, linux.IPPROTO_TCP, linux.TCP_NODELAY, &enabled, sizeof(enabled))
    return 0


cdef inline int begin_connect(Socket *s, const sockaddr_storage *name,
                              socklen_t n) noexcept nogil:
    """0: connected; -EINPROGRESS; or another -errno, and the descriptor is closed."""
    cdef int error
    if linux.connect(s.fd, <const sockaddr *>name, n) == 0:
        return 0
    error = errno
    if error != linux.EINPROGRESS:
        linux.close(s.fd)
        s.fd = -1
    return -error


cdef inline bint is_given_up(int error) noexcept nogil:
    """Whether the kernel has ended the connection because its peer acknowledges nothing. The errno is
    what ICMP or ARP had told of that, or ETIMEDOUT."""
    return (error == linux.ETIMEDOUT or error == linux.EHOSTUNREACH or error == linux.ENETUNREACH
            or error == linux.EHOSTDOWN or error == linux.ENETDOWN)


cdef inline int take_kernel_error(int fd) noexcept nogil:
    """The kernel's pending errno, which this clears; 0: none."""
    cdef int error = 0
    cdef socklen_t n = sizeof(error)
    linux.getsockopt(fd, linux.SOL_SOCKET, linux.SO_ERROR, &error, &n)
    return error


cdef inline bint read_own_name(const Socket *s, sockaddr_storage *out) noexcept nogil:
    """Reads the local address. False: the socket is closed."""
    cdef socklen_t n = sizeof(sockaddr_storage)
    return s.fd >= 0 and linux.getsockname(s.fd, <sockaddr *>out, &n) == 0
