"""Everything that decides whether a request may pass, as of one generation."""

from libc.stdint cimport uint8_t, uint16_t
from cutthrough.policy.auth cimport Authenticator

cdef class Snapshot:
    cdef readonly Authenticator users
    cdef readonly int generation
    cdef readonly bint address_floor        # only public addresses (R27)
    cdef readonly bint any_port             # CONNECT to every port
    cdef uint8_t ports[8192]                # one bit for each port that CONNECT may reach
    cdef uint8_t own_ports[8192]            # likewise, those that we listen on
    cdef frozenset own_hosts                # packed: this host, closed by the floor
    cdef dict own                           # packed address -> set of ports: ourselves (R20)

    # Both return an Outcome: OK, or the refusal.
    cdef int judge_port(self, bint is_connect, int port) noexcept
    cdef int judge_address(self, int family, const uint8_t *data, int port) except -1
