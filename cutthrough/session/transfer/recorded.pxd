"""Requests whose rule records answers, or plays them again."""

from cutthrough.policy.acl cimport REPLAYS
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.recording_mode cimport recording_of
from cutthrough.session.transfer.filtering cimport Filtering, filtering_of

cdef class Replay(Filtering):
    """One request in the hands of the player, with the methods of Filtering and its own."""
    cdef Filtering filters      # of the same request: they have its response; None: there are none
    cdef bint chunked           # the collected body

    cdef int show_as(self, Filtering filters) except -1
    cdef int give_back(self) except -1
    cdef int leave(self) except -1


# Is the request, or the tunnel, answered here, or is it if there is a recording?
cdef inline bint plays(Client client) noexcept:
    cdef int mode
    if client.context.player is None or client.request.address_dependent or (
            client.extras.filtering is not None and filtering_of(client).is_played):
        return False
    mode = recording_of(client)
    return mode == REPLAYS or (
        mode > REPLAYS and (not client.request.is_tunnel or opens_tls(client)))


# Does the rule have TLS inside the tunnel in hand opened?
cdef bint opens_tls(Client client) noexcept
# Whether a tunnel may go on without an origin. Returns an Outcome.
cdef int judge_replayed(Client client) noexcept
# Will the requests of a tunnel be replayed if it has this fate of first_bytes?
cdef bint is_played_inside(Client client, int fate) noexcept
# Has the player look for the recording of the request in hand. The state is HELD.
cdef int begin_replay(Client client) except -1
