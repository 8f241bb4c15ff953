# cython: language_level=3
"""The states of a client's connection: one table says which moves it may make.

Each state has one deadline. Its length is the option named here, its outcome is what is
logged, counted and, where a reply can still be made, replied. `Client._set_state` is the
only writer of a state and asks this table first.
"""

from typing import NamedTuple

from cutthrough.outcome import NAMES as OUTCOMES


class Row(NamedTuple):
    name: str
    moves: tuple[str, ...]      # states that may follow
    timeout: str                # the option with the deadline's length; "": none
    outcome: str                # when it comes


# A request that is refused goes to LINGER, or to IDLE when nothing is left unread: from
# IDLE too, where its head came whole and HEAD was never entered. A dead
# pooled connection leads back to RESOLVE or DIAL once (R19), and so does a dial without a
# descriptor after idle connections gave theirs (R32). An answered 101 is a tunnel. A tunnel
# from HEAD is one that another worker began: it is taken over, nothing of it is dialled.
TABLE = (
    Row("HEAD", ("IDLE", "AUTH", "DECIDE", "RESOLVE", "DIAL", "REQUEST", "RESPONSE",
                 "TUNNEL", "LINGER", "CLOSED"), "head_timeout", "head_timeout"),
    Row("IDLE", ("IDLE", "HEAD", "AUTH", "DECIDE", "RESOLVE", "DIAL", "REQUEST",
                 "RESPONSE", "LINGER", "CLOSED"), "keepalive_timeout", "keepalive_timeout"),
    Row("AUTH", ("DECIDE", "RESOLVE", "DIAL", "REQUEST", "RESPONSE", "IDLE", "LINGER",
                 "CLOSED"), "auth_timeout", "auth_timeout"),
    Row("DECIDE", ("RESOLVE", "DIAL", "REQUEST", "RESPONSE", "IDLE", "LINGER", "CLOSED"),
        "policy_hook_timeout", "policy_unavailable"),
    Row("RESOLVE", ("DIAL", "IDLE", "LINGER", "CLOSED"), "dns_timeout", "dns_timeout"),
    Row("DIAL", ("RESOLVE", "DIAL", "REQUEST", "RESPONSE", "TUNNEL", "IDLE", "LINGER",
                 "CLOSED"), "connect_timeout", "connect_timeout"),
    Row("REQUEST", ("RESPONSE", "RELAY", "IDLE", "LINGER", "CLOSED"),
        "body_timeout", "body_timeout"),
    Row("RESPONSE", ("RELAY", "TUNNEL", "RESOLVE", "DIAL", "IDLE", "LINGER", "CLOSED"),
        "response_timeout", "response_timeout"),
    Row("RELAY", ("IDLE", "DELIVER", "LINGER", "CLOSED"), "idle_timeout", "idle_timeout"),
    Row("TUNNEL", ("HALF_CLOSED", "DELIVER", "CLOSED"), "idle_timeout", "idle_timeout"),
    Row("HALF_CLOSED", ("DELIVER", "CLOSED"), "half_closed_timeout", "half_closed_timeout"),
    # Its outcome is the one that the exchange was cut short for, and not this one
    Row("DELIVER", ("LINGER", "CLOSED"), "half_closed_timeout", "half_closed_timeout"),
    Row("LINGER", ("CLOSED",), "linger_timeout", "ok"),
    Row("CLOSED", (), "", "ok"),
)

assert len(TABLE) == N_STATES, "state.pxd and state.pyx disagree"

cdef unsigned int moves[N_STATES]
cdef int outcomes[N_STATES]

_numbers = {row.name: number for number, row in enumerate(TABLE)}
for _number, _row in enumerate(TABLE):
    moves[_number] = sum(1 << _numbers[name] for name in _row.moves)
    outcomes[_number] = OUTCOMES[_row.outcome]


cdef bint may_follow(int state, int new) noexcept nogil:
    return moves[state] >> new & 1


cdef int outcome_at_deadline(int state) noexcept nogil:
    return outcomes[state]


def is_allowed(state, new):
    """May `new` follow `state`? Both by name; for tests and tools."""
    return bool(may_follow(_numbers[state], _numbers[new]))
