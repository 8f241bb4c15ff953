"""Replies that the proxy makes itself: constants, built once (R13)."""

from libc.stdint cimport uint32_t

# What more can be said of an outcome than the table does: its text instead of the table's.
cdef enum:                  # Hint
    NO_HINT = 0
    TLS_HERE                # of BAD_REQUEST; the others of BAD_TARGET
    NO_PORT
    HTTPS_TARGET
    OTHER_SCHEME
    USERINFO
    N_HINTS

# The whole reply for an outcome: head and body, with length, Proxy-Status and, where it is
# due, Proxy-Authenticate or Retry-After. `body` False leaves the body out (HEAD). Returns a
# borrowed pointer to memory that lives as long as the module; NULL: this outcome has no reply.
cdef const char *reply_for(int outcome, bint close, bint body, bint known_user,
                           size_t *length) noexcept nogil
# The same with a Hint's words; of its own outcome.
cdef const char *reply_with_hint(int hint, bint close, bint body, bint known_user,
                                 size_t *length) noexcept nogil
# The first, with another time in Retry-After, for one of status 429 or 503. The memory is the
# module's, until the next call.
cdef const char *reply_with_retry(int outcome, bint close, bint body, bint known_user,
                                  uint32_t retry_s, size_t *length) noexcept nogil
