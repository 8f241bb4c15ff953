# cython: language_level=3
"""Two journals as one: the access log, and whoever watches meanwhile."""

from cutthrough.session.client cimport Client, Journal


cdef class Tee(Journal):
    cdef Journal first, second

    def __init__(self, Journal first, Journal second):
        self.first = first
        self.second = second

    cdef int write(self, Client client, int outcome) except -1:
        self.first.write(client, outcome)
        return self.second.write(client, outcome)
