# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""System calls of kTLS, the kernel's protocol on top of a TCP socket (its "ULP").

Documentation/networking/tls.rst of Linux has the interface. It does not say what a socket does with
records that TCP has no room for: the kernel keeps them in a list of its own, counts their bytes as
sent, and drops them if the socket is closed or shut down before there is room
(tls_sw_release_resources_tx in net/tls/tls_sw.c of 6.1). SIOCOUTQ does not count them. But the list
is sent before a new record, so it is empty if there was room for a record: `has_sent`.
"""

from libc.string cimport memset
from cutthrough.net cimport linux
from cutthrough.net.linux cimport EAGAIN, MSG_NOSIGNAL, errno, iovec, msghdr, pollfd, socklen_t

cdef extern from *:
    """
    #include <netinet/tcp.h>
    #include <sys/socket.h>
    #ifndef TCP_ULP
    #define TCP_ULP 31
    #endif
    #ifndef SOL_TLS
    #define SOL_TLS 282
    #endif
    /* of linux/tls.h, which older headers lack in part */
    #define KTLS_TX 1
    #define KTLS_RX 2
    #define KTLS_SET_RECORD_TYPE 1
    #define KTLS_GET_RECORD_TYPE 2
    union ktls_kind {
        struct cmsghdr header;
        char room[CMSG_SPACE(1)];
    };
    static int ktls_get_kind(struct msghdr *m) {
        struct cmsghdr *c = CMSG_FIRSTHDR(m);
        if (c && c->cmsg_level == SOL_TLS && c->cmsg_type == KTLS_GET_RECORD_TYPE)
            return *CMSG_DATA(c);
        return 0;
    }
    static void ktls_set_kind(struct msghdr *m, union ktls_kind *k, int kind) {
        m->msg_control = k->room;
        m->msg_controllen = sizeof k->room;
        k->header.cmsg_level = SOL_TLS;
        k->header.cmsg_type = KTLS_SET_RECORD_TYPE;
        k->header.cmsg_len = CMSG_LEN(1);
        *CMSG_DATA(&k->header) = (unsigned char)kind;
    }
    """
    int TCP_ULP, SOL_TLS, KTLS_TX, KTLS_RX
    cdef union ktls_kind:
        char room[24]
    int ktls_get_kind(msghdr *message) nogil
    void ktls_set_kind(msghdr *message, ktls_kind *kind, int value) nogil

cdef enum:
    ALERT = 21
    # A socket reports room if a third of its buffer is free: then a record and its alert fit
    LEAST_BUFFER = 65536


cdef int sys_add_layer(int fd) noexcept nogil:
    return -errno if linux.setsockopt(fd, linux.IPPROTO_TCP, TCP_ULP, b"tls", 4) < 0 else 0


cdef int sys_set_keys(int fd, bint sends, const void *info, size_t n) noexcept nogil:
    return -errno if linux.setsockopt(
        fd, SOL_TLS, KTLS_TX if sends else KTLS_RX, info, <socklen_t>n) < 0 else 0


cdef int sys_get_keys(int fd, void *info, unsigned int n) noexcept nogil:
    cdef socklen_t size = n
    memset(info, 0, n)
    return -errno if linux.getsockopt(fd, SOL_TLS, KTLS_TX, info, &size) < 0 else 0


cdef ssize_t sys_receive(int fd, void *buf, size_t n, int *kind) noexcept nogil:
    cdef ktls_kind control
    cdef msghdr message
    cdef iovec piece
    cdef ssize_t r
    memset(&message, 0, sizeof(message))
    piece.iov_base, piece.iov_len = buf, n
    message.msg_iov, message.msg_iovlen = &piece, 1
    message.msg_control, message.msg_controllen = &control, sizeof(control)
    kind[0] = 0
    r = linux.recvmsg(fd, &message, 0)
    if r < 0:
        return -errno
    kind[0] = ktls_get_kind(&message)
    return r


cdef ssize_t sys_send_alert(int fd, int level, int alert) noexcept nogil:
    cdef ktls_kind control
    cdef msghdr message
    cdef iovec piece
    cdef unsigned char data[2]
    cdef ssize_t r
    data[0], data[1] = <unsigned char>level, <unsigned char>alert
    memset(&message, 0, sizeof(message))
    memset(&control, 0, sizeof(control))
    piece.iov_base, piece.iov_len = data, sizeof(data)
    message.msg_iov, message.msg_iovlen = &piece, 1
    ktls_set_kind(&message, &control, ALERT)
    r = linux.sendmsg(fd, &message, MSG_NOSIGNAL)
    return r if r >= 0 else 0 if errno == EAGAIN else -errno


cdef bint has_sent(int fd) noexcept nogil:
    cdef pollfd descriptor
    descriptor.fd, descriptor.events, descriptor.revents = fd, <short>linux.POLLOUT, 0
    return linux.poll(&descriptor, 1, 0) != 0  # an error of the socket, too: nothing will follow


cdef bint has_buffer(int fd) noexcept nogil:
    cdef int size = 0
    cdef socklen_t n = sizeof(size)
    return linux.getsockopt(fd, linux.SOL_SOCKET, linux.SO_SNDBUF, &size, &n) == 0 and (
        size >= LEAST_BUFFER)


cdef int unparsed(int fd) noexcept nogil:
    cdef int n = 0
    linux.ioctl(fd, linux.SIOCINQ, &n)
    return n
