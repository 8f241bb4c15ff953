"""May this request go there? The rules of a policy, compiled (R25, R26)."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cutthrough.policy.address cimport MOST_CARRIED
from cutthrough.policy.fingerprints cimport FingerprintSets
from cutthrough.policy.first_bytes cimport Demand, Met
from cutthrough.policy.globs cimport GlobSets
from cutthrough.policy.hop cimport Hop
from cutthrough.policy.hosts cimport HostIndex, MAX_LABELS, Candidate, Run
from cutthrough.wire.names cimport M_CONNECT, M_GET, M_OTHER, method_of
from cutthrough.policy.networks cimport CarriedKeys, MAX_NESTED, NetworkIndex, NetworkSets
from cutthrough.policy.tlvs cimport TlvSets
from cutthrough.wire.openings cimport Opening
from cutthrough.wire.paths cimport Path

cdef enum:
    MOST_METHOD = 32        # characters of one that a rule names
    # Each carried IPv4 address is in at most 33 networks
    MAX_RUNS = MAX_LABELS + MAX_NESTED + 2 + 33 * MOST_CARRIED
    NOT_ASKED = -2          # in place of a rule: the rules were not evaluated
    # A request that offers an upgrade may end in a tunnel, as CONNECT does. For rules that is a
    # method of its own, numbered after those of wire.names. See fits_method.
    KIND_UPGRADE = M_CONNECT + 1

cdef struct Question:
    # From Acl.subjects_of(user, groups); NULL: a user whom no rule names
    const uint8_t *subjects
    uint8_t client[16]      # IPv6 or ::ffff:a.b.c.d, network order; addresses here are all so
    bint has_client         # False: a caller on a unix socket, which is in no network
    const char *tlvs        # of the PROXY header, as wire.proxy_header keeps them; NULL: none
    size_t tlvs_len
    const char *ja4         # of the client's own connection, JA4_BYTES; NULL: unknown
    const char *http2       # fingerprint of the same; NULL: unknown
    size_t http2_len
    const char *host        # canonical, as wire.target writes it
    size_t host_len
    bint is_name            # False: the host is an address, and `address` is set
    const uint8_t *address  # 16 bytes; NULL: not known yet
    int port
    int method              # Method of wire.names, or KIND_UPGRADE
    int own_method          # the same, and of KIND_UPGRADE the one that its origin may answer
    const char *method_name  # of M_OTHER; NULL: unknown, or no rule compares it
    size_t method_name_len
    const char *capitals    # the same length, if that is another name; see read_capitals
    int capital_method      # its Method
    bint for_origin         # in origin form, for a named origin
    bint has_opening        # a tunnel by CONNECT, SOCKS or the like: it has first bytes
    const Opening *opening  # a tunnel's first bytes; NULL: not known yet
    Path *path              # of a plain request; NULL: it has none, as a tunnel and OPTIONS *

cdef struct Verdict:
    int outcome             # OK, DESTINATION_DENIED, PATH_DENIED or TLS_REFUSED
    int rule                # index in Acl.rules; -1: the default
    int limits              # index in Acl.limits; -1: the rule names none
    Hop hop                 # the way of a request that passes
    int route               # index in Acl.routes plus 1; 0: the rule names none
    bint report             # passes because the rule only reports; to be logged
    bint cut                # a refusal also ends running tunnels
    bint opens_floor        # an allow rule names this very address (R27)
    bint waits              # depends on a tunnel's first bytes: judge again with them
    uint8_t acts            # a set of Act: the rule does more than to let it pass
    bint maybe              # passes until the address is known: judge again with it

cdef enum Action:
    ALLOW = 0
    DENY
    REPORT

# What a rule does to a request that it lets pass.
cdef enum Act:
    BY_FAULTS = 1
    BY_FILTERS = 2
    BY_BREAKPOINT = 4      # only if breakpoints are armed: see Context.acts
    BY_HEADERS = 8         # as the heads are sent
    BY_CONNECT = 16        # a filter of its sees tunnels: see Snapshot.sees_connects

# The condition that a candidate does not meet, in the order of evaluation.
cdef enum Mismatch:
    MATCHES = 0
    OTHER_USER
    OTHER_FORM
    OTHER_PORT
    OTHER_METHOD
    OTHER_CLIENT
    OTHER_TLVS
    OTHER_JA4
    OTHER_HTTP2
    OTHER_ADDRESS
    OTHER_PATH
    OTHER_OPENING           # plus a Met

# The part that is kept of a request if the rule matches it.
cdef enum Capturing:
    CAPTURE_NOTHING = 0
    CAPTURE_HEADS
    CAPTURE_FULL            # bodies too

# Whether answers are kept, or played again. In all from REPLAYS on they are.
cdef enum Recording:
    RECORDS_NOTHING = 0
    RECORDS
    REPLAYS
    CACHES                  # replays what is there, and records the rest
    SPIES                   # replays what is there, and passes the rest

cdef struct PortRange:
    uint16_t first
    uint16_t last

cdef struct Row:            # a rule; set number 0: no condition
    uint32_t clients        # number in Acl.sets
    uint32_t tlvs           # number in Acl.tlvs
    uint32_t client_ja4     # number in Acl.fingerprints
    uint32_t http2_print    # number in Acl.http2_prints
    uint32_t other_methods  # number in Acl.other_methods
    uint32_t addresses      # number in Acl.sets; 0 too if `by_address`
    uint32_t literals       # number in Acl.sets: the addresses among its hosts
    uint32_t paths          # number in Acl.globs
    uint32_t ports          # index of its first range in Acl.ports
    uint16_t n_ports        # 0: every port
    uint16_t methods        # bit M_*; 0: every method, or those of `other_methods`
    int limits              # index in Acl.limits; -1: none
    Demand demand           # of a tunnel's first bytes
    uint16_t source         # number of the source address; 0: the user's own, or none
    uint16_t route          # index in Acl.routes plus 1; 0: none
    uint8_t action          # Action
    uint8_t cut
    uint8_t by_address      # the rule names addresses and no hosts: found by the address
    uint8_t by_opening      # the rule has a demand
    uint8_t for_origin      # the rule names an origin
    uint8_t acts            # a set of Act
    uint8_t capture         # Capturing
    uint8_t recording       # Recording
    uint8_t refuses_unrecorded
    uint32_t queue          # requests that may wait for room to be recorded
    uint32_t queue_ms       # … and how long

# What the rules have in common, while they are compiled.
cdef class Draft:
    cdef dict subjects              # (users, groups) -> number of the subject
    cdef list ports                 # (first, last), of all rules
    cdef dict ports_at              # a rule's ranges -> index of the first in `ports`
    cdef list anywhere, needing_address     # (index of the rule, subject)
    cdef dict limits, routes        # name -> as in Row

cdef class Acl:
    cdef readonly tuple rules       # of source.Rule
    cdef readonly tuple limits      # names
    cdef readonly tuple routes      # names, of parents, groups and origins
    cdef readonly object policy
    cdef Row *rows
    cdef PortRange *ports
    cdef Row fallback               # the default
    cdef HostIndex hosts
    cdef NetworkIndex networks
    cdef NetworkSets sets
    cdef FingerprintSets fingerprints
    cdef FingerprintSets http2_prints
    cdef FingerprintSets other_methods  # without numbers
    cdef TlvSets tlvs
    cdef GlobSets globs
    cdef readonly bint compares_paths   # a rule has `paths`
    cdef bint compares_methods          # a rule has `methods`
    cdef bint compares_prints           # a rule has `client_ja4` or `http2_fingerprint`
    cdef bint replays                   # a rule plays answers again
    cdef Candidate *anywhere            # rules with neither hosts nor addresses
    cdef Candidate *needing_address     # rules found by address alone that do not deny
    cdef uint32_t n_anywhere, n_needing_address
    cdef size_t n_subjects
    cdef dict subjects_of_user, subjects_of_group
    cdef dict labels

    # Finds the first rule that matches, or the default. While the address is not known, a
    # request is refused only if it would be refused with every address.
    cdef void judge(self, const Question *q, Verdict *v) noexcept nogil

    # The Outcome of a tunnel that the rule `before` let pass, and the rule `now` (below 0: the
    # default) refuses, now that the first bytes are known.
    cdef int outcome_by_opening(self, const Question *q, int before, int now) noexcept nogil

    # Do these two rules (below 0: the default) name the same way?
    cdef bint share_way(self, int a, int b) noexcept nogil

    # Does a refusal by this rule (below 0: the default) also end running tunnels?
    cdef bint cuts(self, int rule) noexcept nogil

    # The TlsAction of this rule; below 0: TLS_PASSES.
    cdef int tls_of(self, int rule) noexcept nogil

    # Returns the name of the limits that this rule (below 0: the default) names, or None.
    cdef object limits_of(self, int rule)

    # Returns the label of a rule in logs: its name, else its place; "default" for -1.
    cdef bytes label(self, int rule)

    cdef int find_runs(self, const Question *q, const CarriedKeys *carried,
                       Run *runs) noexcept nogil
    cdef int mismatch(self, const Question *q, const CarriedKeys *carried,
                      const Candidate *c) noexcept nogil
    cdef Met unmet(self, const Question *q, const Row *row) noexcept nogil
    cdef int add(self, uint32_t index, rule, Draft draft) except -1


# Does TLS that this rule has intercepted pass where clients have rejected our certificate?
cdef inline bint passes_pinned(Acl acl, int rule) noexcept:
    return rule >= 0 and acl.rows[rule].demand.pinned


# Many servers write a method in capitals before they compare it, and "delete" is a DELETE there.
# `room`: MOST_METHOD characters, for Question.capitals.
cdef inline void read_capitals(Question *q, char *room) noexcept nogil:
    cdef size_t i
    q.capitals = NULL
    if q.own_method != M_OTHER or q.method_name == NULL or q.method_name_len > MOST_METHOD:
        return
    for i in range(q.method_name_len):
        room[i] = q.method_name[i]
        if c'a' <= room[i] <= c'z':
            room[i] -= 32
            q.capitals = room
    q.capital_method = method_of(room, q.method_name_len)


# The origin of a request that offers an upgrade may ignore that, and do what its method says. So
# both count, and both spellings of a method, as the readings of a path do (R56): a deny rule
# matches if it names one of them, any other rule if it names all. A GET needs no name beside
# UPGRADE, because a WebSocket is one.
cdef inline bint fits_method(Acl acl, const Question *q, const Row *row) noexcept nogil:
    cdef bint denies = row.action == DENY
    cdef bint own = names_method(acl, row, q.own_method, q.method_name, q.method_name_len)
    cdef bint offer = row.methods >> <int>KIND_UPGRADE & 1
    if q.capitals != NULL and own != denies:
        own = names_method(acl, row, q.capital_method, q.capitals, q.method_name_len)
    if q.method != KIND_UPGRADE:
        return own
    return own or offer if denies else offer and (own or q.own_method == M_GET)


cdef inline bint names_method(Acl acl, const Row *row, int method, const char *name,
                              size_t n) noexcept nogil:
    return row.methods >> method & 1 or acl.other_methods.contains(row.other_methods, name, n)
