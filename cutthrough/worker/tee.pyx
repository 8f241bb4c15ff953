# cython: language_level=3
"""Two journals as one: the access log, and whoever watches meanwhile."""

from cutthrough.session.client cimport Client, Journal
from cutthrough.wire.http1 cimport Head


cdef class Tee(Journal):
    cdef Journal first, second

    def __init__(self, Journal first, Journal second):
        self.first = first
        self.second = second
        self.wants_fields = first.wants_fields      # the watcher's are JSON, without any

    cdef int note_head(self, Client client, const Head *head, const char *data) except -1:
        return self.first.note_head(client, head, data)

    cdef int write(self, Client client, int outcome) except -1:
        self.first.write(client, outcome)
        return self.second.write(client, outcome)
