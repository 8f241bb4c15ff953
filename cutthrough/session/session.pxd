"""A session decides: may this request pass, and which way."""

from cutthrough.session.client cimport Client

cdef class Session(Client):
    cdef int read_head(self) except -1
    cdef int parse(self, char *data, size_t n) except -1
    cdef int read_request(self, const char *data) except -1
    cdef void keep_refused(self, const char *data) noexcept
    # May this account do that? An Outcome, from the Client's fields alone: the head may be
    # gone by then.
    cdef int decide(self) except -1
    # It may: on the way to the origin, unless somebody has to be asked first.
    cdef int proceed(self) except -1
    cdef int set_out(self) except -1        # every answer was yes: charged, and routed
    cdef int prepare(self, const char *data) except -1
    cdef int take_head(self, const char *data, size_t n, size_t head_len) except -1
    cdef int set_destination(self) except -1
