"""Answers in place of an origin's: from the filters of a rule, or from the player."""

from libc.stdint cimport int64_t, uint8_t
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.sluice cimport Sluice


cdef class Responder:
    """Carries out decisions of Python about one exchange, until its end: a Filtering, in
    extras.filtering, or a Replay, in extras.replay. An exchange may have both."""
    cdef Client client          # None: the exchange has ended
    cdef object run             # in Python: of filters.run, or a Play
    cdef uint8_t ending         # the Outcome of an answer of its own
    cdef uint8_t taps_origin    # filters: the tap gets the response as its origin sends it
    # The player
    cdef uint8_t has_request    # it is neither answered nor passed on yet
    cdef uint8_t collected      # the request's body was read whole
    cdef uint8_t is_answered    # as an origin in Python answers: it takes the request's body alone
    cdef object behind          # the request's body behind filters; None: as it comes

    cdef int drop_origin(self) except -1
    cdef Sluice open_down(self, bint chunked, int64_t left, bint trailers)


# Begins an answer of our own, and its Outcome. The state is RELAY.
cdef int begin_answer(Client client, int ending) except -1
# Sends its head, and `m` bytes of body, framed as it says; 0: the body comes later, or never.
cdef int send_own_head(Client client, bytes text, const char *body, size_t m) except -1
# Sends the request's head up, before the body from this sluice, which is `chunked`. False: the head
# is too large, and the request is refused.
cdef bint write_head_up(Client client, Sluice up, bint chunked) except -1
# May a reply of our own still be sent, and read?
cdef bint may_reply(Client client) noexcept

# The reason of most heads that cannot be sent
cdef str UNFIT
# The message cannot be sent as this function of filters has left it. A replay has no functions.
cdef int report_unfit(Client client, str hook, str reason) except -1
cdef int refuse_unfit(Client client, int outcome, str hook, str reason) except -1


# Does the player decide about the request?
cdef inline bint is_with_player(Client client) noexcept:
    return client.extras.replay is not None and (<Responder>client.extras.replay).has_request


# Does the response's tap get the origin's bytes, and not those that go to the client?
cdef inline bint taps_origin(Client client) noexcept:
    return client.extras.filtering is not None and (<Responder>client.extras.filtering).taps_origin


# The open sluices of a client; None: that body goes by itself.
cdef inline Sluice up_sluice(Client client):
    return <Sluice>client.extras.up


cdef inline Sluice down_sluice(Client client):
    return <Sluice>client.extras.down
