"""Replies that the proxy makes itself: constants, built once (R13)."""

# The whole reply for an outcome: head and body, with length, Proxy-Status and, where it is
# due, Proxy-Authenticate or Retry-After. `body` False leaves the body out (HEAD). Returns a
# borrowed pointer to memory that lives as long as the module; NULL: this outcome has no reply.
cdef const char *reply_for(int outcome, bint close, bint body, bint known_user,
                           size_t *length) noexcept nogil
