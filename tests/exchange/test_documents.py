"""Documents are bounded before they are parsed, and work on them by its steps."""

import json
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.exchange.bounds import TooMuch
from cutthrough.exchange.documents import (
    MOST_DEPTH,
    MOST_VALUES,
    contains,
    read_json,
    remove,
    tidy,
)
from cutthrough.exchange.scan import count_parsed, count_values
from tests.exchange.documents import DOCUMENTS

# Texts that are JSON, or nearly so
TEXTS = st.lists(st.sampled_from(
    ('"', "\\", "[", "]", "{", "}", ",", ":", "1", "a", '"k":', "[],", '"\\""')),
    max_size=40).map("".join)


def values_of(document):
    """Slow and obvious: values and keys."""
    if isinstance(document, dict):
        return 1 + sum(1 + values_of(inner) for inner in document.values())
    return 1 + (sum(map(values_of, document)) if isinstance(document, list) else 0)


def depth_of(document):
    inner = (document.values() if isinstance(document, dict) else
             document if isinstance(document, list) else None)
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(DOCUMENTS)
def test_no_document_has_more_values_or_levels_than_its_text_was_counted_with(one):
    """R63."""
    text = json.dumps(one).encode()
    count = count_values(text, 10_000, 100)
    assert values_of(one) <= count <= 2 * values_of(one) + 1
    assert count_values(text, 10_000, depth_of(one)) == count
    if depth_of(one):
        assert count_values(text, 10_000, depth_of(one) - 1) == -2
    if count > 1:
        assert count_values(text, count - 1, 100) == -1
    assert count_parsed(read_json(text)) >= values_of(one)


@given(TEXTS)
def test_a_text_that_is_parsed_was_counted_whatever_it_is(text):
    """R63: a parser that reads more than was counted would be a way round the bound."""
    data = text.encode()
    count = count_values(data, 10_000, 100)
    try:
        document = json.loads(text, strict=False)
    except ValueError:
        return
    assert values_of(document) <= count


@pytest.mark.parametrize("text", [
    b"[" + b"[]," * MOST_VALUES + b"1]", b"[" + b"1," * MOST_VALUES + b"1]",
    b"{" + b'"":0,' * MOST_VALUES + b'"":0}', b"[" * (1 << 20)])
def test_a_text_of_too_many_values_is_refused_before_it_takes_memory(text):
    """R63. 2 MiB of `[],` had become 60 MiB."""
    tracemalloc.start()
    try:
        with pytest.raises(TooMuch):
            read_json(text)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_document_may_have_the_most_levels():
    deepest = b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    assert depth_of(read_json(deepest)) == MOST_DEPTH
    with pytest.raises(TooMuch, match="deep"):
        read_json(b"[" + deepest + b"]")
    assert read_json(b'["' + b"[," * MOST_VALUES + b'"]')


def is_in(wanted, value):
    """As hoverfly has it, slow and obvious."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(
            key in value and is_in(inner, value[key]) for key, inner in wanted.items())
    if isinstance(wanted, list):
        return isinstance(value, list) and all(
            any(is_in(one, other) for other in value) for one in wanted)
    return json.dumps(wanted) == json.dumps(value)


def is_anywhere(wanted, value):
    inner = (value.values() if isinstance(value, dict) else
             value if isinstance(value, list) else ())
    return is_in(wanted, value) or any(is_anywhere(wanted, one) for one in inner)


@given(DOCUMENTS, DOCUMENTS)
def test_a_part_is_found_as_by_trying_each(document, wanted):
    assert contains(document, wanted) is is_anywhere(wanted, document)
    assert contains([document, wanted], wanted)


def test_a_part_that_takes_too_many_steps_ends_so():
    """R67. Lists of 3 000 lists, in another order, took 4.5 million comparisons."""
    lists = [[number] for number in range(3000)]
    assert contains(lists, lists) and contains([0, *lists], lists)
    begun = time.thread_time()
    with pytest.raises(TooMuch):
        contains(lists, lists[::-1])
    assert time.thread_time() - begun < 2


@given(DOCUMENTS, DOCUMENTS, st.integers(0, 2000))
@settings(deadline=None)
def test_a_search_of_any_form_ends_within_the_steps_of_its_values(one, other, count):
    """R67."""
    begun = time.thread_time()
    for wanted in ([one] * count, [[one, other]] * count):
        document = [[other] * count, {"a": [[other, one]] * count}]
        try:
            contains(document, wanted)
        except TooMuch:
            pass
    assert time.thread_time() - begun < 5


@given(st.lists(st.integers(0, 30), max_size=30), st.sampled_from(
    ("$[::2]", "$[*]", "$[-1]", "$[1:5]", "$..[0]", "$[?@ > 7]", "$")))
def test_what_is_removed_is_what_is_selected(values, path):
    left = list(values)
    remove(left, path)
    wanted = {"$[::2]": values[1::2], "$[*]": [], "$[-1]": values[:-1],
              "$[1:5]": values[:1] + values[5:], "$..[0]": values[1:], "$": values,
              "$[?@ > 7]": [one for one in values if one <= 7]}[path]
    assert left == wanted


def test_values_are_removed_from_a_long_list_in_one_pass():
    """R67: one after the other would move half of the list each time."""
    values = list(range(30_000))
    begun = time.thread_time()
    remove(values, "$[::2]")
    assert values == list(range(1, 30_000, 2))
    assert time.thread_time() - begun < 2


@pytest.mark.parametrize("piece", [
    '\n\\"""', '"', '\\"', '""', '"""', '"\\', '"""\\', "#", "# ", ", ", '"a\n', "\\"])
def test_a_document_of_graphql_is_read_in_one_pass(piece):
    """R63, R66. 50 KB of `\\n\\"\"\"` behind `\"\"\"` took 6 s: the square."""
    for begin in ("", '"""', '"'):
        begun = time.thread_time()
        tidy(begin + piece * ((1 << 20) // len(piece)))
        assert time.thread_time() - begun < 5


@given(st.lists(st.sampled_from(
    ('"a, b"', '"\\", "', '"""a "" , # \\""" b"""', '""', "a", "\n", ",", "#x,\n")),
    max_size=30).map(" ".join))
def test_tidying_twice_changes_nothing_more(text):
    assert tidy(tidy(text)) == tidy(text)
    assert all(one in tidy(text) for one in ('"a, b"', '"\\", "') if one in text)
