"""Messages are compared by their route's key, and keep the client's identifiers."""

import json

import pytest

from cutthrough.recording.match.alike import Alike
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.recording import Request

ASKED = Request(method="GET", scheme="http", host="a", port=80, path="/", query="x=1")


def by(**key):
    return Alike(Route(key=Key(**key)), ASKED)


@pytest.mark.parametrize("key, here, there, same", [
    ({}, b"a", b"a", True),
    ({}, b"a", b"b", False),
    ({"body": "ignore"}, b"a", b"b", True),
    ({"body": "json"}, b'{"a":1,"b":2}', b'{"b": 2.0, "a": 1}', True),
    ({"body": "json"}, b'{"a":1}', b'{"a":true}', False),
    ({"body": "json"}, b"\xff{", b"{", False),
    ({"body": "json", "ignored_paths": ("$.id",)}, b'{"id":1}', b'{"id":2}', True),
    ({"body": "partial_json"}, b'{"a":1,"more":2}', b'{"a":1}', True),
    ({"body": "partial_json"}, b'{"a":1}', b'{"a":1,"more":2}', False),
    ({"body": "jsonpath", "paths": ("$.op",)}, b'{"op":1,"t":5}', b'{"op":1}', True),
    ({"body": "regex", "regexes": (r"op=(\w+)",)}, b"1 op=a", b"2 op=a", True),
    ({"body": "form", "ignored_form": ("t",)}, b"t=1&a=2", b"a=2&t=9", True),
])
def test_a_message_is_compared_as_a_body(key, here, there, same):
    assert by(**key).same(here, there) is same


def subscribe(number, text, kind="subscribe"):
    return json.dumps({"id": number, "type": kind, "payload": {"query": text}}).encode()


def test_operations_of_graphql_over_a_websocket():
    """White space of the document and the identifier do not count; all else does."""
    one = by(body="graphql")
    assert one.same(subscribe("x", "subscription { a  b }"),
                    subscribe("y", "subscription {\n a\n b }"))
    assert not one.same(subscribe("x", "{ a }"), subscribe("x", "{ b }"))
    assert not one.same(subscribe("x", "{ a }"), subscribe("x", "{ a }", "start"))
    assert one.same(b'{"type":"complete","id":"x"}', b'{"id":"y","type":"complete"}')
    assert not one.same(b'{"type":"ping"}', b'{"type":"pong"}')
    one.take(subscribe("mine", "{ a }"), subscribe("y", "{ a }"))
    assert json.loads(one.answer(b'{"type":"next","id":"y","payload":{"id":"y"}}')) == {
        "type": "next", "id": "mine", "payload": {"id": "y"}}


def test_an_answer_has_the_client_s_values_where_the_key_ignores_them():
    one = by(body="json", ignored_paths=("$.id", "$.more[*].id"))
    assert one.answer(b'{"id": 1}') == b'{"id": 1}'
    one.take(b'{"id":"a","more":[{"id":5},{"id":6}]}',
             b'{"id":1,"more":[{"id":"x"},{"id":"y"}]}')
    assert one.answer(b'{"id":1,"more":[{"id":"y"},{"id":1}]}') == (
        b'{"id":"a","more":[{"id":6},{"id":1}]}')
    for same in (b'{"id":"1"}', b'{"id":true}', b"[1]", b"no JSON", b'{"id":1'):
        assert one.answer(same) == same


def test_a_long_or_composite_value_is_no_identifier():
    one = by(body="json", ignored_paths=("$.id",))
    for mine in (b'{"id":"' + b"x" * 300 + b'"}', b'{"id":[1]}', b'{"id":null}'):
        one.take(mine, b'{"id":1}')
    assert one.answer(b'{"id":1}') == b'{"id":1}'


def test_differences_are_told_in_words():
    one = by(body="json")
    assert one.tell(b'{"a":1}', b'{"a":2}') == "body $.a: 1, recorded 2"
    assert by().tell(b"ab", b"ac") == (
        "body: 2 bytes, recorded 2, which differ at byte 1")
