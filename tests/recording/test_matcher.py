"""The matcher: by properties against its slow twin."""

import gzip

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import load
from cutthrough.exchange.bounds import KeyMistake
from cutthrough.recording.match.index import FEW
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match, Miss
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.recording import Pattern
from cutthrough.recording.play.player import make_route
from tests.recording import twin
from tests.recording.answers import recording, request
from tests.recording.requests import (
    FORMS,
    KEYS,
    OPERATIONS,
    PARTS,
    REQUESTS,
    fill,
    mixed,
    number_of,
    respelt,
)
from tests.support.toml import toml


def suited(one, key):
    """It with each body that such a key reads."""
    bodies = {"form": FORMS, "regex": FORMS, "graphql": OPERATIONS}.get(key.body, ())
    return [msgspec.structs.replace(one, body=body, method="POST", fields=())
            for body in bodies]


@settings(max_examples=150, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=6), REQUESTS, KEYS,
       st.sets(st.integers(0, 11), max_size=3))
def test_the_index_finds_what_asking_every_recording_finds(requests, asked, key, more):
    more_suited = suited(asked, key)
    requests += [one for at, one in enumerate(more_suited) if at in more]
    matcher, made = fill(requests, key)
    near = [mixed(requests[0], asked, names) for names in PARTS] + more_suited
    for one in (asked, *requests, *near, *map(respelt, requests)):
        wanted = twin.find(one, made, key)
        matcher.rewind()
        found = matcher.match(one)
        assert number_of(found) == (wanted[0] if wanted else None)
        if isinstance(found, Miss):
            assert found.nearest is not None and found.nearest.differences, found


ROUTE = ('recording_directory = "/tmp"\n[recording_routes.a]\n'
         'ignored = ["{}"]\n')


@pytest.mark.parametrize(("name", "other"), [
    ("method", {"method": "PUT"}), ("scheme", {"scheme": "https"}),
    ("host", {"host": "b.example"}), ("port", {"port": 8081}),
    ("path", {"path": "/b"})])
def test_a_route_leaves_out_what_differs_between_two_stages(tmp_path, name, other):
    """A test's server on a port of its own was recorded, and never found again."""
    (row,) = load(file=toml(tmp_path, ROUTE.format(name))).recording_routes
    matcher = Matcher([make_route(row)])
    matcher.add(recording(1, request("/a")))
    asked = msgspec.structs.replace(request("/a"), **other)
    assert number_of(matcher.match(asked)) == 1
    differs = {"method": "port", "port": "method"}.get(name, "port")
    found = matcher.match(msgspec.structs.replace(
        asked, **{"port": {"port": 9}, "method": {"method": "PATCH"}}[differs]))
    assert [one.split(":")[0] for one in found.nearest.differences] == [differs]


def test_a_part_that_no_request_has_cannot_be_left_out(tmp_path):
    with pytest.raises(ConfigError, match="'user' is not one of method, scheme, host"):
        load(file=toml(tmp_path, ROUTE.format("user")))


@pytest.mark.parametrize(("key", "kind"), [
    (Key(body="graphql"), "application/graphql"),
    (Key(body="form"), "multipart/form-data; boundary=b")])
def test_an_empty_body_is_the_same_with_and_without_fields(key, kind):
    """If a request has no body, its fields are not required either."""
    matcher, _ = fill([request("/a", method="POST", fields=(("Content-Type", kind),))],
                      key)
    assert number_of(matcher.match(request("/a", method="POST"))) == 1


def coded(body, coding, **fields):
    pack = {"gzip": gzip.compress, "identity": bytes}.get(coding)
    if pack is None:
        library = pytest.importorskip(
            {"br": "brotli", "zstd": "backports.zstd"}[coding])
        pack = library.compress
    return request(body=pack(body.encode()), fields=(
        ("Content-Encoding", coding), *fields.items()))


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "identity"])
@pytest.mark.parametrize(("key", "recorded", "asked", "other"), [
    (Key(body="json"), '{"a": 1, "b": 2}', '{"b":2,"a":1.0}', '{"b":2}'),
    (Key(body="partial_json"), '{"a": 1}', '{"b":2,"a":1.0}', '{"b":2}'),
    (Key(body="form"), "a=1&b=%32", "b=2&a=1", "b=2&a=2"),
    (Key(body="regex", regexes=("id=(.)",)), "id=1 at 2", "id=1 at 3", "id=2 at 3"),
    (Key(body="graphql"), '{"query": "{ a  b }"}', '{"query": "{a b}"}'.replace(
        "{a", "{ a").replace("b}", "b }"), '{"query": "{ a }"}'),
    (Key(body="json"), "plain text", "plain text", "plain word"),
], ids=["json", "partial", "form", "regex", "graphql", "text"])
def test_a_body_is_read_without_its_coding(coding, key, recorded, asked, other):
    """The same document in another order, compressed, was another request."""
    matcher, _ = fill([coded(recorded, coding)], key)
    assert number_of(matcher.match(coded(asked, coding))) == 1
    assert number_of(matcher.match(request(body=asked))) == 1
    found = matcher.match(coded(other, coding))
    assert isinstance(found, Miss) and str(found).isprintable()


@pytest.mark.parametrize("key", [
    Key(body="json"), Key(body="partial_json"), Key(body="form"), Key(body="graphql"),
    Key(body="regex", regexes=(".",)), Key(body="raw")])
def test_what_cannot_be_decoded_is_compared_octet_by_octet(key):
    whole = gzip.compress(b'{"a": 1}', mtime=0)
    fields = (("Content-Encoding", "gzip"),)
    matcher, _ = fill([request(body=whole[:-3], fields=fields)], key)
    assert number_of(matcher.match(request(body=whole[:-3], fields=fields))) == 1
    found = matcher.match(request(body=whole[:-4], fields=fields))
    assert isinstance(found, Miss)
    assert str(found).endswith(f"body: {len(whole) - 4} bytes, recorded "
                               f"{len(whole) - 3}, which differ at byte "
                               f"{len(whole) - 4}"), found


def test_a_pattern_looks_at_the_body_without_its_coding():
    matcher = Matcher()
    matcher.add(recording(1, request(), patterns=(
        Pattern(part="body", how="partial_json", value='{"a": 1}'),)))
    assert number_of(matcher.match(coded('{"b": 2, "a": 1}', "gzip"))) == 1
    found = matcher.match(request(body=gzip.compress(b"x")))
    assert "bytes, wanted partial_json" in str(found) and str(found).isprintable()


def test_a_websocket_is_no_answer_for_a_page_of_its_url():
    """A browser has both at "/": a sequence of the two ended with the WebSocket."""
    page, echo = recording(1, request()), recording(2, request())
    echo = msgspec.structs.replace(echo, response=msgspec.structs.replace(
        echo.response, status=101))
    matcher = Matcher()
    matcher.add(page)
    matcher.add(echo)
    for _ in range(3):
        assert number_of(matcher.match(request())) == 1
        assert number_of(matcher.match(request(), offers=True)) == 2
    matcher.remove(2)
    assert number_of(matcher.match(request(), offers=True)) == 1
    matcher.remove(1)
    matcher.add(echo)
    assert str(matcher.match(request())) == (
        "recording 2 is a WebSocket, which the request does not offer")


def ended_with(status, made):
    return msgspec.structs.replace(
        made, response=msgspec.structs.replace(made.response, status=status))


@pytest.mark.parametrize(("status", "asked", "others"), [
    (416, ("Range", "bytes=9-"), [("Range", "bytes=0-"), ("If-Match", "x")]),
    (412, ("If-Match", "x"), [("If-Match", "y"), ("If-None-Match", "x")])])
def test_what_failed_for_a_range_or_a_condition_answers_no_other(
        status, asked, others):
    """In a cache of several clients, such an answer went to all of them."""
    matcher = Matcher()
    matcher.add(ended_with(status, recording(1, request("/a", fields=(asked,)))))
    matcher.add(recording(2, request("/a")))
    sent = {(): 2, (asked,): 1, **{(other,): 2 for other in others}}
    for fields, number in sent.items():
        matcher.rewind()
        assert number_of(matcher.match(request("/a", fields=fields))) == number
    assert matcher.own_match(1) is None
    matcher.remove(2)
    assert isinstance(matcher.match(request("/a")), Miss)


def test_a_change_that_fails_has_its_place_in_its_sequence():
    matcher = Matcher()
    asked = request("/a", method="PUT", fields=(("If-Match", "x"),))
    for number, status in ((1, 204), (2, 412)):
        matcher.add(ended_with(status, recording(number, asked)))
    assert [number_of(matcher.match(asked)) for _ in range(3)] == [1, 2, 2]



@settings(max_examples=60, deadline=None)
@given(st.lists(REQUESTS, min_size=2, max_size=8), KEYS, st.data())
def test_what_was_removed_is_found_no_more(requests, key, data):
    matcher, made = fill(requests, key)
    gone = data.draw(st.sets(st.sampled_from([one.number for one in made])))
    for number in gone:
        matcher.remove(number)
    left = [one for one in made if one.number not in gone]
    assert len(matcher) == len(left)
    for one in requests:
        matcher.rewind()
        wanted = twin.find(one, left, key)
        assert number_of(matcher.match(one)) == (wanted[0] if wanted else None)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sets(st.integers(0, 12), max_size=5), min_size=FEW + 2, max_size=60),
       st.sets(st.integers(0, 12)))
def test_many_shapes_are_found_by_the_names_they_are_filed_under(shapes, asked):
    def query(names):
        return request("/?" + "&".join(f"{name}=v" for name in names))

    key = Key(query="subset")
    matcher, made = fill(map(query, shapes), key)
    wanted = twin.find(query(asked), made, key)
    assert number_of(matcher.match(query(asked))) == (wanted[0] if wanted else None)


def test_the_first_route_that_applies_counts_for_both_sides():
    matcher = Matcher([
        Route(hosts=("*.example",), paths=("/v1/*",), key=Key(body="ignore")),
        Route(methods=("POST",), key=Key(body="json"))])
    matcher.add(recording(1, request("/v1/a", "1")))
    matcher.add(recording(2, request("/v2/a", "[1, 2]")))
    assert number_of(matcher.match(request("/v1/a", "2"))) == 1
    assert number_of(matcher.match(request("/v2/a", "[1,2]"))) == 2
    assert number_of(matcher.match(request("/v2/a", "[2]"))) is None


@pytest.mark.parametrize(("patterns", "path", "body", "wanted"), [
    ([("path", "exact", "/a")], "/a?x=1", "", True),
    ([("path", "exact", "/a"), ("path", "exact", "/b")], "/a", "", False),
    ([("path", "glob", "/a/*/[c]")], "/a/b/[c]", "", True),
    ([("path", "glob", "/a/?")], "/a/b", "", False),
    ([("path", "regex", "^/[ab]+$")], "/abab", "", True),
    ([("path", "regex", "^/[ab]+$")], "/abc", "", False),
    ([("query", "exact", "1", "x")], "/?y=2&x=1", "", True),
    ([("query", "exact", "1", "x")], "/?x=1&x=2", "", False),
    ([("query", "exact", "1;2", "x")], "/?x=1&x=2", "", True),
    ([("query", "exact", "a=1&b=2")], "/?b=2&a=1", "", True),
    ([("query", "glob", "*", "x")], "/?y=1", "", False),
    ([("body", "json", '{"a": 1, "b": [true]}')], "/", '{"b":[true],"a":1.0}', True),
    ([("body", "json", "[1]")], "/", "[true]", False),
    ([("body", "json", "[1]")], "/", "[", False),
    ([("body", "partial_json", '{"a": {"b": 1}}')], "/", '{"a":{"c":2,"b":1}}', True),
    ([("body", "partial_json", '{"a": {}}')], "/", '{"a": {"c": 2}}', True),
    ([("body", "partial_json", '{"a": {}}')], "/", '{"a": []}', False),
    ([("body", "jsonpath", "$.a[?@.b == 1]")], "/", '{"a": [{"b": 1}]}', True),
    ([("body", "jsonpath", "$.a[?@.b == 2]")], "/", '{"a": [{"b": 1}]}', False),
    ([("body", "form", "1", "x")], "/", "y=2&x=1", True),
    ([("body", "form", "x=1&y=2")], "/", "y=2&x=1", True),
    ([("body", "form", "x=1")], "/", "y=2&x=1", False),
    ([("field", "regex", "^a", "accept")], "/", "", False),
    ([("method", "exact", "GET"), ("port", "exact", "80")], "/", "", True),
])
def test_patterns_alone_decide_where_a_recording_has_them(patterns, path, body, wanted):
    if patterns[0][1] == "jsonpath":
        pytest.importorskip("jsonpath")
    matcher = Matcher()
    matcher.add(recording(1, request("/other"), patterns=tuple(
        Pattern(part=part, how=how, value=value, key=key[0] if key else "")
        for part, how, value, *key in patterns)))
    found = matcher.match(request(path, body))
    assert isinstance(found, Match) is wanted, found
    if not wanted:
        assert found.nearest.differences
    matcher.remove(1)
    assert isinstance(matcher.match(request(path, body)), Miss)


def test_a_recording_by_key_comes_before_patterns_and_more_before_fewer():
    matcher = Matcher()
    path = Pattern(part="path", value="/a")
    matcher.add(recording(1, request("/x"), patterns=(path,)))
    matcher.add(recording(2, request("/x"), patterns=(
        path, Pattern(part="body", how="glob", value="*"))))
    assert number_of(matcher.match(request("/a"))) == 2
    matcher.add(recording(3, request("/a")))
    assert number_of(matcher.match(request("/a"))) == 3


@pytest.mark.parametrize("pattern", [
    Pattern(part="body", how="regex", value="("),
    Pattern(part="body", how="json", value="{"),
    Pattern(part="body", how="partial_json", value=""),
    Pattern(part="body", how="jsonpath", value="$["),
])
def test_a_malformed_pattern_is_refused_and_leaves_nothing(pattern):
    matcher = Matcher()
    with pytest.raises(KeyMistake):
        matcher.add(recording(1, request(), patterns=(pattern,)))
    assert len(matcher) == 0 and isinstance(matcher.match(request()), Miss)


def test_requests_are_masked_before_they_are_compared():
    matcher = Matcher(mask=lambda one: request(one.path.replace("secret", "***")))
    matcher.add(recording(1, request("/***")))
    assert number_of(matcher.match(request("/secret"))) == 1
