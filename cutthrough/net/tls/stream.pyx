# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A connection's bytes behind its handshake, without libssl: from records, and into them.

    kernel ──recv──> `sealed` ──open_record──> the caller's buffer
    the caller's bytes ──seal_record──> `sealed` ──send──> kernel

A call reads and sends several records at a time. Allocated are: the part of a record whose rest has
not come (`held`), plain bytes of a record longer than the caller's buffer (`plain`), and the rest
of one record behind bytes in the kernel (`out`). The caller offers the plain bytes of that record
again (`begun`), as the transport's table demands.

If the kernel has not begun to take a record, the record is sealed again, with the same number,
because it has left no trace outside this process.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, strcmp
from cutthrough.net cimport linux
from cutthrough.net.gather cimport EOPNOTSUPP, set_gather
from cutthrough.net.linux cimport (
    EAGAIN, ECONNRESET, ENOMEM, EPIPE, MSG_NOSIGNAL, errno, iovec)
from cutthrough.net.sends cimport (
    Sender, can_collect, collect, end_reading, ending, submit_sends)
from cutthrough.net.sysio cimport BROKEN, CAN_READ, CAN_WRITE, PEER_DONE, URGENT, take_kernel_error
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.failures cimport errno_of_alert
from cutthrough.net.tls.keys cimport copy_agreed, take_keys
from cutthrough.net.tls.records cimport (
    ALERT, APPLICATION_DATA, CLOSE_NOTIFY, FATAL, HEADER, INTERNAL_ERROR, MOST_OVERHEAD,
    MOST_RECEIVED, NO_RENEGOTIATION, OPENED_BAD, OPENED_DATA, OPENED_END, OPENED_REFUSED, RECORD,
    WARNING, Opened, Records, fault_of_header, needs_update, open_record, overhead, seal_pieces,
    seal_record, seal_update, sealed_at, start_records)
from cutthrough.net.tls.ulp cimport EXACT, RECEIVES, SENDS, sys_send_alert
from cutthrough.net.tls.wire cimport (
    MOST_FRUITLESS, MOST_READ, Tls, errno_of_end, free_records, free_ssl, note_failed_send, tls_of)
from cutthrough.net.transport cimport UNFINISHED, Agreed, Socket

cdef enum:
    # Records of one system call. Frames of HTTP/2 fill five and a part: see http2.frames
    AT_ONCE = 6
    SEALED = AT_ONCE * MOST_RECEIVED

# libssl is at the start of a record: it has no part of one (SSL_rstate_string(3)). With a part of
# a message it is not finished either; AWS-LC does not tell of that
cdef const char *READS_HEADER = b"RH"
# Records of the call at hand
cdef unsigned char sealed[SEALED]


cdef bint take_over(Tls *t) noexcept nogil:
    cdef Agreed *agreed
    cdef Records *r = t.records
    if r == NULL or t.begun or openssl.SSL_get_shutdown(t.ssl) or (
            openssl.SSL_has_pending(t.ssl) or not openssl.SSL_is_init_finished(t.ssl)) or (
            strcmp(openssl.SSL_rstate_string(t.ssl), READS_HEADER) != 0):
        return False
    agreed = copy_agreed(t.ssl)
    if agreed == NULL or not take_keys(&r.keys, t.ssl):
        free(agreed)
        free_records(t)
        openssl.SSL_set_read_ahead(t.ssl, 1)
        return False
    start_records(r)
    t.agreed = agreed
    # Else SSL_free makes the session unusable, which others may resume
    openssl.SSL_set_shutdown(
        t.ssl, openssl.SSL_SENT_SHUTDOWN | openssl.SSL_RECEIVED_SHUTDOWN)
    free_ssl(t)
    return True


# --- receiving


cdef ssize_t receive_records(Socket *s, Tls *t, void *buf, size_t n) noexcept nogil:
    cdef size_t filled = 0, at = 0, have = take_held(t), read = 0, fruitless = 0
    cdef size_t size, plain_n
    cdef ssize_t more
    cdef int fault
    cdef bint whole = False
    t.dry = False
    while not (t.error or t.closed):
        size = size_of_record(at, have)
        whole = size != 0 and have - at >= size
        if filled == n:
            break
        if size:
            fault = fault_of_header(t.records, sealed + at)
            if fault:
                fail(s, t, fault)
                break
        if whole:
            if filled and size > n - filled + overhead(t.records):
                break                   # it might not fit
            plain_n = take_record(s, t, at, size, <unsigned char *>buf + filled, n - filled)
            at += size
            filled += plain_n
            fruitless = 0 if plain_n else fruitless + size
            if fruitless > MOST_FRUITLESS:
                t.error = ECONNRESET
        elif t.dry or read > MOST_READ:
            break
        else:
            memmove(sealed, sealed + at, have - at)
            have, at = have - at, 0
            more = refill(s, t, have, size, n - filled)
            if more <= 0:
                break
            have += more
            read += more
    keep_rest(t, at, have)
    if filled < n:
        t.kernel &= ~EXACT
    if t.dry and not (whole or t.error or t.closed or t.plain_n > t.plain_at):
        s.ready &= ~CAN_READ
    else:
        # A caller may try before the event, which then finds the kernel's queue empty
        s.ready |= CAN_READ
    if filled:
        return filled
    if t.error:
        return -t.error
    return 0 if t.closed else -EAGAIN


cdef inline size_t size_of_record(size_t at, size_t have) noexcept nogil:
    """0: its header has not come."""
    if have - at < HEADER:
        return 0
    return HEADER + (<size_t>sealed[at + 3] << 8 | sealed[at + 4])


cdef ssize_t refill(Socket *s, Tls *t, size_t have, size_t size, size_t room) noexcept nogil:
    """Reads behind the first bytes of a record that has `size` bytes (0: unknown). Returns bytes
    read; 0: none, an end, or an error."""
    # Whole records, if the peer fills them, because a part would have to be kept
    cdef size_t want = room + (room // RECORD + 1) * MOST_OVERHEAD
    cdef ssize_t r
    if t.kernel & EXACT:
        want = (size if size else HEADER) - have
    elif size and want < size - have:
        want = size - have
    want = min(want, <size_t>SEALED - have)
    r = linux.recv(s.fd, sealed + have, want, 0)
    if r > 0:
        t.dry = <size_t>r < want and not s.ready & (PEER_DONE | BROKEN | URGENT)
        return r
    if r < 0:
        t.dry = errno == EAGAIN
        if not t.dry:
            t.error = errno
        return 0
    t.peer_ended = True
    t.error = errno_of_end(t)
    if t.error:
        return 0
    # A server's end without close_notify may be a cut, and an end in a record is one
    if t.connects or have:
        t.error = ECONNRESET if have else UNFINISHED
    else:
        t.closed = True
    return 0


cdef size_t take_record(Socket *s, Tls *t, size_t at, size_t size, unsigned char *buf,
                        size_t room) noexcept nogil:
    """Opens one record. Returns plain bytes in `buf`."""
    cdef Records *r = t.records
    cdef unsigned char *out = buf if size - HEADER <= room else sealed + at + sealed_at(r)
    cdef size_t n, plain_n = 0
    cdef Opened opened = open_record(r, sealed + at, size, out, &n)
    if opened == OPENED_DATA:
        plain_n = min(n, room)
        if out != buf:
            memcpy(buf, out, plain_n)
        if n > plain_n and not keep_plain(t, out + plain_n, n - plain_n):
            t.error = ENOMEM
    else:
        obey(s, t, opened)
    return plain_n


cdef void obey(Socket *s, Tls *t, Opened opened) noexcept nogil:
    cdef Records *r = t.records
    if opened == OPENED_END:
        t.closed = True
    elif opened == OPENED_REFUSED:
        t.error = errno_of_alert(t, r.alert)
    elif opened == OPENED_BAD:
        fail(s, t, r.alert)
    elif r.renewed and t.kernel & RECEIVES or r.update_due and t.kernel & SENDS:
        fail(s, t, INTERNAL_ERROR)      # the kernel keeps its first key
    if r.refuse_due:
        r.refuse_due = False
        send_alert(s, t, WARNING, NO_RENEGOTIATION)


cdef size_t take_held(Tls *t) noexcept nogil:
    cdef size_t n = 0
    if t.held != NULL:
        n = t.held_n - t.held_at
        memcpy(sealed, t.held + t.held_at, n)
        free(t.held)
        t.held = NULL
    return n


cdef bint keep_plain(Tls *t, const unsigned char *data, size_t n) noexcept nogil:
    t.plain = <char *>malloc(n)
    if t.plain == NULL:
        return False
    memcpy(t.plain, data, n)
    t.plain_at, t.plain_n = 0, <uint32_t>n
    return True


cdef void keep_rest(Tls *t, size_t at, size_t have) noexcept nogil:
    if at == have or t.error or t.closed:
        return
    t.held = <char *>malloc(have - at)
    if t.held == NULL:
        t.error = ENOMEM
        return
    memcpy(t.held, sealed + at, have - at)
    t.held_at, t.held_n = 0, <uint32_t>(have - at)


cdef void fail(Socket *s, Tls *t, int alert) noexcept nogil:
    t.error = ECONNRESET
    send_alert(s, t, FATAL, alert)


# --- sending


cdef ssize_t send_records(Socket *s, Tls *t, const char *data, size_t n) noexcept nogil:
    cdef iovec piece = iovec(<void *>data, n)
    return send_pieces(s, t, &piece, n)


cdef ssize_t gather_records(Socket *s, const iovec *pieces, size_t n) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t == NULL or t.shaking or t.ssl != NULL or t.kernel & SENDS:
        return -EOPNOTSUPP
    if t.error or t.send_error or t.ends:
        return -(t.error or t.send_error or EPIPE)
    return send_pieces(s, t, pieces, n) if n else 0


set_gather(gather_records)


cdef inline void advance(const iovec **piece, size_t *skip, size_t n) noexcept nogil:
    skip[0] += n
    while skip[0] and skip[0] >= piece[0].iov_len:
        skip[0] -= piece[0].iov_len
        piece[0] += 1


cdef ssize_t send_pieces(Socket *s, Tls *t, const iovec *piece, size_t n) noexcept nogil:
    cdef Records *r = t.records
    cdef size_t taken, size, plain, step
    cdef size_t skip = 0
    cdef uint64_t first
    cdef ssize_t sent
    if t.send_error or not flush_records(s, t):
        return -t.send_error
    taken, t.begun = min(<size_t>t.begun, n), 0
    advance(&piece, &skip, taken)
    while taken < n:
        if needs_update(r):
            size = seal_update(r, sealed)
            if size == 0:
                t.send_error = ENOMEM
            if size == 0 or not put(s, t, sealed, size):
                break
        first, size, plain = r.keys.tx.seq, 0, 0
        while plain < n - taken and size <= SEALED - RECORD - MOST_OVERHEAD:
            step = min(n - taken - plain, <size_t>r.keys.most)
            sent = seal_pieces(r, APPLICATION_DATA, piece, skip, step, sealed + size)
            if sent == 0:
                t.send_error = ENOMEM
                return taken if taken else -ENOMEM
            size += sent
            plain += step
            advance(&piece, &skip, step)
        if ending and taken + plain == n and leave_to_batch(s, size):
            return n
        sent = linux.send(s.fd, sealed, size, MSG_NOSIGNAL)
        if sent == <ssize_t>size:
            taken += plain
            continue
        if sent >= 0 or errno == EAGAIN:
            taken += keep_begun(t, first, max(sent, 0), size)
            s.ready &= ~CAN_WRITE
        else:
            note_failed_send(s, t)
        break
    return -t.send_error if t.send_error and taken == 0 else taken


cdef inline bint leave_to_batch(Socket *s, size_t size) noexcept nogil:
    """Has the sealed bytes sent with the other sends of a batch that ends. They count as taken."""
    cdef Sender sender = Sender(s, on_sent, s.fd)
    return collect(&sender, <const char *>sealed, size, NULL, 0)


cdef void on_sent(void *owner, const char *data, size_t n, ssize_t result) noexcept nogil:
    """Bytes that are lost counted as taken: the owner has to know."""
    cdef Socket *s = <Socket *>owner
    if note_sent(s, data, n, result):
        end_reading(s.fd)


cdef size_t seal_later(Socket *s, const void *a, size_t n, const void *b, size_t m,
                       const char **data) noexcept nogil:
    cdef Tls *t = tls_of(s)
    cdef iovec[2] pieces
    cdef ssize_t size
    if t == NULL or t.shaking or t.ssl != NULL or t.kernel & SENDS or t.out != NULL or (
            t.error or t.send_error or t.ends or t.waits or t.begun) or (
            n + m == 0 or n + m > t.records.keys.most) or needs_update(t.records) or (
            not can_collect(n + m + overhead(t.records))):
        return 0
    pieces[0], pieces[1] = iovec(<void *>a, n), iovec(<void *>b, m)
    size = seal_pieces(t.records, APPLICATION_DATA, &pieces[0 if n else 1], 0, n + m, sealed)
    if size == 0:
        t.send_error = ENOMEM
        return 0
    t.waits = True
    data[0] = <const char *>sealed
    return size


cdef size_t note_sent(Socket *s, const char *data, size_t n, ssize_t result) noexcept nogil:
    """As after a direct send; but a record whose first byte has not gone is kept too."""
    cdef Tls *t = tls_of(s)
    if t == NULL:
        return 0
    t.waits = False
    if result == <ssize_t>n:
        return 0
    if result < 0 and result != -EAGAIN:
        t.send_error = <int>-result
        s.ready |= CAN_READ
        return n - overhead(t.records)
    s.ready &= ~CAN_WRITE
    result = max(result, 0)
    keep_out(t, <const unsigned char *>data + result, n - result)
    return n - overhead(t.records) if t.out == NULL else 0


cdef size_t keep_begun(Tls *t, uint64_t first, size_t sent, size_t size) noexcept nogil:
    """The kernel has taken `sent` of the sealed bytes, whose first record has this number. Returns
    the plain bytes of whole records; the rest of a record that is begun is kept."""
    cdef Records *r = t.records
    cdef size_t each = r.keys.most + overhead(r)        # the last may have fewer
    cdef size_t whole = sent // each
    cdef size_t end = min(size, (whole + 1) * each)
    r.keys.tx.seq = first + whole
    if sent > whole * each:
        r.keys.tx.seq += 1
        t.begun = <uint32_t>(end - whole * each - overhead(r))
        keep_out(t, sealed + sent, end - sent)
    return whole * r.keys.most


cdef void keep_out(Tls *t, const unsigned char *data, size_t n) noexcept nogil:
    t.out = <char *>malloc(n)
    if t.out == NULL:
        t.send_error = ENOMEM
        return
    memcpy(t.out, data, n)
    t.out_at, t.out_n = 0, <uint32_t>n


cdef bint put(Socket *s, Tls *t, const unsigned char *record, size_t n) noexcept nogil:
    """Sends one sealed record; its number is used. False: its rest, or all of it, is kept."""
    cdef ssize_t sent = linux.send(s.fd, record, n, MSG_NOSIGNAL)
    if sent == <ssize_t>n:
        return True
    if sent < 0 and errno != EAGAIN:
        note_failed_send(s, t)
        return False
    sent = max(sent, 0)
    keep_out(t, record + sent, n - sent)
    s.ready &= ~CAN_WRITE
    return False


cdef bint flush_records(Socket *s, Tls *t) noexcept nogil:
    cdef ssize_t sent
    if t.waits:
        submit_sends()
    if t.out == NULL or t.send_error:
        return t.out == NULL
    sent = linux.send(s.fd, t.out + t.out_at, t.out_n - t.out_at, MSG_NOSIGNAL)
    if sent < 0 and errno != EAGAIN:
        note_failed_send(s, t)          # of the next send, too: no event comes that would allow one
        return False
    t.out_at += <uint32_t>max(sent, 0)
    if t.out_at < t.out_n:
        s.ready &= ~CAN_WRITE
        return False
    free(t.out)
    t.out = NULL
    return True


cdef void send_alert(Socket *s, Tls *t, int level, int alert) noexcept nogil:
    """Never in the middle of a record: then it is not sent."""
    cdef unsigned char data[2]
    cdef unsigned char record[2 + MOST_OVERHEAD]
    cdef size_t size
    if t.waits:
        submit_sends()
    if t.out != NULL or t.notified or t.send_error:
        return
    t.notified = alert != NO_RENEGOTIATION
    if t.kernel & SENDS:
        sys_send_alert(s.fd, level, alert)
        return
    data[0], data[1] = <unsigned char>level, <unsigned char>alert
    size = seal_record(t.records, ALERT, data, 2, record)
    if size:
        put(s, t, record, size)


cdef bint end_records(Socket *s, Tls *t) noexcept nogil:
    if flush_records(s, t) and not t.notified:
        send_alert(s, t, WARNING, CLOSE_NOTIFY)
    return t.out == NULL or t.send_error != 0


cdef int error_of(const Socket *s) noexcept nogil:
    cdef const Tls *t = tls_of(s)
    cdef int error = 0 if t == NULL else t.error or t.send_error
    return error if error else take_kernel_error(s.fd)
