"""The table of states, held against the journeys that may be made."""

from itertools import pairwise, product

import pytest

from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.session.state import TABLE, is_allowed

NAMES = [row.name for row in TABLE]

# Whole lives of a connection, as the documents tell them.
JOURNEYS = [
    "HEAD RESOLVE DIAL TUNNEL HALF_CLOSED CLOSED",
    "HEAD DIAL TUNNEL CLOSED",
    "HEAD AUTH RESOLVE DIAL TUNNEL",
    "HEAD AUTH DIAL TUNNEL",
    "HEAD AUTH REQUEST",
    "HEAD AUTH RESPONSE",
    "HEAD AUTH IDLE AUTH LINGER",
    "HEAD AUTH DECIDE RESOLVE DIAL",
    "HEAD DECIDE DIAL",
    "IDLE DECIDE REQUEST",
    "HEAD DECIDE RESPONSE",
    "HEAD DECIDE IDLE DECIDE LINGER",
    "HEAD TUNNEL CLOSED",  # one that was taken over
    "HEAD RESOLVE DIAL REQUEST RESPONSE RELAY IDLE HEAD CLOSED",
    "HEAD RESOLVE DIAL REQUEST RELAY LINGER CLOSED",
    "HEAD REQUEST RESPONSE RELAY IDLE REQUEST RESPONSE RELAY LINGER CLOSED",
    "HEAD RESPONSE RELAY IDLE RESPONSE RELAY CLOSED",
    "HEAD RESOLVE DIAL RESPONSE RELAY CLOSED",
    "IDLE RESPONSE RESOLVE DIAL RESPONSE RELAY IDLE",
    "IDLE RESPONSE DIAL RESPONSE RELAY IDLE",
    "IDLE RESOLVE IDLE DIAL IDLE LINGER",
    "IDLE IDLE HEAD",
    "HEAD IDLE CLOSED",
    "HEAD RESPONSE TUNNEL",
    "HEAD DIAL LINGER CLOSED",
    "DIAL DIAL",
    "DIAL RESOLVE",
    "HEAD RESOLVE LINGER",
    "REQUEST IDLE",
    "RESPONSE IDLE",
    "REQUEST LINGER",
    "RESPONSE LINGER",
    "HEAD LINGER CLOSED",
    *(f"{name} CLOSED" for name in NAMES[:-1]),
]


def moves() -> set[tuple[str, str]]:
    found = set()
    for journey in JOURNEYS:
        stops = journey.split()
        found |= set(pairwise(stops))
    return found


@pytest.mark.parametrize(("state", "new"), list(product(NAMES, NAMES)))
def test_a_move_is_allowed_exactly_when_a_journey_makes_it(state, new):
    assert is_allowed(state, new) == ((state, new) in moves())


def test_nothing_follows_the_end():
    assert not any(is_allowed("CLOSED", new) for new in NAMES)


def test_every_state_but_the_end_has_a_deadline_and_an_outcome():
    for row in TABLE[:-1]:
        assert row.timeout.endswith("_timeout")
        assert row.outcome in OUTCOMES
