"""The recording mode of the rule for the request in hand: answers are recorded, or replayed."""

from cutthrough.outcome cimport REPLAYED
from cutthrough.policy.acl cimport CACHES, RECORDS, RECORDS_NOTHING, REPLAYS
from cutthrough.policy.first_bytes cimport ONLY_HTTP_IS_INTERCEPTED, TLS_IS_INTERCEPTED
from cutthrough.session.model.client cimport Client

# Request.room: whether there is room to record the request in hand; see recording_room.
cdef enum:
    UNASKED = 0
    AWAITS_ROOM                 # in HELD
    HAS_ROOM
    MUST_FIT                    # it has room; its rule refuses it if it cannot be recorded
    GOES_UNRECORDED

# The policy's Recording for the request in hand.
cdef inline int recording_of(Client client) noexcept:
    cdef int mode
    if client.request.rule < 0 or client.context.player is None:
        return RECORDS_NOTHING
    mode = client.snapshot.acl.rows[client.request.rule].recording or (
        client.request.recording_inside)
    return mode if mode == RECORDS_NOTHING or client.context.recording < 0 else (
        client.context.recording)


# Is the answer to be kept, if it comes from an origin?
cdef inline bint is_recorded(Client client) noexcept:
    cdef int mode = recording_of(client)
    return not client.request.is_tunnel and client.request.room != GOES_UNRECORDED and (
        client.request.ending != REPLAYED and (mode == RECORDS or mode == CACHES))


# Does this fate of first bytes open the tunnel's TLS?
cdef inline bint is_opened(int fate) noexcept:
    return fate == TLS_IS_INTERCEPTED or fate == ONLY_HTTP_IS_INTERCEPTED


# Does the rule have TLS inside the tunnel in hand opened?
cdef inline bint opens_tls(Client client) noexcept:
    return not client.entrance.is_inside and is_opened(
        client.snapshot.acl.tls_of(client.request.rule))


# Is the request, or the tunnel, answered by the player, or is it if there is a recording?
cdef inline bint plays(Client client) noexcept:
    cdef int mode
    if client.context.player is None or client.request.address_dependent or (
            client.extras.replay is not None):
        return False
    mode = recording_of(client)
    return mode == REPLAYS or (
        mode > REPLAYS and (not client.request.is_tunnel or opens_tls(client)))


# Will the requests of a tunnel be replayed if it has this fate of first_bytes?
cdef inline bint is_played_inside(Client client, int fate) noexcept:
    return recording_of(client) >= REPLAYS and is_opened(fate)
