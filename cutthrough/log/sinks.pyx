# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Targets of log lines: a file or pipe, syslog, the journal. No sink ever waits.

A file is appended to in whole lines, so that lines of several workers never mix. For the
same reason a write to a pipe is at most one atomic write long (pipe(7)). If standard
output is a pipe or a terminal, it is reopened: O_NONBLOCK belongs to the open file, which
the parent process shares.

syslog over a local socket uses the form of syslog(3), over UDP that of RFC 5424. The
journal gets its native protocol, a datagram of `FIELD=value` lines.
"""

import os
import socket
import stat
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock

from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport SEEK_END
from libc.string cimport memcpy, memset, strerror
from libc.time cimport time_t, tm
from cutthrough.log.jsonline cimport put_method, put_url
from cutthrough.log.text cimport (
    Q_URL, put_address, put_escaped, put_ms, put_number, put_padded, put_text, put_time)
from cutthrough.net.linux cimport (
    CLOCK_REALTIME, EAGAIN, ENOBUFS, ENOMEM, F_GETFL, F_SETFL, MSG_DONTWAIT, MSG_NOSIGNAL,
    O_APPEND, SEEK_CUR, clock_gettime, errno, fcntl, iovec, lseek, msghdr, pwrite, timespec)
from cutthrough.net.linux cimport send as sys_send
from cutthrough.config.files import describe_errno
from cutthrough.log.nonblocking import open_path
from cutthrough.outcome cimport label_of
from cutthrough.outcome import TABLE
from cutthrough.session.model.client cimport Client, peer_of, tried_of, user_of, worker_of_id
from cutthrough.session.model.request cimport Request

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    """
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    int sendmmsg(int fd, mmsghdr *messages, unsigned int n, int flags) nogil

cdef extern from "<errno.h>" nogil:
    int EMSGSIZE, ESTALE, EWOULDBLOCK

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long n, int timeout_ms)
    short POLLOUT

cdef extern from "<sys/uio.h>" nogil:
    ssize_t writev(int fd, const iovec *pieces, int n)

cdef extern from "<time.h>" nogil:
    tm *localtime_r(const time_t *seconds, tm *out)

cdef enum:
    BURST = 64                  # messages in one system call
    HEADING_TRIES = 3           # at the opening, with the first lines, and 100 ms later
    WARNING = 4                 # RFC 5424, table 2
    INFO = 6

cdef const char *MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"


cdef class LogSink:

    def __cinit__(self):
        self.fd = -1

    cdef size_t send(self, const char *data, size_t n) except? 0:
        return 0

    cdef char *put_head(self, char *p, Client c, int outcome) except NULL:
        return p

    @property
    def number(self):
        """The descriptor; -1: closed."""
        return self.fd

    def reopen(self):
        """Opens the target again, because a file may have been moved away. Raises OSError,
        and then continues with the old one."""

    cdef bint try_reopen(self) except -1:
        try:
            self.reopen()
        except OSError as error:
            self.error_text = error.strerror
            return False
        return True

    def wait(self, ms):
        """Waits until the sink takes more, for `ms` at most. Only for the very end."""
        cdef pollfd descriptor
        descriptor.fd = self.fd
        descriptor.events = POLLOUT
        descriptor.revents = 0
        return poll(&descriptor, 1, ms) == 1

    def close(self):
        if self.fd > 2:
            os.close(self.fd)
        self.fd = -1


cdef class FileSink(LogSink):
    cdef object path
    cdef bytes heading
    cdef bytes due              # what the file lacks of its heading; b"": nothing
    cdef bint is_begun          # we have written the part before
    cdef int tries              # for the heading's lock
    cdef bint is_file, is_socket
    cdef bint is_own            # the open file is not shared: its offset is our last write's
    cdef bint torn              # the file ends within a line
    cdef bint is_missing        # to be opened: not yet, `fd` is /dev/null; or NFS has lost it

    def __init__(self, path, required=True, heading=b""):
        """`path`: a path, "-" for standard output, or a descriptor, which the sink then
        owns. `heading`: the first lines of a file. Raises OSError if it cannot be opened and
        `required`."""
        self.path = path
        self.heading = heading
        self.due = b""
        self.ends_lines = True
        try:
            self.reopen()
        except OSError as error:
            if required:
                raise
            self.error_text = error.strerror
            self.fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            self.most_line = ATOMIC
            self.is_missing = True

    def reopen(self):
        if self.fd >= 0 and (isinstance(self.path, int) or self.path == "-"):
            return
        fd = self.path if isinstance(self.path, int) else open_path(self.path)
        if self.fd > 2:
            os.close(self.fd)
        mode = os.fstat(fd).st_mode
        self.fd = fd
        self.is_file = stat.S_ISREG(mode)
        self.is_socket = stat.S_ISSOCK(mode)
        self.most_line = MOST_LINE if self.is_file else ATOMIC
        self.can_wait = not self.is_file and fd > 2
        self.is_own = isinstance(self.path, str) and self.path != "-"
        self.is_missing = False
        self.begin()
        if self.due:
            self.write_heading()

    cdef int begin(self) except -1:
        self.due = self.heading if self.is_file else b""
        self.torn, self.is_begun, self.tries = False, False, 0
        return 0

    cdef bint write_heading(self) except -1:
        """Writes the heading if the file is empty; of several workers one does. False: lines wait
        for it, if the disk is full, and a moment if another has the lock: a worker or anybody."""
        cdef ssize_t r
        try:
            flock(self.fd, LOCK_EX | LOCK_NB)
        except OSError:
            self.tries += 1
            if self.tries < HEADING_TRIES and os.fstat(self.fd).st_size == 0:
                return False
            self.due = b""
            return True
        try:
            if not self.is_begun and os.fstat(self.fd).st_size:
                self.due = b""
            else:
                r = self.append(self.due, len(self.due))
                self.note_error(r)
                self.due = self.due[max(r, 0):]
                self.is_begun = os.fstat(self.fd).st_size > 0
        finally:
            flock(self.fd, LOCK_UN)
        return not self.due

    cdef int note_error(self, ssize_t r) except -1:
        self.is_missing = r < 0 and errno == ESTALE and self.is_own
        self.error_text = None if r >= 0 or errno == EAGAIN else describe_errno(errno)
        return 0

    cdef size_t send(self, const char *data, size_t n) except? 0:
        cdef size_t done = 0
        cdef size_t piece
        cdef ssize_t r
        if self.is_missing and not self.try_reopen():
            return 0
        if (self.heading and not self.due and self.is_file and self.is_own
                and lseek(self.fd, 0, SEEK_END) == 0):
            self.begin()                    # logrotate's `copytruncate`
        if self.due and not self.write_heading():
            return 0
        while done < n:
            piece = n - done
            if self.is_file:
                r = self.append(data + done, piece)
            else:
                if not (self.can_wait or self.is_socket) and not self.wait(0):
                    break                   # shared, so O_NONBLOCK must not be set
                piece = whole_lines(data + done, piece)
                r = self.write(data + done, piece)
            self.note_error(r)
            if r <= 0:
                break
            done += r
        return done

    cdef ssize_t write(self, const char *data, size_t n) noexcept:
        cdef iovec piece
        if self.is_socket:
            return sys_send(self.fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL)
        piece.iov_base = <void *>data
        piece.iov_len = n
        return writev(self.fd, &piece, 1)

    cdef ssize_t append(self, const char *data, size_t n) noexcept:
        """Appends to a file. A full disk may take half a line: that half stays, on a line
        of its own, and the whole line is written again later. So lines never mix."""
        cdef iovec pieces[2]
        cdef ssize_t r
        pieces[0].iov_base = <void *><const char *>b"\n"
        pieces[0].iov_len = 1
        pieces[1].iov_base = <void *>data
        pieces[1].iov_len = n
        r = writev(self.fd, &pieces[0 if self.torn else 1], 2 if self.torn else 1)
        if r <= 0:
            return r
        r -= self.torn
        self.torn = False
        if <size_t>r == n or (r and data[r - 1] == b"\n"):
            return r
        self.torn = r != 0 and not self.end_half()
        while r and data[r - 1] != b"\n":
            r -= 1
        return r

    cdef bint end_half(self) noexcept:
        """Overwrites the last byte with a line's end at once, because another worker may
        write next. False: that failed, or the byte's position is unknown."""
        cdef int64_t end = lseek(self.fd, 0, SEEK_CUR) if self.is_own else 0
        cdef int flags = fcntl(self.fd, F_GETFL)
        cdef bint done
        # With O_APPEND pwrite(2) would append
        if end <= 0 or flags < 0 or fcntl(self.fd, F_SETFL, flags & ~O_APPEND) < 0:
            return False
        done = pwrite(self.fd, <const char *>b"\n", 1, end - 1) == 1
        fcntl(self.fd, F_SETFL, flags)
        return done


cdef class DatagramSink(LogSink):
    """Messages over a connected socket; reconnects if the listener has restarted."""
    cdef object sock, family, address

    def __init__(self, family, address, required):
        """Raises OSError if there is no listener and `required`."""
        self.is_framed = self.can_wait = True
        self.family = family
        self.address = address
        self.sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.fd = self.sock.fileno()
        try:
            self.reopen()
        except OSError as error:
            self.error_text = error.strerror
            if required:
                self.close()
                raise

    def reopen(self):
        """Reconnects the same socket, because the loop may be polling it."""
        try:
            self.sock.connect(self.address)
        except OSError as error:
            error.filename = str(self.address)
            raise

    def close(self):
        self.sock.close()
        self.fd = -1

    cdef size_t send(self, const char *data, size_t n) except? 0:
        cdef mmsghdr messages[BURST]
        cdef iovec pieces[BURST]
        cdef size_t done = 0
        cdef size_t at
        cdef uint32_t length
        cdef unsigned int i, count
        cdef int r
        cdef bint again = False
        while done < n:
            count = 0
            at = done
            while at < n and count < BURST:
                memcpy(&length, data + at, 4)
                pieces[count].iov_base = <void *>(data + at + 4)
                pieces[count].iov_len = length
                memset(&messages[count], 0, sizeof(mmsghdr))
                messages[count].msg_hdr.msg_iov = &pieces[count]
                messages[count].msg_hdr.msg_iovlen = 1
                at += 4 + length
                count += 1
            r = sendmmsg(self.fd, messages, count, MSG_DONTWAIT | MSG_NOSIGNAL)
            if r > 0:
                for i in range(<unsigned int>r):
                    done += 4 + pieces[i].iov_len
                self.error_text = None
                again = False
            elif errno == EAGAIN or errno == ENOBUFS or errno == ENOMEM:
                break
            elif errno == EMSGSIZE:
                done += 4 + pieces[0].iov_len
                self.lost += 1
            else:
                # UDP: the error of an earlier message. A local socket: the listener has
                # gone, and may have been restarted.
                self.error_text = strerror(errno).decode()
                if again or (self.family == socket.AF_UNIX and not self.try_reopen()):
                    break
                again = True
        return done


cdef class SyslogSink(DatagramSink):
    cdef bytes priority, name
    cdef time_t second
    cdef char second_text[16]   # Nov 21 04:25:36

    def __init__(self, target, required=True):
        """Raises OSError if there is no listener and `required`."""
        self.most_line = ATOMIC
        self.priority = f"<{target.facility * 8 + target.severity}>".encode()
        if target.path:
            self.name = f" cutthrough[{os.getpid()}]: ".encode()
            super().__init__(socket.AF_UNIX, target.path, required)
        else:
            host = socket.gethostname()[:255].encode("ascii", "replace") or b"-"
            self.name = b" " + host + f" cutthrough {os.getpid()} access - ".encode()
            family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
            super().__init__(family, (target.host, target.port), required)

    cdef char *put_head(self, char *p, Client c, int outcome) except NULL:
        cdef timespec now
        cdef tm parts
        p = put_text(p, self.priority)
        if self.family != socket.AF_UNIX:   # RFC 5424 section 6
            p = put_time(put_text(p, b"1 "))
            return put_text(p, self.name)
        clock_gettime(CLOCK_REALTIME, &now)
        if now.tv_sec != self.second:
            self.second = now.tv_sec
            localtime_r(&self.second, &parts)
            memcpy(self.second_text, MONTHS + 3 * parts.tm_mon, 3)
            self.second_text[3] = b" "
            put_padded(self.second_text + 4, parts.tm_mday, 2)
            if parts.tm_mday < 10:
                self.second_text[4] = b" "
            self.second_text[6] = b" "
            put_padded(self.second_text + 7, parts.tm_hour, 2)
            self.second_text[9] = b":"
            put_padded(self.second_text + 10, parts.tm_min, 2)
            self.second_text[12] = b":"
            put_padded(self.second_text + 13, parts.tm_sec, 2)
        memcpy(p, self.second_text, 15)
        return put_text(p + 15, self.name)


cdef int[128] priorities        # by outcome
for _number, _row in enumerate(TABLE):
    priorities[<size_t>_number] = WARNING if _row.fault == "proxy" else INFO


cdef class JournalSink(DatagramSink):
    cdef int worker

    def __init__(self, target, worker, required=True):
        """Raises OSError if there is no listener and `required`."""
        self.worker = worker
        self.most_line = ATOMIC
        self.ends_lines = True              # the message's last field needs it
        super().__init__(socket.AF_UNIX, target.path, required)

    cdef char *put_head(self, char *p, Client c, int outcome) except NULL:
        """Each field is a line of its own; no value contains a line's end."""
        cdef const Request *r = &c.request
        p = put_number(put_text(p, b"PRIORITY="), priorities[outcome])
        p = put_text(p, b"\nSYSLOG_IDENTIFIER=cutthrough\nSYSLOG_FACILITY=3\n"
                        b"CUTTHROUGH_LOG=access\nCUTTHROUGH_ID=")
        p = put_number(p, worker_of_id(c, self.worker))
        p[0] = b"-"
        p = put_number(p + 1, c.request_id)
        p = put_number(put_text(p, b"\nCUTTHROUGH_WORKER="), self.worker)
        p = put_address(put_text(p, b"\nCUTTHROUGH_CLIENT="), &c.address)
        if user_of(c) is not None:
            p = put_bytes(put_text(p, b"\nCUTTHROUGH_USER="), user_of(c), 1024)
        elif tried_of(c) is not None:
            p = put_bytes(put_text(p, b"\nCUTTHROUGH_TRIED_USER="), tried_of(c), 1024)
        p = put_method(put_text(p, b"\nCUTTHROUGH_METHOD="), c)
        if r.port:
            p = put_bytes(put_text(p, b"\nCUTTHROUGH_HOST="), c.key[:len(c.key) - 2], 1024)
            p = put_number(put_text(p, b"\nCUTTHROUGH_PORT="), r.port)
        if r.port or r.path_len:
            p = put_text(p, b"\nCUTTHROUGH_URL=")
            p = put_url(p, c, Q_URL, p + ATOMIC)
        p = put_padded(put_text(p, b"\nCUTTHROUGH_STATUS="), r.status, 3)
        p = put_text(put_text(p, b"\nCUTTHROUGH_REASON="), label_of(outcome))
        if peer_of(c) != NULL:
            p = put_address(put_text(p, b"\nCUTTHROUGH_PEER="), peer_of(c))
        p = put_number(put_text(p, b"\nCUTTHROUGH_BYTES_UP="), c.relay.up.moved)
        p = put_number(put_text(p, b"\nCUTTHROUGH_BYTES_DOWN="), c.relay.down.moved)
        p = put_ms(put_text(p, b"\nCUTTHROUGH_TOTAL_MS="), c.context.ended_us - c.stamps.start_us)
        return put_text(p, b"\nMESSAGE=")


cdef char *put_bytes(char *p, bytes value, size_t most) except NULL:
    return put_escaped(p, value, len(value), Q_URL, p + most, True)


cdef size_t whole_lines(const char *data, size_t n) noexcept:
    """Returns how many of these bytes are whole lines that fit one atomic write."""
    cdef size_t end = ATOMIC if n > ATOMIC else n
    cdef size_t i = end
    while i > 0 and data[i - 1] != b"\n":
        i -= 1
    return i if i > 0 else end


def open_sink(target, worker, required=True, heading=b""):
    """Returns the sink for a Target. `heading`: the first lines of a file. If the target cannot
    be opened, raises OSError if `required`; otherwise each new line tries again."""
    if target.kind == "syslog":
        return SyslogSink(target, required)
    if target.kind == "journal":
        return JournalSink(target, worker, required)
    return FileSink("-" if target.kind == "stdout" else target.path, required, heading)
