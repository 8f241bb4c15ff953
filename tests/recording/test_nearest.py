"""A miss has the nearest recording, and the differences, in words (R60, R74)."""

import gzip
import json
import tracemalloc

import pytest

from cutthrough.recording.match import nearest
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Miss
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.recording import Pattern
from tests.recording.answers import recording, request


def miss(recorded, asked, key=None, **more):
    matcher = Matcher([Route(key=key or Key())])
    for number, one in enumerate(recorded, 1):
        matcher.add(recording(number, one, **more))
    found = matcher.match(asked)
    assert isinstance(found, Miss), found
    return found


def test_without_recordings_there_is_no_nearest():
    assert str(miss([], request())) == "nothing is recorded"


def test_a_miss_is_one_sentence():
    found = miss([request("/a?page=1"), request("/b")], request("/a?page=2&q=x"))
    assert str(found) == (
        "no recording matches; the nearest is recording 1, "
        "GET http://a.example/a?page=1: query key page: '2', recorded '1'; "
        "query key q: 'x', recorded absent")


@pytest.mark.parametrize(("one", "asked", "key", "wanted"), [
    (request("/a"), request("/a", method="PUT"), Key(), ["method: PUT, recorded GET"]),
    (request("/a"), request("/a", port=8080), Key(), ["port: 8080, recorded 80"]),
    (request("/a"), request("/a", host="b.example"), Key(),
     ["host: b.example, recorded a.example"]),
    (request("/items"), request("/item"), Key(), ["path: /item, recorded /items"]),
    (request("/?a=1&b=2"), request("/?b=2&c=3"), Key(query="subset"),
     ["query key a: absent, recorded '1'"]),
    (request(), request(fields=(("Accept", "x"),)), Key(fields=("accept",)),
     ["field accept: 'x', recorded absent"]),
    (request(body="abc"), request(body="abd!"), Key(),
     ["body: 4 bytes, recorded 3, which differ at byte 2"]),
    (request(body='{"a": [1, {"b": "x"}]}'), request(body='{"a": [1, {"b": "y"}]}'),
     Key(body="json"), ['body $.a[1].b: "y", recorded "x"']),
    (request(body='{"a": 1}'), request(body='{"a": 1, "c": {"d": [2]}}'),
     Key(body="json"), ["body $.c: {}, recorded absent"]),
    (request(body='{"a": [1]}'), request(body='{"b": 2, "a": []}'),
     Key(body="partial_json"), ["body $.a: [0], recorded [1]",
                                "body $.a[0]: absent, recorded 1"]),
    (request(body='{"m": "a", "x": 1}'), request(body='{"m": "b"}'),
     Key(body="jsonpath", paths=("$.m",)), ["body $.m: [\"b\"], recorded [\"a\"]"]),
    (request(body="a=1&b=2"), request(body="a=1&b=3"), Key(body="form"),
     ["form key b: '3', recorded '2'"]),
    (request(body="{"), request(body="[1"), Key(body="json"),
     ["body: 2 bytes, recorded 1, which differ at byte 0"]),
])
def test_a_difference_says_what_is_here_and_what_there(one, asked, key, wanted):
    if key.paths:
        pytest.importorskip("jsonpath")
    assert list(miss([one], asked, key).nearest.differences) == wanted


@pytest.mark.parametrize(("key", "wanted"), [
    (Key(host=False, port=False), 2), (Key(host=False, path=False), 2),
    (Key(path=False), 1)])
def test_what_does_not_count_is_no_difference(key, wanted):
    """Only recordings of the request's own host were looked at."""
    recorded = [request("/a?x=2", port=81), request("/b?x=1", host="b.example")]
    found = miss(recorded, request("/b?x=3"), key).nearest
    assert found.recording.number == wanted
    assert found.differences[-1] == f"query key x: '3', recorded '{3 - wanted}'"
    assert len(found.differences) == 1 + (wanted == 1 and key.port)


def test_a_recording_of_another_route_says_so():
    """It differed in nothing that the reason named."""
    matcher = Matcher([Route(name="stage", hosts=("a.example",), key=Key(host=False))])
    matcher.add(recording(1, request("/a", host="b.example")))
    found = matcher.match(request("/a"))
    assert found.nearest.differences == ("route: stage, of the recording none",)


OF_GRAPHQL = '{"query": "query A { a(id: %s) }", "variables": {"n": %s}}'


@pytest.mark.parametrize(("one", "asked", "wanted"), [
    (request(body=OF_GRAPHQL % (1, 2)), request(body=OF_GRAPHQL % (2, 3)),
     ["variables $.n: 3, recorded 2",
      "document: 'query A { a(id: 2) }', recorded 'query A { a(id: 1) }'"]),
    (request("/?query={a}&t=1"), request("/?query={b}&t=1"),
     ["document: '{b}', recorded '{a}'"]),
    (request("/?query={a}&t=1"), request("/?t=1"),
     ["operations: 0, recorded 1"]),
    (request(body='{"query": "query A {a}"}'), request(body='{"query": "query B {a}"}'),
     ["operation: 'B', recorded 'A'",
      "document: 'query B {a}', recorded 'query A {a}'"]),
])
def test_operations_of_graphql_are_compared_as_such(one, asked, wanted):
    found = miss([one], asked, Key(body="graphql"))
    assert list(found.nearest.differences) == wanted


def test_bytes_that_are_read_as_another_type_say_the_type():
    kind = (("Content-Type", "multipart/form-data; boundary=b"),)
    found = miss([request(body="a=1", fields=kind)], request(body="a=1"),
                 Key(body="form"))
    assert list(found.nearest.differences) == [
        "body: as absent, recorded as 'multipart/form-data; boundary=b'"]


@pytest.mark.parametrize("body", [b"\x1f\x8b\0\1=\xff", b"%00%1b[2J=1", b"\xff\xfe"])
def test_a_difference_prints_nothing_binary(body):
    """Keys of a form were the pieces of compressed bytes."""
    found = miss([request(body="a=1")], request("/?%1b[2J=1", body), Key(body="form"))
    assert str(found).isprintable() and found.nearest.differences


def test_bodies_are_bounded_by_what_they_decode_to(monkeypatch):
    """40 of some kilobytes would be decoded to gigabytes."""
    compared = []
    real = nearest.differences
    monkeypatch.setattr(nearest, "differences", lambda *args: (
        compared.append(args), real(*args))[1])
    fields = (("Content-Encoding", "gzip"),)
    found = miss([request(body=gzip.compress(b'["%d"' % n + b" " * 200_000 + b"]"),
                          fields=fields) for n in range(20)],
                 request(body="[]"), Key(body="json"))
    assert found.nearest and len(compared) == 1


def test_the_words_have_no_hash_of_a_secret_however_a_url_spells_it():
    """R74."""
    here, there = (f"[redacted:{digit * 16}]" for digit in "ab")
    found = miss(
        [request(f"/{there}?k={there}&%5Bredacted%3A{'b' * 16}%5D=1", body=there)],
        request(f"/{here}?k={here}", body=here), Key(fields=("x",)))
    assert "redacted:" not in str(found).lower().replace("%3a", ":")
    assert list(found.nearest.differences) == [
        "path: /[redacted], recorded /[redacted]",
        "query key k: '[redacted]', recorded '[redacted]'",
        "query key [redacted]: absent, recorded '1'", "body: 27 bytes, recorded 27"]


def test_rules_are_asked_once_for_each_place_and_not_without_end(monkeypatch):
    """R74, R64."""
    matcher = Matcher()
    for number in range(1, 7):
        matcher.add(recording(number, request(f"/{number // 2}")))
    asked = []
    found = matcher.match(request("/x"), admits=lambda one: (
        asked.append(one.path), one.path == "/1")[1])
    assert sorted(asked) == ["/0", "/1", "/2", "/3"]
    assert found.nearest.recording.request.path == "/1"
    monkeypatch.setattr(nearest, "MOST_ASKED", 2)
    asked.clear()
    assert matcher.match(request("/x"), admits=lambda one: asked.append(one)
                         ).nearest is None
    assert len(asked) == 2


def test_a_pattern_that_does_not_hold_is_said():
    found = miss([request()], request("/b?x=1"), patterns=(
        Pattern(part="path", how="regex", value="^/a"),
        Pattern(part="query", key="x", value="2"), Pattern(part="method", value="GET")))
    assert list(found.nearest.differences) == [
        "path: '/b', wanted regex '^/a'", "query x: '1', wanted exact '2'"]


def test_a_state_that_does_not_hold_is_said():
    found = miss([request()], request(), requires={"step": "2"})
    assert list(found.nearest.differences) == ["state step: absent, required '2'"]


def test_the_recording_with_the_fewest_differences_is_the_nearest():
    bodies = [json.dumps({"a": a, "b": b}) for a in range(10) for b in range(10)]
    found = miss([request(body=body) for body in bodies],
                 request(body='{"a": 3, "b": 10}'), Key(body="json"))
    assert list(found.nearest.differences) == ["body $.b: 10, recorded 0"]
    assert json.loads(found.nearest.recording.request.body)["a"] == 3


def test_large_bodies_are_compared_up_to_a_bound(monkeypatch):
    """Forty documents of 27 KB held the process up for 1.3 seconds."""
    compared = []
    real = nearest.differences
    monkeypatch.setattr(nearest, "differences", lambda *args: (
        compared.append(args), real(*args))[1])
    bodies = [json.dumps([number] * 5000) for number in range(10, 30)]
    found = miss([request(body=body) for body in bodies],
                 request(body=json.dumps([7] * 5001)), Key(body="json"))
    assert found.nearest and 1 <= len(compared) <= 5


def test_long_values_and_many_differences_are_cut():
    found = miss([request(body=json.dumps(list(range(40))))],
                 request(body=json.dumps(["x" * 100] * 40)), Key(body="json"))
    assert len(found.nearest.differences) == 9
    assert found.nearest.differences[-1] == "32 more"
    assert all(len(one) < 100 for one in found.nearest.differences)


def test_bodies_are_not_copied_to_find_those_that_look_alike():
    matcher = Matcher()
    for number in range(1, 201):
        matcher.add(recording(number, request(f"/{number}", b"%d" % number * 50_000)))
    tracemalloc.start()
    try:
        found = matcher.match(request("/7", "8"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, Miss) and found.nearest is not None
    assert found.nearest.recording.number == 7 and peak < 2 << 20


def test_each_recording_is_compared_once_whatever_host_counts():
    """Those with the request's path were compared twice, in the place of others."""
    places = {"a": {"/x": [1, 2], "/y": 3}, "b": {"/x": 4, "/z": [5]}}
    assert [*nearest.candidates(request("/x"), places, Key(host=False))] == [
        1, 2, 4, 3, 5]
