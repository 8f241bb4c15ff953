"""A session decides whether a request may pass, and its way to the origin."""

from cutthrough.session.client cimport Client

cdef class Session(Client):
    cdef int pass_stages(self) except -1
    cdef int judge_tunnel(self) except -1
    cdef int read_head(self) except -1
    cdef int parse(self, char *data, size_t n) except -1
    cdef int read_request(self, const char *data) except -1
    # May this account send this request? Returns an Outcome, from the Client's fields alone:
    # the head may be gone by then.
    cdef int decide(self) except -1
    # The rules let it pass: calls the hook if there is one and no cached verdict, else set_out.
    cdef int proceed(self) except -1
    cdef int set_out(self) except -1        # rules and hook let it pass: charges and routes it
    cdef int prepare(self, const char *data) except -1
    cdef int take_head(self, const char *data, size_t n, size_t head_len) except -1
