"""The recording mode of the rule for the request in hand: answers are recorded, or replayed."""

from cutthrough.outcome cimport REPLAYED
from cutthrough.policy.acl cimport CACHES, RECORDS, RECORDS_NOTHING
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
