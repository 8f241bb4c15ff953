"""Reads the requests of a client's connection, and answers the events of its sockets."""

from cutthrough.session.model.client cimport Client

cdef class Connection(Client):
    cdef int pass_stages(self) except -1
    cdef int read_head(self) except -1
    cdef int parse(self, char *data, size_t n) except -1
    cdef int discard_empty_line(self) except -1
    cdef int read_request(self, const char *data) except -1
    cdef int read_fields(self, const char *data) except -1
    cdef int prepare(self, const char *data) except -1
    cdef int keep_connect(self, const char *data) except -1
    cdef int take_head(self, const char *data, size_t n, size_t head_len) except -1
