"""A parent's circuit by a clock of its own, and the choice of a group."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.config.parents import Group, Parent
from cutthrough.policy.parents import Registry, Routes, Ways
from tests.doors import parents as door


def ways_of(*names: str, registry: Registry | None = None, **more: object) -> Ways:
    parents = {name: Parent(name=name, url=f"http://127.0.0.1:{1 + n}")
               for n, name in enumerate(names)}
    group = Group(name="g", parents=tuple(names), **more)
    return Ways(parents, {"g": group}, Routes("g"), registry or Registry())


def standing():
    return Registry().find("a", "identity")


# The circuit


def test_three_failures_in_a_row_open_it_for_a_second():
    one = standing()
    for now in (0, 1):
        door.fail(one, now)
        assert door.may_try(one, now)
    door.succeed(one)
    for now in (2, 3, 4):
        assert door.may_try(one, now)
        door.fail(one, now)
    assert not door.may_try(one, 5) and not door.may_try(one, 1003)
    assert door.may_try(one, 1004)


def test_one_trial_at_a_time_and_each_failure_doubles_the_wait():
    one, now = standing(), 0
    for _ in range(3):
        door.fail(one, now)
    for wait in (1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000):
        assert not door.may_try(one, now + wait - 1) and door.may_try(one, now + wait)
        now += wait
        door.begin(one, now)
        assert not door.may_try(one, now + 1), "one trial"
        door.fail(one, now + 5)
        now += 5
    door.succeed(one)
    assert door.may_try(one, now)


def test_failures_that_began_before_it_opened_do_not_lengthen_it():
    one = standing()
    for _ in range(100):
        door.fail(one, 10)
    assert door.may_try(one, 1010)


def test_a_trial_that_never_ends_is_followed_by_another():
    """The client left: neither success nor failure is known."""
    one = standing()
    for _ in range(3):
        door.fail(one, 0)
    door.begin(one, 1000)
    assert not door.may_try(one, 1999) and door.may_try(one, 2000)


def test_a_refusal_closes_it():
    one = standing()
    for _ in range(3):
        door.fail(one, 0)
    door.refuse(one)
    assert door.may_try(one, 1)


# Failures that may be the destination's fault (R76)


def test_no_number_of_one_user_s_failures_opens_it_for_others():
    one = standing()
    for now in range(200):
        door.suspect(one, now, 1, 1 + now % 50)
    assert not door.may_try(one, 200, 1), "who hits one dead end after another"
    assert door.may_try(one, 200, 2)
    assert one.describe(200)["state"] == "up"


def test_one_destination_of_many_users_opens_nothing():
    one = standing()
    for user in range(1, 100):
        door.suspect(one, 0, user, 7)
    assert door.may_try(one, 1, 1) and door.may_try(one, 1, 100)


def test_three_destinations_and_two_users_open_it_for_all():
    one = standing()
    for user, destination in (1, 7), (1, 8), (2, 8):
        door.suspect(one, 0, user, destination)
        assert door.may_try(one, 1, 3)
    door.suspect(one, 0, 2, 9)
    assert not door.may_try(one, 1, 3) and door.may_try(one, 1000, 3)


def test_one_user_s_many_do_not_hide_what_another_has_met():
    one = standing()
    for destination in range(1, 100):
        door.suspect(one, 0, 1, destination)
    assert door.may_try(one, 1, 2)
    door.suspect(one, 0, 2, 100)
    assert not door.may_try(one, 1, 3)


def test_an_answer_of_any_kind_clears_what_was_suspected():
    for clear in door.succeed, door.refuse:
        one = standing()
        for destination in 1, 2, 3:
            door.suspect(one, 0, 1, destination)
        clear(one)
        assert door.may_try(one, 1, 1)
        door.suspect(one, 1, 2, 4)
        assert door.may_try(one, 2, 1) and door.may_try(one, 2, 2)


def test_another_user_s_trial_does_not_lengthen_one_user_s_wait():
    one = standing()
    for destination in 1, 2, 3:
        door.suspect(one, 0, 1, destination)
    door.begin(one, 900, 2)
    assert door.may_try(one, 1000, 1)
    door.begin(one, 1000, 1)
    assert not door.may_try(one, 1001, 1) and door.may_try(one, 1001, 2)


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 6), st.booleans())))
def test_who_is_never_lost_is_never_kept_out(events):
    """By any order of one user's failures and of answers."""
    one, now = standing(), 0
    for wait, destination, answers in events:
        now += 400 * wait
        if answers:
            door.succeed(one)
        elif door.may_try(one, now, 1):
            door.begin(one, now, 1)
            door.suspect(one, now, 1, destination)
        assert door.may_try(one, now, 2)


# The choice


def test_a_member_whose_circuit_is_open_is_passed_over():
    ways = ways_of("a", "b")
    way = ways.by_name["g"]
    for _ in range(3):
        door.fail(way.members[0].standing, 0)
    assert door.pick(way) == 1
    assert door.pick(way, tried=2) == -1
    assert door.wait_ms(way, 0) == 1000
    assert door.pick(way, now_ms=1000) == 0


def test_a_chain_is_passed_over_if_its_first_parent_is():
    registry = Registry()
    parents = {"a": Parent(name="a", url="http://127.0.0.1:1", via="b"),
               "b": Parent(name="b", url="http://127.0.0.1:2")}
    way = Ways(parents, {}, Routes("a"), registry).default
    assert way.members[0].depth == 1
    for _ in range(3):
        door.fail(way.members[0].via.standing, 0)
    assert door.pick(way) == -1 and door.wait_ms(way, 0) == 1000


def test_weights_are_kept_and_turns_alternate():
    way = ways_of("a", "b", "c", choose="round_robin", weights=(5, 1, 1)).by_name["g"]
    turns = [door.pick(way) for _ in range(70)]
    assert Counter(turns) == {0: 50, 1: 10, 2: 10}
    assert turns[:7] == [0, 0, 1, 0, 2, 0, 0]


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 2, 5)])
def test_a_hash_spreads_by_weight_and_a_lost_member_moves_its_keys_only(weights):
    ways = ways_of("a", "b", "c", choose="hash_destination", weights=weights)
    way = ways.by_name["g"]
    keys = [b"host%d.example" % n for n in range(4000)]
    first = {key: door.pick(way, key=key) for key in keys}
    assert first == {key: door.pick(way, key=key) for key in keys}
    counts = Counter(first.values())
    for member, weight in enumerate(weights):
        share = weight / sum(weights)
        assert abs(counts[member] / len(keys) - share) < 0.05
    without = {key: door.pick(way, tried=4, key=key) for key in keys}
    assert all(without[key] == member for key, member in first.items() if member != 2)


def test_fastest_measures_all_and_then_takes_the_fast_ones_in_turns():
    way = ways_of("a", "b", "c", choose="fastest", tolerance=0.01).by_name["g"]
    for member, took_us in ((0, 5_000), (1, 9_000), (2, 40_000)):
        assert door.pick(way, tried=0) in (0, 1, 2)
        door.succeed(way.members[member].standing, took_us)
    assert {door.pick(way) for _ in range(6)} == {0, 1}


# Numbers


def test_a_parent_keeps_its_number_as_long_as_its_connections_are_the_same():
    registry = Registry()
    first = ways_of("a", "b", registry=registry).by_name
    again = ways_of("a", "b", registry=registry).by_name
    assert [way.members[0].standing for way in (again["a"], again["b"])] == [
        way.members[0].standing for way in (first["a"], first["b"])]
    other = Ways({"a": Parent(name="a", url="http://127.0.0.1:1",
                              resolve="parent")}, {}, Routes("a"), registry)
    assert other.default.members[0].standing.number == 3


def test_another_way_to_a_parent_is_another_number():
    registry = Registry()
    parents = {"a": Parent(name="a", url="http://127.0.0.1:1", via="b"),
               "b": Parent(name="b", url="http://127.0.0.1:2")}
    before = Ways(parents, {}, Routes("a"), registry).default.members[0].standing
    parents["b"] = Parent(name="b", url="http://127.0.0.1:3")
    after = Ways(parents, {}, Routes("a"), registry).default.members[0].standing
    assert after != before
