"""Everything that decides whether a request may pass, as of one generation."""

from libc.stdint cimport uint8_t, uint16_t
from cutthrough.policy.acl cimport Acl
from cutthrough.policy.auth cimport Authenticator
from cutthrough.policy.decision_cache cimport DecisionCache

# This host's addresses, packed, mapped IPv4 as IPv4; `set` takes others for them.
cdef class OwnHosts:
    cdef frozenset packed

cdef class Snapshot:
    cdef readonly Authenticator users
    cdef readonly Acl acl                   # None: no rules, everything passes them
    cdef readonly object hook               # see generation.hook; None: there is none
    cdef readonly DecisionCache verdicts         # what it decided
    cdef readonly int generation
    cdef readonly bint address_floor        # only public addresses (R27)
    cdef readonly bint any_port             # CONNECT to every port
    cdef uint8_t ports[8192]                # one bit for each port that CONNECT may reach
    cdef uint8_t own_ports[8192]            # likewise, those that we listen on
    cdef OwnHosts own_hosts                 # this host, closed by the floor
    cdef dict own                           # packed address -> set of ports: ourselves (R20)

    cdef bint _is_own(self, int family, const uint8_t *data, int port) except -1
    # All return an Outcome: OK, or the refusal. An IPv4 address that the address carries
    # is judged as well.
    cdef int judge_port(self, bint is_connect, int port) noexcept
    # Is it ourselves (R20)? No rule opens that.
    cdef int judge_own(self, int family, const uint8_t *data, int port) except -1
    # Is it a public address, and not this host's (R27)?
    cdef int judge_floor(self, int family, const uint8_t *data) except -1
