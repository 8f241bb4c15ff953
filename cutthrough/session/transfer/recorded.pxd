"""Requests whose rule records answers, or plays them again."""

from cutthrough.policy.acl cimport REPLAYS
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.recording_mode cimport recording_of
from cutthrough.session.transfer.filtering cimport Filtering

cdef class Answer:
    """The player's answer to a request. If the same bytes come again, it is the same."""
    cdef bytes head
    cdef bytes source           # contains the framed body, from body_at on
    cdef Py_ssize_t body_at
    cdef Py_ssize_t body_size
    cdef bint is_shared         # the source is the matcher's
    cdef int number             # of the recording
    cdef bytes owner            # its reader in the mode `cache`; b"": all; None: no reader
    cdef bint is_private        # to its owner, even if the rule is a shared cache
    cdef long hits              # not counted yet

cdef class Answers:
    """Answers, by the bytes of their requests. Context.answers."""
    cdef dict newer             # see key_of
    cdef dict older             # forgotten when `newer` is full, and is the older half then
    cdef dict hits              # by number
    cdef Py_ssize_t size        # bytes of `newer`, without shared bodies
    cdef public bint by_fields  # fields count, so a key has the whole head
    cdef Answer find(self, bytes key)
    cdef int put(self, bytes key, Answer answer) except -1

cdef class Replay(Filtering):
    """One request in the hands of the player, with the methods of Filtering and its own."""
    cdef bint chunked           # the collected body
    cdef bint missed            # it goes on, because no recording answers it


# Is the request, or the tunnel, answered here, or is it if there is a recording?
cdef inline bint plays(Client client) noexcept:
    cdef int mode
    if client.context.player is None or client.filtering is not None or (
            client.request.address_dependent):
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
