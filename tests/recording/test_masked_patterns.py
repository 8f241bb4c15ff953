"""Patterns without secrets still hold of the request that had them, without its own."""

import json

import msgspec
import pytest

from cutthrough.recording.formats.hoverfly import read_simulation
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match
from cutthrough.recording.model.masking import Masker, Redaction
from cutthrough.recording.model.recording import Pattern, Recording, Response
from tests.recording.answers import request

FORM = (("Content-Type", "application/x-www-form-urlencoded"),)
JSON = (("Content-Type", "application/json"),)
TOKEN = Redaction(query=("token",))


def exact(value):
    return {"matcher": "exact", "value": value}


def step(path, then):
    return {"matcher": "jsonpath", "value": path, "doMatch": then}


def kept(redaction, parts):
    """The recording of this pair as a session has it, and a matcher with it."""
    (recording,) = read_simulation(json.dumps({
        "meta": {"schemaVersion": "v5.2"}, "data": {"pairs": [
            {"request": parts, "response": {"status": 200, "body": "ok"}}]}}).encode())
    masker = Masker(redaction, b"k" * 32)
    recording = masker.recording(recording)
    matcher = Matcher((), masker.request, reads_bodies=masker.reads_bodies)
    matcher.add(msgspec.structs.replace(recording, number=1))
    return recording, matcher


SECRET = {"token": "s3cret77", "n": 7}
BODY = json.dumps({"user": SECRET, "list": [{"token": "s3cret77"}]})
USER, EACH = Redaction(json=("$.user",)), Redaction(json=("$..token",))


@pytest.mark.parametrize(("redaction", "parts", "asked", "knows_value"), [
    (TOKEN, {"body": [{"matcher": "form", "value": {"token": [exact("s3cret77")]}}]},
     request(body="a=1&token=s3cret77", fields=FORM), True),
    (TOKEN, {"body": [{"matcher": "form", "value": {"token": [
        {"matcher": "regex", "value": "^s3cret"}]}}]},
     request(body="a=1&token=s3cret77", fields=FORM), False),
    (TOKEN, {"query": {"token": [step("$.a", exact("s3cret77"))]}},
     request("/?token={\"a\":\"s3cret77\"}"), False),
    (TOKEN, {"path": [exact("/x;token=s3cret77")]}, request("/x;token=s3cret77"), True),
    (TOKEN, {"path": [{"matcher": "regex", "value": "/x;token=s3cret77$"}]},
     request("/x;token=s3cret77"), False),
    (TOKEN, {"headers": {"Referer": [exact("http://a/?token=s3cret77")]}},
     request(fields=(("Referer", "http://a/?token=s3cret77"),)), True),
    (Redaction(), {"path": [exact("/f/http://bob:s3cret77@h/")]},
     request("/f/http://bob:s3cret77@h/"), None),
    (EACH, {"body": [step("$.user.token", exact("s3cret77"))]},
     request(body=BODY, fields=JSON), True),
    (EACH, {"body": [step("$.list[0]['token']", exact("s3cret77"))]},
     request(body=BODY, fields=JSON), True),
    (EACH, {"body": [step("$.list[*].token", exact("s3cret77"))]},
     request(body=BODY, fields=JSON), True),
    (EACH, {"body": [step("$.user", step("$.token", exact("s3cret77")))]},
     request(body=BODY, fields=JSON), True),
    (EACH, {"body": [step("$.user", exact(json.dumps(SECRET)))]},
     request(body=BODY.replace(", ", ","), fields=JSON), None),
    (EACH, {"body": [step("$.user", {"matcher": "jsonpartial",
                                     "value": '{"token": "s3cret77"}'})]},
     request(body=BODY, fields=JSON), True),
    (EACH, {"body": [step("$.user.token", {"matcher": "glob", "value": "s3cret*"})]},
     request(body=BODY, fields=JSON), False),
    (USER, {"body": [step("$.user.token", exact("s3cret77"))]},
     request(body=BODY, fields=JSON), False),
    (USER, {"body": [step("$.user", {"matcher": "json", "value": json.dumps(SECRET)})]},
     request(body=BODY, fields=JSON), True),
    (EACH, {"body": [{"matcher": "jsonpath",
                      "value": "$.list[?@.token == 's3cret77']"}]},
     request(body=BODY, fields=JSON), True),
    (EACH, {"body": [step("$.list[?(@.token == 's3cret77')]", exact("x")),
                     {"matcher": "glob", "value": '*"token": "s3cret77"*'}]},
     None, False),
    (EACH, {"body": [step("$.p", step("$.token", exact("s3cret77")))]},
     request(body=json.dumps({"p": json.dumps(SECRET)}), fields=JSON), True),
], ids=str)
def test_a_pattern_has_no_secret_and_holds(redaction, parts, asked, knows_value):
    """`knows_value`: another secret is another request; None: it is not asked."""
    recording, matcher = kept(redaction, parts)
    assert "s3cret" not in repr(recording)
    if asked is None:
        return
    assert isinstance(matcher.match(asked), Match)
    if knows_value is not None:
        other = msgspec.structs.replace(
            asked, path=asked.path.replace("77", "88"),
            body=asked.body.replace(b"77", b"88"),
            fields=tuple((name, value.replace("77", "88"))
                         for name, value in asked.fields))
        assert isinstance(matcher.match(other), Match) is not knows_value


@pytest.mark.parametrize("parts", [
    {"body": [step("$.user.name", exact("ann"))]},
    {"body": [{"matcher": "jsonpath", "value": "$.list[?@.name == 'ann']"}]},
    {"body": [{"matcher": "glob", "value": "*ann*"}]},
    {"body": [{"matcher": "form", "value": {"name": [exact("ann")]}}]},
    {"path": [{"matcher": "regex", "value": "^/ann/[0-9]+$"}]},
    {"headers": {"Authorization": [{
        "matcher": "jwt", "value": '{"payload": {}}', "doMatch": {
            "matcher": "jsonpath", "value": "$.payload.token",
            "doMatch": exact("ann")}}]}}])
def test_a_pattern_without_a_secret_stays(parts):
    redaction = Redaction(query=("token",), json=("$..token",))
    recording, _ = kept(redaction, parts)
    assert recording.patterns == kept(Redaction(), parts)[0].patterns


def test_a_path_of_many_levels_costs_nothing_else():
    path = "$" + "[0]" * 1300
    recording, _ = kept(EACH, {"body": [step(path, exact("a"))]})
    assert recording.patterns[-1].value == "*"


@pytest.mark.parametrize("value", ["\ud800ab", '{"token": "\\ud800"}', "\udce4", "{"])
@pytest.mark.parametrize("how", ["exact", "json", "glob", "regex", "partial_json"])
@pytest.mark.parametrize("steps", [(), ("$.token",), ("$.a",), ("$",), ("$..a",)])
def test_a_value_that_is_no_document_costs_nothing_else(value, how, steps):
    masker = Masker(EACH, b"k" * 32)
    pattern = Pattern(part="body", how=how, value=value, steps=steps)
    recording = Recording(request=request(), response=Response(status=200),
                          patterns=(pattern,))
    assert len(masker.recording(recording).patterns) == 1
