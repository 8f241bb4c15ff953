"""Everything that decides whether a request may pass, for one generation."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cutthrough.policy.acl cimport Acl
from cutthrough.policy.auth cimport Authenticator
from cutthrough.policy.decision_cache cimport DecisionCache
from cutthrough.policy.networks cimport NetworkSets
from cutthrough.policy.parents cimport Ways

# This host's addresses, packed, mapped IPv4 as IPv4; `set` replaces them.
cdef class HostAddresses:
    cdef frozenset packed

cdef class Snapshot:
    cdef readonly Authenticator users
    cdef readonly Acl acl                   # None: no rules, which refuse nothing
    cdef dict own_sources                   # user -> number of its source; None: none has one
    cdef readonly object hook               # see generation.hook; None: no hook
    cdef readonly DecisionCache verdicts    # the hook's cached decisions; None: no hook
    cdef readonly object filters            # see filters.stage; None: no rule has any
    cdef readonly bint sees_connects        # a rule has filters of tunnels
    cdef readonly object refusals           # see policy.refusals; None: texts of the table alone
    cdef dict replaced_paths                # rule -> (prefix, its replacement); None: none has one
    cdef dict edits                         # rule -> (HeadEdits or None, the same of responses)
    # Name of a client certificate, "" for none -> Hop.tls of connections to intercepted origins,
    # and the same for those that must be HTTP/1.1
    cdef dict origins
    cdef readonly Ways ways                 # None: every request goes directly
    cdef readonly int generation
    cdef readonly bint address_floor        # only public addresses (R27)
    cdef readonly bint any_port             # CONNECT may reach every port
    cdef uint8_t ports[8192]                # bit set of the ports that CONNECT may reach
    cdef uint8_t listening_ports[8192]      # bit set of the proxy's listening ports
    cdef HostAddresses host_addresses       # this host's, which the floor refuses
    cdef dict listeners                     # packed address -> set of ports (R20)
    cdef NetworkSets networks               # the two sets below; each may be the empty one
    cdef uint32_t sender_set                # of PROXY headers
    cdef uint32_t own_set                   # networks whose addresses are all this host's

    # May a caller from this address send a header that names its client (R40)?
    cdef bint may_name_clients(self, int family, const uint8_t *data) noexcept
    cdef bint is_own(self, int family, const uint8_t *data) except -1
    cdef bint _is_listener(self, int family, const uint8_t *data, int port) except -1
    # All three return an Outcome: OK, or the refusal. An IPv4 address that an IPv6 address
    # carries is judged too.
    cdef int judge_port(self, bint is_connect, int port) noexcept
    # Refuses the proxy's own listeners (R20), which no rule can allow.
    cdef int judge_loop(self, int family, const uint8_t *data, int port) except -1
    # Refuses addresses that are not public, and this host's (R27).
    cdef int judge_floor(self, int family, const uint8_t *data) except -1
