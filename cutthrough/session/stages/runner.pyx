# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Stages: the small protocols that a connection speaks before its first request.

    accept ─> stage ─> stage ─> HEAD …      without stages: one test of a byte, no memory

A stage is a step, a function without I/O, and a function that applies the step's result. The
runner owns the socket, the bytes and the deadline, and knows no protocol. It keeps the received
bytes, passes all of them to the first stage that is left, and removes the bytes that the stage
used. The bytes are all that is kept between two calls: a step starts at the first byte again. A
stage that only peeks uses none and leaves them to the next stage.

After the last stage comes the head of a request, except if a stage has read a request itself.
That connection has one request. A stage may wait for an answer from elsewhere: it leaves HEAD,
and comes back to it.

The state is HEAD, so the deadline is `head_timeout`. No byte extends it; it begins anew after
the last stage. A connection in a stage is at rest as if it waited for a head (R32).
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset
from cutthrough.net cimport linux
from cutthrough.net.buffers cimport HEAD_BLOCK, Block, bytes_of, give_block, scratch
from cutthrough.net.sysio cimport CAN_READ, try_recv, try_send
from cutthrough.outcome cimport CLIENT_CLOSED, CLIENT_RESET, OVERLOADED
from cutthrough.session.judge.admit cimport admit
from cutthrough.session.judge.secure cimport shake_hands
from cutthrough.session.model.broken cimport outcome_of_client
from cutthrough.session.model.client cimport Client, leave_place, rest
from cutthrough.session.model.flight_recorder cimport E_CLIENT_ENDED, E_READ, note
from cutthrough.session.model.shed cimport keep_part
from cutthrough.session.model.stage cimport (
    N_STAGES, STAGE_PROXY, STAGE_SOCKS, STAGE_TLS, STAGE_TLS_IF_BEGUN, Finish, Reply, Step)
from cutthrough.session.model.state cimport HEAD
from cutthrough.session.stages.proxied cimport admit_sender, name_client, read_header
from cutthrough.session.stages.socks cimport (
    Opening, check_user, choose_method, read_opening, read_request, read_user, take_request)
from cutthrough.session.stages.streams cimport carries_streams
from cutthrough.session.stages.transparent cimport First, read_first, take_first
from cutthrough.session.transfer.inner cimport read_inside, take_inside
from cutthrough.session.transfer.intercept cimport enter
from cutthrough.wire.names cimport M_OTHER, M_SOCKS5, M_TUNNEL
from cutthrough.wire.openings cimport Protocol
from cutthrough.wire.proxy_header cimport ProxyHeader
from cutthrough.wire.socks cimport (
    NO_MESSAGE, OF_GREETING, OF_PASSWORD, OF_REQUEST, SocksPassword, SocksRequest)

cdef enum:
    TLS_HANDSHAKE = 22          # ContentType of the first record (RFC 8446 section 5.1)
    OF_TABLE = (1 << <int>N_STAGES) - 1

cdef struct Row:
    uint8_t method              # Method of a refusal's reply
    uint8_t message             # SocksMessage that it answers
    Step step
    Finish finish
    void *state                 # the step's result; valid within one call

cdef ProxyHeader proxy_header
cdef Opening opening
cdef SocksPassword password
cdef SocksRequest request
cdef First first
cdef Protocol inner
# In the order of Stage's bits
cdef Row[N_STAGES] rows = [
    Row(M_OTHER, NO_MESSAGE, read_header, name_client, &proxy_header),
    Row(M_SOCKS5, OF_GREETING, read_opening, choose_method, &opening),
    Row(M_SOCKS5, OF_PASSWORD, read_user, check_user, &password),
    Row(M_SOCKS5, OF_REQUEST, read_request, take_request, &request),
    Row(M_TUNNEL, NO_MESSAGE, read_first, take_first, &first)]
# Of an intercepted connection
cdef Row inside = Row(M_OTHER, NO_MESSAGE, read_inside, take_inside, &inner)


cdef int begin_stages(Client c, int stages) except -1:
    c.stages = <unsigned char>stages
    announce(c)
    # The bounds depend on the client: if a header names it, the connection is admitted then
    return admit_sender(c) if stages & STAGE_PROXY else admit(c)


cdef void announce(Client c) noexcept:
    """A refusal from here on is in the words of the first stage that is left; in those of HTTP
    if it may be HTTP."""
    cdef int left = c.stages & OF_TABLE
    if left and not (c.entrance.http and left & STAGE_SOCKS):
        c.request.method = rows[first_bit(left)].method
        c.request.hint = rows[first_bit(left)].message


cdef int run_stages(Client c) except -1:
    if not shakes_next(c) and not has_unseen(c) and not receive(c):
        return STAGES_LEFT
    while c.stages:
        if shakes_next(c):
            if not shake_hands(c):
                return STAGES_LEFT
            if c.entrance.is_inside:
                enter(c)
            if c.entrance.http2 and carries_streams(c):
                c.stages = 0                # SOCKS is for those who speak no HTTP/2
                return STREAMS_NEXT
        elif not has_unseen(c) and not receive(c):
            return STAGES_LEFT
        elif chooses_next(c):
            choose_tls(c)
        elif not run_stage(c, &inside if c.entrance.is_inside else &rows[first_bit(c.stages)]):
            return STAGES_LEFT
    if c.request.is_tunnel:
        return REQUEST_NEXT
    begin_requests(c)
    return HEAD_NEXT


cdef inline bint shakes_next(Client c) noexcept nogil:
    return c.stages & STAGE_TLS and not c.stages & STAGE_PROXY


cdef inline bint chooses_next(Client c) noexcept nogil:
    return c.stages & STAGE_TLS_IF_BEGUN and not c.stages & STAGE_PROXY


cdef inline void choose_tls(Client c) noexcept nogil:
    # No method of HTTP and no version of SOCKS begins so
    c.stages &= ~STAGE_TLS_IF_BEGUN
    if bytes_of(c.input)[c.input.start] == TLS_HANDSHAKE:
        c.stages |= STAGE_TLS


cdef inline bint has_unseen(Client c) noexcept nogil:
    return c.input != NULL and c.input.end - c.input.start > c.input_seen


cdef bint receive(Client c) except -1:
    """Adds bytes to client.input. False: there are none, or the connection has ended."""
    cdef ssize_t n = try_recv(&c.sock, scratch(), HEAD_BLOCK)
    if n == -linux.EAGAIN:
        return False
    if n <= 0:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_CLIENT_ENDED, 0, -n)
        c.abort(CLIENT_CLOSED if n == 0 else outcome_of_client(<int>-n), False)
        return False
    note(c.context.recorder, <void *>c, c.poller.now_us, E_READ, 0, n)
    if c.stamps.start_us == 0:
        c.begin()                       # from here on the ending is logged
    if not keep_part(c, scratch(), n):
        c.refuse(OVERLOADED)
        return False
    return True


cdef bint run_stage(Client c, Row *row) except -1:
    """Runs the first stage that is left. True: it is done, and the next one may begin."""
    cdef Block *block = c.input
    cdef size_t used = 0
    cdef Reply reply
    cdef int answer = row.step(row.state, bytes_of(block) + block.start,
                               block.end - block.start, &used)
    if answer < 0:
        c.refuse(-answer)
        return False
    if answer == 0:
        c.input_seen = (block.end - block.start)
        rest(c)
        if c.sock.ready & CAN_READ:
            c.poller.call_again(c)
        return False
    block.start += <unsigned int>used
    c.input_seen = 0
    c.stages &= c.stages - 1
    leave_place(c)                      # listed by its address, which may change now
    announce(c)
    reply.n = 0
    if not row.finish(c, row.state, &reply):
        return False
    if reply.n and try_send(&c.sock, reply.bytes, reply.n) != reply.n:
        c.abort(CLIENT_RESET, False)    # it does not even take a reply
        return False
    if c.input != NULL and c.input.start == c.input.end:
        give_block(&c.input)
    if c.state == HEAD and c.input == NULL:
        rest(c)
        if c.sock.ready & CAN_READ and c.stages:
            c.poller.call_again(c)
    return c.state == HEAD


cdef int begin_requests(Client c) except -1:
    """The connection starts as if it were accepted now; a request has its own times. The
    first one tells how long the handshake before it took."""
    cdef uint32_t tls_us = c.stamps.client_tls_us
    memset(&c.stamps, 0, sizeof(c.stamps))
    c.stamps.client_tls_us = tls_us
    c.since_ms = c.poller.time_ms()
    if c.input != NULL and c.input.start == c.input.end:
        give_block(&c.input)
    if c.input == NULL:
        rest(c)
    return c.extend()


cdef inline int first_bit(int bits) noexcept nogil:
    cdef int i = 0
    while not bits >> i & 1:
        i += 1
    return i
