"""Answers that are made before their requests: which, and how many."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.recording import Chunk, Pattern, Request, Response
from cutthrough.recording.play import player
from cutthrough.recording.play.beforehand import prepare
from cutthrough.recording.play.player import Player, Settings
from cutthrough.recording.play.shared import Line, Ready
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from cutthrough.session.replay.answer_cache import AnswerCache
from tests.recording.answers import recording, request

REQUESTS = st.builds(
    Request, method=st.sampled_from(["GET", "POST"]),
    scheme=st.sampled_from(["http", "https"]), host=st.sampled_from(["a", "b"]),
    port=st.sampled_from([80, 81]),
    path=st.sampled_from(["/", "/x"]),
    query=st.sampled_from(["", "a=1", "b=1&a=1", "a=1&b=1", "t=1"]),
    body=st.sampled_from([b"", b"", b"{}", b"x"]),
    fields=st.sampled_from([
        (), (("Accept", "a"),), (("Content-Type", "application/graphql"),),
        (("Content-Type", "multipart/form-data; boundary=b"),)]))
ROUTES = st.builds(
    Route, key=st.builds(
        Key, method=st.booleans(), scheme=st.booleans(), host=st.booleans(),
        port=st.booleans(), path=st.booleans(),
        query=st.sampled_from(["exact", "subset", "ignore"]),
        ignored_query=st.sampled_from([(), ("t",)]),
        fields=st.sampled_from([(), ("accept",)]),
        body=st.sampled_from(["raw", "json", "partial_json", "form", "graphql",
                              "ignore"])),
    hosts=st.sampled_from([(), ("a",)]), lane=st.sampled_from(["", "accept"]),
    after=st.sampled_from(["repeat", "cycle", "miss"]))


def filled(*found, routes=(), mask=None):
    matcher = Matcher(routes, mask)
    for one in found:
        matcher.add(one)
    return matcher


@settings(max_examples=400, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=8), ROUTES, st.data())
def test_an_own_match_is_what_the_line_alone_finds_each_time(recorded, route, data):
    numbered = list(enumerate(recorded, 1))
    matcher = filled(*[recording(number, one) for number, one in numbered],
                     routes=[route])
    for number, one in numbered:
        own = matcher.own_match(number)
        if own is None:
            continue
        for _ in range(2):
            fields = data.draw(REQUESTS).fields
            found = matcher.match(Request(
                method=one.method, scheme=one.scheme, host=one.host, port=one.port,
                path=one.path, query=one.query, fields=fields))
            assert isinstance(found, Match) and found.is_last
            assert found.recording == own.recording and found.recording.number == number


SUBSET = Route(key=Key(query="subset"))
LONE = recording(1, request("/a"))


@pytest.mark.parametrize(("found", "routes", "number"), [
    ([LONE], (), 1),
    ([LONE, recording(2, request("/b"))], (), 1),
    ([recording(1, request("/a?t=1"))], (Route(key=Key(ignored_query=("t",))),), 1),
    ([recording(1, request("/a", b"x"))], (), None),
    ([LONE, recording(2, request("/a"))], (), None),
    ([recording(1, request("/a"), patterns=(Pattern(part="path", value="/a"),))], (),
     None),
    ([LONE, recording(2, request("/b"), sets={"a": "b"})], (), None),
    ([LONE], (Route(lane="x-lane"),), None),
    ([LONE], (Route(key=Key(fields=("accept",))),), None),
    ([LONE], (Route(after="miss"),), None),
    ([LONE], (Route(after="cycle"),), None),
    ([recording(1, request("/a")), recording(2, request("/a?b=1"))], (SUBSET,), 1),
], ids=["alone", "beside another", "ignored", "a body", "a sequence", "patterns",
        "state", "a lane", "fields", "once", "a cycle", "subset"])
def test_what_depends_on_more_than_the_line_has_no_own_match(found, routes, number):
    own = filled(*found, routes=routes).own_match(1)
    assert (None if own is None else own.recording.number) == number


def test_a_line_with_a_secret_has_no_own_match():
    """A recording has a hash in its place, and no request has that."""
    def mask(one):
        return replace(one, query=one.query.replace("k=", "k=#"))

    matcher = filled(recording(1, request("/a?k=1")), recording(2, request("/b?n=1")),
                     mask=mask)
    assert [one and one.recording.number for one in map(matcher.own_match, (1, 2))] == (
        [None, 2])


def test_two_that_answer_one_line_are_a_sequence_and_the_longer_one_comes_first():
    matcher = filled(recording(1, request("/a?x=1")), recording(2, request("/a")),
                     routes=(SUBSET,))
    assert matcher.own_match(1).recording.number == 1
    assert matcher.own_match(2).recording.number == 2
    matcher = filled(recording(1, request("/a", b"y")),
                     recording(2, request("/a", method="POST")),
                     routes=(Route(key=Key(body="ignore")),))
    assert matcher.own_match(1) is None and matcher.own_match(2) is None


def test_answers_that_take_time_or_are_changed_are_not_made():
    def with_response(number, **more):
        one = recording(number, request(f"/{number}"), **more.pop("of", {}))
        return replace(one, response=Response(status=200, **more))

    answers = AnswerCache()
    matcher = filled(
        with_response(1, chunks=(Chunk(0, b"x"),)),
        with_response(2, chunks=(Chunk(0, b"x" * 40_000),)),
        with_response(3, of={"delay_us": 1}), with_response(4, of={"template": True}),
        recording(5, request("/é")))
    assert prepare(matcher, matcher.numbers(), answers)
    assert len(answers) == 1
    answers.by_fields = True
    answers.clear()
    assert prepare(matcher, matcher.numbers(), answers)
    assert len(answers) == 0


def test_answers_have_two_halves_and_the_older_is_forgotten():
    answers, body = AnswerCache(), bytes(1 << 20)

    def add(number):
        return answers.prepare(Line(False, 80, b"a", b"GET /%d HTTP/1.1\r" % number),
                               Ready(b"", body, number))
    number = 0
    while add(number):
        number += 1
    assert 60 <= number == len(answers) <= 63
    assert not add(number) and len(answers) == number
    assert answers.prepare(Line(False, 80, b"a" * 300, b"GET / HTTP/1.1\r"),
                           Ready(b"", body, 1))
    assert len(answers) == number
    answers.clear()
    assert len(answers) == 0


@pytest.mark.parametrize(("chunks", "expected"), [(1, 2200), (2, 2090)])
def test_a_body_that_the_matcher_has_anyhow_takes_no_room(chunks, expected):
    """Each was there twice, and of 64 MiB and more the others were looked up. A body
    that came in pieces is joined, so it is there twice still."""
    size = 32_000 // chunks
    fields = (("Content-Length", str(size * chunks)),)
    matcher = filled(*[replace(
        recording(number, request(f"/{number}")), response=Response(
            status=200, fields=fields, chunks=tuple(
                Chunk(at, bytes([number % 256]) * size) for at in range(chunks))))
        for number in range(1, 2201)])
    answers = AnswerCache()
    assert prepare(matcher, matcher.numbers(), answers) is (chunks == 1)
    assert expected - 60 < len(answers) <= expected


@pytest.mark.parametrize(("mode", "more", "expected"), [
    ("replay", {}, 500), ("cache", {}, 500), ("spy", {}, 500), ("rules", {}, 500),
    ("rules", {"plays": False}, 0), ("off", {}, 0), ("record", {}, 0),
    ("replay", {"speed": 1.0}, 0), ("replay", {"on_replay": lambda *_: None}, 0),
    ("replay", {"routes": (Route(key=Key(fields=("accept",))),)}, 0)])
def test_a_session_that_comes_into_force_has_its_answers_made(tmp_path, mode, more,
                                                              expected):
    session = Sessions(tmp_path).create("one")
    session.add([recording(0, request(f"/{number}")) for number in range(500)])
    write_state(tmp_path, State(mode, "one"))
    answers = AnswerCache()

    async def run():
        player = Player(lambda _mode: None, answers)
        player.configure(Settings(directory=str(tmp_path), session="one", **more))
        assert await player.look() == ""
        assert len(answers) == expected
        player.close()
    asyncio.run(run())
    session.close()


@pytest.mark.parametrize(("then", "is_all"), [("replay", True), ("off", False)])
def test_a_long_session_is_in_force_before_all_its_answers_are_made(
        tmp_path, monkeypatch, then, is_all):
    """When an operator switched the mode, the reply was that the workers did not
    answer. A recording may go meanwhile."""
    monkeypatch.setattr(player, "MAKING_S", 0)
    session = Sessions(tmp_path).create("one")
    session.add([recording(0, request(f"/{number}")) for number in range(1000)])
    write_state(tmp_path, State("replay", "one"))
    answers = AnswerCache()

    async def run():
        one = Player(lambda _mode: None, answers)
        one.configure(Settings(directory=str(tmp_path), session="one"))
        assert await one.look() == ""
        assert len(one.matcher) == 1000 and len(answers) < 500
        one.matcher.remove(900)
        if not is_all:
            write_state(tmp_path, State(then, "one"))
            assert await one.look() == "" and len(answers) == 0
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(answers) == (999 if is_all else 0)
        one.close()
    asyncio.run(run())
    session.close()


@settings(max_examples=400, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=8), REQUESTS, ROUTES,
       st.lists(REQUESTS, max_size=8), st.booleans())
def test_what_changes_no_answer_leaves_what_was_answered(recorded, added, route, asked,
                                                         has_pattern):
    """A recording that is added while others are at hand."""
    made = [recording(number, one) for number, one in enumerate(recorded, 1)]
    if has_pattern:
        made[0] = replace(made[0], patterns=(Pattern(part="path", value="/"),))
    matcher = filled(*made, routes=[route])
    asked += recorded

    def answers():
        matcher.rewind()
        found = [matcher.match(one) for one in asked * 2]
        return [one.recording.number if isinstance(one, Match) else 0 for one in found]

    before = answers()
    if matcher.add(recording(99, added)):
        return
    for then, now in zip(before, answers(), strict=True):
        assert now == then or (then == 0 and now == 99)


def test_a_recording_of_another_url_leaves_what_is_at_hand(tmp_path):
    """In the mode `cache` each request that was missed emptied it, in all workers."""
    session = Sessions(tmp_path).create("one")
    session.add([recording(0, request(f"/{number}")) for number in range(50)])
    write_state(tmp_path, State("cache", "one"))
    answers = AnswerCache()

    async def run():
        player = Player(lambda _mode: None, answers)
        player.configure(Settings(directory=str(tmp_path), session="one"))
        await player.look()
        session.add([recording(0, request("/new"))])
        await player.look()
        assert len(player.matcher) == 51 and len(answers) == 50
        session.add([recording(0, request("/7"))])       # a sequence from now on
        await player.look()
        assert len(player.matcher) == 52 and len(answers) == 0
        player.close()
    asyncio.run(run())
    session.close()
