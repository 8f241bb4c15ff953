# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Tethers: a connection to an origin that serves one connection of a client alone.

NTLM and Negotiate authenticate a connection, in two or three requests. So the connection that a
request with such credentials had is kept for the next requests of the same client's connection to
the same destination, by the same way and of the same user (R23), and for no other: also for one
that cannot be sent twice, because another connection would not be authenticated.

A tethered connection waits in the idle pool, under a key that no other client can have: it counts
there, times out there, and gives its place there. A client's connection has one, of the last
destination that it authenticated to.

Where several callers share a client's connection there is no tether: a listener that believes
proxies, and a named origin, which a load balancer may stand before. Nor has a stream of HTTP/2: its
connection is the request's.
"""

from cutthrough.net.connector cimport Upstream
from cutthrough.net.multiplex cimport is_stream
from cutthrough.policy.hop cimport HOP_NAMED_ORIGIN, Hop
from cutthrough.session.model.client cimport Client, extras_of, free_empty_extras, user_of
from cutthrough.session.model.idle_pool cimport make_key
from cutthrough.wire.names cimport M_CONNECT


cdef Upstream take_tethered(Client c):
    cdef Upstream upstream
    if c.request.method >= M_CONNECT or not is_led_by(c, c.extras.tether):
        return None
    upstream = c.context.idle_pool.take(c.extras.tether)
    if upstream is not None:
        c.request.is_tethered = True
    return upstream


cdef int park_origin(Client c, Upstream upstream, bint instead) except -1:
    if not c.request.is_tethered:
        return c.context.idle_pool.park(
            upstream, make_key(&c.request.hop, c.pool_key()), instead)
    if is_stream(&c.sock) or c.entrance.believed or c.request.hop.kind == HOP_NAMED_ORIGIN:
        return upstream.close()
    if c.extras.tether is None or not is_led_by(c, c.extras.tether):
        cut_tether(c)
        # The last part is equal to itself alone
        extras_of(c).tether = (way_of(c), c.pool_key(), user_of(c), object())
    return c.context.idle_pool.park(upstream, c.extras.tether, True)


cdef int cut_tether(Client c) except -1:
    if c.extras.tether is not None:
        c.context.idle_pool.give_up_of(c.extras.tether, 1)
        c.extras.tether = None
        free_empty_extras(c)
    return 0


cdef bint is_led_by(Client c, tuple tether) except -1:
    """Does the tether lead where this request goes?"""
    return tether[:3] == (way_of(c), c.pool_key(), user_of(c))


cdef inline bytes way_of(Client c):
    return (<const char *>&c.request.hop)[:sizeof(Hop)]
