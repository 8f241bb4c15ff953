# cython: language_level=3
"""Doors to HTTP/2: the translation of heads, and a carrier with its streams, without a loop."""

from importlib import import_module

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from cutthrough.net.linux cimport EPOLLIN, EPOLLOUT
from cutthrough.net.multiplex cimport Bounds, Due, Multiplexer, multiplexer
from cutthrough.net.sysio cimport (
    CAN_READ, CAN_WRITE, half_close, note_events, set_abortive, skip_peeked, try_peek, try_recv,
    try_send, try_send2)
from cutthrough.net.transport cimport Socket, drop_transport
from cutthrough.wire.http2_fields cimport FIELD_EXTRA, build_trailers_of_http2, put_field
from cutthrough.wire.http2_request cimport Http2Request, build_request_of_http2
from cutthrough.wire.http2_response cimport Http2Response, build_response_of_http2
from cutthrough.wire.names cimport method_of

HEARD = ("all", "some", "end", "reset", "fault", "resets", "flood", "headers", "no room")
REFUSALS = ("", "malformed", "too large", "no room", "invalid", "extended")
# By Http2Refusal, which is below 0
HEADS = ("no room", "malformed", "invalid", "extended")

cdef enum:
    ROOM = 65536


def size_of(fields):
    """Octets of these fields as records."""
    return sum(len(name) + len(value) + FIELD_EXTRA for name, value in fields)


cdef bytes records_of(fields):
    cdef char *out = <char *>malloc(size_of(fields) + 1)
    cdef size_t n = 0
    cdef bytes a, b
    for a, b in fields:
        n += put_field(out + n, a, len(a), b, len(b))
    try:
        return out[:n]
    finally:
        free(out)


def head_of(fields, bint ends=True, size_t room=ROOM):
    """Returns (head, method, is_tunnel, is_chunked); or the word of a refusal."""
    cdef bytes records = records_of(fields)
    cdef char *out = <char *>malloc(ROOM)
    cdef Http2Request about
    cdef int n = build_request_of_http2(out, room, records, len(records), ends, &about)
    try:
        if n <= 0:
            return HEADS[-n]
        return out[:n], about.method, bool(about.is_tunnel), bool(about.is_chunked)
    finally:
        free(out)


def response_of(fields, str method="GET", bint ends=False, size_t room=ROOM):
    """Returns (head, status, is_chunked); "malformed", or "no room"."""
    cdef bytes records = records_of(fields)
    cdef bytes name = method.encode()
    cdef char *out = <char *>malloc(ROOM)
    cdef Http2Response about
    cdef int n = build_response_of_http2(
        out, room, records, len(records), method_of(name, len(name)), ends, &about)
    try:
        if n <= 0:
            return "malformed" if n else "no room"
        return out[:n], about.status, bool(about.is_chunked)
    finally:
        free(out)


def trailers_of(fields):
    cdef bytes records = records_of(fields)
    cdef char *out = <char *>malloc(ROOM)
    cdef int n = build_trailers_of_http2(out, ROOM, records, len(records))
    try:
        return out[:n] if n >= 0 else "malformed"
    finally:
        free(out)


cdef class Stream:
    """One stream, as a session has it."""
    cdef Socket sock
    cdef readonly str refusal

    def recv(self, size_t n=65536):
        """Bytes, or minus errno."""
        cdef bytearray out = bytearray(n)
        cdef ssize_t r = try_recv(&self.sock, <char *>out, n)
        return bytes(out[:r]) if r >= 0 else r

    def peek(self, size_t n=65536):
        cdef bytearray out = bytearray(n)
        cdef ssize_t r = try_peek(&self.sock, <char *>out, n)
        return bytes(out[:r]) if r >= 0 else r

    def skip(self, size_t n):
        return skip_peeked(&self.sock, n)

    def send(self, bytes a, bytes b=b""):
        if b:
            return try_send2(&self.sock, <char *>a, len(a), <char *>b, len(b))
        return try_send(&self.sock, <char *>a, len(a))

    def half_close(self):
        half_close(&self.sock)

    def set_abortive(self):
        set_abortive(&self.sock)

    def close(self):
        drop_transport(&self.sock)

    @property
    def can_read(self):
        return bool(self.sock.ready & CAN_READ)

    @property
    def can_write(self):
        return bool(self.sock.ready & CAN_WRITE)


cdef class Carrier:
    """A connection above a socket, which stays its owner's. `asks`: to an origin."""
    cdef Socket sock
    cdef const Multiplexer *row
    cdef readonly list streams  # as sessions would: each is kept until it is closed
    cdef int64_t now_us

    def __init__(self, int fd, *, int streams=100, int head_bytes=16384,
                 bint asks=False):
        import_module("cutthrough.http2.transport")     # sets the row
        cdef Bounds bounds = Bounds(streams, head_bytes, asks, not asks)
        self.row = multiplexer()
        self.sock.fd = fd
        self.sock.ready = CAN_READ | CAN_WRITE
        self.streams = []
        self.now_us = 1
        if not self.row.begin(&self.sock, &bounds, self.now_us):
            raise MemoryError

    def pass_time(self, seconds):
        self.now_us += int(seconds * 1e6)

    def note(self, bint readable=True, bint writable=True):
        note_events(&self.sock, (EPOLLIN if readable else 0) | (EPOLLOUT if writable else 0))

    def hear(self, bint speaks=True):
        """Reads once. Returns the answer's word, and the streams with something to do."""
        cdef int heard, state
        self.note()
        heard = self.row.hear(&self.sock, self.now_us)
        due = self.take_due()
        if speaks:
            state = self.row.speak(&self.sock)
            heard = heard or state
            due += self.take_due()
        return HEARD[heard], due

    def take_turn(self):
        """Reads and writes once, and notes no readiness of its own. The answer's word."""
        return HEARD[self.row.hear(&self.sock, self.now_us)]

    def take_due(self):
        cdef Due due
        cdef Stream stream
        found = []
        while self.row.next_due(&self.sock, &due):
            if due.owner != NULL:
                found.append(<Stream>due.owner)
                continue
            stream = Stream()
            stream.sock = due.sock
            stream.refusal = REFUSALS[due.refusal]
            self.row.adopt(&stream.sock, <void *>stream)
            self.streams.append(stream)
            found.append(stream)
        return found

    def ask(self):
        """A stream for a request; None: there is none."""
        cdef Stream stream = Stream()
        stream.refusal = ""
        if not self.row.ask(&self.sock, &stream.sock):
            return None
        self.row.adopt(&stream.sock, <void *>stream)
        self.streams.append(stream)
        return stream

    def is_unread(self, Stream stream):
        return bool(self.row.is_unread(&stream.sock))

    def take_print(self):
        """The client's fingerprint; None: it was taken."""
        cdef size_t n
        cdef const char *text = self.row.take_print(&self.sock, &n)
        return None if text == NULL else text[:n].decode("ascii")

    @property
    def is_due(self):
        return bool(self.row.is_due(&self.sock))

    def speak(self):
        return HEARD[self.row.speak(&self.sock)]

    def drain(self):
        self.row.drain(&self.sock)

    def lose(self, str why="all"):
        self.row.lose(&self.sock, HEARD.index(why))
        return self.take_due()

    def end(self):
        self.row.end(&self.sock)

    @property
    def can_write(self):
        return bool(self.sock.ready & CAN_WRITE)

    @property
    def count(self):
        return self.row.count(&self.sock)

    @property
    def idle_since(self):
        return self.row.idle_since_us(&self.sock, self.now_us)

    @property
    def awaits_since(self):
        return self.row.awaits_since_us(&self.sock)
