"""May this request go there? The rules of a policy, compiled (R25, R26)."""

from libc.stdint cimport uint8_t

cdef struct Question:
    const uint8_t *who      # Acl.who(user, groups); NULL: somebody whom no rule names
    uint8_t client[16]      # network order, IPv4 as ::ffff:a.b.c.d; all of them are here
    const char *host        # canonical, as wire.target writes it
    size_t host_len
    bint is_name            # False: the host is an address, and `address` is given
    const uint8_t *address  # 16 bytes; NULL: not known yet
    int port
    int method              # M_* of wire.http1

cdef struct Verdict:
    int outcome             # OK or DESTINATION_DENIED
    int rule                # index in Acl.rules; -1: the default
    int limits              # index in Acl.limits; -1: the rule names none
    bint report             # passes, though it would be refused: worth a line in the log
    bint cut                # a refusal ends tunnels that run already
    bint opens_floor        # an allow rule names this very address (R27)
    bint maybe              # passes only until the address is known: ask again with it

cdef class Acl:
    cdef readonly tuple rules       # of source.Rule
    cdef readonly tuple limits      # names

    # The first rule that matches, or the default. Without an address, what hangs on one
    # counts as passing: refused is only what no address could save.
    cdef void judge(self, const Question *q, Verdict *v) noexcept nogil
