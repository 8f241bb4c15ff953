"""Values at paths, found in the octets of JSON, beside a twin that parses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.json_values import MOST_STEPS, Paths, find_values
from cutthrough.exchange.redaction.json_redactor import JsonRedactor, split_path

KEYS = st.sampled_from(["a", "b", "password", "0", "1", "\u20ac", "x y", 'q"'])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(
        allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        KEYS, inner, max_size=4), max_leaves=30)
PATHS = st.lists(st.sampled_from([
    "a", "$.a.b", "$..password", "a.*.b", "*.b", "..a", "$..a.b", "0", "a.1", "*",
    "b..a", "$.b.*.*"]), min_size=1, max_size=4)


def replace(value: Any, path: tuple[str, ...]) -> None:
    """The twin: in place, and only outside of values that stand in already."""
    items = list(value.items()) if isinstance(value, dict) else list(
        enumerate(value)) if isinstance(value, list) else []
    if path[0] == "..":
        replace(value, path[1:])
        for _, inner in items:
            replace(inner, path)
        return
    for key, inner in items:
        if path[0] not in ("*", str(key)):
            continue
        if len(path) == 1:
            value[key] = "[redacted]"
        else:
            replace(inner, path[1:])


def spread(value: Any, *, ascii_only: bool, indent: int | None) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()


@given(DOCUMENTS, PATHS, st.booleans(), st.sampled_from([None, 0, 2]))
def test_the_values_are_those_of_a_parser(
        document: Any, paths: list[str], ascii_only: bool, indent: int | None) -> None:
    """R63, R79."""
    text = spread(document, ascii_only=ascii_only, indent=indent)
    made = JsonRedactor(paths, lambda secret: "[redacted]").redact(text)
    for path in map(split_path, paths):
        replace(document, path)
    assert json.loads(made) == json.loads(json.dumps(document))


@given(DOCUMENTS, st.data())
def test_a_cut_document_is_an_error_or_whole(document: Any, data: Any) -> None:
    """The text behind a cut may have been a secret."""
    text = spread([document], ascii_only=True, indent=None)
    n = data.draw(st.integers(0, len(text) - 1))
    if text[:n].strip():
        with pytest.raises(ValueError):
            find_values(text[:n], Paths((("a",),)), 1000)


@given(st.binary(max_size=60) | st.text('{}[]:,"\\u0 a1', max_size=60).map(str.encode))
def test_any_octets_are_values_or_an_error(octets: bytes) -> None:
    try:
        values = find_values(octets, Paths((("..", "a"), ("*",))), 1000)
    except ValueError:
        return
    ends = [0]
    for begin, end, _ in values:
        assert ends[-1] <= begin < end <= len(octets)
        ends.append(end)


@pytest.mark.parametrize("depth", [100, 1000])
def test_depth_is_no_recursion(depth: int) -> None:
    """R63: 150 levels were a traceback, and 5000 the end of a process."""
    text = b"[" * depth + b'{"a": 1}' + b"]" * depth
    assert [text[begin:end] for begin, end, _ in find_values(
        text, Paths((("..", "a"),)), 10)] == [b"1"]


def test_what_is_too_deep_or_too_much_is_an_error() -> None:
    paths = Paths((("..", "a"),))
    with pytest.raises(ValueError, match="too deep"):
        find_values(b"[" * 2000, paths, 10)
    with pytest.raises(ValueError, match="too many values"):
        find_values(b'{"a": 1}' * 11, paths, 10)
    assert len(find_values(b'{"a": 1}' * 10, paths, 10)) == 10


def test_paths_beyond_the_bits_of_a_mask_are_read_in_turns() -> None:
    paths = [f"k{n}.x" for n in range(MOST_STEPS)]
    with pytest.raises(ValueError):
        Paths(tuple(map(split_path, paths)))
    made = JsonRedactor(paths, lambda secret: "-").redact(
        b'{"k0": {"x": 1}, "k63": {"x": 2}, "y": 3}')
    assert json.loads(made) == {"k0": {"x": "-"}, "k63": {"x": "-"}, "y": 3}
