# cython: language_level=3, boundscheck=False, wraparound=False
"""Origins in Python: functions of this process that answer requests; nothing is dialled.

    session ── near end ── unix sockets ── far end ── the function

The session treats the near end as a dialled connection. The function is called with the far
end, which does not block, once for each request or tunnel: it owns that socket, closes it,
and returns at once (a task reads and writes). It sees HTTP/1.1 as an origin does. If it
raises, the request ends as a failed dial does: an OSError by its errno, anything else is
logged.

A unix socket is not a TCP connection:

- It has no address. A request that passes only if its address is a certain one is refused, and
  logs have no peer. The address floor and the check for our own addresses guard dials, and there
  is none.
- It has no reset. When an exchange is cut short the function reads an end of stream. When the
  function closes its end with bytes unread, the session sees a reset.
- A close is a hang-up at once (EPOLLHUP), even with bytes still to be read.
- SIOCOUTQ counts the kernel's memory for bytes that the function has not read: more than
  their number, and 0 when there are none.
- It cannot go to another process without the function, so its tunnel is not handed over.

Its connection is not pooled: the function would have to keep it, and a new one is cheap.
"""

import errno
import logging
import socket
from collections.abc import Callable

from cutthrough.net.connector cimport Upstream
from cutthrough.net.sysio cimport CAN_WRITE, sys_close
from cutthrough.outcome cimport DESTINATION_DENIED
from cutthrough.policy.hop cimport HOP_LOCAL
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.flight_recorder cimport E_DIALLED, E_NOT_DIALLED, note
from cutthrough.session.model.phase cimport PHASE_SEND
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport DIAL
from cutthrough.session.ways.dials cimport dial_anew, outcome_of_errno, relieve
from cutthrough.wire.authority cimport Target, parse_authority

LocalOrigin = Callable[[socket.socket], None]

log = logging.getLogger("cutthrough")


def set_local_origins(Context context, origins):
    """Requests to these destinations (`host:port`) go to these functions from now on; None:
    none do. Raises ValueError for what is no destination."""
    context.local_origins = None if not origins else {
        key_of(authority): function for authority, function in origins.items()}


cdef bytes key_of(str authority):
    """As Client.key: canonical host, and two bytes of port."""
    cdef Target target
    cdef bytes text = authority.encode()
    if parse_authority(&target, text, len(text), 0) != 0:
        raise ValueError(f"{authority!r} is not host:port")
    return target.host[:target.host_len] + (<int>target.port).to_bytes(2, "big")


cdef int connect_function(Client c, function) except -1:
    cdef Request *r = &c.request
    cdef int error
    r.hop.kind = HOP_LOCAL
    r.marks_origin = True               # never pooled
    if r.address_dependent:
        return c.refuse(DESTINATION_DENIED)     # no address will say that it may pass
    c._set_state(DIAL)
    error = open_local(c, function)
    if c.state != DIAL:
        return 0                        # the function has ended it
    if error:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_NOT_DIALLED, 0, error)
        return dial_anew(c) if relieve(c, error) else (
            c.refuse(outcome_of_errno(error)))
    c.stamps.connect_us += end_brief_phase(&c.stamps)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_DIALLED, 0, c.stamps.connect_us)
    return c.resume(PHASE_SEND)


cdef int open_local(Client c, function) except -1:
    """Makes client.origin, and hands its other end to the function. Returns 0 or an errno. The
    function may have ended the client."""
    cdef Upstream upstream = Upstream.__new__(Upstream)
    try:
        near, remote = socket.socketpair()
    except OSError as refusal:              # no descriptor, or no memory
        return refusal.errno
    near.setblocking(False)
    remote.setblocking(False)
    upstream.sock.fd = near.detach()
    upstream.sock.ready = CAN_WRITE
    try:
        c.poller.add(upstream)
    except OSError as refusal:              # no memory, or no watch left for this user
        sys_close(&upstream.sock)
        remote.close()
        return refusal.errno
    upstream.owner = c
    c.origin = upstream
    try:
        function(remote)
        return 0
    except OSError as refusal:
        failed = refusal.errno or errno.EIO
    except Exception:
        log.exception("a local origin failed")
        failed = errno.EIO
    remote.close()
    c.close_origin(False)
    return failed
