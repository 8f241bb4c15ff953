# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The access log: one line for each request and each tunnel, at its end.

Lines are formatted in C into one buffer and written in batches, whole lines only, so that
many workers can append to one file. A pipe that they share takes only PIPE_BUF bytes at
once (pipe(7)), so there no line is longer: a path that would make it so is cut, and ends
in "…". A log that cannot keep up never holds up the proxy: a pipe or terminal is written
to only while it takes bytes without waiting, and lines that find the buffer full are
dropped and counted.

What came from the wire is escaped, so that no line can be forged (R37): in the squid
format as in a URL, in JSON as JSON asks for.
"""

import os
import stat

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memmove, strlen
from libc.time cimport time_t, tm
from cutthrough.net.buffers cimport bytes_of
from cutthrough.net.inet cimport ADDRESS_TEXT, Address, print_address
from cutthrough.net.linux cimport CLOCK_REALTIME, clock_gettime, timespec
from cutthrough.net.sysio cimport clock_us
from cutthrough.outcome cimport OK, label_of, tag_of
from cutthrough.session.client cimport Client, Journal
from cutthrough.wire.target cimport HOST_IPV6
from cutthrough.wire.http1 cimport M_CONNECT

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long n, int timeout_ms)
    short POLLOUT

cdef extern from "<time.h>" nogil:
    tm *gmtime_r(const time_t *seconds, tm *out)

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void *buf, size_t n)

cdef enum:
    BUFFER = 131072
    FLUSH_AT = 65536
    ATOMIC = 4096               # PIPE_BUF: a write up to this is whole, or waits
    MOST_LINE = 8192            # all that one line can come to, in a file
    # What follows the path: in squid's form a user of 256 bytes, each three when escaped;
    # in JSON numbers, and the words of a rule and a hook
    MOST_BEHIND = 1000
    FLUSH_MS = 100

cdef const char *HEX = b"0123456789abcdef"
# By wire's Method, eight characters each
cdef const char *METHODS = (b"-\0\0\0\0\0\0\0" b"GET\0\0\0\0\0" b"HEAD\0\0\0\0"
                            b"POST\0\0\0\0" b"PUT\0\0\0\0\0" b"DELETE\0\0"
                            b"OPTIONS\0" b"TRACE\0\0\0" b"CONNECT\0")


cdef class AccessLog(Journal):
    cdef char buffer[BUFFER]
    cdef size_t n
    cdef int fd
    cdef bint is_json, is_file, scheduled
    cdef readonly unsigned long dropped
    cdef readonly unsigned long lines
    cdef object loop, path
    cdef int worker
    cdef time_t second
    cdef char second_text[20]       # 2026-11-21T04:25:36

    def __init__(self, loop, path, format, worker=0):
        """Appends to the file `path`, to standard output for "-", or to a descriptor,
        which is the log's from here on; `format` is "squid" or "json". Raises OSError."""
        self.loop = loop
        self.path = path
        self.is_json = format == "json"
        self.worker = worker
        self.fd = -1
        self.reopen()

    def reopen(self):
        """Opens the path anew: the file may have been moved away."""
        self.flush()
        if isinstance(self.path, int):
            if self.fd >= 0:
                return
            fd = self.path
        elif self.path == "-":
            fd = 1
        else:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
                         0o640)
        if self.fd > 2:
            os.close(self.fd)
        self.fd = fd
        self.is_file = stat.S_ISREG(os.fstat(fd).st_mode)

    def flush(self):
        """Writes what is there, as far as the log takes it without waiting."""
        cdef size_t done = 0
        cdef size_t piece
        cdef ssize_t r
        while done < self.n and self.fd >= 0:
            piece = self.n - done
            if not self.is_file:
                if not can_write(self.fd):
                    break
                piece = whole_lines(self.buffer + done, piece)
            r = write(self.fd, self.buffer + done, piece)
            if r <= 0:
                break
            done += r
        if done:
            self.n -= done
            memmove(self.buffer, self.buffer + done, self.n)

    def close(self):
        self.flush()
        if self.fd > 2:
            os.close(self.fd)
        self.fd = -1

    def _flush_later(self):
        self.scheduled = False
        self.flush()
        if self.n and self.fd >= 0:
            self._schedule()

    def _schedule(self):
        self.scheduled = True
        self.loop.call_later(FLUSH_MS / 1000, self._flush_later)

    cdef int write(self, Client c, int outcome) except -1:
        cdef char *end
        cdef const char *last       # where a path ends at the latest
        if self.n > FLUSH_AT:
            self.flush()
            if self.n > BUFFER - MOST_LINE:
                self.dropped += 1
                return 0
        end = self.buffer + self.n
        last = end + (MOST_LINE if self.is_file else ATOMIC) - MOST_BEHIND
        end = self.put_json(end, c, outcome, last) if self.is_json else (
            self.put_squid(end, c, outcome, last))
        self.n = end - self.buffer
        self.lines += 1
        if not self.scheduled:
            self._schedule()
        return 0

    cdef char *put_squid(self, char *p, Client c, int outcome, const char *last) noexcept:
        cdef timespec now
        cdef const char *tag = tag_of(outcome)
        clock_gettime(CLOCK_REALTIME, &now)
        p = put_number(p, now.tv_sec)
        p[0] = b"."
        p = put_padded(p + 1, now.tv_nsec // 1000000, 3)
        p[0] = b" "
        p = put_right(p + 1, (clock_us() - c.stamps.start_us) // 1000, 6)
        p[0] = b" "
        p = put_address(p + 1, &c.address)
        p[0] = b" "
        if outcome == OK and c.is_tunnel:
            tag = b"TCP_TUNNEL"
        p = put_text(p + 1, tag)
        p[0] = b"/"
        p = put_padded(p + 1, c.status, 3)
        p[0] = b" "
        p = put_number(p + 1, c.relay.down.moved)
        p[0] = b" "
        p = put_method(p + 1, c)
        p[0] = b" "
        p = put_url(p + 1, c, False, last)
        p[0] = b" "
        p = put_field(p + 1, c.user, False)
        if c.origin is not None:
            p = put_text(p, b" HIER_DIRECT/")
            p = put_address(p, &c.origin.address)
        else:
            p = put_text(p, b" HIER_NONE/-")
        return put_text(p, b" -\n")

    cdef char *put_json(self, char *p, Client c, int outcome, const char *last) noexcept:
        cdef int64_t total_us = clock_us() - c.stamps.start_us
        p = self.put_time(put_text(p, b'{"time":"'))
        p = put_number(put_text(p, b'","id":"'), self.worker)
        p[0] = b"-"
        p = put_number(p + 1, c.request_id)
        p = put_address(put_text(p, b'","client":"'), &c.address)
        p = put_text(p, b'","user":')
        p = put_string(p, c.user)
        p = put_method(put_text(p, b',"method":"'), c)
        p = put_text(p, b'","host":')
        p = put_string(p, c.key[:len(c.key) - 2] if c.port else None)
        p = put_number(put_text(p, b',"port":'), c.port)
        p = put_url(put_text(p, b',"url":"'), c, True, last)
        p = put_number(put_text(p, b'","status":'), c.status)
        p = put_text(put_text(p, b',"reason":"'), label_of(outcome))
        p = put_text(p, b'","peer":')
        if c.origin is not None:
            p[0] = b'"'
            p = put_address(p + 1, &c.origin.address)
            p[0] = b'"'
            p += 1
        else:
            p = put_text(p, b"null")
        p = put_number(put_text(p, b',"bytes_up":'), c.relay.up.moved)
        p = put_number(put_text(p, b',"bytes_down":'), c.relay.down.moved)
        p = put_ms(put_text(p, b',"head_ms":'), c.stamps.head_us)
        p = put_ms(put_text(p, b',"auth_ms":'), c.stamps.auth_us)
        p = put_ms(put_text(p, b',"dns_ms":'), c.stamps.dns_us)
        p = put_ms(put_text(p, b',"connect_ms":'), c.stamps.connect_us)
        p = put_ms(put_text(p, b',"first_byte_ms":'), c.stamps.first_byte_us)
        p = put_ms(put_text(p, b',"total_ms":'), total_us)
        p = put_text(p, b',"path":"')
        p = put_text(p, b"splice" if c.relay.up.spliced or c.relay.down.spliced else b"copy")
        p = put_number(put_text(p, b'","worker":'), self.worker)
        if c.snapshot is not None and c.snapshot.acl is not None and c.account is not None:
            p = put_string(put_text(p, b',"rule":'), c.snapshot.acl.label(c.rule))
            if c.reported:
                p = put_text(p, b',"report":true')
        if c.decision is not None:
            p = put_string(put_text(p, b',"hook":'), c.decision.reason.encode())
        return put_text(p, b"}\n")

    cdef char *put_time(self, char *p) noexcept:
        cdef timespec now
        cdef tm parts
        cdef char *q
        clock_gettime(CLOCK_REALTIME, &now)
        if now.tv_sec != self.second:
            self.second = now.tv_sec
            gmtime_r(&self.second, &parts)
            q = put_padded(self.second_text, parts.tm_year + 1900, 4)
            q[0] = b"-"
            q = put_padded(q + 1, parts.tm_mon + 1, 2)
            q[0] = b"-"
            q = put_padded(q + 1, parts.tm_mday, 2)
            q[0] = b"T"
            q = put_padded(q + 1, parts.tm_hour, 2)
            q[0] = b":"
            q = put_padded(q + 1, parts.tm_min, 2)
            q[0] = b":"
            put_padded(q + 1, parts.tm_sec, 2)
        memcpy(p, self.second_text, 19)
        p[19] = b"."
        p = put_padded(p + 20, now.tv_nsec // 1000000, 3)
        p[0] = b"Z"
        return p + 1


cdef bint can_write(int fd) noexcept:
    cdef pollfd one
    one.fd = fd
    one.events = POLLOUT
    one.revents = 0
    return poll(&one, 1, 0) == 1 and one.revents & POLLOUT


cdef size_t whole_lines(const char *data, size_t n) noexcept:
    """How many of these bytes are whole lines that fit one atomic write."""
    cdef size_t end = ATOMIC if n > ATOMIC else n
    cdef size_t i = end
    while i > 0 and data[i - 1] != b"\n":
        i -= 1
    return i if i > 0 else end


cdef inline char *put_text(char *p, const char *text) noexcept:
    cdef size_t n = strlen(text)
    memcpy(p, text, n)
    return p + n


cdef char *put_number(char *p, uint64_t x) noexcept:
    cdef char digits[20]
    cdef int i = 20
    while True:
        i -= 1
        digits[i] = <char>(48 + x % 10)
        x //= 10
        if x == 0:
            break
    memcpy(p, digits + i, 20 - i)
    return p + (20 - i)


cdef char *put_padded(char *p, uint64_t x, int width) noexcept:
    cdef int i = width
    while i > 0:
        i -= 1
        p[i] = <char>(48 + x % 10)
        x //= 10
    return p + width


cdef char *put_right(char *p, uint64_t x, int width) noexcept:
    cdef char digits[20]
    cdef int n = <int>(put_number(digits, x) - digits)
    while n < width:
        p[0] = b" "
        p += 1
        width -= 1
    memcpy(p, digits, n)
    return p + n


cdef char *put_ms(char *p, uint64_t us) noexcept:
    p = put_number(p, us // 1000)
    p[0] = b"."
    return put_padded(p + 1, us % 1000, 3)


cdef char *put_address(char *p, const Address *address) noexcept:
    cdef char text[ADDRESS_TEXT]
    cdef const unsigned char *b = <const unsigned char *>(<Address *>address).bytes
    cdef int i
    if address.family == 4:             # inet_ntop costs five times as much
        for i in range(4):
            p = put_number(p, b[i])
            p[0] = b"."
            p += 1
        return p - 1
    if address.family == 0:
        p[0] = b"-"
        return p + 1
    print_address(address, text)
    return put_text(p, text)


cdef char *put_escaped(char *p, const char *data, size_t n, bint json) noexcept:
    cdef size_t i
    cdef unsigned char ch
    for i in range(n):
        ch = <unsigned char>data[i]
        if ch > 0x20 and ch < 0x7f and ch != b'"' and ch != b"\\":
            p[0] = ch
            p += 1
        elif not json:
            p[0] = b"%"
            p[1] = HEX[ch >> 4]
            p[2] = HEX[ch & 15]
            p += 3
        elif ch == b'"' or ch == b"\\" or ch == b" ":
            if ch != b" ":
                p[0] = b"\\"
                p += 1
            p[0] = ch
            p += 1
        else:
            p = put_text(p, b"\\u00")
            p[0] = HEX[ch >> 4]
            p[1] = HEX[ch & 15]
            p += 2
    return p


cdef char *put_field(char *p, bytes value, bint json) noexcept:
    cdef size_t n
    if value is None or len(value) == 0:
        p[0] = b"-"
        return p + 1
    n = len(value)
    return put_escaped(p, value, n if n < 256 else 256, json)


cdef char *put_string(char *p, bytes value) noexcept:
    if value is None:
        return put_text(p, b"null")
    p[0] = b'"'
    if len(value):
        p = put_field(p + 1, value, True)
    else:
        p += 1
    p[0] = b'"'
    return p + 1


cdef char *put_method(char *p, Client c) noexcept:
    cdef const char *data
    cdef size_t n = 0
    if c.head != NULL and c.head.end:           # any method, as it went up
        data = bytes_of(c.head)
        while n < 32 and data[n] != b" ":
            n += 1
        memcpy(p, data, n)
        return p + n
    return put_text(p, METHODS + 8 * c.method)


cdef char *put_url(char *p, Client c, bint json, const char *last) noexcept:
    cdef size_t n
    if c.key is None or c.port == 0:
        p[0] = b"-"
        return p + 1
    n = len(c.key) - 2
    if c.method != M_CONNECT:
        p = put_text(p, b"http://")
    if c.host_kind == HOST_IPV6:
        p[0] = b"["
        p += 1
    p = put_escaped(p, c.key, n, json)
    if c.host_kind == HOST_IPV6:
        p[0] = b"]"
        p += 1
    if c.method == M_CONNECT or c.port != 80:
        p[0] = b":"
        p = put_number(p + 1, c.port)
    if c.path_len:
        return put_path(p, bytes_of(c.head) + c.path_at, c.path_len, json, last)
    return p


cdef char *put_path(char *p, const char *path, size_t n, bint json,
                    const char *last) noexcept:
    """All of it, or a beginning and the mark: three bytes that escaping leaves of no path."""
    cdef size_t i
    if 6 * <int64_t>n <= last - p:          # one byte may become six
        return put_escaped(p, path, n, json)
    for i in range(n):
        if p > last - 9:
            return put_text(p, b"\xe2\x80\xa6")
        p = put_escaped(p, path + i, 1, json)
    return p
