# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""TLS as a transport: libssl above the kernel's socket.

    recv <── SSL_read  <── read_wire  <── (bytes before open) <── kernel
    send ──> SSL_write ──> write_wire ──> kernel

A listener's connection has no state here before `handshake` is called for the first time, because
a caller that sends nothing must cost no more than on a plain listener.

libssl shakes hands. When the first byte moves behind the handshake, `stream` takes its place
(`take_over`), and libssl's object, 13 KiB, is freed. The connection stays in libssl if that has
negotiated something unknown to `keys`, or if `set_own_records` says so; then the calls here
go on with it. A client's connection that is to keep tickets of TLS 1.3 waits for the first.

A record that the kernel did not take whole is kept, and the same bytes are wanted again: that is
the promise of a transport's send. libssl's buffers are freed while they are empty.

The end of a stream is a close_notify, then FIN. A client's FIN without close_notify counts as
its end, because many clients send none (RFC 9112 section 9.8); a server's is a fault, UNFINISHED.
A tunnel over TLS cannot be handed over: its keys are in this process. It is spliced only if the
kernel has got them (`kernel`).
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove
from cutthrough.net cimport linux
from cutthrough.net.linux cimport EAGAIN, ECONNRESET, EINVAL, ENOMEM, ENOTCONN, EPIPE
from cutthrough.net.sysio cimport (
    CAN_READ, CAN_WRITE, PEER_DONE, note_kernel_events, set_kernel_abortive)
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.context cimport TlsContext, name_of_peer, needs_peer
from cutthrough.net.tls.failures cimport (
    alert_met, errno_of_alert, note_denied, reason_of_failure, set_alert)
from cutthrough.net.tls.kernel cimport (
    check_key, end_by_kernel, give_receiving, give_sending, note_unspliced, receive_from_kernel,
    send_to_kernel)
from cutthrough.net.tls.keys cimport describe_ssl
from cutthrough.net.tls.openssl cimport SSL
from cutthrough.net.tls.records cimport RECORD, is_spent
from cutthrough.net.tls.sessions cimport offer_session, refuse_sessions
from cutthrough.net.tls.stream cimport (
    end_records, error_of, flush_records, note_sent, receive_records, seal_later, send_records,
    take_over)
from cutthrough.net.tls.ulp cimport RECEIVES, SENDS, has_sent
from cutthrough.net.tls.wire cimport (
    ASKED_IN_VAIN, SEALED, Tls, begin, drop, has_context, has_failed, has_read_enough, has_shown,
    hold, makes_leaves, note_done, speak_for, take_up, tls_of)
from cutthrough.net.tls import failures, wire
from cutthrough.net.transport cimport (
    HANDSHAKE_ALERT, HANDSHAKE_CLOSED, HANDSHAKE_DENIED, HANDSHAKE_DONE, HANDSHAKE_INVALID,
    HANDSHAKE_MORE, HANDSHAKE_NO_ROOM, HANDSHAKE_REJECTED, HANDSHAKE_RESET, HANDSHAKE_WANTING,
    UNFINISHED, Agreed, Socket, Transport, set_tls)

cdef extern from "<errno.h>" nogil:
    int EPROTO

cdef enum:
    MOST_PEEKED = 4 * RECORD
    BEHIND_PEEKED = RECORD + 256    # a whole record may stand behind fewer bytes than are wanted

# For Python: this module must be imported, and those are behind it
put, remove, stats = wire.put, wire.remove, wire.stats
set_most_handshakes, set_own_records = wire.set_most_handshakes, wire.set_own_records
why_denied, alert_of_denied = failures.why_denied, failures.alert_of_denied
why_silent, why_refused = wire.why_silent, failures.why_refused

cdef size_t MOST_BYTES = INT_MAX    # of one call of libssl
cdef char joined[RECORD]    # two pieces as one record


cdef int open_tls(Socket *s, int context, const char *name) noexcept nogil:
    cdef Tls *t
    if not has_context(context):
        return -EINVAL
    s.slot = <uint16_t>context
    if name == NULL:
        return 0                        # begun by its first byte
    t = begin(s, not makes_leaves(context))
    if t == NULL:
        return -ENOMEM
    if not t.connects:
        if speak_for(t, name):
            return 0
    elif expect_name(t.ssl, name):
        t.offered = offer_session((<TlsContext>t.context).sessions_for(t.ssl), t.ssl)
        return 0
    drop(s, t)
    return -EINVAL


cdef bint expect_name(SSL *ssl, const char *name) noexcept nogil:
    """Has the server's certificate verified against this name or address, in its subjectAltName
    alone (RFC 9525 section 2; R86), and sends the name."""
    if openssl.X509_VERIFY_PARAM_set1_ip_asc(openssl.SSL_get0_param(ssl), name) == 1:
        return True                     # no name of an address (RFC 6066 section 3)
    openssl.ERR_clear_error()
    openssl.SSL_set_hostflags(
        ssl, openssl.X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS
        | openssl.X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)
    return (openssl.SSL_set1_host(ssl, name) == 1
            and openssl.SSL_set_tlsext_host_name(ssl, name) == 1)


cdef bint unread(Socket *s, const void *data, size_t n) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t == NULL:
        t = begin(s, False)
    if t == NULL or t.held != NULL:
        return False
    return n == 0 or hold(t, data, n)


cdef void release(Socket *s) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t == NULL:
        return
    if not (t.shaking or t.ended or t.abortive or t.begun or has_failed(t) or t.peer_ended
            or s.ready & PEER_DONE):    # most have closed: a reset would answer our end
        notify(s, t)                    # a close is an end, too
    drop(s, t)


cdef int shake(Socket *s) noexcept nogil:
    cdef Tls *t = tls_of(s)
    cdef int r, why
    if t == NULL:
        t = begin(s, False)
    if t == NULL:
        return -HANDSHAKE_NO_ROOM
    if not t.shaking:
        return HANDSHAKE_DONE
    take_up(s, t)
    r = openssl.SSL_do_handshake(t.ssl)
    if r == 1 and t.send_error:
        t.error = t.send_error
        return -HANDSHAKE_RESET
    if r == 1:
        if t.connects and not openssl.libssl_renegotiates_safely(t.ssl):
            t.error = ECONNRESET
            return -HANDSHAKE_INVALID
        note_done(t)
        t.peer = name_of_peer(t.context, t.ssl)
        if t.peer == NULL and needs_peer(t.ssl):
            t.error = ECONNRESET
            return -HANDSHAKE_DENIED
        if t.held != NULL or openssl.SSL_has_pending(t.ssl):
            s.ready |= CAN_READ
        elif t.dry:
            s.ready &= ~CAN_READ
        return HANDSHAKE_DONE
    why = openssl.SSL_get_error(t.ssl, r)
    if why == openssl.SSL_ERROR_WANT_READ:
        s.ready &= ~CAN_READ
        return HANDSHAKE_MORE
    if why == openssl.SSL_ERROR_WANT_WRITE:
        return HANDSHAKE_MORE
    if 0 < t.alert < SEALED and openssl.SSL_version(t.ssl) == openssl.TLS1_3_VERSION:
        set_alert(t.alert)                  # whatever came of our answer
    elif t.error:
        return -HANDSHAKE_RESET
    t.error = ECONNRESET
    if t.peer_ended and why != openssl.SSL_ERROR_SSL:
        return -HANDSHAKE_CLOSED
    if t.connects and errno_of_alert(t, alert_met()) != EPROTO:
        return -(HANDSHAKE_WANTING if t.asked == ASKED_IN_VAIN else HANDSHAKE_REJECTED)
    why = reason_of_failure(t.peer_ended)
    if why == HANDSHAKE_REJECTED and t.connects:    # it has not asked for one
        why = HANDSHAKE_ALERT
    if why == HANDSHAKE_DENIED:
        note_denied(t.ssl)
    elif t.offered and why != HANDSHAKE_CLOSED:     # some servers cannot decline a session
        refuse_sessions((<TlsContext>t.context).sessions_for(t.ssl))
    return -why


cdef ssize_t receive(Socket *s, void *buf, size_t n) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t == NULL or t.shaking:
        return -ENOTCONN
    return take_plain(t, buf, n) if t.plain != NULL else decrypt(s, t, buf, n)


cdef inline bint may_leave(const Socket *s, const Tls *t) noexcept nogil:
    """A connection that only ends needs no keys, which cost 8 us."""
    return not t.expects_tickets and (t.held != NULL or not s.ready & PEER_DONE)


cdef ssize_t decrypt(Socket *s, Tls *t, void *buf, size_t n) noexcept nogil:
    """Fills the buffer from as many records as the kernel has."""
    cdef size_t filled = 0
    cdef int r, why
    if t.kernel & RECEIVES and not (t.error or t.closed):
        return receive_from_kernel(s, t, buf, n)
    if t.ssl == NULL or may_leave(s, t) and take_over(t):
        return receive_records(s, t, buf, n)
    if t.error:
        return -t.error
    take_up(s, t)
    while filled < n:
        r = openssl.SSL_read(t.ssl, <char *>buf + filled, <int>min(n - filled, MOST_BYTES))
        if r > 0:
            filled += r
            if t.dry and not openssl.SSL_has_pending(t.ssl):
                s.ready &= ~CAN_READ
                return filled
            if has_read_enough():
                break
            continue
        why = openssl.SSL_get_error(t.ssl, r)
        if why == openssl.SSL_ERROR_WANT_READ or why == openssl.SSL_ERROR_WANT_WRITE:
            s.ready &= ~CAN_READ
            t.crossed = why == openssl.SSL_ERROR_WANT_WRITE
            return filled if filled else -EAGAIN
        if why != openssl.SSL_ERROR_ZERO_RETURN:
            if t.error == 0:            # a server of TLS 1.3 refuses after our handshake
                t.error = errno_of_alert(t, alert_met()) if alert_met() >= 0 else (
                    UNFINISHED if t.connects and t.peer_ended and (
                        not openssl.SSL_has_pending(t.ssl)) else ECONNRESET)
            if filled == 0:
                return -t.error
        break                           # an end is reported again by the next call
    # A caller may try before the event, which then finds the kernel's queue empty
    s.ready |= CAN_READ
    return filled


cdef ssize_t transmit(Socket *s, const void *a, size_t n, const void *b,
                      size_t m) noexcept nogil:
    cdef Tls *t = tls_of(s)
    cdef ssize_t taken, more
    cdef size_t of_b
    if t == NULL or t.shaking:
        return -ENOTCONN
    if has_failed(t) or t.ends:
        return -(t.error or t.send_error or EPIPE)
    if m and (n + m <= RECORD or t.begun > n):
        if n > RECORD:
            n = RECORD
        of_b = min(m, <size_t>RECORD - n)
        memcpy(joined, a, n)
        memcpy(joined + n, b, of_b)
        return encrypt(s, t, joined, n + of_b)
    taken = encrypt(s, t, <const char *>a, n)
    if m == 0 or taken < <ssize_t>n:
        return taken
    more = encrypt(s, t, <const char *>b, m)
    return taken + more if more > 0 else taken


cdef ssize_t encrypt(Socket *s, Tls *t, const char *data, size_t n) noexcept nogil:
    cdef size_t taken = 0
    cdef int r, why
    if t.kernel & SENDS:
        return send_to_kernel(s, t, data, n)
    if t.ssl == NULL or may_leave(s, t) and take_over(t):
        return send_records(s, t, data, n)
    take_up(s, t)
    while taken < n:
        if is_spent(t.sealed_n) and t.begun == 0:
            t.sealed_n = 0                      # TLS 1.2 has no such message, and no other cure
            openssl.SSL_key_update(t.ssl, openssl.SSL_KEY_UPDATE_NOT_REQUESTED)
            openssl.ERR_clear_error()
        r = openssl.SSL_write(t.ssl, data + taken, <int>min(n - taken, MOST_BYTES))
        if t.send_error:
            break
        if r > 0:
            t.sealed_n += <uint32_t>(r // RECORD + 1)
            taken += r
            t.begun = 0
            continue
        why = openssl.SSL_get_error(t.ssl, r)
        if why == openssl.SSL_ERROR_WANT_WRITE:
            t.begun = <uint32_t>min(n - taken, <size_t>RECORD)
            return taken
        if why == openssl.SSL_ERROR_WANT_READ:      # in the middle of a ticket or KeyUpdate
            t.recrossed = True
            s.ready &= ~CAN_WRITE
            return taken
        t.send_error, t.error = ENOMEM, t.error or ENOMEM   # or its next read may want more for ever
        break
    return -t.send_error if t.send_error and taken == 0 else taken


cdef ssize_t look(Socket *s, void *buf, size_t n) noexcept nogil:
    """Peeked bytes are kept, decrypted, and read first: a peek may need several records."""
    cdef Tls *t = tls_of(s)
    cdef ssize_t r = 0
    cdef char *grown
    if t == NULL or t.shaking:
        return -ENOTCONN
    if t.plain == NULL:
        t.plain_at = t.plain_n = 0
    n = min(n, <size_t>MOST_PEEKED)
    if t.plain_n - t.plain_at < n:
        if t.plain != NULL:
            memmove(t.plain, t.plain + t.plain_at, t.plain_n - t.plain_at)
        t.plain_at, t.plain_n = 0, t.plain_n - t.plain_at
        grown = <char *>realloc(t.plain, n + BEHIND_PEEKED)
        if grown == NULL:
            return -ENOMEM
        t.plain = grown
        r = decrypt(s, t, t.plain + t.plain_n, n + BEHIND_PEEKED - t.plain_n)
        if r > 0:
            t.plain_n += <uint32_t>r
    n = min(n, t.plain_n - t.plain_at)
    if n == 0:
        free(t.plain)
        t.plain = NULL
        return r
    s.ready |= CAN_READ
    memcpy(buf, t.plain + t.plain_at, n)
    return n


cdef ssize_t take_plain(Tls *t, void *buf, size_t n) noexcept nogil:
    n = min(n, t.plain_n - t.plain_at)
    if buf != NULL:
        memcpy(buf, t.plain + t.plain_at, n)
    t.plain_at += <uint32_t>n
    if t.plain_at == t.plain_n:
        free(t.plain)
        t.plain = NULL
    return n


cdef ssize_t skip(Socket *s, size_t n) noexcept nogil:
    cdef Tls *t = tls_of(s)
    return take_plain(t, NULL, n) if t != NULL and t.plain != NULL else -EINVAL


cdef bint begin_splice(Socket *s, bint sends) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t == NULL or t.shaking:
        return False
    return give_sending(s, t) if sends else give_receiving(s, t)


cdef int64_t untaken(Socket *s) noexcept nogil:
    cdef int n = 0
    linux.ioctl(s.fd, linux.SIOCOUTQ, &n)
    return n


cdef bint holds_back(Socket *s) noexcept nogil:
    cdef Tls *t = tls_of(s)
    return t != NULL and not has_failed(t) and not t.ended and (
        t.begun != 0 or t.out != NULL or t.ends or t.kernel & SENDS and not has_sent(s.fd))


cdef void note_events(Socket *s, unsigned int events) noexcept nogil:
    cdef Tls *t = tls_of(s)
    note_kernel_events(s, events)
    if t == NULL:
        return
    if t.crossed and s.ready & CAN_WRITE:
        t.crossed = False
        s.ready |= CAN_READ
    if t.recrossed and s.ready & CAN_READ:
        t.recrossed = False
        s.ready |= CAN_WRITE
    if t.kernel & SENDS:
        check_key(s, t)
    if t.out != NULL and s.ready & CAN_WRITE:
        flush_records(s, t)
    if t.ends and s.ready & CAN_WRITE:
        end(s, t)


cdef void half_close(Socket *s) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t == NULL or t.shaking:
        linux.shutdown(s.fd, linux.SHUT_WR)
        return
    t.ends = True
    end(s, t)


cdef void end(Socket *s, Tls *t) noexcept nogil:
    if t.ended or t.abortive:
        return
    # Behind a part of a record it would look whole
    if t.begun == 0 and not has_failed(t) and not notify(s, t):
        return
    t.ended = True
    linux.shutdown(s.fd, linux.SHUT_WR)


cdef bint notify(Socket *s, Tls *t) noexcept nogil:
    """Sends a close_notify. False: the kernel has not taken it."""
    cdef int r
    if t.kernel & SENDS:
        return end_by_kernel(s, t)
    if t.ssl == NULL:
        return end_records(s, t)
    take_up(s, t)
    r = openssl.SSL_shutdown(t.ssl)
    return r >= 0 or openssl.SSL_get_error(t.ssl, r) != openssl.SSL_ERROR_WANT_WRITE


cdef void set_abortive(Socket *s) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t != NULL:
        t.abortive = True
    if s.fd >= 0:
        set_kernel_abortive(s.fd)


cdef void *peer(const Socket *s) noexcept nogil:
    cdef Tls *t = tls_of(s)
    return NULL if t == NULL else t.peer


cdef bint describe(const Socket *s, Agreed *out) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t == NULL or t.shaking:
        return False
    if t.agreed != NULL:
        out[0] = t.agreed[0]
    else:
        describe_ssl(t.ssl, out)
    return True


cdef Transport row
row.open = open_tls
row.handshake = shake
row.unread = unread
row.recv = receive
row.send = transmit
row.seal, row.note_sent = seal_later, note_sent
row.peek, row.skip = look, skip
row.note_unspliced = note_unspliced
row.untaken, row.holds_back = untaken, holds_back
row.note_events, row.error = note_events, error_of
row.half_close, row.set_abortive = half_close, set_abortive
row.peer = peer
row.has_shown = has_shown
row.describe = describe
row.release = release
set_tls(&row)


def set_kernel(bint on):
    """Whether pumps to come may give the kernel their connections' keys, to splice."""
    row.begin_splice = NULL
    if on:
        row.begin_splice = begin_splice
    set_tls(&row)
