# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Below libssl: the connections of this process, and the socket that libssl's calls go to.

All SSL objects share one BIO, because a BIO each would be 240 bytes more; its calls go to the
socket of the call at hand. A connection's state is found by its descriptor's number.
"""

import logging

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from cutthrough.net cimport linux
from cutthrough.net.linux cimport EAGAIN, ECONNRESET, ENOMEM, EPIPE, MSG_NOSIGNAL, errno
from cutthrough.net.sysio cimport BROKEN, CAN_WRITE, PEER_DONE, URGENT
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.certificates cimport refuse_many
from cutthrough.net.tls.context cimport TlsContext
from cutthrough.net.tls.keys cimport Half, note_secrets
from cutthrough.net.tls.openssl cimport BIO, BIO_METHOD, SSL
from cutthrough.net.tls.records cimport ALERT, APPLICATION_DATA, Records, wipe_records
from cutthrough.net.transport cimport Socket, note_greeting

log = logging.getLogger("cutthrough")

cdef enum:
    MOST_CONTEXTS = 65535   # Hop.tls is a number plus 1
    FIRST_TABLE = 1024      # entries of the first table of connections
    # Of a connection after its handshake. Key updates come after gigabytes (RFC 8446 section 5.5)
    MOST_MESSAGES = 255
    FLIGHT = 16384          # bytes of a read in a handshake
    CHANGE_CIPHER_SPEC = 20, HANDSHAKE = 22     # ContentType
    NEW_SESSION_TICKET = 4, CERTIFICATE = 11, CERTIFICATE_REQUEST = 13      # HandshakeType

# Connections by descriptor
cdef Tls **table = NULL
cdef int table_n = 0, n_open = 0
cdef int n_ssl = 0              # of those, with libssl's object
cdef int n_shaking = 0
cdef int most_shaking = 1024
cdef long n_full = 0, n_resumed = 0

# TlsContext objects by number; each entry holds a reference
cdef void *contexts[MOST_CONTEXTS]

# The socket of the call at hand
cdef Socket *wire_socket = NULL
cdef Tls *wire_tls = NULL
cdef BIO *wire = NULL
# Bytes that this call has read from the kernel: in all, and since it found a plain byte
cdef size_t n_read = 0, n_fruitless = 0
cdef bint own_records = True
cdef char flight[FLIGHT]
cdef uint8_t last_byte = 0      # that libssl has got


cdef int read_wire(BIO *bio, char *data, int n) noexcept nogil:
    global n_read, n_fruitless
    cdef Tls *t = wire_tls
    cdef ssize_t r
    openssl.BIO_clear_retry_flags(bio)
    if t.held != NULL:
        r = min(n, <int>(t.held_n - t.held_at))
        memcpy(data, t.held + t.held_at, r)
        note_last(data, r)
        t.held_at += <uint32_t>r
        if t.held_at == t.held_n:
            free(t.held)
            t.held = NULL
        return <int>r
    if (n_fruitless > MOST_FRUITLESS or t.messages == MOST_MESSAGES) and not t.shaking:
        t.error = ECONNRESET
        return -1
    if t.shaking and t.records != NULL:
        return read_flight(t, data, n)
    if not t.dry:
        r = linux.recv(wire_socket.fd, data, n, 0)
        if r == 0 and not note_end(t):
            return -1
        if r >= 0:
            n_read += r
            n_fruitless += r
            t.dry = r < n and not wire_socket.ready & (PEER_DONE | BROKEN | URGENT)
            note_last(data, r)
            return <int>r
        if errno != EAGAIN:
            t.error = errno
            return -1
        t.dry = True
    t.shown = t.shows                   # libssl has written its flight before it reads
    openssl.BIO_set_retry_read(bio)
    return -1


cdef int read_flight(Tls *t, char *data, int n) noexcept nogil:
    """libssl gets no byte behind the record that it wants, because the bytes left at the end of
    the handshake may be ours to open."""
    cdef ssize_t r = -1
    if not t.dry:
        r = linux.recv(wire_socket.fd, flight, FLIGHT, 0)
        if r < 0 and errno != EAGAIN:
            t.error = errno
            return -1
        if r == 0 and not note_end(t):
            return -1
        t.dry = r < FLIGHT and not wire_socket.ready & (PEER_DONE | BROKEN | URGENT)
    if r < 0:
        t.dry = True
        t.shown = t.shows
        openssl.BIO_set_retry_read(wire)
        return -1
    n = min(n, <int>r)
    memcpy(data, flight, n)
    note_last(data, n)
    if n < r and not hold(t, flight + n, r - n):
        t.error = ENOMEM
        return -1
    return n


cdef bint note_end(Tls *t) noexcept nogil:
    """False: it is a reset."""
    t.peer_ended = True
    t.error = errno_of_end(t)
    return t.error == 0


cdef int errno_of_end(const Tls *t) noexcept nogil:
    return 0 if t.send_error == EPIPE else t.send_error


cdef inline void note_last(const char *data, ssize_t n) noexcept nogil:
    global last_byte
    if n > 0:
        last_byte = <uint8_t>data[n - 1]


cdef bint hold(Tls *t, const void *data, size_t n) noexcept nogil:
    t.held = <char *>malloc(n)
    if t.held == NULL:
        return False
    memcpy(t.held, data, n)
    t.held_at, t.held_n = 0, <uint32_t>n
    return True


cdef int write_wire(BIO *bio, const char *data, int n) noexcept nogil:
    """libssl never sees a send fail, because it would read no more. Its later bytes go nowhere, and
    `send_error` has the reason for the caller."""
    cdef ssize_t r
    openssl.BIO_clear_retry_flags(bio)
    if wire_tls.send_error:
        return n
    r = linux.send(wire_socket.fd, data, n, MSG_NOSIGNAL)
    if r < 0:
        if errno != EAGAIN:
            note_failed_send(wire_socket, wire_tls)
            return n
        wire_socket.ready &= ~CAN_WRITE
        openssl.BIO_set_retry_write(bio)
    return <int>r


cdef long control_wire(BIO *bio, int command, long number, void *pointer) noexcept nogil:
    if command == openssl.BIO_CTRL_EOF:
        return wire_tls != NULL and wire_tls.peer_ended and wire_tls.error == 0
    return command == openssl.BIO_CTRL_FLUSH


cdef void on_message(int sent, int version, int kind, const void *data, size_t n, SSL *ssl,
                     void *arg) noexcept nogil:
    cdef Tls *t = wire_tls
    cdef Half *half
    cdef uint8_t first
    if kind == openssl.SSL3_RT_HEADER and t.records != NULL:
        # TLS 1.2 counts anew behind a change of keys (RFC 5246 section 6.1)
        half = &t.records.keys.tx if sent else &t.records.keys.rx
        half.seq = 0 if (<const uint8_t *>data)[0] == CHANGE_CIPHER_SPEC else half.seq + 1
    if openssl.LIBSSL_MISSES_ALERTS and t.shaking and not (sent or t.connects) and (
            kind == openssl.SSL3_RT_HEADER and t.alert != SEALED):
        t.alert = clear_alert(<const uint8_t *>data, n)
    note_greeting(kind == HANDSHAKE and not sent, data, n)
    if kind != HANDSHAKE or n == 0:
        return
    first = (<const uint8_t *>data)[0]
    if first == CERTIFICATE and sent:
        t.shows = True
    elif first == CERTIFICATE:
        refuse_many(ssl, data, n)
    elif first == CERTIFICATE_REQUEST and not sent:
        t.asked = ASKED_IN_VAIN if openssl.SSL_get_certificate(ssl) == NULL else ASKED_AND_SHOWN
    if sent or t.shaking:
        return
    if t.messages < MOST_MESSAGES:
        t.messages += 1
    if first == NEW_SESSION_TICKET:
        t.expects_tickets = False
    elif t.records != NULL:             # new keys, which only libssl knows
        free_records(t)


cdef inline uint8_t clear_alert(const uint8_t *header, size_t n) noexcept nogil:
    """Returns the number of an alert in the clear; 0 if the record is no such alert. SEALED: none can
    follow. libssl has got the whole record, and its last byte is the number."""
    if header[0] == APPLICATION_DATA:
        return SEALED
    return last_byte if (
        n == 5 and header[0] == ALERT and header[3] == 0 and header[4] == 2) else 0


cdef void free_ssl(Tls *t) noexcept nogil:
    global n_ssl
    if t.ssl != NULL:
        n_ssl -= 1
        openssl.SSL_free(t.ssl)
        openssl.ERR_clear_error()           # or Python's ssl may take it for its own
        t.ssl = NULL


cdef void free_records(Tls *t) noexcept nogil:
    if t.records != NULL:
        wipe_records(t.records)
        free(t.records)
        t.records = NULL
        note_secrets(NULL)


cdef void take_up(Socket *s, Tls *t) noexcept nogil:
    """Directs libssl's input and output to this socket, and empties the thread's queue, because
    another library of this process may have left its errors there."""
    global wire_socket, wire_tls, n_read, n_fruitless
    wire_socket = s
    wire_tls = t
    n_read = n_fruitless = 0
    t.dry = False
    note_secrets(NULL if t.records == NULL else &t.records.keys)
    openssl.ERR_clear_error()


cdef bint has_read_enough() noexcept nogil:
    global n_fruitless
    n_fruitless = 0
    return n_read > MOST_READ


cdef Tls *tls_of(const Socket *s) noexcept nogil:
    return table[s.fd] if 0 <= s.fd < table_n else NULL


cdef bint fits_table(int fd) noexcept nogil:
    global table, table_n
    cdef int n = table_n if table_n else FIRST_TABLE
    cdef Tls **larger
    if fd < table_n:
        return True
    while n <= fd:
        n *= 2
    larger = <Tls **>realloc(table, n * sizeof(Tls *))
    if larger == NULL:
        return False
    memset(larger + table_n, 0, (n - table_n) * sizeof(Tls *))
    table = larger
    table_n = n
    return True


cdef void keep(void *held) noexcept with gil:
    Py_INCREF(<object>held)


cdef void let_go(void *held) noexcept with gil:
    Py_DECREF(<object>held)


cdef Tls *begin(Socket *s, bint connects) noexcept nogil:
    global n_open, n_shaking, n_ssl
    cdef void *context = contexts[s.slot] if s.slot < MOST_CONTEXTS else NULL
    cdef Tls *t
    if context == NULL or s.fd < 0 or not fits_table(s.fd) or (
            n_shaking >= most_shaking and not connects):
        return NULL
    t = <Tls *>calloc(1, sizeof(Tls))
    if t == NULL:
        return NULL
    t.ssl = openssl.SSL_new((<TlsContext>context).ctx)
    if t.ssl == NULL:
        free(t)
        return NULL
    if own_records:
        t.records = <Records *>calloc(1, sizeof(Records))
    if t.records != NULL:
        t.records.keys.connects = connects
    else:
        openssl.SSL_set_read_ahead(t.ssl, 1)
    openssl.BIO_up_ref(wire)
    openssl.SSL_set_bio(t.ssl, wire, wire)
    openssl.SSL_set_msg_callback(t.ssl, on_message)
    if connects:
        openssl.SSL_set_connect_state(t.ssl)
    else:
        openssl.SSL_set_accept_state(t.ssl)
        n_shaking += 1
    t.connects = connects
    t.shaking = True
    t.context = context
    keep(context)
    table[s.fd] = t
    n_open += 1
    n_ssl += 1
    return t


cdef bint has_shown(const Socket *s) noexcept nogil:
    cdef Tls *t = tls_of(s)
    return t != NULL and t.shown


cdef bint has_context(int number) noexcept nogil:
    return 0 <= number < MOST_CONTEXTS and contexts[number] != NULL


cdef bint makes_leaves(int number) noexcept nogil:
    return (<TlsContext>contexts[number]).makes_leaves


cdef bint speak_for(Tls *t, const char *name) noexcept with gil:
    try:
        return (<TlsContext>t.context).speak_for(t.ssl, name)
    except Exception as error:
        log.warning("interception: no certificate for %r: %s", name, error)
        return False


cdef void note_done(Tls *t) noexcept nogil:
    global n_shaking, n_full, n_resumed
    t.shaking = False
    if t.connects:
        t.expects_tickets = (
            openssl.SSL_version(t.ssl) == openssl.TLS1_3_VERSION
            and openssl.SSL_CTX_get_session_cache_mode(openssl.SSL_get_SSL_CTX(t.ssl))
            & openssl.SSL_SESS_CACHE_CLIENT)
        if t.asked and (<TlsContext>t.context).servers != NULL:
            t.expects_tickets = False   # our records find why it refuses our certificate
        return
    n_shaking -= 1
    if openssl.LIBSSL_DEFERS_TICKETS and openssl.SSL_write(t.ssl, b"", 0) < 0:
        free_records(t)                 # libssl sends the rest of them
    if openssl.SSL_session_reused(t.ssl):
        n_resumed += 1
    else:
        n_full += 1


cdef void uncount(const Socket *s) noexcept nogil:
    global n_full
    cdef Tls *t = tls_of(s)
    n_full -= t != NULL and not t.shaking


def why_silent(int number, bytes name):
    """Why this context can make no certificate for a name; "": it can."""
    return (<TlsContext>contexts[number]).why_silent(name)


cdef void drop(Socket *s, Tls *t) noexcept nogil:
    global n_open, n_shaking
    table[s.fd] = NULL
    n_open -= 1
    if t.shaking and not t.connects:
        n_shaking -= 1
    free_ssl(t)
    free_records(t)
    free(t.agreed)
    free(t.held)
    free(t.out)
    free(t.plain)
    let_go(t.context)
    if t.peer != NULL:
        let_go(t.peer)
    free(t)


cdef int install(context, int number) except -1:
    """-1: takes a free number. Returns the number."""
    cdef void *before
    if number < 0:
        number = 0
        while number < MOST_CONTEXTS and contexts[number] != NULL:
            number += 1
    if number >= MOST_CONTEXTS:
        raise ValueError(f"more than {MOST_CONTEXTS} TLS contexts")
    before = contexts[number]
    if context is not None:
        Py_INCREF(context)
    contexts[number] = NULL if context is None else <void *>context
    if before != NULL:
        Py_DECREF(<object>before)
    return number


def put(TlsContext context, int number=-1):
    """Makes a context known under a number, in place of the one before; -1: takes a free
    number. Returns the number. Open connections keep their context."""
    return install(context, number)


def remove(int number):
    """Frees a number. Idempotent."""
    install(None, number)


def set_most_handshakes(int most):
    """Sets the most handshakes of listeners that this process may have under way."""
    global most_shaking
    most_shaking = most


def set_own_records(bint on):
    """Whether connections to come leave libssl behind their handshake. Returns what was before."""
    global own_records
    before, own_records = own_records, on
    return before


def stats():
    """Counters of this process: connections open, and those of them that libssl has; and of
    listeners, handshakes under way, and those done: full and resumed."""
    return {"open": n_open, "in_libssl": n_ssl,
            "under_way": n_shaking, "full": n_full, "resumed": n_resumed}


cdef int prepare() except -1:
    global wire
    cdef BIO_METHOD *method = openssl.BIO_meth_new(
        openssl.BIO_get_new_index() | openssl.BIO_TYPE_SOURCE_SINK, b"cutthrough")
    if method == NULL:
        raise MemoryError
    openssl.BIO_meth_set_read(method, read_wire)
    openssl.BIO_meth_set_write(method, write_wire)
    openssl.BIO_meth_set_ctrl(method, control_wire)
    wire = openssl.BIO_new(method)
    if wire == NULL:
        raise MemoryError
    openssl.BIO_set_init(wire, 1)
    return 0


prepare()
