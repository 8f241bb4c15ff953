"""JSONPath as RFC 9535 has it, beside another implementation; its steps are counted."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.exchange.bounds import KeyMistake, TooMuch
from cutthrough.exchange.jsonpath import Path
from tests.exchange.documents import DOCUMENTS

NAMES = st.sampled_from(("a", "b", "é"))
SELECTORS = st.recursive(
    st.sampled_from(("*", "0", "-1", "1", ":1", "::-1", "1:3:2", "'a'", '"b"', "'\\''"
                     )),
    lambda inner: st.builds("?{}".format, st.recursive(
        st.builds("@[{}]".format, inner)
        | st.builds("count(@[{}]) > {}".format, inner, st.integers(0, 2))
        | st.builds("@.{} {} {}".format, NAMES, st.sampled_from(
            ("==", "!=", "<", "<=", ">", ">=")), st.sampled_from(
                ("1", "'a'", "null", "true", "0.5", "$.a", "@.b", "$", "@")))
        | st.sampled_from(("length(@) > 1", "match(@, 'a|b')", "search(@.a, 'b')",
                           "value(@.*) == 1", "@", "@.a", "$..a")),
        lambda test: st.builds("({} && {})".format, test, test)
        | st.builds("{} || {}".format, test, test) | st.builds("!({})".format, test),
        max_leaves=3)), max_leaves=3)
PATHS = st.lists(
    st.builds(".{}".format, NAMES) | st.builds("..{}".format, NAMES)
    | st.sampled_from((".*", "..*")) | st.builds("[{}]".format, SELECTORS)
    | st.builds("..[{}]".format, SELECTORS)
    | st.builds("[{},{}]".format, SELECTORS, SELECTORS), max_size=3).map(
        lambda parts: "$" + "".join(parts))


def found(path, document):
    return [node.value for node in Path(path).find(document)]


@given(PATHS, st.lists(DOCUMENTS, max_size=3) | st.dictionaries(NAMES, DOCUMENTS))
@settings(deadline=None)
def test_a_path_selects_what_another_implementation_selects(path, document):
    library = pytest.importorskip("jsonpath")
    other = library.JSONPathEnvironment(strict=True)
    nodes = Path(path).find(document)
    try:
        matches = other.findall(path, document)
    except library.JSONPathSyntaxError:
        assert "," in path                   # it does not read [0,:1]
        return
    assert sorted(json.dumps(node.value, sort_keys=True) for node in nodes) == sorted(
        json.dumps(value, sort_keys=True) for value in matches)
    for node in nodes:
        value = document
        for part in node.parts:
            value = value[part]
        assert value is node.value


@pytest.mark.parametrize(("path", "values"), [
    ("$..b", [2, 3]), ("$.a[?@.b]", [{"b": 2}]), ("$ ['a'] [0] .b", [2]),
    ("$['\\u0061'][-1].b", []), ("$.a[?@.b == 2 || @ == 'x'].b", [2]),
    ("$.a[?match(@, 'x')]", ["x"]), ("$.a[?match(@, '')]", []),
    ("$.a[?search(@, '(')]", []), ("$[?@.b == $.c.b]", [{"b": 3}])])
def test_a_path_selects(path, values):
    assert found(path, {"a": [{"b": 2}, "x"], "c": {"b": 3}}) == values


@pytest.mark.parametrize("path", [
    "", "a", "$.", "$[", "$[]", "$a", "$[01]", "$[-0]", "$[?]", "$[?@.a==]", "$[?1]",
    "$[?count(@.a)]", "$[?@.* == 1]", "$[?length(@.*)==1]", "$[?foo(@)]", '$["\x01"]',
    '$["\\ud800"]', "$ ", " $", "$[?@.a==@..b]", "$[1,]", "$[9007199254740992]", "$..",
    "$[?match(@.a)]", "$[?@.a = 1]", "$[?!1]", "$[?match(@,'a')==true]", "$[?true]",
    "$[?@==01]", "$['\\\"']", "$" + ".a" * 5000, "$" + "[?@" * 20 + "]" * 20,
    "$[?" + "(" * 500 + "@" + ")" * 500 + "]"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(KeyMistake):
        Path(path)


WIDE = [[] for _ in range(20_000)]
LONG = {"a" * 500_000: list(range(20_000))}


@pytest.mark.parametrize(("path", "document"), [
    ("$..id", WIDE), ("$..*", WIDE), ("$..[?@..a]", WIDE), ("$[?@ == $]", WIDE),
    ("$[?$[?!@]]", WIDE), ("$[?$..a]", WIDE), ("$..[*,*,*,*,*,*,*,*]", WIDE),
    ("$[?search(@, '^(a|a)*$')]", ["a" * 100_000 + "!"]),
    ("$[?search($[0], @)]", ["a" * 100_000, *["(a?){99}b"] * 1000]),
    ("$[?@ == $[0]]", ["a" * 100_000, *["a" * 100_000 + "b"] * 10]),
    ("$..*", LONG), ("$..[?$..[?$..*]]", {"a": [[[[[1]]]]] * 100})])
def test_no_path_takes_long(path, document):
    """R66, R67. 1 MiB of `[],` took 5 s, and `(a|a)*` for ever."""
    begun = time.thread_time()
    try:
        found(path, document)
    except TooMuch:
        pass
    assert time.thread_time() - begun < 5


@given(PATHS, DOCUMENTS, st.integers(1, 300))
@settings(deadline=None)
def test_a_path_of_any_form_ends_within_the_steps_of_its_document(path, one, count):
    """R67: its time is bounded, however the document is nested."""
    document = {"a": [one] * count, "b": {"a": [[one, [one]]] * count}}
    begun = time.thread_time()
    try:
        found(path, document)
    except TooMuch:
        pass
    assert time.thread_time() - begun < 5


def test_a_deep_document_is_no_error():
    """150 levels were a 500 and a traceback."""
    document = []
    for _ in range(3000):
        document = [document]
    assert len(found("$..[0]", document)) == 3000
