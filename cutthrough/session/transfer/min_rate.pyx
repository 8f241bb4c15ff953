# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The minimum rate of a peer, judged when its deadline expires.

If every byte moves a deadline, it does not bind a peer that sends or takes one byte just
before it: the peer holds the connection, its descriptors and a block for as long as it
likes. So the peer that an exchange waits for owes `min_rate` bytes a second, on an average
over `min_rate_grace`. The sender of a request's body owes it, and so does a reader that is
slower than the other side: the client for a response, the origin for a body. An origin may
take any time over a response (an event stream has pauses), and a tunnel may rest: these have
`idle_timeout` and `lifetime`.

No byte is counted for it: when the grace is over, the count of the pump, or of the sluice
that reads in its place, is compared with its earlier value. A reader has taken the bytes that
its kernel has acknowledged. The socket's becoming writable shows nothing, because a third of
its buffer, which may be megabytes, has to be free by then. For the same reason a deadline of
silence that is shorter than the grace demands its part of the rate. A stream may wait for the
buffer of its carrier, or a connection for the one behind its bridge: what the peer takes of
that counts, too, but not if a stream waits for its own window. If no rate is owed, as in a
tunnel, a peer counts as active while the kernel still delivers buffered bytes to it.
"""

from libc.stdint cimport int64_t
from cutthrough.net.bridge cimport taken_in_front
from cutthrough.net.sysio cimport untaken
from cutthrough.outcome cimport BODY_TIMEOUT, OK, RESPONSE_TIMEOUT, WRITE_TIMEOUT
from cutthrough.session.model.awaited cimport NOBODY, SENDER, TAKER
from cutthrough.session.model.client cimport Client


cdef bint begin_wait(Client c, int whom) noexcept:
    c.awaited = <unsigned char>whom
    if whom == NOBODY:
        return False
    c.watch.rate.until_ms = c.poller.time_ms() + c.context.options.min_rate_grace_ms
    c.watch.rate.from_bytes = taken(c)
    return True


cdef int64_t taken(Client c) noexcept:
    """Bytes that the awaited peer has sent or acknowledged."""
    cdef int64_t left = 0
    if c.awaited == SENDER:
        return c.relay.up.moved if c.extras.up is None else c.extras.drawn
    if c.awaited == TAKER:
        return <int64_t>c.relay.up.moved - untaken(&c.origin.sock) + (
            taken_in_front(c.origin, &left))
    return <int64_t>c.relay.down.moved - untaken(&c.sock) + taken_in_front(c, &left)


cdef bint extend_if_taken(Client c) except -1:
    cdef int64_t held = untaken(&c.sock) + (
        untaken(&c.origin.sock) if c.origin is not None else 0)
    cdef int64_t moved = <int64_t>(c.relay.up.moved + c.relay.down.moved)
    cdef int64_t in_front = 0
    cdef int64_t passed = moved - held + taken_in_front(c, &in_front) + (
        taken_in_front(c.origin, &in_front) if c.origin is not None else 0)
    cdef bint is_taken = passed > c.watch.look.passed
    if moved != c.watch.look.moved:     # the first look since has no earlier count to compare with
        is_taken = held != 0 or in_front != 0
    if not is_taken:
        return False
    c.watch.look.moved = moved
    c.watch.look.passed = passed
    c.extend()
    return True


cdef int judge_rate(Client c) except -1:
    cdef int64_t now_ms = c.poller.time_ms()
    cdef int64_t from_bytes = c.watch.rate.from_bytes
    cdef int64_t left_ms = max(0, c.watch.rate.until_ms - now_ms)
    cdef int64_t owed = c.context.options.min_rate_bytes - (
        c.context.options.min_rate_bytes * left_ms // c.context.options.min_rate_grace_ms)
    cdef bint silent = now_ms >= c.silent_ms and c.awaited == SENDER
    begin_wait(c, c.awaited)
    if c.watch.rate.from_bytes - from_bytes >= max(1, owed) and not silent:
        if c.awaited == SENDER:
            c.poller.arm(c, min(c.silent_ms, c.watch.rate.until_ms))
        else:
            c.extend()          # the kernel's buffer moves, though no event reported it
        return OK
    if c.awaited == SENDER:
        return BODY_TIMEOUT
    return RESPONSE_TIMEOUT if c.awaited == TAKER else WRITE_TIMEOUT
