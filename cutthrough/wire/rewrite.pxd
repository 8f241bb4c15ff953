"""Heads as they go on: hop-by-hop fields out, Host and Via in (R12, R14, R15, R16)."""

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.target cimport Target

cdef enum:
    # A rewritten head is at most this much longer than the one read, and of a lenient one
    # an octet for each field more (Via pseudonym at most 64 bytes). `cap` must have that
    # room, whether this head will need it or not.
    REWRITE_ROOM = 512

# Both return bytes written at out, or minus the Outcome when the Connection fields or Via
# cannot be read, or when `cap` does not suffice (HEAD_TOO_LARGE, RESPONSE_HEAD_TOO_LARGE).
# The framing must have been accepted before.
#
# Request: METHOD origin-form HTTP/1.1; Host from the target, first; every other field as
# it came, but for the hop-by-hop ones and those that Connection names; Via appended.
# With `upgrade`, Connection: Upgrade and one Upgrade field go on, without h2c.
# Max-Forwards of OPTIONS and TRACE is counted down, an unreadable one is BAD_REQUEST.
# `*path_at`, `*path_len`: where in out the path stands. LOOP_DETECTED when a Via field names
# our pseudonym (R20).
cdef int build_request_head(char *out, size_t cap, const Head *head, const char *buf,
                            const Target *target, const char *pseudonym, size_t pseudonym_len,
                            bint upgrade, uint32_t *path_at, uint32_t *path_len) noexcept nogil
# Response: HTTP/1.1 status reason; fields likewise; Via appended; with `close`,
# Connection: close. `chunked` keeps Transfer-Encoding: chunked (else it is dropped).
# A lenient head goes on as the grammar has it, and a length that is said twice once.
# With `upgrade` (a 101), Connection: Upgrade and the Upgrade field go on. `date`: what a
# Date field says that is to be added (DATE_BYTES long), NULL: none (RFC 9110 section 6.6.1).
cdef int build_response_head(char *out, size_t cap, const Head *head, const char *buf,
                             const char *pseudonym, size_t pseudonym_len,
                             bint close, bint chunked, bint upgrade,
                             const char *date) noexcept nogil
# Does the Upgrade field offer a protocol that may be offered on? Not h2c: no proxy looks into
# what follows, and RFC 9113 section 3.1 has made it obsolete.
cdef bint offers_upgrade(const Head *head, const char *buf) noexcept nogil
