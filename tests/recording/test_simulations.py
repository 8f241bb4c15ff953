"""Simulations of hoverfly, in the shapes of its schemas v1 to v5.3."""

import base64
import json
import time
from ipaddress import IPv4Address, IPv6Address

import msgspec
import pytest

from cutthrough.exchange.formats.imported import Altered, NotImported
from cutthrough.recording.formats.hoverfly import read_simulation
from cutthrough.recording.match import reading as apart
from cutthrough.recording.match.index import Draw
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match, Miss, TooLong
from cutthrough.recording.match.patterns import Subject, make_predicate
from cutthrough.recording.model.recording import Pattern, Recording, Request
from cutthrough.recording.model.templates import render
from cutthrough.recording.sessions.directory import Sessions
from tests.recording.answers import recording, request
from tests.support.simulations import (
    answers,
    delay,
    exact,
    globals_of,
    loaded,
    pair,
    simulation,
)


def delays(made, *requests):
    """Milliseconds that each request waits."""
    matcher = loaded([one for one in made if not isinstance(one, Altered)])
    return [matcher.match(one).recording.delay_us / 1000 for one in requests]


def test_a_simulation_answers_as_in_hoverfly():
    made = read_simulation(simulation(
        pair({"path": [{"matcher": "exact", "value": "/a"}],
              "destination": [{"matcher": "exact", "value": "A.example:8080"}],
              "query": {"q": [{"matcher": "glob", "value": "x*"}]},
              "headers": {"Accept": [{"matcher": "regex", "value": "json$"}]}},
             headers={"B": ["1", "2"]}, transitionsState={"s": "1"}, fixedDelay=5),
        pair({"path": [{"matcher": "exact", "value": "/b"}],
              "requiresState": {"s": "1"}}, encodedBody=True, body="/wA=")))
    matcher = Matcher()
    for number, one in enumerate(made, 1):
        matcher.add(msgspec.structs.replace(one, number=number))
    asked = request("/a?q=xy", host="a.example", port=8080,
                    fields=(("accept", "text/json"),))
    assert isinstance(matcher.match(request("/b")), Miss)
    found = matcher.match(asked)
    assert isinstance(found, Match) and found.recording.delay_us == 5000
    assert found.recording.response.fields == (("B", "1"), ("B", "2"))
    assert matcher.match(request("/b")).recording.response.body == b"\xff\x00"
    assert isinstance(matcher.match(
        msgspec.structs.replace(asked, port=80)), Miss)


@pytest.mark.parametrize("one", [
    pair({"body": [{"matcher": "xquery", "value": "/a"}]}),
    pair({"path": [{"matcher": "exact", "value": "/", "doMatch": {}}]}),
    pair({"path": "/"}), pair({}, templated=True, body="{{ csv 1 }}"),
    pair({}, status=1), pair({}, encodedBody=True, body="!"), {"request": {}}, 1,
])
def test_a_pair_that_would_mean_something_else_is_refused(one):
    (found,) = read_simulation(simulation(one))
    assert isinstance(found, NotImported) and str(found).startswith("pair 0: ")


def token(**claims):
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode()
             for one in ({"alg": "HS256"}, claims)]
    return ".".join([*parts, "c2lnbmF0dXJl"])


@pytest.mark.parametrize(("matcher", "value"), [
    ("jwt", '{"payload": {"sub": "ann"}}'),
    ("jwt", '{"header": {"alg": "HS256"}, "payload": {"sub": "ann"}}'),
    ("jwtjsonpath", "$[?(@.sub == 'ann')]")])
def test_a_token_is_matched_by_what_it_says(tmp_path, matcher, value):
    """Its field is a secret, so a hash stands for it in all that is kept."""
    (one,) = read_simulation(simulation(pair({"headers": {"Authorization": [
        {"matcher": matcher, "value": value}]}})))
    session = Sessions(tmp_path).create("s")
    (kept,) = session.add([one])
    matcher = Matcher((), session.masker.request)
    matcher.add(kept)
    for text, is_found in (
            (token(sub="ann", at=1), True), (f"Bearer {token(sub='ann')}", True),
            (token(sub="bob"), False), ("Bearer none", False), ("a.b.c", False),
            ("", False)):
        found = matcher.match(request("/a", fields=(("Authorization", text),)))
        assert isinstance(found, Match) == is_found, text
        assert not is_found or found.recording.number == 1


def test_a_body_may_be_in_a_file_beside_the_simulation(tmp_path):
    folder = tmp_path / "simulation"
    (folder / "bodies").mkdir(parents=True)
    (folder / "bodies/a.bin").write_bytes(b"\xff\x00")
    (folder / "bodies/t.txt").write_text("{{ Request.Method }}")
    (tmp_path / "secret").write_text("s3cret")
    (folder / "link").symlink_to(tmp_path / "secret")
    made = read_simulation(simulation(*[
        pair({"path": [{"matcher": "exact", "value": f"/{n}"}]}, body="",
                 bodyFile=name, **more)
        for n, (name, more) in enumerate([
            ("bodies/a.bin", {}), ("bodies/t.txt", {"templated": True}),
            ("../secret", {}), (f"{tmp_path}/secret", {}), ("link", {}), ("none", {}),
            ("bodies", {}), ("http://a.example/", {}), ("a\0b", {}), (7, {})])]),
        folder)
    assert made[0].response.body == b"\xff\x00"
    assert made[1].template and b"request.method" in made[1].response.body
    assert len(made) == 10
    for number, one in enumerate(made[2:], 2):
        assert isinstance(one, NotImported), one
        assert str(one).startswith(f"pair {number}: its body is in ")
    (one,) = read_simulation(simulation(pair({}, body="", bodyFile="bodies/a.bin")))
    assert isinstance(one, NotImported)


ASKED = request("/a?q=1&r=2", "x", host="a.example", method="PUT",
                fields=(("Accept", "text/json"), ("A", "1"), ("A", "2")))


@pytest.mark.parametrize("schema", ["v2", "v3", "v4", "v5", "v5.3"])
def test_the_older_schemas_mean_the_same(schema):
    """v4 alone has matchers of fields and queries, and state."""
    def one(matcher, value):
        names = {"exact": "exactMatch", "glob": "globMatch", "regex": "regexMatch"}
        return ([{"matcher": matcher, "value": value}] if schema.startswith("v5") else
                {names[matcher]: value})

    query = ({"query": {"q": one("exact", "1")}} if schema.startswith("v5") else
             {"queriesWithMatchers": {"q": one("exact", "1")}} if schema == "v4" else
             {"query": one("exact", "r=2&q=1")})
    found = answers(
        simulation(pair({
            "destination": one("glob", "*.example"), "method": one("exact", "PUT"),
            "path": one("regex", "^/[ab]$"), **query}), schema=schema),
        ASKED, msgspec.structs.replace(ASKED, path="/c"),
        msgspec.structs.replace(ASKED, query="q=2&r=2"))
    assert found == ["ok", None, None]


def test_the_first_schema_has_what_was_recorded_or_globs():
    recorded = {"destination": "a.example", "path": "/a", "method": "PUT", "body": "x",
                "scheme": "http", "query": "r=2&q=1", "headers": {"accept": ["*json"]}}
    other = msgspec.structs.replace(ASKED, path="/other")
    assert answers(simulation(pair(recorded), schema="v1"), ASKED, other) == [
        "ok", None]
    globs = pair({"requestType": "template", "path": "/*", "destination": "*"})
    assert answers(simulation(globs, schema="v1"), ASKED, other) == ["ok", "ok"]
    (one,) = read_simulation(simulation(
        pair({"body": {"xqueryMatch": "/a"}}), schema="v3"))
    assert isinstance(one, NotImported) and "xqueryMatch" in str(one)


@pytest.mark.parametrize("schema", ["v6", "", 5, None])
def test_another_schema_is_refused(schema):
    with pytest.raises(NotImported, match="schema"):
        read_simulation(simulation(schema=schema))


@pytest.mark.parametrize(("where", "matcher", "is_match"), [
    ("method", {"matcher": "negate", "value": "GET"}, True),
    ("method", {"matcher": "negate", "value": "PUT"}, False),
    ("headers", {"matcher": "negate", "value": "text/json"}, False),
    ("headers", {"matcher": "array", "value": ["1", "2"]}, True),
    ("headers", {"matcher": "array", "value": ["2", "1"]}, False),
    ("headers", {"matcher": "array", "value": ["2", "1"],
                 "config": {"ignoreOrder": True}}, True),
    ("headers", {"matcher": "array", "value": ["1"]}, False),
    ("headers", {"matcher": "array", "value": ["1"],
                 "config": {"ignoreUnknown": True}}, True),
    ("headers", {"matcher": "array", "value": ["1", "1", "2"],
                 "config": {"ignoreOccurrences": True}}, False),
    ("headers", {"matcher": "array", "value": ["1", "1", "2"], "config": {
        "ignoreOccurrences": True, "ignoreOrder": True}}, True),
    ("destination", {"matcher": "glob", "value": "a.*", "doMatch": {
        "matcher": "regex", "value": "example$"}}, True),
    ("destination", {"matcher": "glob", "value": "a.*", "doMatch": {
        "matcher": "regex", "value": "test$"}}, False),
    ("destination", {"matcher": "glob", "value": "*:8080"}, False),
])
def test_a_matcher_means_what_it_does_in_hoverfly(where, matcher, is_match):
    """As core/matching of hoverfly 1.12 has it."""
    asked = {where: [matcher]} if where != "headers" else {where: {
        "Accept" if matcher["matcher"] == "negate" else "A": [matcher]}}
    assert answers(simulation(pair(asked)), ASKED) == ["ok" if is_match else None]


def test_a_glob_of_a_destination_is_asked_of_its_port_too():
    asked = pair({"destination": [{"matcher": "glob", "value": "*:8080"}]})
    assert answers(simulation(asked), msgspec.structs.replace(ASKED, port=8080)) == [
        "ok"]


@pytest.mark.parametrize(("wanted", "found", "is_match"), [
    ('{"a": 1}', '{"b": {"a": 1, "c": 2}}', True),
    ('{"a": [2]}', '[{"a": [1, 2, 3]}]', True),
    ('{"a": [{"b": 1}]}', '{"a": [{"b": 2}, {"b": 1, "c": 1}]}', True),
    ('{"a": {"b": 1}}', '{"a": 1, "b": 1}', False), ('{"a": 1}', "x", False),
    ('[1, 2]', '{"a": [2, 1]}', True), ('{"a": true}', '{"a": 1}', False)])
def test_part_of_a_document_may_be_anywhere_in_it(wanted, found, is_match):
    asked = pair({"body": [{"matcher": "jsonpartial", "value": wanted}]})
    assert answers(simulation(asked), request("/", found)) == [
        "ok" if is_match else None]


def test_an_empty_table_of_the_query_asks_for_none():
    data = simulation(pair({"query": {}}))
    assert answers(data, request("/"), request("/?a=1")) == ["ok", None]


def test_a_sequence_that_hoverfly_has_captured_begins_at_its_first_pair():
    """All of it was missed."""
    def nth(number, of, **more):
        if number < of:
            more["transitionsState"] = {"sequence:1": str(number + 1)}
        return pair({"path": exact("/a"), "requiresState": {"sequence:1": str(number)}},
                    body=f"{number}", **more)

    data = simulation(*[nth(number, 3) for number in (1, 2, 3)])
    assert answers(data, *[request("/a")] * 5) == ["1", "2", "3", "3", "3"]


def test_of_pairs_with_one_request_the_first_answers():
    """They were a sequence."""
    asked = {"path": exact("/")}
    made = read_simulation(simulation(
        pair(asked), pair(asked, body="never"),
        pair(asked | {"requiresState": {"a": "1"}}, body="state")))
    assert [one.response.body for one in made if isinstance(one, Recording)] == [
        b"ok", b"state"]
    assert isinstance(made[1], Altered) and "pair 1: " in str(made[1])


def test_a_document_may_be_none():
    data = simulation(pair({"body": [{"matcher": "json", "value": ""}]}))
    assert answers(data, request("/"), request("/", "{}")) == ["ok", None]


def test_an_ipv6_destination_is_one():
    data = simulation(pair({"destination": exact("[::1]:8080")}))
    assert answers(data, request("/", host="::1", port=8080), request("/")) == [
        "ok", None]


@pytest.mark.parametrize("matcher", [
    {"matcher": "regex", "value": "("}, {"matcher": "json", "value": "{"},
    {"matcher": "jsonpath", "value": "$["}, {"matcher": "jsonpartial", "value": "{"}])
def test_a_malformed_matcher_is_refused_when_it_is_imported(matcher):
    (one,) = read_simulation(simulation(pair({"body": [matcher]})))
    assert isinstance(one, NotImported)


def test_a_delay_applies_to_the_pairs_whose_url_has_its_pattern():
    known = pair({"destination": exact("a.example"), "path": exact("/b/c")})
    made = read_simulation(simulation(
        known, pair({"path": exact("/slow")}, fixedDelay=7),
        **globals_of(delay(r"a\.example\/b", 2000, "GET"), delay(r"^b\.", 5))))
    asked = request("/b/c")
    assert delays(made, asked, request("/slow"), request(
        "/b/c", method="PUT")) == [2000, 7, 0]
    made = read_simulation(simulation(known, **globals_of(delay(".", 2000))))
    assert delays(made, asked) == [2000]
    assert made[0].patterns == read_simulation(simulation(known))[0].patterns


def test_a_delay_of_some_requests_of_a_pair_applies_to_them_alone():
    any_host = pair({"destination": [{"matcher": "glob", "value": "*"}]})
    other = pair({"destination": [{"matcher": "glob", "value": "*.b"}],
                  "method": exact("GET")}, body="other")
    data = simulation(any_host, other, **globals_of(
        delay(r"a\.example\/b", 2000, "get"), delay(r"a\.example", 1000)))
    made = read_simulation(data)
    asked = [request("/b"), request("/b", "x"), request("/x?b=a.example/b"),
             request("/b", host="c.example"), request("/b", host="a.b")]
    assert delays(made, *asked) == [2000, 1000, 1000, 0, 0]
    # The order of the pairs is as without delays
    assert answers(data, *asked) == ["ok"] * 4 + ["other"]


def test_a_random_delay_is_always_its_median_and_that_is_told():
    random = {"min": 100, "max": 10_000, "mean": 5000, "median": 500}
    one, told = read_simulation(simulation(
        pair({"path": exact("/a")}, logNormalDelay=random)))
    assert one.delay_us == 500_000 and isinstance(told, Altered)
    assert "pair 0: " in str(told) and "median" in str(told)
    made = read_simulation(simulation(
        pair({}), **globals_of(delay(".", 30), random=[random | {"urlPattern": "."}])))
    assert delays(made, request("/")) == [530]
    assert [str(one).partition(":")[0] for one in made[1:]] == ["globalActions"]


def test_what_cannot_be_of_a_recording_is_told():
    one, told = read_simulation(simulation(
        pair({}, postServeAction="outbound-http") | {"labels": ["a", "b"]}))
    assert one.tags == ("a", "b") and isinstance(told, Altered)
    assert "outbound-http" in str(told)
    for actions in (globals_of(delay("(", 1)), globals_of({"delay": 1}), globals_of(
            *[delay(f"/{n}", n) for n in range(50)])):
        one, told = read_simulation(simulation(pair({}), **actions))
        assert one.delay_us == 0 and isinstance(told, Altered)


def test_an_array_is_counted_in_linear_time():
    """R67: each of 30 000 values was counted in all of them."""
    values = [str(at) for at in range(30_000)]
    matches = make_predicate(Pattern(
        part="field", key="a", how="array", value=json.dumps({"values": values})))
    begun = time.process_time()
    assert matches(Subject(Request(
        method="GET", scheme="http", host="a", port=80, path="/",
        fields=(("a", ";".join(values)),))))
    assert time.process_time() - begun < 2


def patterned(number, value, how="partial_json"):
    return recording(number, request("/", b""), patterns=(
        Pattern(part="body", how=how, value=value),))


def test_a_body_is_read_once_for_all_patterns():
    """R65: each of 1000 patterns decoded and parsed 300 KB anew, for 4 s."""
    matcher = Matcher()
    for number in range(1, 1001):
        matcher.add(patterned(number, f"[{{\"a\": {number}}}]", "json"))
    asked = request("/", json.dumps([{"a": 0, "text": "x" * 300_000}]))
    begun = time.process_time()
    assert isinstance(matcher.match(asked, explain=False), Miss)
    assert time.process_time() - begun < 1


def test_patterns_beyond_their_time_move_no_sequence():
    """R64: 3000 recordings with patterns of their own may take long with any body."""
    matcher = Matcher()
    for number in (1, 2):
        matcher.add(patterned(number, '{"a": 1}'))
    asked = request("/", b'{"a": 1}')
    reading = matcher.read(asked)
    with pytest.raises(TooLong):
        matcher.draw(asked, reading, seconds=-1)
    patterns = matcher.asks(reading)
    assert [one.value for one in patterns] == ['{"a": 1}']
    holds = apart.ask(patterns, asked, asked)
    for number in (1, 2):
        drawn = matcher.draw(asked, reading, holds=holds)
        assert isinstance(drawn, Draw)
        found = matcher.take(drawn)
        assert isinstance(found, Match) and found.recording.number == number


def test_paths_are_those_of_hoverfly_and_values_are_joined():
    """Go decodes a path, unless it would be written in another way."""
    def one(path, matcher="exact"):
        return pair({"path": [{"matcher": matcher, "value": path}]}, body=path)

    data = simulation(
        one("/a b/café"), one("/n/*/x y", "glob"), one("/user/name%3Abob"),
        one("/te~st'(x)"), pair({"path": exact("/h"), "headers": {
            "Accept": exact("a;b")}}, body="joined"))
    assert answers(
        data, request("/a%20b/caf%C3%A9"), request("/n/1/x%20y"),
        request("/user/name%3Abob"), request("/te~st'(x)"), request("/user/name:bob"),
        request("/h", fields=(("Accept", "a"), ("accept", "b")))) == [
        "/a b/café", "/n/*/x y", "/user/name%3Abob", "/te~st'(x)", None, "joined"]


def test_a_second_matcher_looks_at_what_the_first_one_takes():
    chain = [{"matcher": "jsonpath", "value": "$.items[1]", "doMatch": {
        "matcher": "jsonpath", "value": "$.name", "doMatch": {
            "matcher": "exact", "value": "b"}}}]
    form = [{"matcher": "form", "value": {
        "who": [{"matcher": "jwt", "value": '{"payload": {}}', "doMatch": {
            "matcher": "jsonpath", "value": "$.payload.sub", "doMatch": {
                "matcher": "exact", "value": "ann"}}}],
        "n": [{"matcher": "regex", "value": "^[0-9]+$"}]}}]
    data = simulation(pair({"body": chain}, body="chain"),
                      pair({"body": form}, body="form"))
    items = '{"items": [{"name": "a"}, {"name": "%s"}]}'
    kind = (("Content-Type", "application/x-www-form-urlencoded"),)
    assert answers(
        data, request("/", items % "b"), request("/", items % "c"), request("/", "[]"),
        request("/", f"n=1&who={token(sub='ann')}", fields=kind),
        request("/", f"n=x&who={token(sub='ann')}", fields=kind),
        request("/", f"n=1&who={token(sub='bob')}", fields=kind)) == [
        "chain", None, None, "form", None, None]
    (one,) = read_simulation(simulation(pair({"body": [
        {"matcher": "jsonpath", "value": "$[", "doMatch": {"matcher": "exact"}}]})))
    assert isinstance(one, NotImported)


def test_random_values_and_literals_of_templates_are_known():
    names = ("randomString", "randomStringLength 3", "randomBoolean", "randomFloat",
             "randomFloatRange 1 2.5", "randomEmail", "randomIPv4", "randomIPv6")
    body = "|".join(f"{{{{ {name} }}}}" for name in (*names, "Literals.a"))
    (one,) = read_simulation(simulation(
        pair({}, templated=True, body=body), literals=[{"name": "a", "value": "{{x"}]))
    values = render(one, request("/"), {}).response.body.decode().split("|")
    assert len(values[0]) == 10 and len(values[1]) == 3 and values[8] == "{{x"
    assert values[2] in ("true", "false") and 1 <= float(values[4]) <= 2.5
    assert 0 <= float(values[3]) <= 1 and "@" in values[5]
    assert IPv4Address(values[6]) and IPv6Address(values[7])
