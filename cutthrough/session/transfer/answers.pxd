"""Answers of recordings, kept in C until recordings change."""

from libc.stdint cimport uint16_t
from cutthrough.wire.connect cimport Value

# What makes requests alike, beside their bodies; the caller's, who owns the texts too
cdef struct Line:
    int minor                   # of its HTTP/1 version
    bint is_inside              # an opened tunnel
    uint16_t port
    Value host, text            # `text`: up to its CR, or the whole head

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
    cdef dict newer             # see recorded.key_of
    cdef dict older             # forgotten when `newer` is full, and is the older half then
    cdef dict hits              # by number
    cdef Py_ssize_t size        # bytes of `newer`, without shared bodies
    cdef public bint by_fields  # fields count, so a key has the whole head
    cdef Answer find(self, bytes key)
    cdef int put(self, bytes key, Answer answer) except -1


# `packed`: the recording, as the matcher has it in memory anyhow. A body that came in one piece is
# in it.
cdef Answer make_answer(bytes head, bytes body, int number, bytes packed)
cdef bytes make_key(const Line *line, Value body)
