"""Answers that are sent again without the player."""

from cutthrough.session.model.client cimport Client

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

cdef class AnswerCache:
    """Answers, by the bytes of their requests. Context.answer_cache."""
    cdef dict newer             # see key_of
    cdef dict older             # forgotten when `newer` is full, and is the older half then
    cdef dict hits              # by number
    cdef Py_ssize_t size        # bytes of `newer`, without shared bodies
    cdef public bint by_fields  # fields count, so a key has the whole head
    cdef Answer find(self, bytes key)
    cdef int put(self, bytes key, Answer answer) except -1


# The answer to the request in hand; its body is taken then. None: the player has to look.
cdef Answer known_answer(Client client)
cdef int send_known(Client client, Answer answer) except -1
# Sends an answer at once, of which `m` bytes of body are all; the exchange ends as `ending`.
cdef int send_whole(Client client, int ending, bytes head, const char *body, size_t m) except -1
# A recording's answer is that of all requests like the one in hand, whose body is `sent`.
cdef int keep_answer(Client client, bytes sent, Answer answer) except -1
# `packed`: the recording, as the matcher has it in memory anyhow. A body that came in one piece is
# in it.
cdef Answer make_answer(bytes head, bytes body, int number, bytes packed)
