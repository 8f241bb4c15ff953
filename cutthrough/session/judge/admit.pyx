# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A caller is admitted, or turned away before its first request."""

from cutthrough.outcome cimport CLIENT_LIMIT, OK, OVERLOADED
from cutthrough.session.model.charge cimport admit_connection
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Context, places_taken
from cutthrough.session.model.counters cimport BOUND_CLIENT, BOUND_CONNECTIONS
from cutthrough.session.model.shed cimport shed_one
from cutthrough.session.model.stage cimport STAGE_TLS

cdef enum:
    # Clients beyond a limit that get a reply, at one time: each lingers for a while and holds
    # a descriptor, and RESERVED_FDS leaves 256. Further clients are reset, whichever limit it
    # is: a client with ten connections allowed must not have thousands that linger.
    MOST_REFUSED = 64
    # Connections closed for one new client: more than one if a reload has lowered the bound
    MOST_SHED = 64


cdef int admit(Client c) except -1:
    cdef int n = 0
    cdef int outcome = admit_connection(c)
    while outcome != OK and n < MOST_SHED:
        # The connections that fill a bound of all workers may be another worker's
        if not shed_one(c.context,
                        BOUND_CLIENT if outcome == CLIENT_LIMIT else BOUND_CONNECTIONS,
                        &c.address if outcome == CLIENT_LIMIT else NULL):
            return outcome
        n += 1
        outcome = admit_connection(c)
    return outcome if outcome != OK else make_place(c.context)


cdef int make_place(Context context) except -1:
    cdef int n = 0
    while places_taken(context) > context.options.max_connections and n < MOST_SHED:
        if not shed_one(context, BOUND_CONNECTIONS, NULL):
            return OK if n else OVERLOADED
        n += 1
    return OK


cdef int turn_away(Client c, int outcome) except -1:
    cdef Context context = c.context
    context.counters.refused += 1
    if c.stamps.start_us == 0:
        c.begin()
    if c.stages & STAGE_TLS:                # no answer before its handshake (R47)
        return c.abort(outcome, False)
    if context.turned_away >= MOST_REFUSED:
        return c.abort(outcome, True)
    c.turned_away = True
    context.turned_away += 1
    return c.refuse(outcome)
