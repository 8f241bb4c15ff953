"""The reader of typed netstrings: valid ones, refusals, and its bounds."""

import io
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.formats import tnetstring
from cutthrough.exchange.formats.tnetstring import TnetstringError, parse, read_item
from tests.capture.dumps import dump

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-10**17, 10**17) | st.binary(max_size=20)
    | st.text(max_size=20) | st.floats(-1e9, 1e9).map(lambda one: round(one, 6)),
    lambda inner: st.lists(inner, max_size=5)
    | st.dictionaries(st.text(max_size=5), inner, max_size=5), max_leaves=20)


@given(VALUES)
def test_what_a_writer_writes_is_read_again(value):
    data = dump(value)
    assert parse(data) == value
    file = io.BytesIO(data + b"rest")
    assert read_item(file) == value
    assert file.read() == b"rest"


@given(VALUES, st.data())
def test_a_part_of_an_item_is_none(value, draw):
    data = dump(value)
    cut = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises((TnetstringError, EOFError)):
        read_item(io.BytesIO(data[:cut]))


@given(VALUES, st.data())
def test_damage_is_refused_or_harmless(value, draw):
    data = bytearray(dump(value))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        read_item(io.BytesIO(bytes(data)))
    except (TnetstringError, EOFError):
        pass


@given(st.binary(max_size=200))
def test_noise_is_refused_or_harmless(data):
    try:
        parse(data)
    except TnetstringError:
        pass


@pytest.mark.parametrize("data", [
    b"", b"5", b"5:", b":,", b"-1:a,", b"01:a,", b"1 :a,", b"+1:a,", b"1:ab,", b"2:a,",
    b"3:+12#", b"1:x#", b"2: 1#", b"19:9999999999999999999#", b"0:#", b"3:nan^",
    b"3:inf^", b"5:1e999^", b"3:1_0#", b"4:True!", b"1:1!", b"1:x~", b"1:\xff;",
    b"2:ab]", b"4:1:a,}", b"16:1:a,1:1#1:a,1:2#}", b"8:1:1#1:2#}", b"0:?", b"1:a,x",
    b"99999999999:a,"])
def test_what_could_be_understood_in_two_ways_is_refused(data):
    with pytest.raises(TnetstringError):
        parse(data)


def test_depth_is_bounded():
    value = 1
    for _ in range(tnetstring.MOST_DEPTH):
        value = [value]
    assert parse(dump(value)) == value
    with pytest.raises(TnetstringError, match="deep"):
        parse(dump([value]))
    deep = b"0:]"
    for _ in range(5000):
        deep = b"%d:%b]" % (len(deep), deep)
    with pytest.raises(TnetstringError, match="deep"):
        parse(deep)


def test_the_number_of_values_is_bounded(monkeypatch):
    monkeypatch.setattr(tnetstring, "MOST_VALUES", 10)
    assert parse(dump([None] * 9)) == [None] * 9
    with pytest.raises(TnetstringError, match="more than 10 values"):
        parse(dump([None] * 10))


def test_an_item_beyond_the_bound_is_skipped(monkeypatch):
    monkeypatch.setattr(tnetstring, "MOST_BYTES", 100)
    file = io.BytesIO(dump(b"x" * 101) + dump(b"y"))
    assert read_item(file) is None
    assert read_item(file) == b"y"
    with pytest.raises(EOFError):
        read_item(file)


def test_a_length_alone_takes_no_memory():
    tracemalloc.start()
    try:
        with pytest.raises(TnetstringError):
            read_item(io.BytesIO(b"9999999999:"))
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
