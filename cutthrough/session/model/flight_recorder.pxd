"""The latest events of connections: one ring for all connections of a worker."""

from libc.stdint cimport UINT32_MAX, int64_t, uint32_t, uint64_t, uintptr_t

cdef enum:                  # kinds of event; their columns are in flight_recorder.pyx
    E_ACCEPTED = 1          # value: the client's port
    E_STATE                 # detail: the new state
    E_READ                  # value: bytes of a request's head and of the read behind it
    E_UP                    # value: bytes that the origin's socket took
    E_DOWN                  # value: bytes that the client's socket took
    E_ANSWER                # value: bytes of a response's head and of the read behind it
    E_RESOLVED              # value: number of addresses
    E_DIALLED               # value: microseconds
    E_REUSED                # a pooled connection to the origin
    E_CLIENT_ENDED          # end of stream; value: an errno instead
    E_ORIGIN_ENDED
    E_UP_FAILED             # value: errno of the pump
    E_DOWN_FAILED
    E_NOT_DIALLED           # value: errno
    E_DEADLINE              # detail: the state
    E_ENDED                 # detail: the outcome; value: the status
    E_TAKEN                 # taken over from another worker, which has the earlier events
    E_PEEKED                # detail: the protocol of the tunnel's first bytes
    E_PARENT                # the way through a parent is tried; value: its number
    E_PARENT_LOST           # it failed; detail: the outcome; value: its status
    E_SECURED               # the TLS handshake with a parent is done; value: 1 if resumed
    N_EVENTS

cdef struct Event:
    uint64_t what           # microseconds of CLOCK_MONOTONIC << 16 | kind << 8 | detail
    uint32_t who
    uint32_t value

cdef class FlightRecorder:
    cdef Event *events      # NULL: nothing is recorded
    cdef uint64_t mask
    cdef uint64_t next      # number of events so far

# An address is as good as a name: an object that reuses another's memory has an E_ACCEPTED of
# its own, and earlier events are not reported. It repeats after 64 GiB.
cdef inline uint32_t name_of(void *connection) noexcept nogil:
    return <uint32_t>(<uintptr_t>connection >> 4)


cdef inline void note(FlightRecorder r, void *connection, int64_t now_us, int kind, int detail,
                      uint64_t value) noexcept:
    """Some 2 ns. Consecutive moves of bytes, with no event between them, are added up."""
    cdef uint32_t who
    cdef Event *last
    if r.events == NULL:
        return
    who = name_of(connection)
    if kind == E_UP or kind == E_DOWN:
        if value == 0:
            return
        last = &r.events[(r.next - 1) & r.mask]
        if last.who == who and (last.what >> 8 & 255) == <uint64_t>kind and (
                last.value + value <= UINT32_MAX):
            last.value += <uint32_t>value
            return
    last = &r.events[r.next & r.mask]
    r.next += 1
    last.what = <uint64_t>now_us << 16 | kind << 8 | detail
    last.who = who
    last.value = <uint32_t>min(value, <uint64_t>UINT32_MAX)

# The events of a connection, oldest first: dicts with `ms` since the first of them; and
# whether the first is its beginning.
cdef object told(FlightRecorder r, void *connection)
