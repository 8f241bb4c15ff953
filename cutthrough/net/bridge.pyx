# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A kernel's socket in front of a transport.

    endpoint ── pair of sockets ── pier <──relay──> transport ── peer

If TLS is inside TLS, or inside a stream of HTTP/2, the endpoint's transport moves into a bridge,
and the endpoint gets one end of a pair of unix sockets, because a transport lies above a
descriptor, and libssl reads from one. It costs two more copies, and is for such connections alone.

Either side's end of stream is passed on. If the peer takes no more bytes, those that it has sent are
passed on until its end (R84). When the endpoint has closed, the transport has a time for
its last bytes and its peer's end.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t
from cutthrough.net cimport linux
from cutthrough.net.connector cimport Upstream, UpstreamOwner
from cutthrough.net.multiplex cimport is_stream, multiplexer
from cutthrough.net.poller cimport Endpoint, Poller
from cutthrough.net.relay cimport (
    BY_ROOM, BY_TURN, RELAY_CLOSED, RELAY_DOWN_SINK_FAILED, RELAY_HALF_CLOSED, Relayed, Resumed,
    is_holding, run_relay, start_pump, stop_pump)
from cutthrough.net.sysio cimport CAN_READ, CAN_WRITE, set_abortive, sys_close, untaken
from cutthrough.net.transport cimport KERNEL, Socket

cdef extern from "<sys/socket.h>" nogil:
    int SHUT_RD

cdef set bridges = set()        # that are open
cdef dict by_user = {}          # number of the endpoint -> Bridge


@cython.no_gc
cdef class Bridge(UpstreamOwner):

    cdef int on_ready(self) except -1:
        cdef Resumed resumed
        cdef Relayed how = run_relay(&self.relay, &resumed)
        if how == RELAY_DOWN_SINK_FAILED:
            # The endpoint's sends get EPIPE from now on
            stop_pump(&self.relay.down)
            linux.shutdown(self.pier.sock.fd, SHUT_RD)
            self.relay.down.shut = True
            self.sock.ready |= CAN_READ
            how = run_relay(&self.relay, &resumed)
        if how == RELAY_CLOSED:
            return self.close()
        if how > RELAY_HALF_CLOSED:
            set_abortive(&self.sock)
            return self.close()
        if self.user is not None and not self.user.is_open:
            self.user = None
            self.set_deadline(self.linger_ms)
        if resumed == BY_ROOM:
            return self.poller.call_when_room(self)
        return self.poller.call_again(self) if resumed == BY_TURN else 0

    cdef int on_upstream(self, Upstream upstream) except -1:
        return self.on_ready()

    cdef int on_deadline(self) except -1:
        return self.close()

    cdef bint is_timed(self) noexcept:
        return Endpoint.is_timed(self) or (
            self.user is not None and (not self.user.is_open or self.user.is_timed()))

    cdef int close(self) except -1:
        forget(self)
        stop_pump(&self.relay.up)
        stop_pump(&self.relay.down)
        self.user = None
        if self.pier is not None:
            self.pier.close()
            self.pier = None
        return UpstreamOwner.close(self)


cdef int forget(Bridge bridge) except -1:
    bridges.discard(bridge)
    if by_user.get(bridge.key) is bridge:       # else another endpoint has this number
        del by_user[bridge.key]
    return 0


cdef int64_t taken_in_front(Endpoint user, int64_t *left) noexcept:
    cdef Bridge bridge
    cdef int64_t taken, n
    if is_stream(&user.sock):
        return multiplexer().taken_before(&user.sock, left)
    if not by_user:
        return 0
    bridge = <Bridge>by_user.get(<size_t><void *>user)
    if bridge is None or bridge.user is not user:
        return 0
    taken = multiplexer().taken_before(&bridge.sock, left) if is_stream(&bridge.sock) else 0
    n = untaken(&bridge.sock)
    if is_holding(&bridge.relay.down):
        bridge.taken_before += max(<int64_t>0, bridge.untaken_before - n)
        left[0] += n
    bridge.untaken_before = n
    return taken + bridge.taken_before


cdef int put_bridge(Endpoint user, int64_t linger_ms) except -1:
    cdef Poller poller = user.poller
    cdef int[2] pair
    cdef int error
    cdef Socket outer = user.sock
    cdef Bridge bridge = Bridge.__new__(Bridge)
    cdef Upstream pier = Upstream.__new__(Upstream)
    bridge.key = <size_t><void *>user
    bridges.add(bridge)                     # from here on nothing needs memory but the tables
    by_user[bridge.key] = bridge
    if linux.socketpair(linux.AF_UNIX, linux.SOCK_STREAM | linux.SOCK_NONBLOCK
                        | linux.SOCK_CLOEXEC, 0, pair) < 0:
        error = linux.errno
        forget(bridge)
        return error
    poller.release(user)
    user.sock = Socket(pair[0], CAN_WRITE, KERNEL, 0)
    bridge.sock = outer
    bridge.user = user
    bridge.linger_ms = linger_ms
    bridge.pier = pier
    pier.sock = Socket(pair[1], CAN_WRITE, KERNEL, 0)
    pier.owner = bridge
    if is_stream(&bridge.sock):
        multiplexer().adopt(&bridge.sock, <void *>bridge)
    try:
        poller.add(user)
        poller.add(bridge)
        poller.add(pier)
    except OSError:                         # no memory, or no watch left for this user
        forget(bridge)
        for part in (user, bridge, pier):
            end_unwatched(poller, part)
        return linux.EINVAL
    bridge.relay.up.allowance = bridge.relay.down.allowance = INT64_MAX
    start_pump(&bridge.relay.up, &bridge.sock, &pier.sock, -1)
    start_pump(&bridge.relay.down, &pier.sock, &bridge.sock, -1)
    poller.call_again(bridge)               # for what the transport has read already
    return 0


cdef int end_unwatched(Poller poller, Endpoint part) except -1:
    """Closes its socket, watched or not. If a session has lost its socket, the session ends by
    itself."""
    cdef int fd = poller.release(part)
    if fd >= 0:
        part.sock.fd = fd
    sys_close(&part.sock)
    return 0


def close_bridges(Poller poller):
    """When their users have been closed: the bytes left are passed on, without waiting."""
    cdef Bridge bridge
    for bridge in [*bridges]:
        if bridge.poller is poller:
            bridge.on_ready()
            bridge.close()
