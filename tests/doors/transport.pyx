# cython: language_level=3
"""A door to a transport above one socket, without a loop."""

from cutthrough.net cimport sends
from cutthrough.net.gather cimport MOST_PIECES, try_gather
from cutthrough.net.linux cimport EPOLLIN, EPOLLOUT, iovec
from cutthrough.net.sysio cimport (
    CAN_READ, CAN_WRITE, half_close, has_unread, holds_back, note_events, set_abortive,
    skip_peeked, try_peek, try_recv, try_send, try_send2)
from cutthrough.net.transport cimport (
    Socket, drop_transport, open_transport, transport_of)
from cutthrough.net.transport cimport TLS as _TLS

TLS = _TLS
HANDSHAKES = ("more", "done", "closed", "reset", "invalid", "unshared", "alert", "denied",
              "no room", "rejected", "wanting", "unnamed")


cdef class End:
    """A socket, which stays its owner's, below a transport of this kind."""
    cdef Socket sock

    def __init__(self, int fd, int kind, int context=0, str name=None):
        cdef bytes text = b"" if name is None else name.encode()
        cdef int failed
        self.sock.fd = fd
        self.sock.ready = CAN_READ | CAN_WRITE
        failed = open_transport(&self.sock, kind, context, NULL if name is None else <char *>text)
        if failed:
            raise OSError(-failed, "open_transport")

    def shake(self):
        """Returns the name of the answer."""
        cdef int answer = transport_of(&self.sock).handshake(&self.sock)
        return HANDSHAKES[answer if answer >= 0 else -answer]

    def note(self, bint readable=True, bint writable=True):
        note_events(&self.sock, (EPOLLIN if readable else 0) | (EPOLLOUT if writable else 0))

    def unread(self, bytes data):
        return transport_of(&self.sock).unread(&self.sock, <char *>data, len(data))

    def recv(self, size_t n=65536):
        """Bytes, or minus errno."""
        cdef bytearray out = bytearray(n)
        cdef ssize_t r = try_recv(&self.sock, <char *>out, n)
        return bytes(out[:r]) if r >= 0 else r

    def peek(self, size_t n=16384):
        cdef bytearray out = bytearray(n)
        cdef ssize_t r = try_peek(&self.sock, <char *>out, n)
        return bytes(out[:r]) if r >= 0 else r

    def skip(self, size_t n):
        return skip_peeked(&self.sock, n)

    def send(self, bytes a, bytes b=b""):
        if b:
            return try_send2(&self.sock, <char *>a, len(a), <char *>b, len(b))
        return try_send(&self.sock, <char *>a, len(a))

    def gather(self, list parts):
        """Sends the parts as one."""
        cdef iovec pieces[MOST_PIECES]
        cdef size_t n = 0
        cdef int i
        assert len(parts) <= MOST_PIECES
        for i, part in enumerate(parts):
            pieces[i] = iovec(<char *><bytes>part, len(part))
            n += len(part)
        return try_gather(&self.sock, pieces, n)

    def half_close(self):
        half_close(&self.sock)

    def set_abortive(self):
        set_abortive(&self.sock)

    def close(self):
        """The descriptor stays open."""
        drop_transport(&self.sock)

    @property
    def can_read(self):
        return bool(self.sock.ready & CAN_READ)

    @property
    def can_write(self):
        return bool(self.sock.ready & CAN_WRITE)

    @property
    def has_unread(self):
        return bool(has_unread(&self.sock))

    @property
    def holds_back(self):
        return bool(holds_back(&self.sock))

    @property
    def peer(self):
        cdef void *name = transport_of(&self.sock).peer(&self.sock)
        return None if name == NULL else <object>name


def send_at_end(list pairs):
    """Sends of pairs of an End and bytes, as the hook of a batch that ends makes them. Returns what
    each send has taken."""
    cdef list taken = []
    sends.begin_batch(len(pairs))
    sends.ending = sends.collecting
    for end, data in pairs:
        taken.append((<End>end).send(data))
    sends.ending = False
    sends.end_batch()
    return taken
