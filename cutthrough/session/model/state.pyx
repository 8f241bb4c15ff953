# cython: language_level=3
"""The table of `states.py`, compiled: bit masks of moves and the outcome of each deadline.

`Client._set_state` writes every state but CLOSED, and checks each move here first.
"""

from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.session.model.states import TABLE

_numbers = {row.name: number for number, row in enumerate(TABLE)}
assert len(TABLE) == N_STATES, "state.pxd and states.py disagree"

cdef unsigned int moves[N_STATES]
cdef int outcomes[N_STATES]

for _number, _row in enumerate(TABLE):
    moves[_number] = sum(1 << _numbers[name] for name in _row.moves)
    outcomes[_number] = OUTCOMES[_row.outcome]


cdef bint may_follow(int state, int new) noexcept nogil:
    return moves[state] >> new & 1


cdef int outcome_at_deadline(int state) noexcept nogil:
    return outcomes[state]
