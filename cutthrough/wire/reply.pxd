"""Replies that the proxy makes itself: constants, built once (R13)."""

from libc.stdint cimport uint32_t, uint64_t

# A more precise text for an outcome, used in place of the one in the table.
cdef enum:                  # Hint
    NO_HINT = 0
    TLS_HERE                # for BAD_REQUEST; the others are for BAD_TARGET
    NO_PORT
    HTTPS_TARGET
    OTHER_SCHEME
    USERINFO
    N_HINTS

# The whole reply for an outcome: head and body, with length and Proxy-Status, and with
# Proxy-Authenticate or Retry-After if the status has one. `body` False leaves the body out
# (HEAD). Returns a borrowed pointer to memory that lives as long as the module; NULL: this
# outcome has no reply.
cdef const char *reply_for(int outcome, bint close, bint body, bint known_user,
                           size_t *length) noexcept nogil
# The same for the outcome of a Hint, with the Hint's text.
cdef const char *reply_with_hint(int hint, bint close, bint body, bint known_user,
                                 size_t *length) noexcept nogil
# Like reply_for, with another time in Retry-After if the status is 429 or 503. The memory
# belongs to the module, and is valid until the next call.
cdef const char *reply_with_retry(int outcome, bint close, bint body, bint known_user,
                                  uint32_t retry_s, size_t *length) noexcept nogil

# A reply with this status, for an outcome's label and a text of the operator's.
cdef bytes reply_with_text(int status, str label, str text, bint close, bint body)
# The same of a replay, for the head of its request: JSON if the client reads that, and not to be
# tried again, because the same request would fail again.
cdef bytes reply_to_replay(int status, str label, str text, bint close, bint body, bytes head)

# A reply of these functions with the request's id, WORKER-NUMBER, as a field and as the content's
# last line. Likewise valid until the next call; `text` itself if it is no reply of HTTP, or long.
cdef const char *reply_with_id(const char *text, size_t *length, int worker,
                               uint64_t number) noexcept nogil

# Whether this head of a request begins a call of gRPC.
cdef bint is_head_of_call(bytes head)
# The reply of a refused call: what a client of gRPC makes of its status, and the text of its content.
# `label`: of the outcome. 407 and 421 stay, because they ask for another request. Likewise valid until
# the next call.
cdef const char *reply_to_call(bytes label, const char *text, size_t *length) except NULL
