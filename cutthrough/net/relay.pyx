# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The tight loop: moves bytes from one socket to another, without looking at them.

    source --recv--> scratch --send--> sink        the rule: nothing is allocated
                        \\--> block --send--> sink   only bytes that the sink did not take
    source --splice--> pipe --splice--> sink       once the direction proves to be bulk

A direction becomes bulk after two reads in a row that filled the scratch buffer, until
splice brings small pieces. Measured with 1 MiB responses, CPU per MiB of the whole program
(bench/results/field.json, bulk): copy 308 us, splice 215. For small messages the copy wins,
because a splice is two calls as well and each costs more.

The sink sets the source's pace: nothing is read while bytes are held, because a direction must
never hold more than one block or one pipe. If the bound on all blocks is reached, bytes stay in
the source's socket until the sink has taken them: slower, but no connection is cut. A caller
that limits the rate sets an allowance, and raises it over time.

If an event comes in a batch with others, the last small send of a pump's turn is made when the
batch ends, with theirs: see deferred. What falls short is kept, as after a direct send.

End of stream is passed on as shutdown(SHUT_WR), after all bytes before it (R36); the other
direction goes on. If the end is known when the last bytes are sent, one segment has both.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset
from cutthrough.net.buffers cimport (
    COPY_BLOCK, COPY_BYTES, OF_RELAYS, Block, bytes_of, give_block, has_room, make_room, scratch)
from cutthrough.net.deferred cimport leave_sealed, leave_to_batch, settle
from cutthrough.net.linux cimport EACCES, EAGAIN, EINVAL, ENOMEM, ENOSYS, EPERM, EPIPE
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.pipes cimport Pipe, give_pipe, take_pipe
from cutthrough.net.pump cimport (
    PUMP_AGAIN, PUMP_DONE, PUMP_DRY, PUMP_EOF, PUMP_NO_ROOM, PUMP_PACED, PUMP_REFUSED, PUMP_SENDING,
    PUMP_SINK_FAILED, PUMP_SOURCE_FAILED, PUMP_STARVED, PUMP_STUCK, SENDING_FAILED, SENDING_SEALED,
    SENDING_WATCHED, SENDING_NONE, Pump, Pumped, Tap, error_of_send)
from cutthrough.net.sends cimport collecting
from cutthrough.net.sysio cimport (
    BROKEN, CAN_READ, CAN_WRITE, PEER_DONE, URGENT, begin_splice, can_peek, can_splice, half_close,
    holds_back, skip_peeked, splice_from, splice_to, try_peek, try_recv, try_send, try_send2,
    try_send_part)
from cutthrough.net.transport cimport KERNEL, Socket

cdef enum:
    TURN_BYTES = 1048576        # one pump's share of a turn
    BULK = 2                    # full reads in a row that make a direction bulk
    FRAMED_BYTES = COPY_BYTES - 36      # with the headers of four frames: four full TLS records
    SMALL_SPLICE = 16384        # smaller pieces count against it
    PATIENCE = 8                # small pieces in a row until it copies again
    MOST_LATE = 1048576         # bytes thrown away; a client that sends more gets an error


cdef Pumped run_pump(Pump *p) noexcept nogil:
    cdef int64_t turn = TURN_BYTES
    cdef int64_t n
    while True:
        if holds(p):
            if not p.sink.ready & CAN_WRITE:
                return PUMP_STUCK
            if not flush(p):
                return PUMP_SINK_FAILED if p.error else PUMP_NO_ROOM
            if holds(p):
                return PUMP_STUCK
        if p.sending == SENDING_SEALED and not leave_sealed(p):
            return PUMP_STUCK
        if p.sending == SENDING_FAILED:
            return PUMP_SINK_FAILED if p.error else PUMP_NO_ROOM
        if p.left == 0 or p.eof:
            if p.sending:
                p.sending = SENDING_WATCHED
                return PUMP_SENDING
            drop_pipe(p)
            return PUMP_EOF if p.eof else PUMP_DONE
        if not p.source.ready & CAN_READ:
            drop_pipe(p)                # an idle direction owns nothing
            return PUMP_DRY
        if p.sending:
            settle(p)
            continue
        if not p.sink.ready & CAN_WRITE:
            return PUMP_STUCK
        if p.allowance <= 0:
            drop_pipe(p)
            return PUMP_PACED
        if turn <= 0:
            return PUMP_AGAIN
        n = splice_once(p) if p.bulk >= BULK else copy_once(p)
        if n < 0:
            return <Pumped>-n
        turn -= n


cdef inline size_t wanted(const Pump *p, int64_t most) noexcept nogil:
    """The most bytes for one read."""
    if p.allowance < most:
        most = p.allowance
    return <size_t>(most if p.left < 0 or p.left > most else p.left)


cdef int64_t copy_once(Pump *p) noexcept nogil:
    """One read and one write. Returns bytes read, or minus the Pumped that ends the turn."""
    cdef char *data = scratch()
    cdef size_t want = wanted(p, FRAMED_BYTES if is_stream(p.sink) else COPY_BYTES)
    cdef ssize_t n
    cdef int64_t used
    if not has_room():
        if p.filter != NULL or p.tap != NULL or not can_peek(p.source):
            return -PUMP_STARVED
        return copy_unread(p, data, want)
    n = try_recv(p.source, data, want)
    if n > 0:
        if p.may_splice and p.filter == NULL and p.tap == NULL:
            p.bulk = p.bulk + 1 if n == COPY_BYTES else 0
        used = feed(p, NULL, 0, data, n)
        if used >= 0:
            if p.left != 0 and <size_t>n < want and ends_here(p.source):
                p.eof = True
            return n
        if used == -2:
            return -PUMP_REFUSED
        if p.error:                     # not one expression: C's enums are unsigned
            return -PUMP_SINK_FAILED
        return -PUMP_NO_ROOM
    if n == 0:
        p.eof = True
        return 0
    if n == -EAGAIN:
        return 0
    p.error = <uint8_t>-n
    return -PUMP_SOURCE_FAILED


cdef inline bint ends_here(const Socket *source) noexcept nogil:
    """Whether a read that was not filled has come to the end: the FIN was there before it, and
    nothing can come between."""
    return source.kind == KERNEL and (
        source.ready & (PEER_DONE | BROKEN | URGENT) == PEER_DONE)


cdef int64_t copy_unread(Pump *p, char *data, size_t want) noexcept nogil:
    """Copies without a free block: peeks, sends, and only then reads the bytes that the sink
    has taken. Returns as copy_once does.

    Not for bytes that are filtered or tapped, because neither can process the same bytes twice.
    """
    # Peeked bytes of TLS are kept, decrypted: no more of them than a record
    cdef ssize_t n = try_peek(p.source, data, want if p.source.kind == KERNEL else min(
        want, <size_t>SMALL_SPLICE))
    cdef ssize_t sent, r
    if n == 0:
        p.eof = True
        return 0
    if n == -EAGAIN:
        return 0
    if n < 0:                           # reported once: the next recv would return 0
        p.error = <uint8_t>-n
        return -PUMP_SOURCE_FAILED
    sent = try_send(p.sink, data, n)
    if sent < 0:
        p.error = error_of_send(sent)
        if p.error:                     # not one expression, as in copy_once
            return -PUMP_SINK_FAILED
        return -PUMP_NO_ROOM
    p.moved += sent
    p.allowance -= sent
    if p.left > 0:
        p.left -= sent
    n = sent
    while n > 0:
        r = skip_peeked(p.source, n)
        if r <= 0:
            p.error = <uint8_t>-r
            return -PUMP_SOURCE_FAILED
        n -= r
    return sent


cdef int64_t splice_once(Pump *p) noexcept nogil:
    """Fills the empty pipe; the caller flushes it. Returns as copy_once does.

    EAGAIN can only mean that the source is dry. A short splice does not: the pipe's slots
    can run out before its bytes do.
    """
    cdef ssize_t n
    if p.tap != NULL:                   # set since this direction became bulk
        p.bulk = 0
        return 0
    if not p.is_piped:
        if not (begin_splice(p.source, False) and begin_splice(p.sink, True)):
            p.bulk = 0
            return 0
        p.held.pipe = take_pipe()
        if p.held.pipe == NULL:         # no pipe is free: copy, retry later (R35)
            p.bulk = 0
            return 0
        p.is_piped = True
    n = splice_from(p.source, p.held.pipe.write_fd, wanted(p, p.held.pipe.size))
    if n > 0:
        p.spliced = True
        p.held.pipe.held = <unsigned int>n
        p.allowance -= n
        if p.left > 0:
            p.left -= n
        p.bulk = p.bulk + 1 if n < SMALL_SPLICE else BULK
        if p.bulk >= BULK + PATIENCE:
            p.bulk = 0
        return n
    if n == 0:                          # an end, or an urgent mark with a FIN behind it:
        p.bulk = 0                      # only recv can tell which
        return 0
    if n == -EAGAIN and not p.source.ready & URGENT:
        p.source.ready &= ~CAN_READ
        return 0
    # The socket cannot be spliced, or splice stops at an urgent mark, or of TLS at a record that
    # is no data; recv passes both
    if n == -EAGAIN or n == -EINVAL:
        p.may_splice = n == -EINVAL and p.source.kind != KERNEL
        p.bulk = 0
        return 0
    if n == -ENOMEM:                    # for the pipe: copy, retry later, as without one
        p.bulk = 0
        return 0
    if n == -EPERM or n == -ENOSYS or n == -EACCES:     # a sandbox has no splice(2)
        p.may_splice = False
        p.bulk = 0
        return 0
    p.error = <uint8_t>-n
    return -PUMP_SOURCE_FAILED


cdef bint flush(Pump *p) noexcept nogil:
    """Sends the held bytes until the sink takes no more. False: failed."""
    cdef ssize_t n
    cdef Block *block
    cdef Pipe *pipe
    if not p.is_piped:
        block = p.held.block
        n = try_send(p.sink, bytes_of(block) + block.start, block.end - block.start)
        if n < 0:
            p.error = error_of_send(n)
            return False
        p.moved += n
        block.start += <unsigned int>n
        if block.start == block.end:
            give_block(&p.held.block)
        return True
    pipe = p.held.pipe
    while pipe.held:
        n = splice_to(p.sink, pipe.read_fd, pipe.held)
        if n == 0:
            return True
        if n < 0:
            p.error = error_of_send(n)
            return False
        pipe.held -= <unsigned int>n
        p.moved += n
    return True


cdef bint push(Pump *p, const char *a, size_t n, const char *b, size_t m) noexcept nogil:
    cdef ssize_t sent = 0
    cdef Block *block
    settle(p)
    if p.sending == SENDING_FAILED:
        return False
    p.error = 0
    p.allowance -= n + m
    if p.tap != NULL:
        p.tap.take(p.tap, a, n)
        p.tap.take(p.tap, b, m)
    if not holds(p) and p.sink.ready & CAN_WRITE:
        if collecting and leave_to_batch(p, a, n, b, m):
            return True
        if n:
            sent = try_send2(p.sink, a, n, b, m)
        elif ends_next(p):
            sent = try_send_part(p.sink, b, m)
        else:
            sent = try_send(p.sink, b, m)
        if sent < 0:
            p.error = error_of_send(sent)
            return False
        p.moved += sent
    if <size_t>sent == n + m:
        return True
    if p.is_piped and p.held.pipe.held:
        return False                    # bytes in the pipe must go first
    drop_pipe(p)
    block = p.held.block
    # More only for one long head: what is pushed behind bytes that wait is bounded by one read
    if block != NULL and block.end - block.start + n + m > COPY_BLOCK:
        return False
    if not make_room(&p.held.block, n + m - sent, OF_RELAYS):
        return False
    block = p.held.block
    if <size_t>sent < n:
        memcpy(bytes_of(block) + block.end, a + sent, n - sent)
        block.end += <unsigned int>(n - sent)
        sent = <ssize_t>n
    if m:                               # else `b` may be NULL, which memcpy never takes
        memcpy(bytes_of(block) + block.end, b + (sent - n), m - (sent - n))
        block.end += <unsigned int>(m - (sent - n))
    return True


cdef inline bint ends_next(const Pump *p) noexcept nogil:
    """Whether this turn reads on, until the source's end of stream is there to be passed on."""
    return (p.left < 0 < p.allowance and p.filter == NULL and p.tap == NULL
            and p.source.kind == KERNEL and p.sink.kind == KERNEL
            and p.source.ready & (CAN_READ | PEER_DONE | BROKEN | URGENT) == CAN_READ | PEER_DONE)


cdef int64_t feed(Pump *p, const char *head, size_t head_len, char *data,
                  size_t n) noexcept nogil:
    cdef size_t out_len = n
    cdef int64_t used = n
    if p.sending != SENDING_FAILED:
        p.error = 0
    if p.filter != NULL:
        used = p.filter.run(p.filter, data, n, &out_len, &head, &head_len)
        if used < 0:
            return -2
    elif p.left >= 0:
        if used > p.left:
            used = p.left
            out_len = <size_t>used
        p.left -= used
    if head_len + out_len and not push(p, head, head_len, data, out_len):
        return -1
    return used


cdef inline bint holds(const Pump *p) noexcept nogil:
    return p.held.block != NULL and (not p.is_piped or p.held.pipe.held != 0)


cdef inline void drop_pipe(Pump *p) noexcept nogil:
    if p.is_piped:
        give_pipe(&p.held.pipe)
        p.is_piped = False


cdef bint is_holding(Pump *p) noexcept nogil:
    settle(p)
    return p.sending or holds(p)


cdef void start_pump(Pump *p, Socket *source, Socket *sink, int64_t left) noexcept nogil:
    cdef bint may_splice = p.may_splice and can_splice(source) and (
        sink == NULL or can_splice(sink))
    cdef int64_t allowance = p.allowance
    cdef Tap *tap = p.tap
    settle(p)
    memset(p, 0, sizeof(Pump))
    p.may_splice = may_splice
    p.allowance = allowance
    p.tap = tap
    p.source = source
    p.sink = sink
    p.left = left


cdef void stop_pump(Pump *p) noexcept nogil:
    settle(p)
    p.sending = SENDING_NONE
    drop_pipe(p)
    give_block(&p.held.block)


cdef Relayed run_relay(Relay *r, Resumed *resumed) noexcept nogil:
    cdef Pumped up = PUMP_DONE, down = PUMP_DONE
    resumed[0] = BY_EVENT
    if not r.up.shut:
        up = run_pump(&r.up) if r.up.sink != NULL else throw_away(&r.up)
        # A send gets EPIPE only after the origin's end of stream: it has sent all its bytes
        if up == PUMP_SINK_FAILED and r.up.sink != NULL and (r.up.error == EPIPE or r.down.eof):
            lose(&r.up)
            up = throw_away(&r.up)
        if up == PUMP_EOF:
            r.up.shut = True
            pass_end(r.up.sink, r.down.shut)
        elif up == PUMP_SINK_FAILED:
            return RELAY_UP_SINK_FAILED
        elif up >= PUMP_SOURCE_FAILED:
            return RELAY_UP_SOURCE_FAILED if up == PUMP_SOURCE_FAILED else RELAY_NO_ROOM
    if not r.down.shut:
        down = run_pump(&r.down)
        if down == PUMP_EOF:
            r.down.shut = True
            pass_end(r.down.sink, r.up.shut)
        elif down >= PUMP_SOURCE_FAILED:
            return RELAY_DOWN_SOURCE_FAILED if down == PUMP_SOURCE_FAILED else (
                RELAY_DOWN_SINK_FAILED if down == PUMP_SINK_FAILED else RELAY_NO_ROOM)
    if up == PUMP_AGAIN or down == PUMP_AGAIN:
        resumed[0] = BY_TURN
    elif up == PUMP_STARVED or down == PUMP_STARVED:
        resumed[0] = BY_ROOM
    if r.up.shut and r.down.shut and not holds_back(r.down.sink) and (
            r.up.sink == NULL or not holds_back(r.up.sink)):
        return RELAY_CLOSED
    return RELAY_HALF_CLOSED if r.up.shut or r.down.shut else RELAY_OPEN


cdef inline void pass_end(Socket *sink, bint both) noexcept nogil:
    """If both directions have ended, the socket is closed next, and that sends the FIN too.
    But the kernel must take a transport's own end of stream before the close."""
    if sink != NULL and (not both or sink.kind != KERNEL):
        half_close(sink)


cdef void lose(Pump *p) noexcept nogil:
    stop_pump(p)
    p.sink = NULL
    p.left = MOST_LATE


cdef Pumped throw_away(Pump *p) noexcept nogil:
    cdef ssize_t n
    while p.source.ready & CAN_READ:
        n = try_recv(p.source, scratch(), COPY_BYTES)
        if n == 0:
            p.eof = True
            return PUMP_EOF
        if n < 0 and n != -EAGAIN:
            p.error = <uint8_t>-n
            return PUMP_SOURCE_FAILED
        if n > 0:
            p.left -= n
            if p.left < 0:
                return PUMP_SINK_FAILED
    return PUMP_DRY
