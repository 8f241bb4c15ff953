"""May this request go there? The rules of a policy, compiled (R25, R26)."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cutthrough.policy.address cimport MOST_CARRIED
from cutthrough.policy.hop cimport Hop
from cutthrough.policy.hosts cimport HostIndex, MAX_LABELS, Candidate, Run
from cutthrough.wire.names cimport M_CONNECT
from cutthrough.policy.networks cimport MAX_NESTED, Key, NetworkIndex, NetworkSets

cdef enum:
    # Round each carried IPv4 address there are 33 networks at most
    MAX_RUNS = MAX_LABELS + MAX_NESTED + 2 + 33 * MOST_CARRIED
    NOT_ASKED = -2          # for a rule: none was, something before the rules decided
    # What offers to upgrade may end in a tunnel, as CONNECT does: to rules it is a kind of
    # its own, whatever its method, behind those that wire.names numbers
    KIND_UPGRADE = M_CONNECT + 1

cdef struct Question:
    const uint8_t *who      # Acl.who(user, groups); NULL: somebody whom no rule names
    uint8_t client[16]      # network order, IPv4 as ::ffff:a.b.c.d; all of them are here
    const char *host        # canonical, as wire.target writes it
    size_t host_len
    bint is_name            # False: the host is an address, and `address` is given
    const uint8_t *address  # 16 bytes; NULL: not known yet
    int port
    int method              # Method of wire.names, or KIND_UPGRADE

# IPv4 addresses that the one that is dialled carries; only rules that deny ask for them.
cdef struct Inner:
    int n
    Key keys[MOST_CARRIED]

cdef struct Verdict:
    int outcome             # OK or DESTINATION_DENIED
    int rule                # index in Acl.rules; -1: the default
    int limits              # index in Acl.limits; -1: the rule names none
    Hop hop                 # which way, if it passes
    bint report             # passes, though it would be refused: worth a line in the log
    bint cut                # a refusal ends tunnels that run already
    bint opens_floor        # an allow rule names this very address (R27)
    bint maybe              # passes only until the address is known: ask again with it

cdef enum Action:
    ALLOW = 0
    DENY
    REPORT

# Why a candidate does not match; the order is that of the questions.
cdef enum Mismatch:
    MATCHES = 0
    OTHER_USER
    OTHER_PORT
    OTHER_METHOD
    OTHER_CLIENT
    OTHER_ADDRESS

cdef struct PortRange:
    uint16_t first
    uint16_t last

cdef struct Row:            # a rule; 0 in a field that numbers something: asks nothing
    uint32_t clients        # in Acl.sets
    uint32_t addresses      # in Acl.sets, where the candidate was found by another question
    uint32_t literals       # in Acl.sets: addresses among the hosts
    uint32_t ports          # index of the first
    uint16_t n_ports
    uint16_t methods        # bit M_*
    int limits
    uint8_t action
    uint8_t cut
    uint8_t by_address      # `addresses` is the question that finds it

cdef class Acl:
    cdef readonly tuple rules       # of source.Rule
    cdef readonly tuple limits      # names
    cdef readonly object policy
    cdef Row *rows
    cdef PortRange *ports
    cdef Row fallback               # the default
    cdef HostIndex hosts
    cdef NetworkIndex networks
    cdef NetworkSets sets
    cdef Candidate *plain           # rules that ask for no host and no address
    cdef Candidate *hanging         # that hang on the address alone, and do not deny
    cdef uint32_t n_plain, n_hanging
    cdef size_t n_who
    cdef dict who_of_user, who_of_group
    cdef dict labels

    # The first rule that matches, or the default. Without an address, what hangs on one
    # counts as passing: refused is only what no address could save.
    cdef void judge(self, const Question *q, Verdict *v) noexcept nogil

    # Does a refusal by this rule (below 0: the default) end what runs already?
    cdef bint cuts(self, int rule) noexcept nogil

    # The name of the limits that this rule (below 0: the default) names, or None.
    cdef object limits_of(self, int rule)

    # What logs call a rule: its name, else where it stands; "default" for -1.
    cdef bytes label(self, int rule)

    cdef int gather(self, const Question *q, const Inner *inner, Run *runs) noexcept nogil
    cdef int mismatch(self, const Question *q, const Inner *inner,
                      const Candidate *c) noexcept nogil
    cdef bint has_inner(self, uint32_t number, const Inner *inner) noexcept nogil
    cdef int add(self, uint32_t index, rule, dict who, list ports, dict ports_at,
                 list plain, list hanging, dict limits) except -1
