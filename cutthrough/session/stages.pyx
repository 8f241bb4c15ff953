# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Stages: the small protocols that a connection speaks before its first request.

    accept ─> stage ─> stage ─> HEAD …      without stages: one test of a byte, no memory

A stage is a step, a function without I/O, and a function that applies the step's result. The
runner owns the socket, the bytes and the deadline, and knows no protocol. It keeps the received
bytes, passes all of them to the first stage that is left, and removes the bytes that the stage
used. The bytes are all that is kept between two calls: a step starts at the first byte again. A
stage that only peeks uses none and leaves them to the next stage.

No stage sends anything yet, and after the last one comes an HTTP head: SOCKS needs a step with a
reply, and another end.

The state stays HEAD, so the deadline is `head_timeout`. No byte extends it; it begins anew after
the last stage. A connection in a stage is at rest as if it waited for a head (R32).
"""

from libc.string cimport memset
from cutthrough.net cimport linux
from cutthrough.net.buffers cimport HEAD_BLOCK, Block, bytes_of, give_block, scratch
from cutthrough.net.sysio cimport CAN_READ, try_recv
from cutthrough.outcome cimport CLIENT_CLOSED, CLIENT_RESET, OK, OVERLOADED
from cutthrough.session.admit cimport admit, turn_away
from cutthrough.session.client cimport Client, leave_place, rest
from cutthrough.session.flight_recorder cimport E_CLIENT_ENDED, E_READ, note
from cutthrough.session.proxied cimport admit_sender, name_client, read_header
from cutthrough.session.secure cimport shake_hands
from cutthrough.session.shed cimport keep_part
from cutthrough.session.stage cimport N_STAGES, STAGE_PROXY, STAGE_TLS
from cutthrough.wire.proxy_header cimport ProxyHeader

# 1: done, and `used` bytes are consumed; 0: more is needed; or minus an Outcome.
ctypedef int (*Step)(void *state, const char *data, size_t n, size_t *used) noexcept nogil
# Applies the result of a step that is done. An Outcome.
ctypedef int (*Finish)(Client client, const void *state) except -1

cdef struct Row:
    Step step
    Finish finish
    void *state                 # the step's result; valid within one call

cdef ProxyHeader proxy_header
# In the order of Stage's bits
cdef Row[N_STAGES] rows = [Row(read_header, name_client, &proxy_header)]


cdef int begin_stages(Client c, int stages) except -1:
    c.stages = <unsigned char>stages
    # The bounds depend on the client: if a header names it, the connection is admitted then
    return admit_sender(c) if stages & STAGE_PROXY else admit(c)


cdef bint run_stages(Client c) except -1:
    if not shakes_next(c) and not receive(c):
        return False
    while c.stages:
        if not (shake_hands(c) if shakes_next(c) else run_stage(c, &rows[first_bit(c.stages)])):
            return False
    begin_requests(c)
    return True


cdef inline bint shakes_next(Client c) noexcept nogil:
    return c.stages & STAGE_TLS and not c.stages & STAGE_PROXY


cdef bint receive(Client c) except -1:
    """Adds bytes to client.input. False: there are none, or the connection has ended."""
    cdef ssize_t n = try_recv(&c.sock, scratch(), HEAD_BLOCK)
    if n == -linux.EAGAIN:
        return False
    if n <= 0:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_CLIENT_ENDED, 0, -n)
        c.abort(CLIENT_CLOSED if n == 0 else CLIENT_RESET, False)
        return False
    note(c.context.recorder, <void *>c, c.poller.now_us, E_READ, 0, n)
    if c.stamps.start_us == 0:
        c.begin()                       # from here on the ending is logged
    if not keep_part(c, scratch(), n):
        c.refuse(OVERLOADED)
        return False
    return True


cdef bint run_stage(Client c, Row *row) except -1:
    """Runs the first stage that is left. True: it is done."""
    cdef Block *block = c.input
    cdef size_t used = 0
    cdef int outcome = OK
    cdef int answer = row.step(row.state, bytes_of(block) + block.start,
                               block.end - block.start, &used)
    if answer < 0:
        c.refuse(-answer)
        return False
    if answer == 0:
        rest(c)
        if c.sock.ready & CAN_READ:
            c.poller.call_again(c)
        return False
    block.start += <unsigned int>used
    c.stages &= c.stages - 1
    leave_place(c)                      # listed by its address, which may change now
    outcome = row.finish(c, row.state)
    if outcome != OK:
        turn_away(c, outcome)
    return outcome == OK


cdef int begin_requests(Client c) except -1:
    """The connection starts as if it were accepted now; a request has its own times."""
    memset(&c.stamps, 0, sizeof(c.stamps))
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
