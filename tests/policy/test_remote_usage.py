"""Usage elsewhere is taken into the page, and our own is sent."""

import mmap
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.policy.ledger import Ledger
from cutthrough.policy.limits import Limiter
from cutthrough.policy.remote_usage import RemoteUsage
from cutthrough.policy.shared_table import create
from cutthrough.policy.source import Limits, Policy
from tests.doors.policy import Holder, of_user

NOW_S = 1_700_000_000
DAY = 86400


def members(slots: int = 2, **limits: float):
    """The fleet's view and a worker's, on one page."""
    memory = create(slots)
    policy = Policy(limits={"default": Limits(**limits)})
    return RemoteUsage(memory, 0), Limiter(Ledger(memory, 1), policy)


def told(away: RemoteUsage, now_s: int = NOW_S) -> dict[bytes, tuple[int, ...]]:
    """Everything that is new."""
    found, begin = {}, 0
    while True:
        begin, some = away.collect(begin, now_s)
        found.update({tag: tuple(use) for tag, *use in some})
        if not begin:
            return found


def book(away: RemoteUsage, name: bytes = b"u", connections: int = 0, tunnels: int = 0,
         moved: int = 0, spent: int = 0, now: float = 1.0, now_s: int = NOW_S) -> None:
    away.book(away.tag(name), connections, tunnels, moved, spent, int(now * 1e6), now_s)


# Our own usage, sent


def test_only_what_changed_is_told():
    away, limiter = members(tunnels=5)
    one = Holder(limiter)
    one.ask(b"u", True)
    assert told(away) == {away.tag(b"u"): (1, 1, 0, 0)}
    assert told(away) == {}
    one.close()
    assert told(away) == {away.tag(b"u"): (0, 0, 0, 0)}
    assert told(away) == {}


def test_what_is_held_elsewhere_is_not_told_as_ours():
    away, limiter = members(connections=9, bytes_per_day=10_000_000)
    one = Holder(limiter)
    one.ask(b"u")
    book(away, connections=3, moved=5000)
    assert told(away) == {away.tag(b"u"): (1, 0, 0, 0)}


def test_after_a_new_beginning_everything_is_told_again():
    away, limiter = members(connections=9)
    Holder(limiter).ask(b"u")
    other = Holder(limiter)
    other.ask(b"v")
    told(away)
    away.restart()
    assert told(away).keys() == {away.tag(b"u"), away.tag(b"v")}
    assert told(away) == {}


def test_a_user_who_is_held_elsewhere_only_is_asked_for_again():
    away, _ = members(connections=9)
    book(away, connections=3)
    told(away)
    away.restart()
    assert told(away) == {away.tag(b"u"): (0, 0, 0, 0)}


def test_a_row_that_became_another_s_tells_of_both():
    away, limiter = members(connections=9)
    one = Holder(limiter)
    one.ask(b"u")
    told(away)
    one.close()                     # the row is free, and the next one takes it
    one.ask(b"v")
    assert told(away) == {away.tag(b"u"): (0, 0, 0, 0), away.tag(b"v"): (1, 0, 0, 0)}


def test_a_user_who_left_and_came_back_to_another_row_is_told_as_he_is():
    away, limiter = members(connections=9)
    a, b, c = (Holder(limiter) for _ in range(3))
    a.ask(b"u")
    b.ask(b"v")
    known = told(away)
    a.close()
    b.close()
    c.ask(b"u")                     # takes the row that was freed last
    known |= told(away)
    assert known == {away.tag(b"u"): (1, 0, 0, 0), away.tag(b"v"): (0, 0, 0, 0)}
    assert told(away) == {}


def test_users_who_changed_their_rows_are_told_once_they_go():
    away, limiter = members(connections=9)
    a, b = Holder(limiter), Holder(limiter)
    a.ask(b"u")
    b.ask(b"v")
    told(away)
    a.close()
    b.close()
    a.ask(b"u")                     # in the other's row
    b.ask(b"v")
    assert told(away) == {}
    a.close()
    assert told(away) == {away.tag(b"u"): (0, 0, 0, 0)}
    b.close()
    assert told(away) == {away.tag(b"v"): (0, 0, 0, 0)}


def test_a_user_of_others_alone_is_told_only_after_a_new_beginning():
    away, _ = members(connections=9)
    book(away, connections=3)
    assert told(away) == {}
    book(away)
    assert told(away) == {}
    book(away, connections=2)
    away.restart()
    assert told(away) == {away.tag(b"u"): (0, 0, 0, 0)}


def test_bytes_of_another_day_are_not_told():
    away, limiter = members(bytes_per_day=10**9)
    one = Holder(limiter)
    one.ask(b"u")
    one.move(1000)
    one.end()
    today = int(time.time())
    assert told(away, today)[away.tag(b"u")] == (1, 0, 1000, 0)
    assert told(away, today + DAY)[away.tag(b"u")] == (1, 0, 0, 0)


def test_a_clock_that_leaps_and_is_set_back_counts_nothing_twice():
    """What others had moved on that day was added again, and told as ours."""
    away, limiter = members(bytes_per_day=10**9)
    one = Holder(limiter)
    one.ask(b"u")
    one.move(1000)
    one.end()
    today = int(time.time())
    for now_s, moved in ((today, 5000), (today + 3 * DAY, 10), (today, 5000)):
        book(away, moved=moved, now_s=now_s)
    assert of_user(away, b"u")[2] == 6000
    assert told(away, today)[away.tag(b"u")] == (1, 0, 1000, 0)


# Usage of others, taken in


def test_tunnels_held_elsewhere_count():
    away, limiter = members(tunnels=3)
    book(away, connections=2, tunnels=2)
    one, other = Holder(limiter), Holder(limiter)
    assert one.ask(b"u", True)[0] == "entered"
    assert other.ask(b"u", True)[0] == "over tunnels"
    book(away)
    assert other.ask(b"u", True)[0] == "entered"


def test_connections_held_elsewhere_count_until_they_are_forgotten():
    away, limiter = members(connections=2)
    book(away, connections=2)
    one = Holder(limiter)
    assert one.ask(b"u")[0] == "over connections"
    away.forget()
    assert one.ask(b"u")[0] == "entered"
    assert limiter.ledger.read()["underflows"] == 0


def test_bytes_moved_elsewhere_are_of_the_quota_and_count_once():
    now_s = int(time.time())
    away, limiter = members(bytes_per_day=1000)
    one = Holder(limiter)
    for _ in range(3):
        book(away, moved=900, now_s=now_s)
    assert one.ask(b"u")[0] == "entered"
    book(away, moved=1000, now_s=now_s)
    assert one.ask(b"u")[0] == "over quota"
    book(away, moved=0, now_s=now_s)          # a Redis that lost its data
    book(away, moved=10, now_s=now_s)
    assert one.ask(b"u")[0] == "over quota"
    away.forget()
    assert one.ask(b"u")[0] == "over quota", "used is used"


def test_a_clock_that_goes_a_day_forward_and_back_forgives_no_quota():
    """The bytes of the day were thrown away at the first look from another day."""
    now_s = int(time.time())
    away, limiter = members(bytes_per_day=1000)
    one = Holder(limiter)
    book(away, moved=1000, now_s=now_s)
    book(away, moved=10, now_s=now_s + DAY)
    assert one.ask(b"u")[0] == "over quota"
    book(away, moved=10, now_s=now_s - DAY)
    assert one.ask(b"u")[0] == "over quota"


def test_requests_made_elsewhere_take_tokens():
    away, limiter = members(requests_per_second=1, burst=5)
    one = Holder(limiter)
    assert one.ask(b"u", now=1)[0] == "entered"
    book(away, spent=100)                     # before now: whatever it was
    assert [one.ask(b"u", now=1)[0] for _ in range(2)] == ["entered"] * 2
    book(away, spent=104)
    assert one.ask(b"u", now=1) == ("over rate", 4)     # 5 - 3 - 4: a debt of 2
    assert one.ask(b"u", now=4.1)[0] == "entered"


def test_a_rested_bucket_is_filled_before_tokens_are_taken():
    away, limiter = members(requests_per_second=1, burst=5)
    one = Holder(limiter)
    one.ask(b"u", now=1)
    book(away, now=1)
    book(away, spent=5, now=1000)             # 5 are all that it held
    assert one.ask(b"u", now=1000)[0] == "over rate"


def test_after_a_new_beginning_old_debts_are_not_collected():
    away, limiter = members(requests_per_second=1, burst=5)
    one = Holder(limiter)
    one.ask(b"u", now=1)
    book(away, spent=0)
    away.restart()
    book(away, spent=1_000_000)
    assert one.ask(b"u", now=1)[0] == "entered"


def test_users_of_others_never_fill_the_table():
    away = RemoteUsage(create(2, capacity=64), 0)
    for n in range(100):
        book(away, b"user %d" % n, connections=1)
    assert away.read()["users"] == 32
    for n in range(100):
        book(away, b"user %d" % n)
    assert away.read()["users"] == 0


def test_a_tag_is_of_sixteen_bytes():
    away, _ = members()
    with pytest.raises(ValueError, match="16 bytes"):
        away.book(b"short", 1, 0, 0, 0, 1, 1)


# Two programs, and messages between them


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(
    st.sampled_from(["ask", "tunnel", "close", "tell", "reap", "anew"]),
    st.integers(0, 1), st.integers(0, 3), st.sampled_from([b"u", b"v", b"w"]))))
def test_after_everything_was_told_each_knows_what_the_other_holds(moves):
    pages = [members(connections=1000) for _ in range(2)]
    known: list[dict[bytes, tuple[int, ...]]] = [{}, {}]
    held: dict[tuple[int, int], Holder] = {}

    def exchange(side: int) -> None:
        """Sends `side`'s news to the other page, with all that it has not heard."""
        away, other = pages[side][0], pages[1 - side][0]
        by_tag = {away.tag(name): name for name in (b"u", b"v", b"w")}
        for tag, use in told(away).items():
            known[side][by_tag[tag]] = use
        for name, use in known[side].items():
            other.book(other.tag(name), *use, 1_000_000, NOW_S)

    for what, side, number, name in moves:
        key = (side, number)
        if what in ("ask", "tunnel"):
            held.setdefault(key, Holder(pages[side][1])).ask(name, what == "tunnel")
        elif what == "close" and key in held:
            held.pop(key).close()
        elif what == "tell":
            exchange(side)
        elif what == "anew":
            pages[side][0].restart()
        elif what == "reap":
            pages[side][0].forget()
    for _ in range(2):              # a row may be sent in the second pass only
        exchange(0)
        exchange(1)
    for name in (b"u", b"v", b"w"):
        seen = [of_user(page[0], name) or (0, 0, 0) for page in pages]
        assert seen[0] == seen[1]
    for holder in held.values():
        holder.close()
    for _ in range(2):
        exchange(0)
        exchange(1)
    for _, limiter in pages:
        end = limiter.ledger.read()
        assert (end["of_users"], end["users"], end["underflows"]) == (0, 0, 0)


def test_a_view_is_made_on_the_memory_of_a_file():
    fd = os.memfd_create("test-limits")
    try:
        create(3, fd).close()
        assert RemoteUsage(mmap.mmap(fd, 0), 2).slot == 2
    finally:
        os.close(fd)
