# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The phases of a request, from its head to its origin: one table, read from top to bottom.

    a head, or a stage ─> phase ─> phase ─> …   OK: the next one
           resume ──────────^        ├────────> PARKED: it waits in a state, or has its answer
                                     └────────> an Outcome: it is refused

If a phase parks, its row has the phase after the wait, and the cause of it. Events of a state
come from the table of handlers in `connection`. A request comes to a phase again if it gets another
destination, if its rule is known only by its address, or if a connection to the origin failed. A
phase up to `charge` that finds a rate exceeded has the request wait in HELD, and comes again.
"""

from cutthrough.outcome cimport OK, RATE_LIMITED
from cutthrough.session.judge.authenticate cimport verify
from cutthrough.session.judge.authorize cimport judge
from cutthrough.session.judge.hook cimport ask
from cutthrough.session.model.broken cimport watch_client
from cutthrough.session.model.charge cimport charge
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.phase cimport (
    N_PHASES, PARKED, PHASE_ASK, PHASE_CHARGE, PHASE_CONNECT, PHASE_FAULTS, PHASE_FILTER,
    PHASE_JUDGE, PHASE_LOCAL, PHASE_REPLAY, PHASE_REUSE, PHASE_ROOM, PHASE_SEND, PHASE_TURN,
    PHASE_VERIFY, PHASE_WATCH, PHASE_WAY)
from cutthrough.session.model.rate_queue cimport waits_for_rate
from cutthrough.session.replay.replay cimport replay
from cutthrough.session.route cimport (
    answer_by_function, choose_way, connect, reuse, send, take_turn_to_dial)
from cutthrough.session.transfer.act cimport apply_faults, filter_head
from cutthrough.session.transfer.recording_room cimport take_room

ctypedef int (*phase_t)(Client) except -1

cdef phase_t[N_PHASES] PHASES


cdef int run_phases(Client c, int first) except -1:
    cdef int i, outcome
    for i in range(first, <int>N_PHASES):
        outcome = PHASES[i](c)
        if outcome != OK:
            if outcome == PARKED or outcome == RATE_LIMITED and waits_for_rate(c, i):
                return 0
            return c.refuse(outcome)
    return 0


cdef int phase(int number, phase_t function, waits, resumed) except -1:
    """`waits`: the states of a request that is parked; `resumed`: the phase after the wait, and
    its cause. Both are for readers: tests/session/test_state.py compares them with the page."""
    PHASES[number] = function
    return 0


#     phase           function            waits in                  resumed
phase(PHASE_VERIFY,  verify,             "AUTH",                   "JUDGE, by the verifier")
phase(PHASE_JUDGE,   judge,              "",                       "")
phase(PHASE_WATCH,   watch_client,       "",                       "")
phase(PHASE_ASK,     ask,                "DECIDE",                 "FAULTS, by the hook")
phase(PHASE_FAULTS,  apply_faults,       "HELD",                   "FILTER, by the deadline")
phase(PHASE_FILTER,  filter_head,        "HELD",                   "CHARGE or JUDGE, by filters")
phase(PHASE_CHARGE,  charge,             "HELD",                   "CHARGE, by its rate")
phase(PHASE_REPLAY,  replay,             "HELD, REQUEST",          "REPLAY, by the player")
phase(PHASE_ROOM,    take_room,          "HELD",                   "REPLAY, by the writer")
phase(PHASE_LOCAL,   answer_by_function, "DIAL",                   "")
phase(PHASE_WAY,     choose_way,         "",                       "")
phase(PHASE_REUSE,   reuse,              "",                       "")
phase(PHASE_TURN,    take_turn_to_dial,  "DIAL",                   "REPLAY, by the turn's end")
phase(PHASE_CONNECT, connect,            "RESOLVE, DIAL, PARENT, SECURE", "SEND, by the origin")
phase(PHASE_SEND,    send,               "REQUEST, RESPONSE, RELAY, PEEK, TUNNEL", "")

for _number in range(N_PHASES):
    assert PHASES[_number] != NULL, f"phase {_number} has no function"
