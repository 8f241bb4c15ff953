# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""How fast a peer must be, judged where its deadline comes.

A deadline that every byte moves is none for a peer that sends one byte just before it, or
takes one: the connection, its descriptors and a block are held for as long as it likes.
So whoever an exchange waits for owes `min_rate` bytes a second, on an average over
`min_rate_grace`. The sender of a request's body owes it, and who reads slower than the
other side writes: the client a response, the origin a body. An origin may take as long
over a response as it likes (events come when they come), and a tunnel may rest: these
have `idle_timeout` and `lifetime`.

No byte is counted for it: when the grace is over, the pump's own count is compared with
what it was. What a reader has taken is what its kernel has acknowledged: when the socket
becomes writable again says nothing, as a third of its buffer, which may be megabytes, has
to be free by then. For the same reason a deadline of silence that is shorter than the grace
asks for its part of what is owed; and where nothing is owed, as in a tunnel, nobody is silent
to whom the kernel still hands over what it holds.
"""

from libc.stdint cimport int64_t
from cutthrough.net.sysio cimport untaken
from cutthrough.outcome cimport BODY_TIMEOUT, OK, RESPONSE_TIMEOUT, WRITE_TIMEOUT
from cutthrough.session.awaited cimport NOBODY, SENDER, TAKER
from cutthrough.session.client cimport Client


cdef bint begin_wait(Client c, int whom) noexcept:
    c.awaited = <unsigned char>whom
    if whom == NOBODY:
        return False
    c.judged_ms = c.poller.time_ms() + c.context.grace_ms
    c.judged_from = taken(c)
    return True


cdef int64_t taken(Client c) noexcept:
    """Bytes that have got past the peer which is waited for."""
    if c.awaited == SENDER:
        return c.relay.up.moved
    if c.awaited == TAKER:
        return <int64_t>c.relay.up.moved - untaken(&c.origin.sock)
    return <int64_t>c.relay.down.moved - untaken(&c.sock)


cdef bint extend_if_taken(Client c) except -1:
    cdef int64_t held = untaken(&c.sock) + untaken(&c.origin.sock)
    cdef int64_t moved = <int64_t>(c.relay.up.moved + c.relay.down.moved)
    # The first look since a byte was moved knows of none before
    if held == 0 if moved != c.judged_ms else moved - held <= c.judged_from:
        return False
    c.judged_ms = moved
    c.judged_from = moved - held
    c.extend()
    return True


cdef int judge_rate(Client c) except -1:
    cdef int64_t now_ms = c.poller.time_ms()
    cdef int64_t before = c.judged_from
    cdef int64_t left_ms = max(0, c.judged_ms - now_ms)
    cdef int64_t owed = c.context.least_bytes - (
        c.context.least_bytes * left_ms // c.context.grace_ms)
    cdef bint silent = now_ms >= c.silent_ms and c.awaited == SENDER
    begin_wait(c, c.awaited)
    if c.judged_from - before >= max(1, owed) and not silent:
        if c.awaited == SENDER:
            c.poller.arm(c, min(c.silent_ms, c.judged_ms))
        else:
            c.extend()          # the kernel's buffer moves, though no event told of it
        return OK
    if c.awaited == SENDER:
        return BODY_TIMEOUT
    return RESPONSE_TIMEOUT if c.awaited == TAKER else WRITE_TIMEOUT
