"""Declarations of kernel interfaces that Cython does not declare itself."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stddef cimport size_t
from posix.types cimport off_t

cdef extern from "<errno.h>" nogil:
    int errno
    int EAGAIN, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, ECONNABORTED, EINPROGRESS
    int ECONNREFUSED, ECONNRESET, EPIPE, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH
    int EINVAL, ENOSYS, ENOTCONN, EADDRNOTAVAIL, EAFNOSUPPORT, ENETDOWN, EHOSTDOWN, EACCES, EPERM

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN, POLLOUT
    int poll(pollfd *fds, unsigned long nfds, int timeout)

cdef extern from "<sys/epoll.h>" nogil:
    int EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP, EPOLLPRI
    unsigned int EPOLLET
    int EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, EPOLL_CLOEXEC
    ctypedef union epoll_data_t:
        void *ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    ctypedef unsigned short sa_family_t
    struct sockaddr:
        sa_family_t sa_family
    struct sockaddr_storage:
        sa_family_t ss_family
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        void *msg_name
        socklen_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
    struct linger:
        int l_onoff
        int l_linger
    int AF_INET, AF_INET6, AF_UNIX, SOCK_STREAM, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_CLOEXEC
    struct ucred:                       # of _GNU_SOURCE, which Python.h defines
        uint32_t uid
    int SOL_SOCKET, SO_ERROR, SO_LINGER, SO_SNDBUF, SO_BINDTODEVICE, SO_MARK, SO_PEERCRED
    struct cmsghdr:
        int cmsg_level
        int cmsg_type
    cmsghdr *CMSG_FIRSTHDR(msghdr *message)
    cmsghdr *CMSG_NXTHDR(msghdr *message, cmsghdr *header)
    unsigned char *CMSG_DATA(cmsghdr *header)
    int MSG_NOSIGNAL, MSG_MORE, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_ERRQUEUE
    int SHUT_WR
    int socket(int domain, int type, int protocol)
    int socketpair(int domain, int type, int protocol, int *pair)
    int bind(int fd, const sockaddr *addr, socklen_t n)
    int connect(int fd, const sockaddr *addr, socklen_t n)
    int accept4(int fd, sockaddr *addr, socklen_t *n, int flags)
    int getsockname(int fd, sockaddr *addr, socklen_t *n)
    int getsockopt(int fd, int level, int name, void *value, socklen_t *n)
    int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
    int shutdown(int fd, int how)
    ssize_t recv(int fd, void *buf, size_t n, int flags)
    ssize_t send(int fd, const void *buf, size_t n, int flags)
    ssize_t recvfrom(int fd, void *buf, size_t n, int flags, sockaddr *addr, socklen_t *len)
    ssize_t sendto(int fd, const void *buf, size_t n, int flags, const sockaddr *addr,
                   socklen_t len)
    ssize_t recvmsg(int fd, msghdr *message, int flags)
    ssize_t sendmsg(int fd, const msghdr *message, int flags)

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct in6_addr:
        uint8_t s6_addr[16]
    struct sockaddr_in:
        sa_family_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        sa_family_t sin6_family
        uint16_t sin6_port
        uint32_t sin6_flowinfo
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    int IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6
    int IP_TOS, IP_FREEBIND, IP_BIND_ADDRESS_NO_PORT, IPV6_TCLASS, IPV6_FREEBIND
    uint16_t htons(uint16_t x)
    uint32_t htonl(uint32_t x)
    uint16_t ntohs(uint16_t x)

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY, TCP_CORK

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int family, const void *address, char *out, socklen_t n)
    int inet_pton(int family, const char *text, void *address)

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <unistd.h>
    """

cdef extern from "<fcntl.h>" nogil:
    int O_NONBLOCK, O_CLOEXEC, O_APPEND, F_GETFL, F_SETFL, F_SETPIPE_SZ, F_GETPIPE_SZ
    unsigned int SPLICE_F_MOVE, SPLICE_F_NONBLOCK
    int fcntl(int fd, int command, ...)
    ssize_t splice(int fd_in, off_t *off_in, int fd_out, off_t *off_out,
                   size_t n, unsigned int flags)

cdef extern from "<unistd.h>" nogil:
    int SEEK_CUR
    int close(int fd)
    off_t lseek(int fd, off_t at, int whence)
    ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
    int pipe2(int fds[2], int flags)

cdef extern from "<sys/random.h>" nogil:
    unsigned int GRND_NONBLOCK
    ssize_t getrandom(void *buf, size_t n, unsigned int flags)

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "<linux/sockios.h>" nogil:
    int SIOCINQ, SIOCOUTQ

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        long tv_nsec
    struct itimerspec:
        timespec it_interval
        timespec it_value
    int CLOCK_MONOTONIC, CLOCK_REALTIME
    int clock_gettime(int clock, timespec *now)

cdef extern from "<sys/timerfd.h>" nogil:
    int TFD_CLOEXEC, TFD_NONBLOCK, TFD_TIMER_ABSTIME
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec *time, itimerspec *before)
