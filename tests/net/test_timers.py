"""The wheel against a dictionary: the slow, obvious twin."""

from hypothesis import given
from hypothesis import strategies as st

from tests.doors.net import Alarms

TICK = 32


def test_a_deadline_comes_at_its_time_or_one_tick_later():
    for deadline in (1, 31, 32, 33, 1000, 64_000, 66_000, 1_000_000):
        alarms = Alarms()
        alarms.set("a", deadline)
        assert alarms.advance(deadline - 1) == []
        assert alarms.advance(deadline + TICK) == ["a"]
        assert alarms.armed == 0


def test_a_later_deadline_replaces_an_earlier_one():
    alarms = Alarms()
    alarms.set("a", 100)
    alarms.set("a", 5000)
    assert alarms.advance(4990) == []
    assert alarms.advance(5032) == ["a"]


def test_an_earlier_deadline_replaces_a_later_one():
    alarms = Alarms()
    alarms.set("a", 5000)
    alarms.set("a", 100)
    assert alarms.advance(132) == ["a"]
    assert alarms.advance(6000) == []


def test_a_cancelled_deadline_never_comes_and_can_be_set_again():
    alarms = Alarms()
    alarms.set("a", 100)
    alarms.cancel("a")
    alarms.cancel("a")
    assert alarms.armed == 0 and alarms.next_in(0) == -1
    assert alarms.advance(1000) == []
    alarms.set("a", 1100)
    assert alarms.advance(1200) == ["a"]


def test_a_deadline_in_the_past_comes_with_the_next_tick():
    alarms = Alarms(10_000)
    alarms.set("a", 1)
    assert alarms.advance(10_000 + TICK) == ["a"]


def test_a_long_pause_of_the_process_loses_no_deadline():
    alarms = Alarms()
    for i in range(50):
        alarms.set(i, i * 5000)
    expired = []
    while alarms.armed:                     # a part of them at a time
        expired += alarms.advance(10_000_000)
    assert sorted(expired) == list(range(50))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 200_000)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.integers(0, 90_000)),
    )
)


@given(STEPS)
def test_it_does_what_a_dictionary_of_deadlines_does(steps):
    alarms, twin, now = Alarms(), {}, 0
    for what, name, amount in steps:
        if what == "set":
            alarms.set(name, now + amount)
            twin[name] = now + amount
        elif what == "cancel":
            if name in twin:
                alarms.cancel(name)
                del twin[name]
        else:
            now += amount
            rung = alarms.advance(now)
            assert len(set(rung)) == len(rung)
            for one in rung:
                assert twin.pop(one) <= now
            assert all(deadline > now - TICK for deadline in twin.values())
        assert alarms.armed == len(twin)
        wait = alarms.next_in(now)
        if twin:
            # the sleep never passes the next deadline's tick, nor the horizon
            assert 0 <= wait <= max(0, min(twin.values()) - now) + TICK
        else:
            assert wait == -1


def test_many_that_come_together_take_turns():
    """Ten thousand at once held up everything else for 0.2 s."""
    alarms = Alarms(0)
    for number in range(1000):
        alarms.set(number, 100)
    rung = alarms.advance(200)
    assert 0 < len(rung) <= 100
    assert alarms.next_in(200) == 0, "the others are due at once"
    alarms.set("new", 150)
    alarms.cancel(999)
    while alarms.next_in(200) == 0:
        rung += alarms.advance(200)
    assert sorted(map(str, rung)) == sorted(map(str, [*range(999), "new"]))
    assert alarms.armed == 0
