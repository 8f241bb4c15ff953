"""The matcher's sequences, lanes and state: also by a machine that is compared with its
slow twin."""

import gc
import tracemalloc

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cutthrough.recording.match.lanes import MOST_LANES
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match, Miss
from cutthrough.recording.match.routes import Key, Route
from tests.recording import twin
from tests.recording.answers import recording, request
from tests.recording.requests import (
    PARTS,
    REQUESTS,
    ROUTES,
    STATES,
    fill,
    mixed,
    number_of,
    respelt,
)


class Played(RuleBasedStateMachine):
    """A matcher beside its twin, while recordings come and go."""

    @initialize(routes=st.lists(ROUTES, min_size=1, max_size=3), first=REQUESTS,
                second=REQUESTS, names=st.sampled_from(PARTS))
    def begin(self, routes, first, second, names):
        self.matcher, self.twin = Matcher(routes), twin.Twin(routes)
        self.last = 0
        # Few, so that they meet
        self.asked = [first, mixed(first, second, names), respelt(first), second]

    def pick(self, data):
        return data.draw(st.sampled_from(self.asked))

    @rule(data=st.data(), times=st.integers(1, 3), sets=st.just({}) | STATES,
          removes=st.sampled_from([(), (), ("s",)]), requires=st.just({}) | STATES)
    def add(self, data, times, sets, removes, requires):
        request = self.pick(data)
        for _ in range(times):
            self.last += 1
            one = recording(self.last, request, sets=sets, removes=removes,
                            requires=requires)
            self.matcher.add(one)
            self.twin.add(one)

    @rule(data=st.data())
    def add_again(self, data):
        """A recording that was edited: at its place, with a number that was there."""
        numbers = self.twin.numbers()
        if not numbers:
            return
        number = data.draw(st.sampled_from(numbers))
        one = recording(number, self.pick(data))
        for side in (self.matcher, self.twin):
            side.remove(number)
            side.add(one)

    @precondition(lambda self: self.twin.numbers())
    @rule(data=st.data())
    def remove(self, data):
        number = data.draw(st.sampled_from(self.twin.numbers()))
        self.matcher.remove(number)
        self.twin.remove(number)

    @rule(data=st.data(), lane=st.sampled_from(["", "a"]), times=st.integers(1, 4))
    def match(self, data, lane, times):
        request = self.pick(data)
        for _ in range(times):
            found = self.matcher.match(request, lane)
            assert number_of(found) == self.twin.match(request, lane)
        if isinstance(found, Match) and found.is_last:
            self.same_again(request, lane, found)
        elif isinstance(found, Miss) and found.nearest is not None:
            assert found.nearest.differences and str(found).isprintable()

    def same_again(self, request, lane, found):
        assert number_of(self.matcher.match(request, lane)) == found.recording.number
        assert self.twin.match(request, lane) == found.recording.number

    @rule(lane=st.sampled_from([None, "", "a"]))
    def rewind(self, lane):
        self.matcher.rewind(lane)
        if lane is None:
            self.twin.lanes.clear()
        else:
            self.twin.lanes.pop(lane, None)

    @rule(state=STATES, lane=st.sampled_from(["", "a"]))
    def set_state(self, state, lane):
        self.matcher._own.lane(lane).state = dict(state)
        places, _ = self.twin.lane(lane)
        self.twin.lanes[lane] = places, dict(state)

    @invariant()
    def numbers_and_states_are_the_twins(self):
        if not hasattr(self, "matcher"):
            return
        assert sorted(self.matcher.numbers()) == self.twin.numbers()
        for lane in ("", "a"):
            assert self.matcher.state(lane) == self.twin.lane(lane)[1]


test_sequences_lanes_and_states_are_those_of_the_twin = Played.TestCase
test_sequences_lanes_and_states_are_those_of_the_twin.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None)


def test_a_sequence_is_replayed_in_order_and_its_last_answer_stays():
    matcher, _ = fill([request("/a")] * 3 + [request("/b")], Key())
    found = [matcher.match(request("/a")) for _ in range(5)]
    assert [one.recording.number for one in found] == [1, 2, 3, 3, 3]
    assert [(one.place, one.of) for one in found[:3]] == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(("after", "wanted"), [
    ("repeat", [1, 2, 2, 2, 2]), ("cycle", [1, 2, 1, 2, 1]),
    ("miss", [1, 2, None, None, None])])
def test_a_route_says_what_follows_the_last_recording(after, wanted):
    matcher = Matcher([Route(after=after)])
    for number in (1, 2):
        matcher.add(recording(number, request()))
    assert [number_of(matcher.match(request())) for _ in range(5)] == wanted


def test_the_newest_answers_if_the_route_says_so():
    """From the first time on, and one that is recorded meanwhile at once."""
    matcher = Matcher([Route(after="newest")])
    for number in (1, 2):
        matcher.add(recording(number, request()))
    matches = [matcher.match(request()) for _ in range(2)]
    assert [match.recording.number for match in matches] == [2, 2]
    assert all(match.is_last for match in matches)
    matcher.add(recording(3, request()))
    assert number_of(matcher.match(request())) == 3
    matcher.remove(3)
    assert number_of(matcher.match(request())) == 2


def test_a_sequence_that_is_used_up_says_so():
    matcher = Matcher([Route(after="miss")])
    matcher.add(recording(7, request()))
    matcher.match(request())
    assert str(matcher.match(request())) == (
        "recording 7 matches, and has been replayed as often as it was recorded: "
        "1 time")


def test_each_lane_has_a_place_of_its_own():
    matcher, _ = fill([request()] * 3, Key())
    order = [number_of(matcher.match(request(), lane)) for lane in "abaabb"]
    assert order == [1, 1, 2, 3, 2, 3]
    matcher.rewind("a")
    assert [number_of(matcher.match(request(), lane)) for lane in "ab"] == [1, 3]


def test_a_route_takes_the_lane_from_a_field():
    matcher = Matcher([Route(lane="x-test")])
    for number in (1, 2):
        matcher.add(recording(number, request()))
    asked = [request(fields=(("X-Test", name),)) for name in ("a", "b", "a")]
    assert [number_of(matcher.match(one)) for one in asked] == [1, 1, 2]


def test_the_lane_that_was_used_least_recently_is_forgotten():
    matcher, _ = fill([request()] * 2, Key())
    for number in range(MOST_LANES + 1):
        matcher.match(request(), str(number))
    assert number_of(matcher.match(request(), str(MOST_LANES))) == 2
    assert number_of(matcher.match(request(), "0")) == 1


def test_a_recording_that_is_added_later_continues_its_sequence():
    matcher, _ = fill([request()], Key())
    matcher.match(request())
    matcher.add(recording(2, request()))
    assert number_of(matcher.match(request())) == 2


def test_a_removed_group_leaves_no_place_to_its_successor():
    matcher, _ = fill([request()], Key())
    matcher.match(request())
    matcher.remove(1)
    for number in (2, 3):
        matcher.add(recording(number, request()))
    assert number_of(matcher.match(request())) == 2


def test_a_recording_that_was_edited_has_a_place_of_its_own():
    matcher = Matcher([Route(paths=("/b",), after="miss"), Route(after="miss")])
    for path in ("/a", "/b"):                # of another route
        matcher.add(recording(1, request(path)))
        assert number_of(matcher.match(request(path))) == 1
        matcher.remove(1)
    matcher.add(recording(1, request("/b")))
    assert number_of(matcher.match(request("/b"))) == 1


def test_sequences_of_several_routes_have_places_of_their_own():
    matcher = Matcher([Route(paths=("/a",), after="miss"), Route(after="miss")])
    matcher._own.lane("").state = {"x": "1"}
    for number, path in enumerate(("/a", "/b"), 1):
        matcher.add(recording(number, request(path), requires={"x": "1"}))
        assert number_of(matcher.match(request(path))) == number


@pytest.mark.parametrize("key", [
    Key(), Key(query="subset"), Key(body="json"), Key(body="partial_json")])
def test_a_recording_takes_little_more_memory_than_its_bytes(key):
    """Each worker has a whole session. 100 000 requests of 75 bytes took 261 MiB."""
    made = [recording(number, request(f"/a?page={number}", f'{{"a": [{number}, 1]}}'))
            for number in range(1, 3001)]
    own = sum(len(msgspec.msgpack.encode(one)) for one in made)
    matcher = Matcher([Route(key=key)])
    matcher.add(recording(0, request()))     # the first one imports modules
    gc.collect()
    tracemalloc.start()
    try:
        for one in made:
            matcher.add(one)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert (taken - own) / len(made) < 500


def test_state_chooses_among_recordings_and_is_changed_by_them():
    matcher = Matcher()
    matcher.add(recording(1, request("/basket")))
    matcher.add(recording(2, request("/basket"), requires={"basket": "full"}))
    matcher.add(recording(3, request("/add"), sets={"basket": "full"}))
    matcher.add(recording(4, request("/clear"), removes=("basket",)))
    asked = ["/basket", "/add", "/basket", "/clear", "/basket"]
    found = [number_of(matcher.match(request(path))) for path in asked]
    assert found == [1, 3, 2, 4, 1]
    matcher.match(request("/add"), "a")
    assert (matcher.state("a"), matcher.state()) == ({"basket": "full"}, {})
