"""The table of states, held against the journeys that may be made."""

import re
from itertools import pairwise, product

import pytest

from cutthrough.config.config import OPTIONS
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.session.model.states import TABLE
from tests.doors.session import call_without_session, is_allowed
from tests.support.proxy import ROOT

NAMES = [row.name for row in TABLE]

# Whole lives of a connection, as the documents tell them.
JOURNEYS = [
    "HEAD RESOLVE DIAL TUNNEL HALF_CLOSED CLOSED",
    "HEAD DIAL TUNNEL CLOSED",
    "HEAD DIAL PEEK TUNNEL",
    "HEAD DIAL PEEK CLOSED",
    "HEAD DIAL PEEK LINGER",
    "HEAD AUTH RESOLVE DIAL TUNNEL",
    "HEAD AUTH DIAL TUNNEL",
    "HEAD AUTH REQUEST",
    "HEAD DATAGRAMS",                       # an association of SOCKS
    "HEAD STREAMS LINGER",                  # a carrier of HTTP/2
    "HEAD AUTH HEAD RESOLVE DIAL",          # SOCKS: a request follows the password
    "HEAD AUTH RESPONSE",
    "HEAD AUTH IDLE AUTH LINGER",
    "HEAD AUTH DECIDE RESOLVE DIAL",
    "HEAD DECIDE DIAL",
    "HEAD DECIDE RESOLVE DECIDE DIAL",      # transparent: a name that is not proven
    "HEAD DECIDE DECIDE DIAL",              # the same, with the name in the cache
    "HEAD RESOLVE RESPONSE", "IDLE RESOLVE REQUEST",    # … by an idle connection
    "IDLE DECIDE REQUEST",
    "HEAD HELD HELD DECIDE HELD RESOLVE HELD DIAL",     # a rule has faults
    "IDLE HELD IDLE", "AUTH HELD LINGER",
    "HEAD HELD REQUEST", "HELD RESPONSE", "HELD RELAY", "REQUEST HELD RELAY",
    "HEAD DECIDE TUNNEL", "HEAD HELD TUNNEL",   # inside an interception, of no HTTP
    "HEAD DIAL HELD", "DIAL DECIDE",        # behind another request's connection
    "IDLE RESPONSE HELD RELAY",             # a dead connection, and replay from now on
    "HEAD DECIDE RESPONSE",
    "HEAD DECIDE IDLE DECIDE LINGER",
    "HEAD TUNNEL CLOSED",  # taken over from another worker
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
    "RELAY DELIVER LINGER",
    "TUNNEL DELIVER CLOSED",
    "HALF_CLOSED DELIVER",
    "HEAD DIAL LINGER CLOSED",
    "DIAL DIAL",
    "HEAD RESOLVE RESOLVE DIAL PARENT TUNNEL",
    "DIAL PARENT REQUEST", "DIAL PARENT RESPONSE",
    "PARENT DIAL PARENT RESOLVE DIAL PARENT IDLE",
    "PARENT LINGER CLOSED",
    "PARENT PEEK",
    "PEEK SECURE HEAD RESPONSE",            # intercepted
    "HEAD DIAL SECURE REQUEST", "DIAL PARENT SECURE RESPONSE",
    "SECURE TUNNEL",                        # the bytes inside are no HTTP
    "SECURE IDLE",
    "DIAL SECURE DIAL SECURE", "SECURE RESOLVE DIAL SECURE",    # without a server name
    "SECURE LINGER",
    "DIAL RESOLVE",
    "HEAD RESOLVE LINGER",
    "REQUEST IDLE",
    "REQUEST RESOLVE", "REQUEST DIAL",      # refused unread, by HTTP/2
    "RESPONSE IDLE",
    "REQUEST LINGER",
    "RESPONSE LINGER",
    "HEAD LINGER CLOSED",
    *(f"{name} CLOSED" for name in NAMES[:-1]),
]


def moves() -> set[tuple[str, str]]:
    moves = set()
    for journey in JOURNEYS:
        stops = journey.split()
        moves |= set(pairwise(stops))
    return moves


@pytest.mark.parametrize(("state", "new"), list(product(NAMES, NAMES)))
def test_a_move_is_allowed_exactly_when_a_journey_makes_it(state, new):
    assert is_allowed(state, new) == ((state, new) in moves())


def test_nothing_follows_the_end():
    assert not any(is_allowed("CLOSED", new) for new in NAMES)


def test_every_state_but_the_end_has_a_deadline_and_an_outcome():
    for row in TABLE[:-1]:
        if row.name == "HELD":
            continue                            # a fault's latency: tests/e2e
        assert row.timeout.endswith("_timeout") and row.timeout in OPTIONS
        assert row.outcome in OUTCOMES


def test_the_numbers_follow_the_table():
    """Python has the table, and C the numbers: nothing else holds their order."""
    text = (ROOT / "cutthrough/session/model/state.pxd").read_text()
    numbers = re.findall(r"^    ([A-Z_]+)", text.partition("enum")[2], re.M)
    assert numbers == [*NAMES, "N_STATES"]


def test_the_life_of_a_connection_draws_every_state():
    """DECIDE was in the table and in the metric, and in no document."""
    page = (ROOT / "docs/life-of-a-connection.md").read_text()
    drawing = page.partition("    accept ")[2].partition("\n\n")[0]
    assert set(re.findall(r"[A-Z_]{4,}", drawing)) == set(NAMES)
    journey = page.partition("## Accept")[2]
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", journey)] == []


def test_the_endings_tell_of_every_state():
    """A row for each state, or the sentence of states without reads."""
    page = (ROOT / "docs/endings.md").read_text()
    rows = set(re.findall(r"^\| ([A-Z_]{4,})", page, re.MULTILINE))
    unread = re.search(r"^In ([A-Z, and]+) nothing is read", page, re.MULTILINE)[1]
    waiting = re.findall(r"[A-Z]{4,}", unread)
    # An association has no stream to end: tests/e2e/test_socks_udp.py. A carrier's
    # streams have ends of their own: tests/e2e/test_http2.py
    assert rows | set(waiting) | {"CLOSED", "DATAGRAMS", "STREAMS"} == set(NAMES)
    assert rows.isdisjoint(waiting)


def test_the_documents_have_the_handlers_of_each_state() -> None:
    code = (ROOT / "cutthrough/session/connection.pyx").read_text()
    handlers = re.findall(r"^handle\((\w+), +(\w+), +(\w+), +(\w+)\)$", code, re.M)
    page = (ROOT / "docs/life-of-a-connection.md").read_text()
    printed = re.findall(r"^\| (\w+) \| `(\w+)` \| `(\w+)` \| `(\w+)` \|$", page, re.M)
    assert [row[0] for row in handlers] == NAMES
    assert printed == handlers


def test_the_documents_have_the_phases_of_a_request() -> None:
    code = (ROOT / "cutthrough/session/phases.pyx").read_text()
    phases = re.findall(
        r'^phase\(PHASE_(\w+), +(\w+), +"([^"]*)", +"([^"]*)"\)$', code, re.M)
    numbers = (ROOT / "cutthrough/session/model/phase.pxd").read_text()
    page = (ROOT / "docs/life-of-a-connection.md").read_text()
    printed = re.findall(
        r"^\| ([a-z]+) \| `(\w+)` \| ([A-Z, ]*) \| (.*) \|$", page, re.M)
    assert printed == [(name.lower(), *rest) for name, *rest in phases]
    names = [row[0] for row in phases]
    assert re.findall(r"^    PHASE_(\w+)(?: = 0)?$", numbers, re.M) == names
    for _, _, waits, resumed in phases:
        assert set(re.findall("[A-Z]+", waits)) <= set(NAMES)
        assert set(re.findall("[A-Z]{3,}", resumed)) <= set(names)


@pytest.mark.parametrize("method", ["resume", "resume_response"])
def test_a_client_that_is_no_session_finds_no_way(method: str) -> None:
    """In silence it would wait for its deadline."""
    with pytest.raises(TypeError, match=method):
        call_without_session(method)
