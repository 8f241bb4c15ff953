"""Bodies that are compared by their meaning."""

import gzip
import json

import msgspec
import pytest

from cutthrough.exchange import expressions
from cutthrough.exchange.bounds import KeyMistake
from cutthrough.exchange.documents import tidy
from cutthrough.recording.match.keys import KeyReader
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.routes import Key
from tests.recording.answers import request

FORM = (("Content-Type", "application/x-www-form-urlencoded"),)


def equal(key, one, other):
    reader = KeyReader(key)
    return reader.read(one, recorded=True) == reader.read(other, recorded=True)


@pytest.mark.parametrize(("one", "other", "wanted"), [
    ('{"a":1,"b":2}', '{ "b": 2.0, "a": 1e0 }', True),
    ("[1]", "[true]", False),
    ("[0]", "[-0.0]", True),
    ("[1]", '["1"]', False),
    ("[null]", "[]", False),
    ('"\\u00e9"', '"é"', True),
    (f"[{10**30}]", f"[{10**30}]", True),
    (f"[{10**30}]", f"[{10**30 + 1}]", False),
    ("[1e999]", "[1e998]", False),
    ("[" * 50_000, "[" * 50_000, True),
    ("[" * 50_000, "[" * 49_999, False),
    ('"\\ud800"', '"\\ud801"', False),
    ("", "", True),
])
def test_json_is_equal_if_its_values_are(one, other, wanted):
    assert equal(Key(body="json"), request(body=one), request(body=other)) is wanted


def test_bytes_that_are_no_json_never_equal_json():
    assert not equal(Key(body="json"), request(body="{"), request(body="{}"))
    assert not equal(Key(body="partial_json"), request(body="{"), request(body="{}"))


def test_ignored_paths_are_left_out():
    key = Key(body="json", ignored_paths=("$..id", "$.items[0:2]"))
    one = request(body='{"id": 1, "a": {"id": 2}, "items": [1, 2, 3]}')
    assert equal(key, one, request(body='{"a": {}, "items": [8, 9, 3]}'))
    assert not equal(key, one, request(body='{"a": {}, "items": [1, 2, 4]}'))


def test_chosen_paths_alone_are_compared():
    key = Key(body="jsonpath", paths=("$.model", "$.messages[-1].content"))
    one = request(body='{"model": "m", "messages": [{"content": "x"}], "seed": 1}')
    assert equal(key, one, request(
        body='{"model": "m", "messages": [{"content": "y"}, {"content": "x"}]}'))
    assert not equal(key, one, request(body='{"model": "n", "messages": []}'))


def test_a_form_is_equal_in_any_order_of_its_keys():
    key = Key(body="form", ignored_form=("nonce",))
    one = request(body="a=1&b=%20x&nonce=1", fields=FORM)
    assert equal(key, one, request(body="nonce=2&b=+x&a=1", fields=FORM))
    assert not equal(key, one, request(body="b=+x&a=2", fields=FORM))


def test_the_boundary_of_a_multipart_body_does_not_count():
    def upload(boundary, text):
        return request(
            body=f"--{boundary}\r\n\r\n{text}\r\n--{boundary}--\r\n",
            fields=(("content-type", f'multipart/form-data; boundary="{boundary}"'),))

    key = Key(body="form")
    assert equal(key, upload("one", "x"), upload("another", "x"))
    assert not equal(key, upload("one", "x"), upload("another", "y"))


def test_fields_of_a_multipart_body_may_be_left_out():
    """A token of the page and a boundary are new in each upload."""
    def upload(boundary, nonce, text, ending="--"):
        parts = [*([f'; name="nonce"\r\n\r\n{nonce}'] if nonce else []),
                 f'; name="file"; filename="a.txt"\r\n\r\n{text}']
        body = "".join(f"--{boundary}\r\nContent-Disposition: form-data{part}\r\n"
                       for part in parts)
        return request(body=f"{body}--{boundary}{ending}\r\n", fields=(
            ("content-type", f'multipart/form-data; boundary="{boundary}"'),))

    key = Key(body="form", ignored_form=("nonce",))
    one = upload("one", "1", "x")
    assert equal(key, one, upload("another", "2", "x"))
    assert equal(key, one, upload("another", "", "x"))
    assert not equal(key, one, upload("another", "2", "y"))
    assert not equal(Key(body="form"), one, upload("another", "2", "x"))
    assert equal(key, upload("one", "1", "x", ""), upload("another", "1", "x", ""))
    assert not equal(key, upload("one", "1", "x", ""), upload("another", "2", "x", ""))


def test_a_batch_is_read_apart_if_that_takes_long():
    """R64. Its heads are looked at, behind its coding, whatever the route says."""
    body = gzip.compress(bytes(8 << 20))
    coded = ("content-encoding", "gzip")
    batch, other = (msgspec.structs.replace(request(), body=body, fields=(
        coded, ("content-type", kind))) for kind in ("application/http", "text/plain"))
    assert Matcher().is_costly(batch) and not Matcher().is_costly(other)


def test_the_groups_of_expressions_are_compared():
    key = Key(body="regex", regexes=(r'"model": *"([^"]*)"', "user-[0-9]+"))
    one = request(body='{"model": "m", "user": "user-7", "at": 1}')
    assert equal(key, one, request(body='{"at": 2, "user": "user-7", "model":"m"}'))
    assert not equal(key, one, request(body='{"user": "user-8", "model":"m"}'))


def test_without_its_library_an_expression_is_a_mistake_that_says_what_to_install(
        monkeypatch):
    monkeypatch.setattr(expressions.importlib, "import_module", _missing)
    for key in (Key(body="regex", regexes=("never seen",)),
                Key(body="jsonpath", paths=("$[?search(@, 'never seen')]",))):
        expressions.compile_expression.cache_clear()
        with pytest.raises(KeyMistake, match=r"cutthrough\[recording\]"):
            KeyReader(key)


def _missing(name):
    raise ImportError(name)


@pytest.mark.parametrize("key", [
    Key(body="jsonpath"), Key(paths=("$.a",)), Key(body="regex"),
    Key(body="regex", regexes=("(",)), Key(body="json", ignored_paths=("$[",)),
])
def test_a_key_that_contradicts_itself_is_refused(key):
    with pytest.raises(KeyMistake):
        KeyReader(key)


QUERY = 'query A($x: Int) {\n  a(x: $x, s: "  # no  comment ")  # comment\n { b, c }\n}'


def test_white_space_commas_and_comments_of_graphql_do_not_count():
    assert tidy(QUERY) == 'query A($x: Int) { a(x: $x s: "  # no  comment ") { b c } }'
    assert tidy('{ a(s: """x  "y" # z""") }') == '{ a(s: """x  "y" # z""") }'


def graphql(query, **more):
    return request("/graphql", json.dumps({"query": query, **more}))


def test_an_operation_is_its_name_its_variables_and_its_document():
    key = Key(body="graphql")
    one = graphql(QUERY, variables={"x": 1, "y": 2})
    spaced = QUERY.replace("\n", " \n, ").replace("# comment ,", "")
    assert equal(key, one, graphql(
        spaced, variables={"y": 2, "x": 1}, operationName="A"))
    assert not equal(key, one, graphql(QUERY, variables={"x": 2, "y": 2}))
    assert not equal(key, one, graphql(QUERY.replace("c }", "d }"),
                                       variables={"x": 1, "y": 2}))
    assert equal(key, graphql("{ a }"), graphql("{  a  }", variables={}))


def test_an_operation_may_be_in_the_query_and_its_other_keys_still_count():
    key = Key(body="graphql")
    one = request('/graphql?query={+a+}&variables={"x":1,"y":2}&v=1')
    assert equal(key, one, request(
        '/graphql?variables={"y":2,"x":1}&query={%20a%20}&v=1'))
    assert not equal(key, one, request(
        '/graphql?variables={"y":2,"x":1}&query={+a+}&v=2'))
    assert not equal(key, request("/graphql?a=1"), request("/graphql?a=2"))


def test_batches_and_persisted_operations_are_operations():
    key = Key(body="graphql")

    def batch(*items):
        return request("/graphql", json.dumps(items))

    hashed = {"extensions": {"persistedQuery": {"version": 1, "sha256Hash": "ab"}}}
    assert equal(key, batch({"query": "{ a  }"}, hashed),
                 batch({"query": "{ a }"}, hashed))
    assert not equal(key, batch({"query": "{ a }"}), batch({"query": "{ a }"}, hashed))
